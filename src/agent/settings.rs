//! Flags and environment of the agent, read once.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::hook::lock::PodUid;
use crate::ovs::rundir::RunDirs;

/// Applies this node's settings to its Open vSwitch database and reports how the node is.
///
/// Watches the one OVNChassisNode of its node, writes through `ovs-vsctl` and only the keys that are its own, and
/// keeps the object's status current. Ends on SIGTERM. Works on with what it knows while the API server is away.
#[derive(Debug, Clone, clap::Args)]
pub struct AgentArgs {
    /// Name of this Node, which is also the name of its OVNChassisNode
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: String,
    /// Namespace of the OVNChassisNode: that of the agent's pod
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE")]
    namespace: String,
    /// Address that other chassis send their tunnel packets to
    #[arg(long, env = "HOST_IP", default_value = "", hide_default_value = true, value_name = "IP")]
    encap_ip: String,
    /// This pod's metadata.uid; without it the agent acts at once and knows no other pod
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pod_uid: Option<PodUid>,
    /// Sockets and pid files of Open vSwitch
    #[arg(long, env = "OVS_RUNDIR", default_value = "/run/openvswitch", value_name = "DIR")]
    ovs_rundir: PathBuf,
    /// Socket and pid file of ovn-controller
    #[arg(long, env = "OVN_RUNDIR", default_value = "/run/ovn", value_name = "DIR")]
    ovn_rundir: PathBuf,
    /// Folder of conf.db and system-id.conf; without it no system-id.conf is read
    #[arg(long, env = "OVS_DBDIR", value_name = "DIR")]
    db_dir: Option<PathBuf>,
    /// Claims, locks and grants of this node
    #[arg(long, env = "OVN_CHASSIS_RUN_DIR", default_value = "/run/ovn-chassis", value_name = "DIR")]
    run_dir: PathBuf,
    /// Where /healthz, /readyz and /metrics are served once this pod is the active one
    #[arg(long, env = "OVN_CHASSIS_AGENT_METRICS_ADDR", default_value = "0.0.0.0:9478", value_name = "IP:PORT")]
    metrics_addr: SocketAddr,
}

/// What the agent works with.
#[derive(Debug, Clone)]
pub struct Settings {
    pub node_name: String,
    pub namespace: String,
    pub encap_ip: String,
    pub pod: Option<PodUid>,
    pub dirs: RunDirs,
    pub system_id_file: Option<PathBuf>,
    pub run_dir: PathBuf,
    pub metrics: SocketAddr,
}

impl From<AgentArgs> for Settings {
    fn from(args: AgentArgs) -> Self {
        let database = args.db_dir.clone().unwrap_or_else(|| PathBuf::from("/etc/openvswitch"));
        let dirs = RunDirs { ovs: args.ovs_rundir, ovn: args.ovn_rundir, database };
        Self {
            node_name: args.node_name,
            namespace: args.namespace,
            encap_ip: args.encap_ip,
            pod: args.pod_uid,
            system_id_file: args.db_dir.map(|_| dirs.system_id_conf()),
            dirs,
            run_dir: args.run_dir,
            metrics: args.metrics_addr,
        }
    }
}
