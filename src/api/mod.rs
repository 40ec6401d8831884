//! The Kubernetes kinds that users, agents and the controller meet. Doc comments here are what `kubectl explain` shows.

mod central;
mod chassis;
mod chassis_node;

pub use central::{CentralCondition, CentralDatabase, OVNCentral, OVNCentralSpec, OVNCentralStatus};
pub use chassis::{
    BridgeMapping, CentralEndpoints, CentralRef, DaemonResources, DatapathType, DeletionPolicy, DepartedNode,
    DrainPolicy, EncapType, GatewayRole, ImageRef, LastGateway, NodePhase, NodeRecord, OVNChassis, OVNChassisSpec,
    OVNChassisStatus, UpdateStrategy, UpdateStrategyType,
};
pub use chassis_node::{
    DrainReport, Handover, NodeVersions, OVNChassisNode, OVNChassisNodeSpec, OVNChassisNodeStatus, ObservedSettings,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;

/// Our CustomResourceDefinitions, in the order in which they are printed.
pub fn crds() -> [CustomResourceDefinition; 2] {
    [OVNChassis::crd(), OVNChassisNode::crd()].map(without_nullable)
}

/// An explicit null counts as left out (the API server prunes it), so that rules with `has()` see one case, not two.
fn without_nullable(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
            clear_nullable(schema);
        }
    }
    crd
}

fn clear_nullable(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    for child in schema.properties.iter_mut().flat_map(|p| p.values_mut()) {
        clear_nullable(child);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(item)) => clear_nullable(item),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => items.iter_mut().for_each(clear_nullable),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        clear_nullable(value);
    }
}

/// `skip_serializing_if` for booleans: false is left out, so that a jsonpath prints an empty string.
pub(crate) fn is_false(value: &bool) -> bool {
    !*value
}
