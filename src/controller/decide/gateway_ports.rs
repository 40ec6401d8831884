//! What both databases together say about the gateway ports around a chassis: which have to move before it goes, which
//! nobody else can take, and since when all is quiet.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::wanted::{count, some_of};
use crate::ovn::northbound::{GatewayPort, GatewayView, Lowering, plan_lowering};
use crate::ovn::southbound::Whereabouts;

/// How long the Southbound has to give the same answer: a binding flaps in a third of the moves.
const STABLE: SignedDuration = SignedDuration::from_secs(1);

/// A port that nobody else can take, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stranded {
    pub port: String,
    pub why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// No other row.
    NoOther,
    /// Other rows, but their chassis are not registered.
    NotRegistered,
    /// None of the others has a bridge for the port's physical network.
    NoNetwork(String),
}

/// The ports, judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortsAround {
    /// Ports that sit on the chassis although a living other could have them.
    pub here: Vec<String>,
    /// Ports that nobody else can take.
    pub stranded: Vec<Stranded>,
    /// What is to change so that the others take over; None if the order is right.
    pub lowering: Option<Lowering>,
    /// The chassis' priority was lowered, or ports left it since this drain began: quiet has to last.
    pub moved: bool,
    /// Since when `here` has been empty.
    pub quiet_since: Option<Timestamp>,
}

/// What is known of the ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ports {
    /// Nothing is being taken away, so nobody asked.
    #[default]
    NotAsked,
    /// They cannot be judged now, and why.
    Unknown(String),
    Known(PortsAround),
}

impl PortsAround {
    /// Whether nothing sits here that somebody else could have, for good. Nothing that was moved needs no second look.
    pub fn is_quiet(&self, now: Timestamp) -> bool {
        self.here.is_empty()
            && (!self.moved || self.quiet_since.is_some_and(|since| now.duration_since(since) >= STABLE))
    }

    /// When [`Self::is_quiet`] will be so if nothing changes.
    pub fn quiet_at(&self) -> Option<Timestamp> {
        self.quiet_since.filter(|_| self.here.is_empty()).and_then(|since| since.checked_add(STABLE).ok())
    }

    /// Names of the ports that nobody else can take.
    pub fn stranded_names(&self) -> Vec<String> {
        self.stranded.iter().map(|s| s.port.clone()).collect()
    }
}

/// Judges them. `seen` are ports that this drain has seen on the chassis: one of those that is nowhere now has not arrived.
pub fn judge(
    northbound: &GatewayView,
    networks: &BTreeMap<String, String>,
    southbound: &Whereabouts,
    seen: &BTreeSet<String>,
) -> PortsAround {
    let chassis = northbound.chassis();
    let mut here = Vec::new();
    let mut stranded = Vec::new();
    for port in &northbound.ports {
        let is_ours = port.candidates.iter().any(|candidate| candidate.chassis == *chassis);
        if let Err(why) = can_go(port, networks, southbound, northbound) {
            if is_ours {
                stranded.push(Stranded { port: port.name.clone(), why });
            }
            continue;
        }
        let left = southbound.nowhere.contains(&port.name) && seen.contains(&port.name);
        if southbound.here.contains(&port.name) || left {
            here.push(port.name.clone());
        }
    }
    let living = southbound.networks.keys().cloned().collect();
    PortsAround { here, stranded, lowering: plan_lowering(northbound, &living), moved: false, quiet_since: None }
}

/// Whether a living other that reaches the port's network is among its candidates.
fn can_go(
    port: &GatewayPort,
    networks: &BTreeMap<String, String>,
    southbound: &Whereabouts,
    northbound: &GatewayView,
) -> Result<(), Why> {
    let mut others = port.effective();
    others.retain(|candidate| candidate.chassis != *northbound.chassis());
    if others.is_empty() {
        return Err(Why::NoOther);
    }
    let living: Vec<_> = others.iter().filter_map(|other| southbound.networks.get(&other.chassis)).collect();
    if living.is_empty() {
        return Err(Why::NotRegistered);
    }
    match networks.get(&port.name) {
        Some(network) if !living.iter().any(|reached| reached.contains(network)) => {
            Err(Why::NoNetwork(network.clone()))
        }
        _ => Ok(()),
    }
}

/// Whether physical networks make a difference at all: not where everybody reaches what this chassis does.
pub fn networks_matter(northbound: &GatewayView, southbound: &Whereabouts) -> bool {
    let Some(own) = southbound.networks.get(northbound.chassis()) else { return false };
    let mut others = northbound.other_chassis().into_iter().filter_map(|other| southbound.networks.get(other));
    others.any(|reached| !own.is_subset(reached))
}

/// The ports that nobody else can take, for people: `1 port … without any gateway: lr0-p0; …`. Empty if there are none.
pub fn say_stranded(stranded: &[Stranded], verb: &str) -> String {
    let names = |wanted: &dyn Fn(&Why) -> bool| -> Vec<String> {
        stranded.iter().filter(|s| wanted(&s.why)).map(|s| s.port.clone()).collect()
    };
    let mut said = Vec::new();
    let mut say = |ports: Vec<String>, rest: String| {
        if !ports.is_empty() {
            said.push(format!("{} {verb}{rest}: {}", count(ports.len(), "port"), some_of(&ports)));
        }
    };
    say(names(&|why| *why == Why::NoOther), "without any gateway".into());
    say(names(&|why| *why == Why::NotRegistered), "without a gateway that is registered".into());
    let networks: BTreeSet<&String> = stranded
        .iter()
        .filter_map(|s| if let Why::NoNetwork(network) = &s.why { Some(network) } else { None })
        .collect();
    for network in networks {
        let of = names(&|why| matches!(why, Why::NoNetwork(n) if n == network));
        say(of, format!("without a gateway that reaches physical network {network}"));
    }
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::SystemId;
    use crate::ovn::northbound::{Candidate, ChassisRows, PortKind};
    use crate::ovsdb::Uuid;

    fn port(name: &str, candidates: &[(&str, i64)]) -> GatewayPort {
        let candidates = candidates
            .iter()
            .enumerate()
            .map(|(number, (chassis, priority))| Candidate {
                priority: *priority,
                chassis: SystemId::from(*chassis),
                row: Uuid::from_u128(number as u128 + 1),
                in_group: false,
            })
            .collect();
        GatewayPort { uuid: Uuid::from_u128(99), name: name.into(), kind: PortKind::Router, candidates }
    }

    fn view(ports: Vec<GatewayPort>) -> GatewayView {
        let own = ports.iter().flat_map(|p| p.candidates.clone()).filter(|c| c.chassis == "gw1".into()).collect();
        let rows = ChassisRows { chassis: "gw1".into(), gateway_chassis: vec![], ha_chassis: vec![] };
        GatewayView { rows, own, ports }
    }

    fn southbound(here: &[&str], nowhere: &[&str]) -> Whereabouts {
        let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<BTreeSet<String>>();
        Whereabouts {
            networks: [("gw1", "physnet1"), ("gw2", "physnet1"), ("poor", "physnet2")]
                .map(|(chassis, network)| (SystemId::from(chassis), set(&[network])))
                .into(),
            here: set(here),
            nowhere: set(nowhere),
        }
    }

    #[test]
    fn field20_a_port_that_somebody_else_could_have_is_named_as_long_as_it_sits_here() {
        let northbound = view(vec![port("a", &[("gw1", 2), ("gw2", 1)]), port("b", &[("gw1", 2), ("gw2", 1)])]);
        let judged = judge(&northbound, &BTreeMap::new(), &southbound(&["a"], &["b"]), &BTreeSet::new());
        assert_eq!(judged.here, ["a"]);
        assert!(judged.lowering.is_some() && judged.stranded.is_empty());
        let seen = BTreeSet::from(["b".to_owned()]);
        let judged = judge(&northbound, &BTreeMap::new(), &southbound(&[], &["b"]), &seen);
        assert_eq!(judged.here, ["b"], "seen here, and nowhere now: it has not arrived");
    }

    #[test]
    fn nobody_waits_for_a_candidate_that_is_not_registered() {
        let northbound = view(vec![port("a", &[("gw1", 2), ("dead", 1)]), port("b", &[("gw1", 2)])]);
        let judged = judge(&northbound, &BTreeMap::new(), &southbound(&["a", "b"], &[]), &BTreeSet::new());
        assert!(judged.here.is_empty());
        let whys: Vec<&Why> = judged.stranded.iter().map(|s| &s.why).collect();
        assert_eq!(whys, [&Why::NotRegistered, &Why::NoOther]);
    }

    #[test]
    fn field21_a_candidate_without_the_physical_network_takes_nothing() {
        let northbound = view(vec![port("a", &[("gw1", 2), ("poor", 1)])]);
        let networks = BTreeMap::from([("a".to_owned(), "physnet1".to_owned())]);
        let judged = judge(&northbound, &networks, &southbound(&["a"], &[]), &BTreeSet::new());
        assert!(judged.here.is_empty());
        let said = say_stranded(&judged.stranded, "would be left ");
        assert_eq!(said, "1 port would be left without a gateway that reaches physical network physnet1: a");
        assert!(networks_matter(&northbound, &southbound(&[], &[])));
        assert!(!networks_matter(&view(vec![port("a", &[("gw1", 2), ("gw2", 1)])]), &southbound(&[], &[])));
    }

    #[test]
    fn a_port_that_is_asked_for_by_name_counts_while_it_sits_here() {
        let northbound = view(vec![port("a", &[("gw2", 1)])]);
        let judged = judge(&northbound, &BTreeMap::new(), &southbound(&["a"], &[]), &BTreeSet::new());
        assert_eq!(judged.here, ["a"], "its row is gone, its binding is not");
    }

    #[test]
    fn quiet_is_what_stays_so_for_a_time() {
        let at = |millisecond: i64| Timestamp::from_millisecond(1_000_000 + millisecond).unwrap();
        let mut ports = PortsAround { moved: true, quiet_since: Some(at(0)), ..PortsAround::default() };
        assert!(!ports.is_quiet(at(999)) && ports.is_quiet(at(1000)));
        assert_eq!(ports.quiet_at(), Some(at(1000)));
        ports.here = vec!["a".into()];
        assert!(!ports.is_quiet(at(5000)));
        assert!(PortsAround::default().is_quiet(at(0)), "nothing was moved, so nothing has to settle");
    }
}
