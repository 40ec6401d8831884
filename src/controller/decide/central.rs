//! Where the databases are, and with which certificate: from an OVNCentral or from the OVNChassis itself.

use super::view::Problem;
use crate::api::{OVNCentral, OVNChassis};
use crate::ovsdb::Endpoints;

/// Addresses, as they are dialled.
#[derive(Clone, Debug, PartialEq)]
pub struct Central {
    pub northbound: Endpoints,
    pub southbound: Endpoints,
    /// What nodes get as `ovn-remote`.
    pub ovn_remote: String,
    /// Secret with the controller's certificate.
    pub client_secret: Option<String>,
    /// Secret with the nodes' certificate.
    pub node_secret: Option<String>,
}

fn problem(reason: &'static str, message: String) -> Problem {
    Problem { reason, message }
}

/// Reads the addresses; every way in which they can be missing is told apart.
pub fn resolve(chassis: &OVNChassis, central: Option<&OVNCentral>) -> Result<Central, Problem> {
    let own_secret = chassis.spec.node_client_secret_name.clone();
    if let Some(inline) = &chassis.spec.central {
        let secret = inline.client_secret_name.clone();
        return Ok(Central {
            northbound: endpoints("spec.central.northbound", &inline.northbound)?,
            southbound: endpoints("spec.central.southbound", &inline.southbound)?,
            ovn_remote: inline.southbound.clone(),
            node_secret: own_secret.or_else(|| secret.clone()).filter(|_| inline.southbound.contains("ssl:")),
            client_secret: secret,
        });
    }
    let Some(name) = chassis.spec.central_ref.as_ref().map(|r| r.name.as_str()) else {
        let message = "set exactly one of spec.centralRef and spec.central".to_owned();
        return Err(problem("CentralNotNamed", message));
    };
    let Some(central) = central else {
        let message = format!(
            "OVNCentral {name} does not exist in the namespace of this OVNChassis: create it (or install its \
             CustomResourceDefinition), or use spec.central with addresses"
        );
        return Err(problem("CentralNotFound", message));
    };
    let status = central.status.clone().unwrap_or_default();
    let ready = status.conditions.iter().find(|c| c.type_ == "Ready");
    match ready {
        Some(condition) if condition.status == "True" => {}
        Some(condition) => {
            let message = format!(
                "OVNCentral {name} is not Ready ({}: {}): look at its own conditions",
                condition.reason, condition.message
            );
            return Err(problem("CentralNotReady", message));
        }
        None => {
            let message = format!("OVNCentral {name} has no condition Ready yet: its operator has not reported");
            return Err(problem("CentralNotReady", message));
        }
    }
    let field = |path: &str, value: Option<String>| {
        value.filter(|v| !v.is_empty()).ok_or_else(|| {
            let message = format!("OVNCentral {name} has no {path}: its operator has to publish it");
            problem("CentralWithoutAddresses", message)
        })
    };
    let northbound =
        field("status.northbound.internalDbAddress", status.northbound.and_then(|d| d.internal_db_address))?;
    let southbound_status = status.southbound.unwrap_or_default();
    let southbound = field("status.southbound.internalDbAddress", southbound_status.internal_db_address)?;
    let ovn_remote = match status.relay_address.filter(|a| !a.is_empty()) {
        Some(relay) => relay,
        None => field("status.southbound.dbAddress", southbound_status.db_address)?,
    };
    let of = |path: &str| format!("{path} of OVNCentral {name}");
    endpoints(&of("status.relayAddress or status.southbound.dbAddress"), &ovn_remote)?;
    let uses_tls = [&northbound, &southbound, &ovn_remote].iter().any(|a| a.contains("ssl:"));
    let secret = status.client_secret_name.filter(|s| !s.is_empty());
    if uses_tls && secret.is_none() {
        let message = format!("OVNCentral {name} has ssl: addresses and no status.clientSecretName");
        return Err(problem("CentralWithoutAddresses", message));
    }
    Ok(Central {
        northbound: endpoints(&of("status.northbound.internalDbAddress"), &northbound)?,
        southbound: endpoints(&of("status.southbound.internalDbAddress"), &southbound)?,
        node_secret: own_secret.or_else(|| secret.clone()).filter(|_| ovn_remote.contains("ssl:")),
        ovn_remote,
        client_secret: secret.filter(|_| uses_tls),
    })
}

fn endpoints(field: &str, text: &str) -> Result<Endpoints, Problem> {
    text.parse().map_err(|error| problem("AddressInvalid", format!("{field} is {text:?}: {error}")))
}

/// What was found of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretState {
    /// Not read yet.
    Unknown,
    Missing,
    /// These keys are missing from it.
    Incomplete(Vec<&'static str>),
    /// It holds everything, and a client cannot be made of it.
    Unusable(String),
    Usable,
    /// It may not be read.
    Refused(String),
}

/// What a Secret's state means.
pub fn check_secret(name: &str, state: &SecretState) -> Result<(), Problem> {
    match state {
        SecretState::Usable => Ok(()),
        SecretState::Unknown => Err(problem("SecretNotRead", format!("Secret {name} has not been read yet"))),
        SecretState::Missing => Err(problem(
            "SecretNotFound",
            format!("Secret {name} does not exist: create it with tls.crt, tls.key and ca.crt"),
        )),
        SecretState::Incomplete(keys) => {
            Err(problem("SecretIncomplete", format!("Secret {name} lacks {}: add what is missing", keys.join(", "))))
        }
        SecretState::Unusable(why) => Err(problem("CertificateNotUsable", format!("Secret {name}: {why}"))),
        SecretState::Refused(why) => Err(problem(
            "SecretNotReadable",
            format!("Secret {name} cannot be read: {why}; grant it to the controller"),
        )),
    }
}
