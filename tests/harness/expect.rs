//! What a test reads from its world and waits for.

use serde_json::{Value, json};

use super::kube_api::{self, JOB, OVN_CHASSIS, OVN_CHASSIS_NODE};
use super::until;
use super::world::{SOON, World, hash8, job_has, record_in};

impl World {
    pub fn chassis_object(&self) -> Value {
        self.kube.get(OVN_CHASSIS, &self.namespace, &self.chassis).unwrap_or(Value::Null)
    }

    pub fn chassis_node(&self, node: &str) -> Option<Value> {
        self.kube.get(OVN_CHASSIS_NODE, &self.namespace, node)
    }

    /// The node's entry in `status.nodes`.
    pub fn record(&self, node: &str) -> Option<Value> {
        record_in(&self.chassis_object(), node).cloned()
    }

    pub fn recorded_system_id(&self, node: &str) -> String {
        self.record(node)
            .and_then(|r| r["systemID"].as_str().map(str::to_owned))
            .unwrap_or_else(|| panic!("no system-id recorded for {node}"))
    }

    /// Waits until the agent reports the settings that the controller wants now.
    pub fn wait_applied(&self, node: &str) {
        until(&format!("{node} to have its settings applied"), SOON, || {
            let object = self.chassis_node(node).ok_or_else(|| "no OVNChassisNode".to_owned())?;
            let record = self.record(node).ok_or_else(|| "no entry in status.nodes".to_owned())?;
            let wanted = &object["spec"]["configHash"];
            let applied = object["status"]["appliedHash"] == *wanted
                && object["status"]["observedGeneration"] == object["metadata"]["generation"];
            if wanted.as_str().is_some_and(|h| !h.is_empty())
                && object["spec"]["systemID"].is_string()
                && applied
                && record["configHash"] == *wanted
            {
                Ok(())
            } else {
                Err(format!("spec {} status {} record {record}", object["spec"], object["status"]))
            }
        });
    }

    /// Waits until the node announces the gateway role and the status says so. Needed after the label came back: settings of before stand as applied until the
    /// controller has seen the change.
    #[track_caller]
    pub fn wait_gateway(&self, node: &str) {
        until(&format!("{node} to be a gateway"), SOON, || match self.record(node) {
            Some(record) if record["gateway"] == json!(true) && record["gatewayEvacuated"].is_null() => Ok(()),
            _ => Err(self.show_record(node)),
        });
        self.wait_applied(node);
    }

    /// How often the first controller has connected to a database so far.
    pub fn connections(&self, database: &str) -> usize {
        self.controllers[0].log().matches(&format!("database connected database={database}")).count()
    }

    /// Waits until it has connected once more than `before`: it backs off while nobody answers.
    #[track_caller]
    pub fn wait_connected(&self, database: &str, before: usize) {
        until(&format!("the controller to connect to {database} again"), SOON, || {
            let now = self.connections(database);
            if now > before { Ok(()) } else { Err(now) }
        });
    }

    pub fn label(&self, node: &str, labels: &[(&str, Option<&str>)]) {
        self.kube.label_node(node, labels);
    }

    pub fn job_name(&self, kind: &str, node: &str) -> String {
        format!("{}-{kind}-{}", self.chassis, hash8(node))
    }

    pub fn job(&self, kind: &str, node: &str) -> Option<Value> {
        self.kube.get(JOB, &self.namespace, &self.job_name(kind, node))
    }

    /// Waits for a condition (`Complete`, `Failed`) of a Job.
    #[track_caller]
    pub fn wait_job(&self, kind: &str, node: &str, condition: &str) -> Value {
        until(&format!("Job {kind} of {node} to be {condition}"), SOON, || {
            let job = self.job(kind, node).ok_or_else(|| format!("no such Job; {}", self.show_record(node)))?;
            if job_has(&job, condition) {
                Ok(job)
            } else {
                Err(format!("{}; {}", job["status"], self.show_record(node)))
            }
        })
    }

    #[track_caller]
    pub fn wait_evacuated(&self, node: &str) {
        until(&format!("{node} to be evacuated"), SOON, || match self.record(node) {
            Some(record) if record["gatewayEvacuated"] == json!(true) => Ok(()),
            _ => Err(self.show_record(node)),
        });
    }

    /// Waits until nothing in the cluster knows the node any more.
    #[track_caller]
    pub fn wait_forgotten(&self, node: &str) {
        until(&format!("{node} to be forgotten"), SOON, || {
            let view = self
                .kube
                .get(kube_api::CONFIG_MAP, &self.namespace, &format!("{}-nodes", self.chassis))
                .unwrap_or(Value::Null);
            if self.record(node).is_none() && self.chassis_node(node).is_none() && view["data"][node].is_null() {
                Ok(())
            } else {
                Err(format!("{}; ConfigMap: {}", self.show_record(node), view["data"][node]))
            }
        });
    }

    pub fn show_record(&self, node: &str) -> String {
        let chassis = self.chassis_object();
        format!(
            "record {}; {}",
            record_in(&chassis, node).unwrap_or(&Value::Null),
            kube_api::show_condition(&chassis, "MaintenanceReady")
        )
    }

    /// Waits for a condition of the OVNChassis by status and reason; an empty reason means any.
    #[track_caller]
    pub fn wait_condition(&self, kind: &str, status: &str, reason: &str) -> Value {
        until(&format!("condition {kind}={status}/{reason}"), SOON, || {
            let chassis = self.chassis_object();
            match kube_api::condition(&chassis, kind) {
                Some(c) if c["status"] == status && (reason.is_empty() || c["reason"] == reason) => Ok(c.clone()),
                _ => Err(kube_api::show_condition(&chassis, kind)),
            }
        })
    }

    /// Events about the OVNChassis with this reason.
    pub fn events(&self, reason: &str) -> Vec<Value> {
        self.kube.list(kube_api::EVENT, &self.namespace, "").into_iter().filter(|e| e["reason"] == reason).collect()
    }
}
