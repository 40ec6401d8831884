//! What the agents of one OVNChassis may do: their ServiceAccount, bound to the agents' ClusterRole in one namespace.

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};

use super::{chassis_ref, metadata};
use crate::api::OVNChassis;

/// ClusterRole of the agents; `manifests/` brings it, and a policy that narrows it to the agent's own node.
pub const AGENT_CLUSTER_ROLE: &str = "ovn-chassis-agent";

/// The agents' ServiceAccount.
pub fn agent_service_account(chassis: &OVNChassis) -> ServiceAccount {
    ServiceAccount {
        metadata: metadata(chassis, chassis_ref(chassis).agent_account(), "agent"),
        // The agent's container mounts its token by itself; nobody else gets one.
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

/// Binds it.
pub fn agent_role_binding(chassis: &OVNChassis) -> RoleBinding {
    let chassis_ref = chassis_ref(chassis);
    RoleBinding {
        metadata: metadata(chassis, chassis_ref.agent_account(), "agent"),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".to_owned(),
            kind: "ClusterRole".to_owned(),
            name: AGENT_CLUSTER_ROLE.to_owned(),
        },
        subjects: Some(vec![Subject {
            api_group: None,
            kind: "ServiceAccount".to_owned(),
            name: chassis_ref.agent_account(),
            namespace: Some(chassis_ref.namespace),
        }]),
    }
}
