//! The part of an OVNCentral that we read. The kind is another operator's; nothing here is ever written.

use kube::CustomResource;
use serde::{Deserialize, Serialize};

/// Of the specification we need nothing.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "ovn.openstack.c5c3.io",
    version = "v1alpha1",
    kind = "OVNCentral",
    plural = "ovncentrals",
    namespaced,
    schema = "disabled",
    status = "OVNCentralStatus",
    derive = "PartialEq"
)]
pub struct OVNCentralSpec {}

/// Where the databases answer, and with which client certificate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OVNCentralStatus {
    pub conditions: Vec<CentralCondition>,
    pub northbound: Option<CentralDatabase>,
    pub southbound: Option<CentralDatabase>,
    /// When set, the whole `ovn-remote` of the nodes: OVSDB clients shuffle a list.
    pub relay_address: Option<String>,
    /// Secret with `tls.crt`, `tls.key` and `ca.crt`.
    pub client_secret_name: Option<String>,
}

/// Addresses of one database, comma-separated `ssl:IP:PORT`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CentralDatabase {
    /// Inside the cluster: the controller dials these.
    pub internal_db_address: Option<String>,
    /// Outside: nodes on the host network dial the Southbound's.
    pub db_address: Option<String>,
}

/// A condition as other operators write it; absent fields are tolerated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CentralCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}
