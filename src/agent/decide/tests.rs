use super::*;
use crate::agent::observe::Schemas;

fn spec() -> OVNChassisNodeSpec {
    OVNChassisNodeSpec {
        node_name: "node-a".into(),
        system_id: Some("id-a".into()),
        ovn_remote: Some("ssl:192.0.2.1:6642".into()),
        config_hash: "h1".into(),
        ..Default::default()
    }
}

fn database(pairs: &[(&str, &str)]) -> LocalDatabase {
    let external_ids = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    LocalDatabase { external_ids, ovs_version: Some("3.1.0".into()), ..Default::default() }
}

fn applied() -> LocalDatabase {
    database(&[
        ("system-id", "id-a"),
        ("hostname", "node-a"),
        ("ovn-remote", "ssl:192.0.2.1:6642"),
        ("ovn-remote-probe-interval", "0"),
        ("ovn-encap-type", "geneve"),
        ("ovn-encap-ip", "192.0.2.9"),
    ])
}

fn healthy() -> Probes {
    Probes {
        vswitchd: Ok("3.1.0".into()),
        ovn_controller: Ok("connected".into()),
        ovn_version: Some("23.03.1".into()),
        schemas: None,
    }
}

/// A node in one state; each test changes what it is about.
struct Case {
    spec: OVNChassisNodeSpec,
    database: Option<LocalDatabase>,
    last: Option<LocalDatabase>,
    system_id_file: Option<String>,
    probes: Probes,
    flow_restore_overdue: bool,
    fault: Option<String>,
    memory: Memory,
}

impl Case {
    fn new(database: LocalDatabase) -> Self {
        Self {
            spec: spec(),
            database: Some(database),
            last: None,
            system_id_file: None,
            probes: healthy(),
            flow_restore_overdue: false,
            fault: None,
            memory: Memory::default(),
        }
    }

    fn decide(&self) -> Decision {
        decide(&Inputs {
            generation: 7,
            spec: &self.spec,
            database: match &self.database {
                Some(database) => DatabaseState::Known(database),
                None => DatabaseState::Away { fault: "connection refused", last: self.last.as_ref() },
            },
            system_id_file: self.system_id_file.as_deref(),
            encap_ip: "192.0.2.9",
            probes: &self.probes,
            flow_restore_overdue: self.flow_restore_overdue,
            fault: self.fault.as_deref(),
            memory: &self.memory,
        })
    }
}

fn condition<'a>(decision: &'a Decision, type_: &str) -> &'a ConditionSpec {
    decision.report.conditions.iter().find(|condition| condition.type_ == type_).unwrap()
}

fn settled(hash: &str, generation: i64) -> Settled {
    Settled { hash: hash.into(), generation }
}

#[test]
fn all_as_it_should_be() {
    let decision = Case::new(applied()).decide();
    assert!(decision.change.is_empty());
    assert_eq!(decision.report.applied, Some(settled("h1", 7)));
    assert!(decision.report.conditions.iter().all(|condition| condition.status));
    let versions = &decision.report.versions;
    assert_eq!((versions.ovs.as_deref(), versions.ovn.as_deref()), (Some("3.1.0"), Some("23.03.1")));
}

#[test]
fn the_version_is_the_running_daemons_whatever_the_database_holds() {
    for written in [None, Some("2.17.0")] {
        let mut seen = applied();
        seen.ovs_version = written.map(str::to_owned);
        let decision = Case::new(seen).decide();
        assert_eq!(decision.report.versions.ovs.as_deref(), Some("3.1.0"));
        assert_eq!(condition(&decision, "OVSReady").message, "Open vSwitch 3.1.0 runs");
    }
    let mut silent = Case::new(applied());
    silent.probes.vswitchd = Err("no answer".into());
    assert_eq!(silent.decide().report.versions.ovs.as_deref(), Some("3.1.0"), "what the database last said");
}

#[test]
fn first_report_names_the_id_that_the_node_brings_and_writes_nothing() {
    let mut case = Case::new(database(&[("system-id", "brownfield")]));
    case.spec.system_id = None;
    let decision = case.decide();
    assert!(decision.change.is_empty());
    assert_eq!(decision.report.observed.as_ref().unwrap().system_id.as_deref(), Some("brownfield"));
    assert_eq!(condition(&decision, "Applied").reason, reason::WAITING_FOR_SYSTEM_ID);
    assert_eq!(decision.report.applied, None);
}

#[test]
fn first_report_of_an_empty_database_takes_the_id_of_the_file_or_says_that_there_is_none() {
    let mut case = Case::new(LocalDatabase::default());
    case.spec.system_id = None;
    assert_eq!(case.decide().report.observed, Some(ObservedSettings::default()));
    case.system_id_file = Some("from-file".into());
    assert_eq!(case.decide().report.observed.unwrap().system_id.as_deref(), Some("from-file"));
    case.database = Some(database(&[("system-id", "from-db")]));
    assert_eq!(case.decide().report.observed.unwrap().system_id.as_deref(), Some("from-db"));
}

#[test]
fn a_database_that_was_never_seen_is_not_reported_as_empty() {
    let mut case = Case::new(applied());
    case.database = None;
    let decision = case.decide();
    assert_eq!(decision.report.observed, None);
    assert!(decision.change.is_empty());
    assert_eq!(condition(&decision, "Applied").reason, reason::DATABASE_AWAY);
    assert_eq!(condition(&decision, "OVSReady").reason, reason::DATABASE_AWAY);
}

#[test]
fn case_7_a_database_that_went_away_keeps_what_was_seen_and_claims_no_new_generation() {
    let mut case = Case::new(applied());
    case.last = case.database.take();
    case.memory.settled = Some(settled("h1", 6));
    let decision = case.decide();
    assert_eq!(decision.report.observed.as_ref().unwrap().system_id.as_deref(), Some("id-a"));
    assert_eq!(decision.report.applied, Some(settled("h1", 6)));
    assert!(decision.change.is_empty());
}

#[test]
fn a_change_under_way_claims_nothing() {
    let mut case = Case::new(applied());
    case.spec.gateway = true;
    case.spec.config_hash = "h2".into();
    case.memory.settled = Some(settled("h1", 6));
    let decision = case.decide();
    assert_eq!(decision.change.names(), ["ovn-cms-options"]);
    assert!(!decision.is_repair);
    assert_eq!(decision.report.applied, None);
    assert_eq!(condition(&decision, "Applied").reason, reason::APPLYING);
    case.fault = Some("`ovs-vsctl …` ended with exit status: 1: no row".into());
    let decision = case.decide();
    assert_eq!(condition(&decision, "Applied").reason, reason::APPLY_FAILED);
    assert!(condition(&decision, "Applied").message.contains("no row"));
}

#[test]
fn a_b_a_is_reported_with_the_generation_it_belongs_to() {
    let mut case = Case::new(applied());
    case.memory.settled = Some(settled("h1", 5));
    assert_eq!(case.decide().report.applied, Some(settled("h1", 7)));
}

#[test]
fn drift_is_a_repair_and_is_told_until_the_settings_change() {
    let mut case = Case::new(applied());
    case.memory = case.memory.after(&case.decide(), false);
    case.database.as_mut().unwrap().external_ids.insert("ovn-remote".into(), "tcp:198.51.100.1:6642".into());
    let decision = case.decide();
    assert!(decision.is_repair);
    assert_eq!(decision.change.names(), ["ovn-remote"]);
    case.memory = case.memory.after(&decision, true);
    case.database = Some(applied());
    let decision = case.decide();
    let applied = condition(&decision, "Applied");
    assert!(applied.status);
    assert_eq!(
        (applied.reason, applied.message.as_str()),
        (reason::DRIFT_REPAIRED, "changed on the node and set back 1 times, last: ovn-remote")
    );
    case.spec.config_hash = "h2".into();
    case.memory = case.memory.after(&case.decide(), false);
    assert_eq!(condition(&case.decide(), "Applied").reason, reason::APPLIED);
}

#[test]
fn an_override_is_reported_and_never_claimed_as_applied() {
    let mut case = Case::new(applied());
    case.database.as_mut().unwrap().external_ids.insert("ovn-cms-options-id-a".into(), "enable-chassis-as-gw".into());
    let decision = case.decide();
    assert!(decision.change.is_empty());
    assert_eq!(decision.report.applied, None);
    let applied = condition(&decision, "Applied");
    assert!(!applied.status && applied.reason == reason::OVERRIDDEN, "{applied:?}");
    assert!(applied.message.contains("ovn-cms-options-id-a=enable-chassis-as-gw"));
}

#[test]
fn invalid_settings_are_refused_with_field_found_and_expected_and_nothing_is_written() {
    let mut case = Case::new(LocalDatabase::default());
    case.spec.ovn_remote = Some("192.0.2.1:6642".into());
    let decision = case.decide();
    assert!(decision.change.is_empty());
    let applied = condition(&decision, "Applied");
    assert_eq!(applied.reason, reason::INVALID_SETTINGS);
    let expected = "spec.ovnRemote: found \"192.0.2.1:6642\", expected ssl:IP:PORT";
    assert!(applied.message.starts_with(expected), "{}", applied.message);
}

#[test]
fn case_29_a_dns_name_is_applied_and_named_when_it_does_not_connect() {
    let mut case = Case::new(applied());
    case.spec.ovn_remote = Some("ssl:sb.example.org:6642".into());
    assert_eq!(case.decide().change.names(), ["ovn-remote"]);
    assert!(!condition(&case.decide(), "ControllerReady").message.contains("example"));
    case.probes.ovn_controller = Ok("not connected".into());
    let decision = case.decide();
    let message = &condition(&decision, "ControllerReady").message;
    assert!(message.contains("sb.example.org") && message.contains("libunbound"), "{message}");
}

#[test]
fn without_a_central_the_rest_is_applied_and_the_remote_stays() {
    let mut case = Case::new(applied());
    case.spec.ovn_remote = None;
    case.spec.gateway = true;
    assert_eq!(case.decide().change.names(), ["ovn-cms-options"]);
    case.database.as_mut().unwrap().external_ids.insert("ovn-cms-options".into(), "enable-chassis-as-gw".into());
    let decision = case.decide();
    assert!(decision.change.is_empty());
    assert_eq!(condition(&decision, "Applied").reason, reason::WAITING_FOR_CENTRAL);
    assert_eq!(decision.report.applied, None);
}

#[test]
fn case_8_a_southbound_that_is_away_is_the_controllers_condition_alone() {
    let mut case = Case::new(applied());
    case.probes.ovn_controller = Ok("not connected".into());
    let decision = case.decide();
    assert!(condition(&decision, "Applied").status && condition(&decision, "OVSReady").status);
    let controller = condition(&decision, "ControllerReady");
    assert!(!controller.status && controller.message.ends_with("not connected"), "{controller:?}");
}

#[test]
fn case_5_a_restart_that_ended_by_the_watchdog_says_so_and_is_ready() {
    let mut case = Case::new(applied());
    case.flow_restore_overdue = true;
    let decision = case.decide();
    let condition = condition(&decision, "OVSReady");
    assert!(condition.status);
    assert_eq!(condition.reason, reason::FLOW_RESTORE_OVERDUE);
    assert!(condition.message.contains("Open vSwitch 3.1.0 runs"), "{}", condition.message);
}

#[test]
fn case_5_flow_restore_wait_left_on_is_not_ready() {
    let mut case = Case::new(applied());
    case.database.as_mut().unwrap().flow_restore_wait = true;
    let decision = case.decide();
    assert_eq!(condition(&decision, "OVSReady").reason, reason::FLOW_RESTORE_WAIT);
    assert!(condition(&decision, "Applied").status);
}

#[test]
fn case_31_a_schema_that_differs_names_both() {
    let mut case = Case::new(applied());
    case.probes.schemas = Some(Schemas { database: "8.5.0".into(), image: "8.3.1".into() });
    let decision = case.decide();
    let ovs = condition(&decision, "OVSReady");
    assert!(ovs.status && ovs.message.contains("8.5.0") && ovs.message.contains("8.3.1"), "{ovs:?}");
}

#[test]
fn a_silent_vswitchd_is_named_with_the_cause() {
    let mut case = Case::new(applied());
    case.probes.vswitchd = Err("cannot connect".into());
    let decision = case.decide();
    assert_eq!(condition(&decision, "OVSReady").message, "ovs-vswitchd does not answer: cannot connect");
}
