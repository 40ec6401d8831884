//! The three daemons: which claim they run under, which programs they need, where they answer, how they are started
//! and ended.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::ovs::appctl::{ovn_appctl, ovs_appctl};
use crate::ovs::run::Invocation;
use crate::ovs::rundir::{RunDirs, numbered_socket};

/// A daemon of the chassis. The names are those of the programs, of the containers and of the lock files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Daemon {
    /// The local database.
    OvsdbServer,
    /// The datapath.
    OvsVswitchd,
    /// The chassis' link to the Southbound database.
    OvnController,
}

/// A set of daemons that lives in one pod and changes hands as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimName {
    /// `ovsdb-server` and `ovs-vswitchd`.
    Ovs,
    /// `ovn-controller`.
    OvnController,
}

impl ClaimName {
    /// The file name's first part.
    pub fn as_str(self) -> &'static str {
        match self {
            ClaimName::Ovs => "ovs",
            ClaimName::OvnController => "ovn-controller",
        }
    }

    /// The daemons beneath this claim.
    pub fn daemons(self) -> &'static [Daemon] {
        match self {
            ClaimName::Ovs => &[Daemon::OvsdbServer, Daemon::OvsVswitchd],
            ClaimName::OvnController => &[Daemon::OvnController],
        }
    }
}

impl std::fmt::Display for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.program())
    }
}

impl Daemon {
    /// The program, which is also the daemon's name everywhere else.
    pub fn program(self) -> &'static str {
        match self {
            Daemon::OvsdbServer => "ovsdb-server",
            Daemon::OvsVswitchd => "ovs-vswitchd",
            Daemon::OvnController => "ovn-controller",
        }
    }

    /// The claim it runs under.
    pub fn claim(self) -> ClaimName {
        match self {
            Daemon::OvsdbServer | Daemon::OvsVswitchd => ClaimName::Ovs,
            Daemon::OvnController => ClaimName::OvnController,
        }
    }

    /// The programs that have to work before this daemon's container may take over from another one.
    pub fn programs(self) -> &'static [&'static str] {
        match self {
            Daemon::OvsdbServer => &["ovsdb-server", "ovsdb-tool", "ovs-appctl"],
            Daemon::OvsVswitchd => &["ovs-vswitchd", "ovs-vsctl", "ovs-appctl"],
            Daemon::OvnController => &["ovn-controller", "ovs-vsctl", "ovn-appctl"],
        }
    }

    /// The folder with its socket and pid file.
    pub fn folder(self, dirs: &RunDirs) -> &Path {
        match self {
            Daemon::OvsdbServer | Daemon::OvsVswitchd => &dirs.ovs,
            Daemon::OvnController => &dirs.ovn,
        }
    }

    /// Its pid file.
    pub fn pid_file(self, dirs: &RunDirs) -> PathBuf {
        self.folder(dirs).join(format!("{self}.pid"))
    }

    /// The control socket under the name that the daemon is asked to use.
    pub fn plain_socket(self, dirs: &RunDirs) -> PathBuf {
        self.folder(dirs).join(format!("{self}.ctl"))
    }

    /// The control socket to talk to now: the plain name, or the one with the process id that an older
    /// `ovn-controller` chooses.
    pub fn control_socket(self, dirs: &RunDirs) -> PathBuf {
        let plain = self.plain_socket(dirs);
        if plain.exists() {
            return plain;
        }
        numbered_socket(self.folder(dirs), self.program()).unwrap_or(plain)
    }

    /// The call that ends it the gentle way: the kernel's flows stay, and so does the Chassis row. Never `--cleanup`,
    /// never a plain `exit` of
    /// `ovn-controller`: either one takes the node off the network until the successor is up.
    pub fn exit_call(self, dirs: &RunDirs, deadline: Duration) -> Invocation {
        let socket = self.control_socket(dirs);
        match self {
            Daemon::OvsdbServer | Daemon::OvsVswitchd => ovs_appctl(&socket, &["exit"], deadline).ovs_rundir(&dirs.ovs),
            Daemon::OvnController => {
                ovn_appctl(&socket, &["exit", "--restart"], deadline).ovs_rundir(&dirs.ovs).env("OVN_RUNDIR", &dirs.ovn)
            }
        }
    }

    /// The arguments it is started with, in the foreground and logging to the console. `own_socket` says whether the
    /// program can be told where its control socket goes; `tls` is the folder with the certificate, when there is
    /// one.
    pub fn arguments(self, dirs: &RunDirs, own_socket: bool, tls: Option<&Path>) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut option = |name: &str, value: &Path| {
            let mut argument = OsString::from(name);
            argument.push(value);
            arguments.push(argument);
        };
        option("--pidfile=", &self.pid_file(dirs));
        if own_socket {
            option("--unixctl=", &self.plain_socket(dirs));
        }
        if let (Daemon::OvnController, Some(folder)) = (self, tls) {
            option("--private-key=", &folder.join("tls.key"));
            option("--certificate=", &folder.join("tls.crt"));
            option("--ca-cert=", &folder.join("ca.crt"));
        }
        arguments.extend(["-vconsole:info", "-vsyslog:off", "-vfile:off"].map(OsString::from));
        match self {
            Daemon::OvsdbServer => {
                // The `db:` ones keep what a person set with `ovs-vsctl set-manager` and `set-ssl` alive.
                arguments.push(format!("--remote=p{}", dirs.db_remote()).into());
                arguments.extend(
                    [
                        "--remote=db:Open_vSwitch,Open_vSwitch,manager_options",
                        "--private-key=db:Open_vSwitch,SSL,private_key",
                        "--certificate=db:Open_vSwitch,SSL,certificate",
                        "--bootstrap-ca-cert=db:Open_vSwitch,SSL,ca_cert",
                    ]
                    .map(OsString::from),
                );
                arguments.push(dirs.conf_db().into());
            }
            Daemon::OvsVswitchd | Daemon::OvnController => arguments.push(dirs.db_remote().into()),
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dirs() -> RunDirs {
        RunDirs { ovs: "/r".into(), ovn: "/n".into(), database: "/d".into() }
    }

    #[test]
    fn the_exit_calls_are_the_gentle_ones() {
        let words = |daemon: Daemon| daemon.exit_call(&dirs(), Duration::from_secs(1)).words().join(" ");
        assert_eq!(words(Daemon::OvsdbServer), "ovs-appctl -t /r/ovsdb-server.ctl exit");
        assert_eq!(words(Daemon::OvsVswitchd), "ovs-appctl -t /r/ovs-vswitchd.ctl exit");
        assert_eq!(words(Daemon::OvnController), "ovn-appctl -t /n/ovn-controller.ctl exit --restart");
    }

    #[test]
    fn only_ovn_controller_gets_the_certificate() {
        let tls = Some(Path::new("/t"));
        let has = |daemon: Daemon| {
            daemon
                .arguments(&dirs(), true, tls)
                .iter()
                .any(|word| word.to_string_lossy().starts_with("--private-key=/t"))
        };
        assert!(has(Daemon::OvnController));
        assert!(!has(Daemon::OvsVswitchd) && !has(Daemon::OvsdbServer));
    }

    #[test]
    fn an_old_ovn_controller_is_not_told_where_its_socket_goes() {
        let words = |own: bool| {
            Daemon::OvnController
                .arguments(&dirs(), own, None)
                .iter()
                .map(|w| w.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
        };
        assert!(words(true).contains(&"--unixctl=/n/ovn-controller.ctl".to_owned()));
        assert!(!words(false).iter().any(|word| word.starts_with("--unixctl")));
    }

    #[test]
    fn each_daemon_belongs_to_the_claim_that_lists_it() {
        for daemon in [Daemon::OvsdbServer, Daemon::OvsVswitchd, Daemon::OvnController] {
            assert!(daemon.claim().daemons().contains(&daemon));
        }
    }
}
