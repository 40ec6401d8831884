//! The agent ends the pause of `ovs-vswitchd`'s revalidators, by what it sees of the flows.
use std::time::Duration;

use crate::harness::daemon::{Daemon, Program};
use crate::harness::until;
use crate::harness::world::SOON;
use crate::stage::{NODE, Stage};

const RESTARTS: usize = 5;

fn hook(stage: &Stage, name: &str, program: Program, uid: &str) -> Program {
    let node = stage.world.node(NODE);
    program
        .args([env!("CARGO_BIN_EXE_ovn-chassis"), "hook", "start", name, "--"])
        .env("POD_UID", uid)
        .env("OVS_RUNDIR", node.ovs_rundir.display().to_string())
        .env("OVN_RUNDIR", node.ovn_rundir.display().to_string())
        .env("OVS_DBDIR", node.folder.display().to_string())
        .env("OVN_CHASSIS_RUN_DIR", node.run_dir.display().to_string())
}

/// How long each pause lasted that ended because the flows were in.
fn pauses(datapath: &Daemon) -> Vec<f64> {
    let log = datapath.log();
    let ends = log.split("revalidators run again (NotAwaited), paused for ").skip(1);
    ends.filter_map(|end| end.split_once(" s")?.0.parse().ok()).collect()
}

#[test]
fn the_revalidators_run_again_as_soon_as_the_flows_of_a_restarted_ovn_controller_are_in() {
    let stage = Stage::applied("agent-pause");
    let node = stage.world.node(NODE);
    let uid = std::fs::read_to_string(node.run_dir.join("ovs.claim")).unwrap().trim().to_owned();
    // Process 1 of a pid namespace, as in a container: no other entrypoint pauses anything.
    let unshare = Program::new("ovs-vswitchd-hook", "unshare", &node.folder);
    let unshare = unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    let datapath = hook(&stage, "ovs-vswitchd", unshare, &uid).args(["--enable-dummy=system", "--disable-system"]);
    let datapath = datapath.start();
    let controller = || {
        let outer = Program::new("ovn-controller-hook", "env", &node.folder);
        hook(&stage, "ovn-controller", outer, "pod-ovn").args(stage.world.central.client.ovs_arguments()).start()
    };
    let over = || std::fs::read_to_string(node.run_dir.join("ovn-controller.hand-over")).unwrap_or("?".into());
    let mut running = controller();
    until("the first start is over", SOON, || if over().is_empty() { Ok(()) } else { Err(datapath.log_tail(5)) });
    let first = pauses(&datapath).len();
    for restart in 1..=RESTARTS {
        running.terminate(Duration::from_secs(15));
        running = controller();
        until("the flows are in", SOON, || {
            if pauses(&datapath).len() == first + restart { Ok(()) } else { Err(datapath.log_tail(5)) }
        });
    }
    let seconds = pauses(&datapath);
    println!("paused for {:?} s", &seconds[first..]);
    // The tables have to stand still for 1.2 s, however full they are at once.
    assert!(seconds[first..].iter().all(|pause| *pause >= 1.2), "{seconds:?}");
    assert!(!datapath.log().contains("the watchdog resumed them"), "{}", datapath.log());
}
