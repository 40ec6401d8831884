//! What `/metrics` shows of the controller.

use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::decide::Reason;
use super::world::World;
use crate::ops::Metrics;

/// A reason of a node's entry: a closed set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
enum Watched {
    Node,
    Chassis,
    ChassisNode,
    Job,
    Pod,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: Watched,
}

/// Gauges that are set from the caches.
#[derive(Clone, Debug, Default)]
pub struct ControllerMetrics {
    leading: Gauge,
    workers: Gauge,
    nodes: Family<ReasonLabel, Gauge<i64, AtomicI64>>,
    objects: Family<KindLabel, Gauge<i64, AtomicI64>>,
}

impl ControllerMetrics {
    pub fn register(metrics: &Metrics) -> Self {
        let this = Self::default();
        metrics.register(|registry| {
            registry.register("controller_leading", "1 while this process leads", this.leading.clone());
            registry.register(
                "controller_workers",
                "Workers, one for each node and a few for each OVNChassis",
                this.workers.clone(),
            );
            registry.register("controller_nodes", "Nodes by the reason of their entry", this.nodes.clone());
            registry.register("controller_objects", "Watched objects by kind", this.objects.clone());
        });
        this
    }

    /// Sets all gauges.
    pub fn set(&self, world: &World) {
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        self.leading.set(i64::from(world.claim.is_held()));
        self.workers.set(number(world.wake.workers()));
        let chassis = world.chassis.all();
        for reason in Reason::ALL {
            let entries = chassis.iter().flat_map(|c| c.status.iter().flat_map(|s| &s.nodes));
            let with = entries.filter(|n| n.reason.as_deref() == Some(reason.as_str())).count();
            self.nodes.get_or_create(&ReasonLabel { reason: reason.as_str() }).set(number(with));
        }
        for (kind, count) in [
            (Watched::Node, world.nodes.all().len()),
            (Watched::Chassis, chassis.len()),
            (Watched::ChassisNode, world.chassis_nodes.all().len()),
            (Watched::Job, world.jobs.all().len()),
            (Watched::Pod, world.pods.all().len()),
        ] {
            self.objects.get_or_create(&KindLabel { kind }).set(number(count));
        }
    }
}
