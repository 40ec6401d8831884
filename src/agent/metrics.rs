//! What the agent counts.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::decide::Report;
use crate::ops::Metrics;

/// How something ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum Outcome {
    Done,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabel {
    condition: &'static str,
}

/// The agent's own metrics. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct AgentMetrics {
    writes: Family<OutcomeLabel, Counter>,
    reports: Family<OutcomeLabel, Counter>,
    repairs: Counter,
    conditions: Family<ConditionLabel, Gauge>,
}

impl AgentMetrics {
    /// Adds them to what the process shows.
    pub fn register(metrics: &Metrics) -> Self {
        let own = Self::default();
        metrics.register(|registry| {
            let mut add = |name: &str, help: &str, family: &Family<OutcomeLabel, Counter>| {
                registry.register(name, help, family.clone());
            };
            add("agent_database_writes", "Changes of the local database", &own.writes);
            add("agent_status_reports", "Writes of the OVNChassisNode's status", &own.reports);
            registry.register("agent_repairs", "Settings set back after a change on the node", own.repairs.clone());
            registry.register("agent_condition", "1 when the condition is true", own.conditions.clone());
        });
        own
    }

    pub fn wrote(&self, outcome: Outcome) {
        self.writes.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    pub fn reported(&self, outcome: Outcome) {
        self.reports.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    pub fn repaired(&self) {
        self.repairs.inc();
    }

    /// Shows the conditions of a report.
    pub fn show(&self, report: &Report) {
        for condition in &report.conditions {
            let label = ConditionLabel { condition: condition.type_ };
            self.conditions.get_or_create(&label).set(i64::from(condition.status));
        }
    }
}
