//! The world that walks go through: a node, its objects, and the databases behind it, with the rules that users rely on as assertions.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::super::gateway_ports::{Ports, PortsAround};
use super::super::view::{DatabaseState, GatewayDuties, JobOwner, JobView, NodeObject, NodeView, Outcomes, PodView};
use super::super::{Entry, JobChange, Step, decide};
use super::{CHASSIS, Event, GATEWAY, chassis};
use crate::api::{DepartedNode, NodeRecord, OVNChassis, OVNChassisNode, OVNChassisNodeStatus, ObservedSettings};
use crate::cluster::jobs::JobPhase;
use crate::controller::objects::chassis_ref;
use crate::model::ids::{NodeName, SystemId};
use crate::model::names::{JobKind, OWNER_LABEL, SYSTEM_ID_ANNOTATION};
use crate::ovn::northbound::Lowering;

pub(super) struct Toy {
    chassis: Arc<OVNChassis>,
    pub(super) now: Timestamp,
    object: Option<NodeObject>,
    pub(super) record: Option<NodeRecord>,
    pub(super) departed: Option<DepartedNode>,
    ocn: Option<OVNChassisNode>,
    pub(super) jobs: BTreeMap<JobKind, JobView>,
    pub(super) pods: bool,
    /// The node's own database holds an id, so that its daemons register whenever they run.
    configured: bool,
    pub(super) agent_alive: bool,
    northbound: bool,
    southbound: bool,
    /// Rows that name the node's id.
    rows: usize,
    pub(super) registered: bool,
    /// Another chassis is registered that could take the gateway port over, and does once the priority is lowered.
    other: bool,
    /// The gateway port sits on the node.
    bound: bool,
    /// Rows carry the note of a lowered priority.
    lowered: bool,
    quiet_since: Option<Timestamp>,
    outcomes: Outcomes,
    /// What the status is to say, and what it said when that was decided.
    pub(super) pending: Option<(Entry, Option<NodeRecord>)>,
    sent: Option<Entry>,
    uids: u32,
    /// The Northbound confirmed since the flag went off last.
    confirmed: bool,
}

impl Toy {
    pub(super) fn new() -> Self {
        Self {
            chassis: Arc::new(chassis()),
            now: Timestamp::new(1_000_000, 0).unwrap(),
            object: Some(NodeObject { uid: "n1".into(), ..NodeObject::default() }),
            record: None,
            departed: None,
            ocn: None,
            jobs: BTreeMap::new(),
            pods: false,
            configured: false,
            agent_alive: true,
            northbound: true,
            southbound: true,
            rows: 0,
            registered: false,
            other: false,
            bound: false,
            lowered: false,
            quiet_since: None,
            outcomes: Outcomes::default(),
            pending: None,
            sent: None,
            uids: 1,
            confirmed: false,
        }
    }

    fn uid(&mut self) -> String {
        self.uids += 1;
        format!("uid-{}", self.uids)
    }

    pub(super) fn view(&self) -> NodeView {
        let label = chassis_ref(&self.chassis).owner_label_value();
        let selected = self.object.as_ref().is_some_and(|o| o.labels.get(CHASSIS).is_some_and(|v| v == "true"));
        let pod = PodView {
            name: "p".into(),
            uid: "p".into(),
            component: "ovs".into(),
            ready: true,
            ending: self.object.as_ref().and_then(|o| o.owner_label()) != Some(label.as_str()),
            created: None,
            revision: String::new(),
        };
        let state = |up: bool| {
            if up { DatabaseState::Synced } else { DatabaseState::OutOfReach("refused".into()) }
        };
        NodeView {
            node: NodeName::from("node-a"),
            chassis: self.chassis.clone(),
            object: self.object.clone(),
            selected,
            record: self.record.clone(),
            departed: self.departed.clone(),
            ocn: self.ocn.clone().map(Arc::new),
            config_map_entry: None,
            jobs: self.jobs.clone(),
            shares_hash_with: None,
            pods: if self.pods { vec![pod] } else { vec![] },
            ovn_remote: Ok("tcp:192.0.2.1:6642".into()),
            northbound: state(self.northbound),
            southbound: state(self.southbound),
            duties: GatewayDuties {
                rows: self.northbound.then_some(self.rows),
                sole: vec![],
                lowered: self.northbound && self.lowered,
            },
            ports: self.ports(),
            bindings: None,
            ids_elsewhere: Arc::default(),
            grants: vec![],
            pins: vec![],
            healthy_since: None,
            outcomes: self.outcomes.clone(),
            trouble: None,
            dead_agent_wait_seconds: 30,
        }
    }

    pub(super) fn happens(&mut self, event: Event) {
        match event {
            Event::Labels { chassis, gateway } => {
                let Some(object) = &mut self.object else { return };
                for (label, on) in [(CHASSIS, chassis), (GATEWAY, gateway)] {
                    if on {
                        object.labels.insert(label.into(), "true".into());
                    } else {
                        object.labels.remove(label);
                    }
                }
            }
            Event::DeleteNode => self.object = None,
            Event::CreateNode => {
                if self.object.is_none() {
                    let uid = self.uid();
                    self.object = Some(NodeObject { uid, ..NodeObject::default() });
                }
            }
            Event::Agent => self.agent(),
            Event::AgentDies(dead) => self.agent_alive = !dead,
            Event::PodsFollow => {
                // ovn-controller ends with `exit --restart`: its row stays.
                self.pods = self.object.as_ref().is_some_and(|o| o.owner_label().is_some());
                self.registered |= self.pods && self.configured;
            }
            Event::Pass { steps } => self.pass(steps),
            Event::Report => self.write_status(),
            Event::ReportSent => self.send_status(),
            Event::Crash => {
                // A request outlives its process, but not the time until the next one leads.
                if self.sent.is_some() {
                    self.pending = None;
                    self.write_status();
                }
                self.outcomes = Outcomes::default();
                self.pending = None;
            }
            Event::Northbound(up) => self.northbound = up,
            Event::Southbound(up) => self.southbound = up,
            Event::Seconds(n) => self.now = self.now.checked_add(SignedDuration::from_secs(n)).unwrap(),
            Event::RowsPutBack => {
                // A CMS schedules onto what announces itself.
                if self.registered
                    && self
                        .ocn
                        .as_ref()
                        .and_then(|o| o.status.as_ref())
                        .and_then(|s| s.observed.as_ref())
                        .is_some_and(|o| o.gateway)
                {
                    self.rows += 3;
                }
            }
            Event::OtherLives(lives) => {
                self.other = lives;
                self.watch_ports();
            }
            Event::PortMoves => self.port_moves(),
            Event::DeleteJob(n) => {
                if let Some(kind) = JobKind::ALL.get(n) {
                    self.jobs.remove(kind);
                }
            }
        }
    }

    fn port_moves(&mut self) {
        self.bound = self.rows > 0 && !(self.other && self.lowered);
        self.watch_ports();
    }

    /// A port that nobody else could have is not waited for, so it is as quiet as one that is elsewhere.
    fn watch_ports(&mut self) {
        let waited_for = self.bound && self.other;
        self.quiet_since = if waited_for { None } else { Some(self.quiet_since.unwrap_or(self.now)) };
    }

    /// What a look at both databases would bring, if the role is being taken away.
    fn ports(&self) -> Ports {
        let wanted = self.object.as_ref().is_some_and(|o| [CHASSIS, GATEWAY].iter().all(|l| o.labels.contains_key(*l)));
        if !self.ocn.as_ref().is_some_and(|o| o.spec.evacuate || (o.spec.gateway && !wanted)) {
            return Ports::NotAsked;
        }
        if !self.northbound || !self.southbound {
            return Ports::Unknown("refused".into());
        }
        let here = if self.bound && self.other { vec!["lrp".to_owned()] } else { vec![] };
        let lowering = (!self.lowered && self.rows > 0).then(|| Lowering {
            chassis: SystemId::new("gw"),
            own: vec![],
            raised: vec![],
            relied_on: vec![],
        });
        Ports::Known(PortsAround {
            here,
            stranded: vec![],
            lowering,
            moved: self.lowered,
            quiet_since: self.quiet_since.or(Some(self.now)),
        })
    }

    fn agent(&mut self) {
        if !self.agent_alive {
            return;
        }
        let Some(ocn) = &mut self.ocn else { return };
        let status = ocn.status.get_or_insert_with(OVNChassisNodeStatus::default);
        status.observed = Some(ObservedSettings {
            gateway: ocn.spec.gateway,
            system_id: ocn.spec.system_id.clone(),
            ..Default::default()
        });
        if ocn.spec.system_id.is_some() {
            status.applied_hash = Some(ocn.spec.config_hash.clone());
            status.observed_generation = ocn.metadata.generation;
            self.configured = true;
            // Only a running ovn-controller registers.
            self.registered |= self.pods;
            if ocn.spec.gateway {
                self.rows = self.rows.max(1);
            }
        }
    }

    /// As the reporter does: what rests on an entry that another write replaced is dropped.
    fn send_status(&mut self) {
        if self.sent.is_none()
            && let Some((entry, base)) = self.pending.take()
            && base == self.record
        {
            self.sent = Some(entry);
        }
    }

    pub(super) fn write_status(&mut self) {
        self.send_status();
        let Some(entry) = self.sent.take() else { return };
        match entry {
            Entry::Is(record) => {
                let mut record = *record;
                let old = self.record.clone().unwrap_or_default();
                assert!(!(record.gateway && record.gateway_evacuated), "a gateway and evacuated at once");
                if record.gateway_evacuated && !old.gateway_evacuated {
                    assert!(self.confirmed, "gatewayEvacuated before the Northbound confirmed");
                    assert!(old.gateway && !record.gateway, "both flip in one write");
                }
                if old.gateway && !record.gateway {
                    assert!(record.gateway_evacuated && !old.gateway_evacuated, "gateway left without a confirmation");
                }
                let same = old.phase == record.phase && old.reason == record.reason;
                record.last_transition_time = if same { old.last_transition_time } else { Some(Time(self.now)) };
                if record.system_id.is_some() {
                    self.departed = None;
                }
                self.record = Some(record);
            }
            Entry::Departs { system_id } => {
                let held_role = self.record.as_ref().is_some_and(|r| r.gateway);
                assert!(!held_role, "a gateway departs although nobody said that it was evacuated");
                if let Some(id) = system_id {
                    self.departed = Some(DepartedNode {
                        name: "node-a".into(),
                        system_id: id.to_string(),
                        time: Time(self.now),
                        returned: None,
                    });
                }
                self.record = None;
            }
            Entry::Goes => self.record = None,
        }
    }

    pub(super) fn pass(&mut self, most: usize) {
        let view = self.view();
        let plan = decide(&view, self.now);
        if self.sent.as_ref().is_some_and(|entry| entry.turns(self.record.as_ref())) {
            return;
        }
        if let Some(entry) = plan.entry {
            self.pending = (!entry.is_shown(&view)).then(|| (entry, self.record.clone()));
        }
        for (number, step) in plan.steps.into_iter().enumerate() {
            if number >= most {
                return;
            }
            if !self.act(step) {
                return;
            }
        }
    }

    /// Does a step; false if it failed, which ends the pass.
    pub(super) fn act(&mut self, step: Step) -> bool {
        let label = chassis_ref(&self.chassis).owner_label_value();
        match step {
            Step::MarkNode { system_id } => {
                let Some(object) = &mut self.object else { return false };
                object.labels.insert(OWNER_LABEL.into(), label);
                if let Some(id) = system_id {
                    object.annotations.insert(SYSTEM_ID_ANNOTATION.into(), id.to_string());
                }
            }
            Step::ReleaseNode => {
                if let Some(object) = &mut self.object {
                    object.labels.remove(OWNER_LABEL);
                }
            }
            Step::WriteNode(spec) => self.write_object(*spec),
            Step::DeleteNode => {
                assert!(self.record.is_none(), "forgotten in the status first");
                self.ocn = None;
            }
            Step::CreateJobs { kinds, settings } => {
                for kind in kinds {
                    let uid = self.uid();
                    assert!(!self.jobs.contains_key(&kind), "{kind} exists already");
                    let job = JobView {
                        name: kind.to_string(),
                        uid,
                        owner: JobOwner::Us,
                        phase: JobPhase::Waiting,
                        settings: settings.clone(),
                        deadline_seconds: 300,
                        ending: false,
                    };
                    self.jobs.insert(kind, job);
                }
            }
            Step::DeleteJob { kind, uid, .. } => {
                if self.jobs.get(&kind).is_some_and(|j| j.uid == uid) {
                    self.jobs.remove(&kind);
                }
            }
            Step::ChangeJobs(changes) => {
                for (kind, change) in changes {
                    if !self.change_job(kind, change) {
                        return false;
                    }
                }
            }
            Step::LowerPriority(_) => {
                if !self.northbound {
                    return false;
                }
                assert!(self.other && self.bound, "nothing is touched where nothing has to move");
                self.lowered = true;
            }
            Step::RestorePriority { .. } => {
                if !self.northbound {
                    return false;
                }
                assert!(self.ocn.as_ref().is_some_and(|o| o.spec.gateway), "given back to a gateway only");
                self.lowered = false;
            }
            Step::Evacuate { .. } => {
                if !self.northbound {
                    self.outcomes.attempts += 1;
                    self.outcomes.last_error = Some("refused".into());
                    return false;
                }
                assert!(self.ocn.as_ref().is_some_and(|o| !o.spec.gateway), "rows go only after the flag");
                self.rows = 0;
                self.lowered = false;
                self.confirmed = true;
                self.outcomes.evacuated = self.id();
                self.outcomes.last_error = None;
                self.outcomes.attempts = 0;
                self.outcomes.removals += 1;
            }
            Step::Deregister { .. } => {
                if !self.southbound {
                    self.outcomes.attempts += 1;
                    self.outcomes.last_error = Some("refused".into());
                    return false;
                }
                assert!(!self.pods, "deregistered while its pods live");
                let spec = self.ocn.as_ref().map(|o| o.spec.clone()).unwrap();
                assert!(spec.leaving);
                assert!(
                    !spec.evacuate || self.record.as_ref().is_some_and(|r| r.gateway_evacuated),
                    "evacuation comes before chassis-del"
                );
                self.registered = false;
                self.outcomes.deregistered = self.id();
            }
            Step::ForgetOutcomes => self.outcomes = Outcomes::default(),
            Step::Announce(_) => {}
        }
        true
    }

    fn id(&self) -> Option<SystemId> {
        self.ocn.as_ref().and_then(|o| o.spec.system_id.clone()).map(SystemId::new)
    }

    fn write_object(&mut self, spec: crate::api::OVNChassisNodeSpec) {
        let before = self.ocn.clone();
        let old = before.as_ref().map(|o| o.spec.clone()).unwrap_or_default();
        if spec.evacuate && !old.evacuate {
            assert!(!(self.bound && self.other), "the flag goes while another chassis could have taken the port");
            self.confirmed = false;
            for kind in [JobKind::Apply, JobKind::Evacuate] {
                assert!(
                    !self.jobs.get(&kind).is_some_and(|j| j.phase.is_finished()),
                    "a wait would meet an old {kind}"
                );
            }
        }
        if spec.leaving && !old.leaving {
            let stale = self.jobs.get(&JobKind::ChassisDel).is_some_and(|j| j.phase.is_finished());
            assert!(!stale, "a wait would meet an old chassis-del");
        }
        if spec.gateway {
            assert!(!spec.evacuate);
            let evacuated = self.record.as_ref().is_some_and(|r| r.gateway_evacuated);
            assert!(!evacuated, "a gateway again while the status says that it was evacuated");
        }
        if let Some(id) = &old.system_id {
            assert_eq!(Some(id), spec.system_id.as_ref(), "an id never changes");
        }
        let mut ocn = before.unwrap_or_else(|| OVNChassisNode::new("node-a", Default::default()));
        if ocn.spec != spec {
            ocn.metadata.generation = Some(ocn.metadata.generation.unwrap_or(0) + 1);
        }
        ocn.spec = spec;
        self.ocn = Some(ocn);
    }

    fn change_job(&mut self, kind: JobKind, change: JobChange) -> bool {
        let record = self.record.clone();
        let hash = self.ocn.as_ref().map(|o| o.spec.config_hash.clone());
        let Some(job) = self.jobs.get_mut(&kind) else { return false };
        assert!(!job.phase.is_finished(), "finished stays finished");
        job.phase = match change {
            JobChange::Start => {
                assert_eq!(job.phase, JobPhase::Waiting, "started once");
                JobPhase::Started(self.now)
            }
            JobChange::Complete { .. } => {
                let shown = match kind {
                    JobKind::Apply => record.is_some_and(|r| r.config_hash == hash),
                    JobKind::Evacuate => record.is_some_and(|r| r.gateway_evacuated),
                    JobKind::ChassisDel => record.is_none(),
                };
                assert!(shown, "{kind} is Complete before the status shows its result");
                match kind {
                    JobKind::Apply => {}
                    JobKind::Evacuate => assert!(self.confirmed, "evacuate is Complete although nobody confirmed"),
                    JobKind::ChassisDel => assert!(!self.registered, "chassis-del is Complete, and the row is there"),
                }
                JobPhase::Complete(self.now)
            }
            JobChange::Fail { message, .. } => {
                assert!(record.is_some_and(|r| r.reason.as_deref() == Some("JobFailed")), "said in the status first");
                JobPhase::Failed { at: self.now, message }
            }
        };
        true
    }

    /// Everybody does their work until nothing changes.
    pub(super) fn settle(&mut self) {
        (self.agent_alive, self.northbound, self.southbound) = (true, true, true);
        for _ in 0..60 {
            self.port_moves();
            self.now = self.now.checked_add(SignedDuration::from_secs(1)).unwrap();
            self.jobs.retain(|_, j| !matches!(j.phase, JobPhase::Failed { .. }));
            self.pass(usize::MAX);
            self.write_status();
            self.agent();
            self.happens(Event::PodsFollow);
            self.sweep();
        }
    }

    /// What the OVNChassis' own worker does about rows that come back when their node is gone for good.
    fn sweep(&mut self) {
        let id = self.departed.as_ref().map(|d| &d.system_id);
        let in_use = self.record.is_some() || self.ocn.as_ref().is_some_and(|o| o.spec.system_id.as_ref() == id);
        if id.is_some() && !in_use && self.object.is_none() && !self.pods {
            self.registered = false;
        }
    }

    pub(super) fn assert_settled(&self) {
        let has = |label: &str| self.object.as_ref().is_some_and(|o| o.labels.contains_key(label));
        let unfinished: Vec<_> = self.jobs.values().filter(|j| !j.phase.is_finished()).collect();
        let plan = decide(&self.view(), self.now);
        assert!(
            unfinished.is_empty(),
            "Jobs without an end: {unfinished:?}; {:?} {:?} {:?} {plan:?}",
            self.record,
            self.departed,
            self.ocn
        );
        if !has(CHASSIS) {
            assert!(self.record.is_none(), "{:?}", self.record);
            assert!(self.ocn.is_none(), "{:?}", self.ocn);
            assert_eq!((self.rows, self.registered, self.pods), (0, false, false));
            return;
        }
        let record = self.record.as_ref().unwrap();
        assert!(!record.leaving && self.pods && self.registered);
        if has(GATEWAY) {
            assert!(!self.lowered, "the priority is given back with the role");
            let shown = (record.gateway, record.gateway_evacuated, record.reason.as_deref());
            assert_eq!(shown, (true, false, Some("AsDesired")));
        } else {
            assert!(!record.gateway, "{record:?}");
            assert_eq!(self.rows, 0);
            assert_eq!(record.gateway_evacuated, self.ocn.as_ref().unwrap().spec.evacuate);
        }
    }
}
