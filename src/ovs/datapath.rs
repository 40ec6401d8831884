//! What a warm restart asks of Open vSwitch: `flow-restore-wait`, and the flows of a bridge.

use std::time::Duration;

use super::run::{Invocation, OUTPUT_LIMIT, RunError, run};
use super::rundir::RunDirs;

/// The bridge that `ovn-controller` programs.
pub const INTEGRATION_BRIDGE: &str = "br-int";

/// A local question; a daemon that needs longer is not well.
const QUESTION: Duration = Duration::from_secs(3);
/// How long a change of the flag may take to be taken up by `ovs-vswitchd`.
const TAKEN_UP_WITHIN_SECONDS: u64 = 5;
/// A hundred thousand flows take a while to print.
const FLOW_DUMP: Duration = Duration::from_secs(5);

/// The flows of a bridge at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowTable {
    /// How many.
    pub count: u64,
    /// The age of the oldest one among the first few thousand.
    pub oldest: Duration,
}

fn vsctl(dirs: &RunDirs, seconds: u64) -> Invocation {
    Invocation::new("ovs-vsctl", Duration::from_secs(seconds + 2))
        .ovs_rundir(&dirs.ovs)
        .arg(format!("--db={}", dirs.db_remote()))
        .arg(format!("--timeout={seconds}"))
}

fn ofctl(dirs: &RunDirs, command: &str, deadline: Duration) -> Invocation {
    Invocation::new("ovs-ofctl", deadline).ovs_rundir(&dirs.ovs).args([command, INTEGRATION_BRIDGE])
}

/// True when the database has the integration bridge, and with the kernel's datapath: then there may be kernel flows
/// worth keeping.
pub async fn has_kernel_bridge(dirs: &RunDirs) -> Result<bool, RunError> {
    let call = vsctl(dirs, QUESTION.as_secs())
        .args(["--no-wait", "--format=csv", "--no-headings", "--columns=name,datapath_type", "find", "Bridge"])
        .arg(format!("name={INTEGRATION_BRIDGE}"));
    let answer = run(&call).await?;
    Ok(answer.lines().any(|line| !line.trim().is_empty() && !line.trim().ends_with(",netdev")))
}

/// Sets the flag, for a `ovs-vswitchd` that is not there yet.
pub async fn set_flow_restore_wait(dirs: &RunDirs) -> Result<(), RunError> {
    let call = vsctl(dirs, TAKEN_UP_WITHIN_SECONDS).args([
        "--no-wait",
        "set",
        "Open_vSwitch",
        ".",
        "other_config:flow-restore-wait=true",
    ]);
    run(&call).await.map(|_| ())
}

/// Takes the flag away. With `wait`, returns when `ovs-vswitchd` has taken it up. Taking away what is not there
/// changes nothing.
pub async fn remove_flow_restore_wait(dirs: &RunDirs, wait: bool) -> Result<(), RunError> {
    let mut call = vsctl(dirs, TAKEN_UP_WITHIN_SECONDS);
    if !wait {
        call = call.arg("--no-wait");
    }
    run(&call.args(["remove", "Open_vSwitch", ".", "other_config", "flow-restore-wait"])).await.map(|_| ())
}

/// How many flows the integration bridge has.
async fn count_flows(dirs: &RunDirs) -> Result<u64, RunError> {
    Ok(parse_count(&run(&ofctl(dirs, "dump-aggregate", QUESTION)).await?).unwrap_or_default())
}

/// The flows of the integration bridge: counted, and the age of the oldest.
pub async fn look_at_flows(dirs: &RunDirs) -> Result<FlowTable, RunError> {
    let dump = run(&ofctl(dirs, "dump-flows", FLOW_DUMP)).await?;
    // The answer is cut off after a megabyte, some five thousand flows: a sample that is old enough to tell the
    // tables of one `ovn-controller` from those of the next. A shorter one is whole, and needs no second process.
    let count = if is_whole(&dump) { listed_flows(&dump) } else { count_flows(dirs).await? };
    Ok(FlowTable { count, oldest: parse_oldest(&dump) })
}

fn is_whole(dump: &str) -> bool {
    u64::try_from(dump.len()).is_ok_and(|size| size < OUTPUT_LIMIT)
}

fn listed_flows(dump: &str) -> u64 {
    dump.matches("duration=").count().try_into().unwrap_or(u64::MAX)
}

fn parse_count(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("flow_count=")?;
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
}

fn parse_oldest(text: &str) -> Duration {
    let ages = text.split("duration=").skip(1).filter_map(|rest| {
        let (seconds, _) = rest.split_once('s')?;
        Duration::try_from_secs_f64(seconds.parse().ok()?).ok()
    });
    ages.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_ages_are_read_from_either_protocols_answer() {
        let old = "NXST_AGGREGATE reply (xid=0x4): packet_count=0 byte_count=0 flow_count=17\n";
        let new = "OFPST_AGGREGATE reply (OF1.3) (xid=0x2): packet_count=9 byte_count=90 flow_count=0";
        assert_eq!((parse_count(old), parse_count(new), parse_count("no")), (Some(17), Some(0), None));
        let dump = "NXST_FLOW reply (xid=0x4):\n cookie=0x1, duration=2.5s, table=0, n_packets=1 actions=drop\n \
                    cookie=0x2, duration=1234.007s, table=8, n_packets=0, priority=5 actions=resubmit(,9)\n";
        assert_eq!(parse_oldest(dump), Duration::from_millis(1_234_007));
        assert_eq!((parse_oldest(""), listed_flows("")), (Duration::ZERO, 0));
        assert_eq!(listed_flows(dump), 2);
        assert!(is_whole(dump) && !is_whole(&" ".repeat(1 << 20)));
    }

    #[test]
    fn only_the_release_waits_for_vswitchd() {
        let dirs = RunDirs { ovs: "/r".into(), ovn: "/n".into(), database: "/d".into() };
        assert!(!vsctl(&dirs, 5).words().contains(&"--no-wait".to_owned()));
        assert_eq!(ofctl(&dirs, "dump-flows", QUESTION).words(), ["ovs-ofctl", "dump-flows", "br-int"]);
    }
}
