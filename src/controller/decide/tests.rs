//! Named cases; the random walks are in [`super::simulation`].

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::gateway::settings_key;
use super::gateway_ports::{Ports, PortsAround, Stranded, Why};
use super::identity::{Identity, config_map_id, identity};
use super::owner::owner;
use super::status::{ChassisFacts, conditions};
use super::view::{DatabaseState, GatewayDuties, JobOwner, JobView, NodeObject, NodeView, Outcomes, PodView, Problem};
use super::wanted::wanted;
use super::{Entry, JobChange, Plan, Reason, Step, decide};
use crate::api::{NodePhase, NodeRecord, OVNChassis, OVNChassisNode, OVNChassisNodeStatus, ObservedSettings};
use crate::cluster::jobs::JobPhase;
use crate::controller::objects::chassis_ref;
use crate::controller::objects::tests::chassis;
use crate::model::conditions::{ConditionSpec, maintenance};
use crate::model::ids::{NodeName, SystemId};
use crate::model::names::{ChassisRef, JobKind, OWNER_LABEL, SYSTEM_ID_ANNOTATION};
use crate::ovn::northbound::Lowering;

const GATEWAY: &str = "openstack.c5c3.io/gateway";
const CHASSIS: &str = "openstack.c5c3.io/chassis";

fn now() -> Timestamp {
    Timestamp::new(1_000_000, 0).unwrap()
}

fn our_chassis(spec: serde_json::Value) -> OVNChassis {
    let mut whole = json!({"gateway": {"nodeSelector": {GATEWAY: "true"}}});
    for (key, value) in spec.as_object().unwrap() {
        whole[key] = value.clone();
    }
    chassis(whole)
}

/// A gateway node on which everything is as it is to be.
fn settled(spec: serde_json::Value) -> NodeView {
    let chassis = Arc::new(our_chassis(spec));
    let labels = BTreeMap::from([
        (CHASSIS.to_owned(), "true".to_owned()),
        (GATEWAY.to_owned(), "true".to_owned()),
        (OWNER_LABEL.to_owned(), chassis_ref(&chassis).owner_label_value()),
    ]);
    let annotations = BTreeMap::from([(SYSTEM_ID_ANNOTATION.to_owned(), "id-a".to_owned())]);
    let mut view = NodeView {
        node: NodeName::from("node-a"),
        object: Some(NodeObject { uid: "n".into(), labels, annotations }),
        selected: true,
        record: Some(NodeRecord {
            name: "node-a".into(),
            system_id: Some("id-a".into()),
            gateway: true,
            phase: Some(NodePhase::Active),
            reason: Some("AsDesired".into()),
            ..NodeRecord::default()
        }),
        departed: None,
        ocn: None,
        config_map_entry: None,
        jobs: BTreeMap::new(),
        shares_hash_with: None,
        pods: vec![],
        ovn_remote: Ok("ssl:192.0.2.1:6642".into()),
        northbound: DatabaseState::Synced,
        southbound: DatabaseState::Synced,
        duties: GatewayDuties { rows: Some(2), ..GatewayDuties::default() },
        ports: Ports::Known(PortsAround::default()),
        bindings: None,
        ids_elsewhere: Arc::default(),
        grants: vec![],
        pins: vec![],
        healthy_since: None,
        outcomes: Outcomes::default(),
        trouble: None,
        dead_agent_wait_seconds: 30,
        chassis,
    };
    let spec = wanted(&view, &Identity::Recorded(SystemId::new("id-a")), now()).spec;
    let mut ocn = OVNChassisNode::new("node-a", spec);
    ocn.metadata.generation = Some(1);
    view.ocn = Some(Arc::new(ocn));
    apply(&mut view);
    view
}

/// The agent applies what its object asks for, and the status shows it.
fn apply(view: &mut NodeView) {
    let mut ocn = (**view.ocn.as_ref().unwrap()).clone();
    ocn.status = Some(OVNChassisNodeStatus {
        applied_hash: Some(ocn.spec.config_hash.clone()),
        observed_generation: ocn.metadata.generation,
        observed: Some(ObservedSettings::default()),
        ..OVNChassisNodeStatus::default()
    });
    view.record.as_mut().unwrap().config_hash = Some(ocn.spec.config_hash.clone());
    view.ocn = Some(Arc::new(ocn));
}

fn remove_label(view: &mut NodeView, label: &str) {
    view.object.as_mut().unwrap().labels.remove(label);
    view.selected = view.object.as_ref().unwrap().labels.contains_key(CHASSIS);
}

/// Takes the plan's change of the object over.
fn write(view: &mut NodeView, plan: &Plan) {
    let spec = plan.steps.iter().find_map(|s| if let Step::WriteNode(spec) = s { Some(spec) } else { None }).unwrap();
    let mut ocn = (**view.ocn.as_ref().unwrap()).clone();
    ocn.spec = (**spec).clone();
    ocn.metadata.generation = Some(ocn.metadata.generation.unwrap() + 1);
    view.ocn = Some(Arc::new(ocn));
}

fn job(view: &NodeView, kind: JobKind, phase: JobPhase) -> JobView {
    JobView {
        name: chassis_ref(&view.chassis).job(kind, &view.node),
        uid: format!("uid-{kind}"),
        owner: JobOwner::Us,
        phase,
        settings: settings_key(&view.ocn.as_ref().unwrap().spec),
        deadline_seconds: 300,
        ending: false,
    }
}

/// A gateway whose label went and whose object says so; Jobs started now.
fn draining() -> NodeView {
    let mut view = settled(json!({}));
    remove_label(&mut view, GATEWAY);
    let plan = decide(&view, now());
    write(&mut view, &plan);
    for kind in [JobKind::Apply, JobKind::Evacuate] {
        view.jobs.insert(kind, job(&view, kind, JobPhase::Started(now())));
    }
    view
}

fn reason(plan: &Plan) -> &str {
    match &plan.entry {
        Some(Entry::Is(record)) => record.reason.as_deref().unwrap(),
        other => panic!("no entry: {other:?}"),
    }
}

fn message(plan: &Plan) -> String {
    match &plan.entry {
        Some(Entry::Is(record)) => record.message.clone().unwrap_or_default(),
        other => panic!("no entry: {other:?}"),
    }
}

#[test]
fn nothing_is_done_when_nothing_differs() {
    let plan = decide(&settled(json!({})), now());
    assert_eq!(plan.steps, []);
    assert_eq!(reason(&plan), "AsDesired");
}

#[test]
fn the_gateway_role_goes_in_one_write_and_the_status_keeps_it() {
    let mut view = settled(json!({}));
    remove_label(&mut view, GATEWAY);
    let plan = decide(&view, now());
    let [Step::ForgetOutcomes, Step::WriteNode(spec)] = plan.steps.as_slice() else { panic!("{plan:?}") };
    assert!(!spec.gateway && spec.evacuate && !spec.leaving);
    let Some(Entry::Is(record)) = plan.entry else { panic!() };
    assert!(record.gateway && !record.gateway_evacuated);
}

#[test]
fn apply_and_evacuate_are_created_together() {
    let mut view = draining();
    view.jobs.clear();
    let plan = decide(&view, now());
    let Some(Step::CreateJobs { kinds, .. }) = plan.steps.first() else { panic!("{plan:?}") };
    assert_eq!(kinds, &[JobKind::Apply, JobKind::Evacuate]);
}

#[test]
fn no_row_is_touched_before_the_agent_took_the_flag_off() {
    let plan = decide(&draining(), now());
    assert_eq!(plan.steps, []);
    assert_eq!(reason(&plan), "GatewayFlag");
}

#[test]
fn an_older_report_of_the_same_settings_is_not_taken_for_this_one() {
    let mut view = draining();
    apply(&mut view);
    let mut ocn = (**view.ocn.as_ref().unwrap()).clone();
    ocn.metadata.generation = Some(7);
    view.ocn = Some(Arc::new(ocn));
    assert_eq!(reason(&decide(&view, now())), "GatewayFlag");
}

#[test]
fn a_confirmation_flips_both_fields_and_only_then_the_job_completes() {
    let mut view = draining();
    apply(&mut view);
    view.jobs.get_mut(&JobKind::Apply).unwrap().phase = JobPhase::Complete(now());
    view.outcomes.evacuated = Some(SystemId::new("id-a"));
    let plan = decide(&view, now());
    assert_eq!(plan.steps, []);
    let Some(Entry::Is(record)) = plan.entry else { panic!() };
    assert!(!record.gateway && record.gateway_evacuated);
    view.record = Some(*record);
    view.duties.rows = Some(0);
    let plan = decide(&view, now());
    let [Step::ChangeJobs(changes)] = plan.steps.as_slice() else { panic!("{plan:?}") };
    assert!(matches!(changes.as_slice(), [(JobKind::Evacuate, JobChange::Complete { .. })]), "{changes:?}");
}

#[test]
fn row05_past_the_deadline_the_status_names_kind_job_and_node_before_the_job_fails() {
    let mut view = draining();
    apply(&mut view);
    view.jobs.get_mut(&JobKind::Apply).unwrap().phase = JobPhase::Complete(now());
    view.northbound = DatabaseState::OutOfReach("refused".into());
    view.outcomes.attempts = 3;
    view.outcomes.last_error = Some("ssl:192.0.2.1:6641: refused".into());
    let late = now().checked_add(SignedDuration::from_secs(301)).unwrap();
    let plan = decide(&view, late);
    assert_eq!((plan.steps.len(), reason(&plan)), (0, "JobFailed"));
    for word in ["evacuate Job controlplane-chassis-evacuate-", "of node node-a failed", "refused", "delete the Job"] {
        assert!(message(&plan).contains(word), "{word}: {}", message(&plan));
    }
    let Some(Entry::Is(record)) = plan.entry else { panic!() };
    view.record = Some(*record);
    let plan = decide(&view, late);
    let [Step::ChangeJobs(changes)] = plan.steps.as_slice() else { panic!("{plan:?}") };
    assert!(matches!(changes.as_slice(), [(JobKind::Evacuate, JobChange::Fail { reason: "DeadlineExceeded", .. })]));
}

#[test]
fn a_new_leader_tries_once_even_past_the_deadline() {
    let mut view = draining();
    apply(&mut view);
    let late = now().checked_add(SignedDuration::from_secs(999)).unwrap();
    let plan = decide(&view, late);
    assert!(plan.steps.contains(&Step::Evacuate { system_id: SystemId::new("id-a") }), "{plan:?}");
}

#[test]
fn field30_a_database_without_a_leader_defers_a_job_that_has_not_started() {
    let mut view = draining();
    apply(&mut view);
    view.jobs.get_mut(&JobKind::Apply).unwrap().phase = JobPhase::Complete(now());
    view.jobs.get_mut(&JobKind::Evacuate).unwrap().phase = JobPhase::Waiting;
    view.northbound = DatabaseState::Unfit("it is a follower, not the leader".into());
    let plan = decide(&view, now());
    assert_eq!((plan.steps.as_slice(), reason(&plan)), ([].as_slice(), "DatabaseNotSynced"));
    assert_eq!(Reason::DatabaseNotSynced.maintenance(), maintenance::DEFERRED);
}

#[test]
fn field23_the_last_gateway_is_held_before_anything_is_taken_away() {
    let mut view = settled(json!({"drain": {"lastGateway": "Hold"}}));
    remove_label(&mut view, GATEWAY);
    let stranded = vec![Stranded { port: "lrp-1".into(), why: Why::NoOther }];
    view.ports = Ports::Known(PortsAround { stranded, ..PortsAround::default() });
    let plan = decide(&view, now());
    assert_eq!((plan.steps.as_slice(), reason(&plan)), ([].as_slice(), "LastGateway"));
    assert!(message(&plan).contains("lrp-1"));
    assert_eq!(plan.ports, ["lrp-1"]);
    view.duties = GatewayDuties::default();
    assert_eq!(reason(&decide(&view, now())), "DatabaseNotSynced");
    view.duties.rows = Some(1);
    view.ports = Ports::Unknown("not read yet".into());
    assert_eq!(reason(&decide(&view, now())), "DatabaseNotSynced");
    view.ports = Ports::Known(PortsAround::default());
    assert!(decide(&view, now()).steps.iter().any(|s| matches!(s, Step::WriteNode(spec) if spec.evacuate)));
}

#[test]
fn row17_a_name_that_somebody_elses_job_has_stops_the_drain_before_it_begins() {
    let mut view = settled(json!({}));
    remove_label(&mut view, GATEWAY);
    let mut taken = job(&view, JobKind::Evacuate, JobPhase::Waiting);
    taken.owner = JobOwner::Stranger;
    let name = taken.name.clone();
    view.jobs.insert(JobKind::Evacuate, taken);
    let plan = decide(&view, now());
    assert_eq!((plan.steps.as_slice(), reason(&plan)), ([].as_slice(), "JobNameTaken"));
    assert!(message(&plan).contains(&name));
    assert_eq!(Reason::JobNameTaken.maintenance(), maintenance::ERROR);
}

#[test]
fn a_role_that_comes_back_resets_the_status_before_the_flag() {
    let mut view = draining();
    view.record.as_mut().unwrap().gateway_evacuated = true;
    view.record.as_mut().unwrap().gateway = false;
    view.object.as_mut().unwrap().labels.insert(GATEWAY.into(), "true".into());
    let plan = decide(&view, now());
    assert!(!plan.steps.iter().any(|s| matches!(s, Step::WriteNode(_))), "{plan:?}");
    let Some(Entry::Is(record)) = plan.entry else { panic!() };
    assert!(!record.gateway_evacuated);
}

#[test]
fn row05_a_failure_is_told_in_one_set_of_words_although_each_try_fails_in_others() {
    let mut view = draining();
    apply(&mut view);
    view.jobs.get_mut(&JobKind::Apply).unwrap().phase = JobPhase::Complete(now());
    view.outcomes.attempts = 3;
    let late = now().checked_add(SignedDuration::from_secs(301)).unwrap();
    let mut plan_of = |error: &str, record: Option<Box<NodeRecord>>| {
        view.outcomes.last_error = Some(error.into());
        view.record = record.map(|r| *r).or(view.record.take());
        decide(&view, late)
    };
    let plan = plan_of("ssl:192.0.2.1:6641: refused", None);
    let Some(Entry::Is(told)) = plan.entry else { panic!() };
    let plan = plan_of("ssl:192.0.2.2:6641: no answer for 10002 ms", Some(told.clone()));
    assert_eq!(plan.entry, Some(Entry::Is(told)));
    let cause = |step: &Step| match step {
        Step::ChangeJobs(changes) => match &changes[..] {
            [(JobKind::Evacuate, JobChange::Fail { message, .. })] => Some(message.clone()),
            _ => None,
        },
        _ => None,
    };
    assert_eq!(plan.steps.iter().find_map(cause).as_deref(), Some("ssl:192.0.2.1:6641: refused"), "{plan:?}");
}

#[test]
fn field24_rows_that_come_back_on_a_drained_node_are_removed_a_bounded_number_of_times() {
    let mut view = draining();
    apply(&mut view);
    view.jobs.clear();
    view.record.as_mut().unwrap().gateway_evacuated = true;
    view.record.as_mut().unwrap().gateway = false;
    let removes = |view: &NodeView| decide(view, now()).steps.iter().any(|s| matches!(s, Step::Evacuate { .. }));
    assert!(removes(&view));
    view.outcomes.attempts = 16;
    assert!(removes(&view), "a database that does not answer removed nothing");
    view.outcomes.removals = 16;
    assert!(!removes(&view), "not fought for ever");
    let Some(Entry::Is(record)) = decide(&view, now()).entry else { panic!("nothing is said") };
    assert_eq!((record.reason.as_deref(), record.phase), (Some("RowsComeBack"), Some(NodePhase::Evacuated)));
    let (said, _) = conditions(&ChassisFacts {
        records: &[*record],
        nodes: Vec::new(),
        central: Ok(()),
        owned_elsewhere: Vec::new(),
        view_too_large: None,
        trouble: None,
        first_roll: None,
    });
    let said = said.iter().find(|c| c.type_ == "MaintenanceReady").unwrap();
    assert!(!said.status && said.reason == "MaintenanceError" && said.message.contains("removed 16 times"), "{said:?}");
    view.duties.rows = Some(0);
    view.outcomes.removals = 0;
    assert!(!removes(&view));
}

#[test]
fn field16_rows_are_not_deleted_while_a_pod_is_left() {
    let mut view = settled(json!({}));
    view.object.as_mut().unwrap().labels.clear();
    view.selected = false;
    view.record.as_mut().unwrap().gateway = false;
    let mut spec = view.ocn.as_ref().unwrap().spec.clone();
    spec.gateway = false;
    spec.leaving = true;
    let mut ocn = (**view.ocn.as_ref().unwrap()).clone();
    ocn.spec = spec;
    view.ocn = Some(Arc::new(ocn));
    view.duties.rows = Some(0);
    let plan = decide(&view, now());
    if plan.steps.iter().any(|s| matches!(s, Step::WriteNode(_))) {
        write(&mut view, &plan);
    }
    view.jobs.insert(JobKind::ChassisDel, job(&view, JobKind::ChassisDel, JobPhase::Waiting));
    view.pods = vec![PodView {
        name: "controlplane-chassis-ovs-x".into(),
        uid: "p".into(),
        component: "ovs".into(),
        ready: false,
        ending: true,
        created: None,
        revision: String::new(),
    }];
    let plan = decide(&view, now());
    assert_eq!((plan.steps.as_slice(), reason(&plan)), ([].as_slice(), "PodsEnding"));
    view.pods.clear();
    let plan = decide(&view, now());
    let words: Vec<_> = plan.steps.iter().map(|s| matches!(s, Step::Deregister { .. })).collect();
    assert_eq!(words, [false, true], "starts the Job, then deletes: {plan:?}");
}

#[test]
fn row12_sources_of_an_id_in_their_order() {
    let mut view = settled(json!({}));
    let set = |view: &mut NodeView, id: Option<&str>| {
        let mut ocn = (**view.ocn.as_ref().unwrap()).clone();
        ocn.spec.system_id = id.map(str::to_owned);
        view.ocn = Some(Arc::new(ocn));
    };
    view.record.as_mut().unwrap().system_id = Some("from-status".into());
    view.config_map_entry = Some("SYSTEM_ID=from-map\nGATEWAY=true\n".into());
    view.object.as_mut().unwrap().annotations.insert(SYSTEM_ID_ANNOTATION.into(), "from-node".into());
    set(&mut view, Some("from-object"));
    let id = |view: &NodeView| identity(view).id().map(ToString::to_string);
    assert_eq!(id(&view).as_deref(), Some("from-object"));
    set(&mut view, None);
    assert_eq!(id(&view).as_deref(), Some("from-status"));
    view.record = None;
    assert_eq!(id(&view).as_deref(), Some("from-map"));
    view.config_map_entry = Some("SYSTEM_ID=two words\n".into());
    assert_eq!(id(&view).as_deref(), Some("from-node"));
    view.object.as_mut().unwrap().annotations.clear();
    assert_eq!(identity(&view), Identity::New(SystemId::from_node_uid("n")));
    let mut ocn = (**view.ocn.as_ref().unwrap()).clone();
    ocn.status.as_mut().unwrap().observed = None;
    view.ocn = Some(Arc::new(ocn));
    assert_eq!(identity(&view), Identity::Waiting);
}

#[test]
fn row12_an_id_that_another_node_has_is_refused_and_both_are_named() {
    let mut view = settled(json!({}));
    let mut ocn = (**view.ocn.as_ref().unwrap()).clone();
    ocn.spec.system_id = None;
    ocn.status.as_mut().unwrap().observed =
        Some(ObservedSettings { system_id: Some("id-b".into()), ..ObservedSettings::default() });
    view.ocn = Some(Arc::new(ocn));
    view.record = None;
    view.object.as_mut().unwrap().annotations.clear();
    assert_eq!(identity(&view), Identity::Adopted(SystemId::new("id-b")));
    view.ids_elsewhere = Arc::new(BTreeMap::from([(SystemId::new("id-b"), vec![NodeName::from("node-b")])]));
    let plan = decide(&view, now());
    assert_eq!(reason(&plan), "DuplicateSystemID");
    assert!(message(&plan).contains("node-a") && message(&plan).contains("node-b"), "{}", message(&plan));
}

#[test]
fn text_of_a_config_map_that_makes_no_sense_holds_no_id() {
    for text in ["", "SYSTEM_ID=", "SYSTEM_ID", "system_id=a", "GATEWAY=true", "SYSTEM_ID=a,b"] {
        assert_eq!(config_map_id(text), None, "{text:?}");
    }
}

#[test]
fn row10_the_oldest_owns_and_whoever_has_the_node_in_the_books_keeps_it() {
    let of = |name: &str, created: i64| {
        let mut chassis = our_chassis(json!({}));
        chassis.metadata.name = Some(name.into());
        chassis.metadata.creation_timestamp = Some(Time(Timestamp::new(created, 0).unwrap()));
        chassis
    };
    let (old, mut young) = (of("z-old", 1), of("a-young", 2));
    let object = NodeObject { labels: BTreeMap::from([(CHASSIS.into(), "true".into())]), ..NodeObject::default() };
    let node = NodeName::from("node-a");
    let owns =
        |all: &[&OVNChassis], object: Option<&NodeObject>| owner(all.iter().copied(), &node, object).map(|c| c.name);
    assert_eq!(owns(&[&young, &old], Some(&object)).as_deref(), Some("z-old"));
    young.status = Some(crate::api::OVNChassisStatus {
        nodes: vec![NodeRecord { name: "node-a".into(), ..NodeRecord::default() }],
        ..Default::default()
    });
    assert_eq!(owns(&[&young, &old], Some(&object)).as_deref(), Some("a-young"));
    assert_eq!(owns(&[&young], None).as_deref(), Some("a-young"), "while it leaves too");
    assert_eq!(owns(&[&old], None), None);
}

#[test]
fn row17_labels_with_other_values_are_no_roles() {
    for value in ["false", "", "True"] {
        let mut view = settled(json!({}));
        view.object.as_mut().unwrap().labels.insert(GATEWAY.into(), value.into());
        assert!(!view.wants_gateway(), "{value:?}");
    }
}

fn facts(records: &[NodeRecord]) -> ChassisFacts<'_> {
    ChassisFacts {
        records,
        nodes: vec![],
        central: Ok(()),
        owned_elsewhere: vec![],
        view_too_large: None,
        trouble: None,
        first_roll: None,
    }
}

fn condition(facts: &ChassisFacts<'_>, type_: &str) -> ConditionSpec {
    conditions(facts).0.into_iter().find(|c| c.type_ == type_).unwrap()
}

fn with_reason(reason: Reason) -> NodeRecord {
    NodeRecord {
        name: format!("node-{}", reason.as_str()),
        phase: Some(reason.phase()),
        reason: Some(reason.as_str().into()),
        message: Some("why".into()),
        ..NodeRecord::default()
    }
}

#[test]
fn maintenance_shows_the_worst_and_work_in_flight_is_no_outage() {
    let order = [
        (Reason::AsDesired, maintenance::IDLE, true),
        (Reason::PodsEnding, maintenance::DEFERRED, true),
        (Reason::MovingGateways, maintenance::RUNNING, true),
        (Reason::JobFailed, maintenance::JOB_FAILED, false),
        (Reason::JobNameTaken, maintenance::ERROR, false),
    ];
    let mut records = Vec::new();
    for (reason, shown, status) in order {
        records.push(with_reason(reason));
        let facts = facts(&records);
        let condition = condition(&facts, "MaintenanceReady");
        assert_eq!((condition.reason, condition.status), (shown, status));
        if reason != Reason::AsDesired {
            assert!(condition.message.contains(reason.as_str()), "names the node: {}", condition.message);
        }
    }
}

#[test]
fn ready_names_what_is_not() {
    let mut facts = facts(&[]);
    assert!(condition(&facts, "Ready").status);
    facts.central = Err(Problem { reason: "CentralNotFound", message: "OVNCentral x does not exist".into() });
    facts.owned_elsewhere = vec![("node-a".into(), ChassisRef::new("other", "first"))];
    let ready = condition(&facts, "Ready");
    assert!(!ready.status && ready.message.contains("CentralReady") && ready.message.contains("NodesReady"));
    let nodes = condition(&facts, "NodesReady");
    assert_eq!(nodes.reason, "NodeOwnedElsewhere");
    assert!(nodes.message.contains("node-a") && nodes.message.contains("other/first"));
}

/// A gateway whose `ovs` pod has a standby that is to get its grant.
fn rolling() -> NodeView {
    let mut view = settled(json!({}));
    let pod = |uid: &str, ready: bool, at: i64| PodView {
        name: uid.into(),
        uid: uid.into(),
        component: "ovs".into(),
        ready,
        ending: false,
        created: Some(Timestamp::new(at, 0).unwrap()),
        revision: String::new(),
    };
    view.pods = vec![pod("old", true, 1), pod("new", false, 2)];
    view.grants = vec!["new".into()];
    view
}

fn lowering() -> Option<Lowering> {
    Some(Lowering { chassis: SystemId::new("id-a"), own: vec![], raised: vec![], relied_on: vec![] })
}

fn granted(plan: &Plan) -> bool {
    plan.steps.iter().any(|s| matches!(s, Step::WriteNode(spec) if spec.handover.is_some()))
}

#[test]
fn field23_a_gateway_is_held_too_while_its_ports_could_not_be_asked_about() {
    let mut view = settled(json!({"drain": {"lastGateway": "Hold"}}));
    remove_label(&mut view, GATEWAY);
    for unknown in [Ports::NotAsked, Ports::Unknown("get Job: forbidden".into())] {
        view.ports = unknown;
        let plan = decide(&view, now());
        let keeps = |step: &Step| !matches!(step, Step::WriteNode(spec) if !spec.gateway);
        assert!(plan.steps.iter().all(keeps), "{plan:?}");
    }
}

#[test]
fn a_gateway_whose_label_goes_in_its_turn_is_not_rolled_before_its_ports_have_moved() {
    let mut view = rolling();
    remove_label(&mut view, GATEWAY);
    view.ports = Ports::Known(PortsAround { here: vec!["lrp".into()], lowering: lowering(), ..Default::default() });
    let plan = decide(&view, now());
    assert!(!granted(&plan), "{plan:?}");
}

#[test]
fn a_gateways_standby_gets_its_grant_once_the_role_has_moved_and_it_stays_moved() {
    let mut view = rolling();
    let here = PortsAround { here: vec!["lrp".into()], lowering: lowering(), moved: false, ..Default::default() };
    view.ports = Ports::Known(here.clone());
    let plan = decide(&view, now());
    assert!(!granted(&plan) && plan.steps.iter().any(|s| matches!(s, Step::LowerPriority(_))), "{plan:?}");
    assert_eq!(reason(&plan), "RollingGateway");
    assert!(message(&plan).contains("lrp"));
    view.duties.lowered = true;
    view.ports = Ports::Known(PortsAround { lowering: None, moved: true, ..here });
    assert_eq!(decide(&view, now()).steps, [], "it waits, and gives nothing back");
    view.ports = Ports::Known(PortsAround { moved: true, quiet_since: Some(now()), ..Default::default() });
    let plan = decide(&view, now());
    assert!(!granted(&plan) && plan.look_again.is_some(), "one sighting is no proof");
    assert!(granted(&decide(&view, now().checked_add(SignedDuration::from_secs(1)).unwrap())));
}

#[test]
fn a_roll_moves_nothing_where_nothing_can_move_and_for_ovn_controller_alone() {
    let mut view = rolling();
    view.ports = Ports::Known(PortsAround { moved: false, ..Default::default() });
    assert!(granted(&decide(&view, now())), "no other candidate: at once");
    view.ports = Ports::Unknown("refused".into());
    assert!(!granted(&decide(&view, now())), "not on what nobody can tell");
    view.pods.iter_mut().for_each(|p| p.component = "ovn-controller".into());
    assert!(granted(&decide(&view, now())));
}

#[test]
fn the_priority_comes_back_when_the_rolled_node_has_been_healthy_for_a_time() {
    let mut view = rolling();
    view.duties.lowered = true;
    let mut ocn = (**view.ocn.as_ref().unwrap()).clone();
    ocn.spec.handover = Some(crate::api::Handover { grants: vec!["new".into()] });
    view.ocn = Some(Arc::new(ocn));
    let restores = |view: &NodeView, seconds: i64| {
        let plan = decide(view, now().checked_add(SignedDuration::from_secs(seconds)).unwrap());
        plan.steps.iter().any(|s| matches!(s, Step::RestorePriority { .. }))
    };
    assert!(!restores(&view, 1000), "not before the successor works");
    view.pods.remove(0);
    view.healthy_since = Some(now());
    assert!(!restores(&view, 3) && restores(&view, 15));
    // A roll that was called off, and a label that came back: at once.
    view.healthy_since = None;
    view.grants.clear();
    let mut ocn = (**view.ocn.as_ref().unwrap()).clone();
    ocn.spec.handover = None;
    view.ocn = Some(Arc::new(ocn));
    view.pods.truncate(0);
    assert!(restores(&view, 0));
}

#[test]
fn field20_after_the_rows_are_gone_the_southbound_has_to_agree() {
    let mut view = draining();
    apply(&mut view);
    view.jobs.get_mut(&JobKind::Apply).unwrap().phase = JobPhase::Complete(now());
    view.outcomes.evacuated = Some(SystemId::new("id-a"));
    view.duties.rows = Some(0);
    let left = PortsAround { here: vec!["lrp".into()], moved: true, ..Default::default() };
    view.ports = Ports::Known(left);
    let plan = decide(&view, now());
    assert_eq!(reason(&plan), "BindingsLeft");
    assert!(message(&plan).contains("lrp"));
    let late = now().checked_add(SignedDuration::from_secs(301)).unwrap();
    let plan = decide(&view, late);
    assert_eq!((reason(&plan), plan.ports.clone()), ("JobFailed", vec!["lrp".to_owned()]));
    assert!(message(&plan).contains("lrp"));
    view.ports = Ports::Known(PortsAround::default());
    let Some(Entry::Is(record)) = decide(&view, now()).entry else { panic!() };
    assert!(record.gateway_evacuated);
}

#[test]
fn field20_the_flag_stays_until_the_ports_have_moved_and_the_jobs_are_there_at_once() {
    let mut view = settled(json!({}));
    remove_label(&mut view, GATEWAY);
    let here = PortsAround { here: vec!["lrp".into()], lowering: lowering(), ..Default::default() };
    view.ports = Ports::Known(here);
    let plan = decide(&view, now());
    let [Step::CreateJobs { kinds, settings }] = plan.steps.as_slice() else { panic!("{plan:?}") };
    assert_eq!(kinds, &[JobKind::Apply, JobKind::Evacuate]);
    assert_eq!(reason(&plan), "MovingTraffic");
    let mut work = job(&view, JobKind::Evacuate, JobPhase::Waiting);
    work.settings = settings.clone();
    view.jobs.insert(JobKind::Evacuate, work.clone());
    view.jobs
        .insert(JobKind::Apply, JobView { phase: JobPhase::Waiting, ..job(&view, JobKind::Apply, JobPhase::Waiting) });
    let plan = decide(&view, now());
    assert!(matches!(plan.steps.as_slice(), [Step::ChangeJobs(_), Step::LowerPriority(_)]), "{plan:?}");

    // Past the deadline the Job fails with the names, and stays failed even if the ports move then.
    work.phase = JobPhase::Started(now());
    view.jobs.insert(JobKind::Evacuate, work.clone());
    let late = now().checked_add(SignedDuration::from_secs(301)).unwrap();
    let plan = decide(&view, late);
    assert_eq!((reason(&plan), plan.ports.clone()), ("JobFailed", vec!["lrp".to_owned()]));
    assert!(message(&plan).contains("lrp"));
    work.phase = JobPhase::Failed { at: now(), message: "lrp".into() };
    view.jobs.insert(JobKind::Evacuate, work);
    view.ports = Ports::Known(PortsAround::default());
    let plan = decide(&view, late);
    assert_eq!((plan.steps.as_slice(), reason(&plan)), ([].as_slice(), "JobFailed"));
    view.jobs.remove(&JobKind::Evacuate);
    assert!(decide(&view, late).steps.iter().any(|s| matches!(s, Step::WriteNode(spec) if spec.evacuate)));
}

#[test]
fn what_is_pinned_is_named_before_and_after() {
    let mut view = settled(json!({}));
    remove_label(&mut view, GATEWAY);
    view.pins = vec!["lr9 (Logical_Router options:chassis)".into()];
    let said = |plan: &Plan| {
        plan.steps
            .iter()
            .any(|s| matches!(s, Step::Announce(h) if h.reason == "ChassisPinned" && h.note.contains("lr9")))
    };
    let plan = decide(&view, now());
    assert!(said(&plan), "{plan:?}");
    let mut view = draining();
    apply(&mut view);
    view.pins = vec!["lr9 (Logical_Router options:chassis)".into()];
    view.outcomes.evacuated = Some(SystemId::new("id-a"));
    assert!(message(&decide(&view, now())).contains("lr9"));
}
