//! Names of the objects that belong to an OVNChassis, and the labels and annotations they carry.

use std::fmt;

use super::hash::hash8;
use super::ids::NodeName;

/// API group of our kinds.
pub const GROUP: &str = "ovn.openstack.c5c3.io";

/// On a Node: which OVNChassis owns it. Both DaemonSets select on it, so a node has at most one pod of each.
pub const OWNER_LABEL: &str = "ovn.openstack.c5c3.io/chassis-owner";
/// On a Node: `namespace/name` of the OVNChassis that owns it, for people.
pub const OWNER_ANNOTATION: &str = "ovn.openstack.c5c3.io/owner";
/// On a Node: the system-id recorded for it, so that it survives the loss of every other record.
pub const SYSTEM_ID_ANNOTATION: &str = "ovn.openstack.c5c3.io/system-id";
/// On a Job: the full name of the node whose hash is in the Job's name.
pub const NODE_ANNOTATION: &str = "ovn.openstack.c5c3.io/node";
/// On a Job: the generation of the OVNChassisNode whose change asked for it.
pub const TRANSITION_ANNOTATION: &str = "ovn.openstack.c5c3.io/transition";
/// On an evacuation's Job: the ports that it leaves without any gateway, written before anything is taken away.
pub const PORTS_ANNOTATION: &str = "ovn.openstack.c5c3.io/ports-without-gateway";
/// On a pod of the DaemonSets: its daemons hold the locks that a standby waits for, by these rules.
pub const HAND_OVER_ANNOTATION: &str = "ovn.openstack.c5c3.io/hand-over";
/// The rules that this version goes by. Another number here makes the next roll stop the old pods first.
pub const HAND_OVER: &str = "1";
/// On an OVNChassis: held until our labels and objects are gone.
pub const FINALIZER: &str = "ovn.openstack.c5c3.io/ovn-chassis";
/// `spec.managedBy` of our Jobs: Kubernetes' own Job controller leaves them alone.
pub const JOB_MANAGED_BY: &str = "ovn.openstack.c5c3.io/ovn-chassis";
/// Field manager of the agent's server-side applies.
pub const AGENT_FIELD_MANAGER: &str = "ovn-chassis-agent";
/// Field manager of the controller's server-side applies.
pub const CONTROLLER_FIELD_MANAGER: &str = "ovn-chassis-controller";

/// `app.kubernetes.io/name` of everything we create.
pub const APP_NAME: &str = "ovn-chassis";
pub const NAME_LABEL: &str = "app.kubernetes.io/name";
pub const INSTANCE_LABEL: &str = "app.kubernetes.io/instance";
pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// `app.kubernetes.io/managed-by` of everything the controller creates.
pub const MANAGED_BY: &str = "ovn-chassis-controller";
/// `app.kubernetes.io/component` of the pods of the two DaemonSets.
pub const COMPONENT_OVS: &str = "ovs";
pub const COMPONENT_OVN_CONTROLLER: &str = "ovn-controller";

/// Where an OVNChassis lives.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChassisRef {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for ChassisRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl ChassisRef {
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// Value of [`OWNER_LABEL`]: 42 characters of name, a dash and eight digits fit the 63 of a label value.
    pub fn owner_label_value(&self) -> String {
        format!("{}-{}", self.name, hash8(&self.to_string()))
    }

    /// The ConfigMap that shows every node's settings.
    pub fn nodes_config_map(&self) -> String {
        format!("{}-nodes", self.name)
    }

    pub fn ovs_daemon_set(&self) -> String {
        format!("{}-ovs", self.name)
    }

    pub fn ovn_controller_daemon_set(&self) -> String {
        format!("{}-ovn-controller", self.name)
    }

    /// ServiceAccount and RoleBinding of the agents.
    pub fn agent_account(&self) -> String {
        format!("{}-agent", self.name)
    }

    /// The Job of one kind for one node.
    pub fn job(&self, kind: JobKind, node: &NodeName) -> String {
        format!("{}-{kind}-{}", self.name, hash8(node.as_str()))
    }
}

/// The three pieces of work that have a Job as their handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKind {
    Apply,
    Evacuate,
    ChassisDel,
}

impl JobKind {
    pub const ALL: [JobKind; 3] = [JobKind::Apply, JobKind::Evacuate, JobKind::ChassisDel];

    pub fn as_str(self) -> &'static str {
        match self {
            JobKind::Apply => "apply",
            JobKind::Evacuate => "evacuate",
            JobKind::ChassisDel => "chassis-del",
        }
    }
}

impl fmt::Display for JobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field14_every_name_fits_with_the_longest_chassis_and_node_names() {
        let chassis = ChassisRef::new("n".repeat(63), "c".repeat(42));
        let node = NodeName::new(format!("{}.{}", "a".repeat(100), "b".repeat(152)));
        for kind in JobKind::ALL {
            assert!(chassis.job(kind, &node).len() <= 63, "{kind}");
        }
        assert!(chassis.owner_label_value().len() <= 63);
        assert!(chassis.ovn_controller_daemon_set().len() <= 63);
    }

    #[test]
    fn same_name_in_two_namespaces_gives_two_owner_labels() {
        assert_ne!(ChassisRef::new("a", "x").owner_label_value(), ChassisRef::new("b", "x").owner_label_value());
    }
}
