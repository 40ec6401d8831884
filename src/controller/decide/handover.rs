//! Which standby pods may take over: one node at a time, the next after the one before is healthy again; and on a node one
//! daemon set at a time, `ovs` first, so that what one hand-over waits for is not taken away by the other.
//!
//! Kubernetes counts a node as rolled as soon as its new pod is Ready and never looks at what happens after it took over.
//! So a standby turns Ready only with a grant from here; a broken image or node stops the roll where it is.

use std::collections::BTreeMap;

use super::view::PodView;
use crate::model::ids::NodeName;
use crate::model::names::COMPONENT_OVS;

/// One node of an OVNChassis.
#[derive(Clone, Debug)]
pub struct RollingNode {
    pub node: NodeName,
    pub pods: Vec<PodView>,
    /// The agent says that the datapath is up, and its flows are in.
    pub reports_ovs: bool,
    /// The agent says that ovn-controller is connected.
    pub reports_controller: bool,
    /// The pod of that agent; none for an agent outside a pod.
    pub reported_by: Option<String>,
    /// Grants that its object carries now.
    pub granted: Vec<String>,
    /// Its gateway role is elsewhere for the roll: the turn ends when it is back.
    pub role_is_away: bool,
}

impl RollingNode {
    fn before<'a>(&'a self, pod: &'a PodView) -> impl Iterator<Item = &'a PodView> {
        self.pods.iter().filter(move |o| o.component == pod.component && (o.created, &o.uid) < (pod.created, &pod.uid))
    }

    /// Pods that wait behind an older one.
    fn standbys(&self) -> impl Iterator<Item = &PodView> {
        self.pods.iter().filter(|p| !p.ending && !p.ready && self.before(p).next().is_some())
    }

    fn is_granted(&self, pod: &PodView) -> bool {
        self.granted.contains(&pod.uid)
    }

    /// The standbys whose turn it is on this node.
    fn next(&self) -> Vec<String> {
        let ovs = |pod: &&PodView| pod.component == COMPONENT_OVS;
        let of_ovs = self.standbys().filter(ovs).count();
        let ready = |pod: &PodView| match ovs(&pod) {
            // One of ovn-controller that was granted has begun: it comes to its end first.
            true => !self.is_under_way(|pod| !ovs(&pod)),
            // A datapath that was handed over is no reason to wait when it is sick in its own right.
            false => of_ovs == 0 && !self.is_under_way(|pod| ovs(&pod)),
        };
        self.standbys().filter(|pod| self.is_granted(pod) || ready(pod)).map(|pod| pod.uid.clone()).collect()
    }

    /// Whether a hand-over of these pods has begun and is not over: one that was granted waits behind an older one, or took
    /// over and is not well yet.
    fn is_under_way(&self, of: impl Fn(&PodView) -> bool) -> bool {
        let mut pods = self.pods.iter().filter(|pod| of(pod));
        pods.any(|pod| {
            let reported = if pod.component == COMPONENT_OVS { self.reports_ovs } else { self.reports_controller };
            let well = pod.ready && reported && self.report_is_current();
            // One that is sick and has a successor of its own in waiting is not waited for: that may be the cure.
            let is_replaced = self.standbys().any(|standby| standby.component == pod.component);
            pod.ending || self.is_granted(pod) && (!well && !is_replaced || self.before(pod).next().is_some())
        })
    }

    fn report_is_current(&self) -> bool {
        is_current(self.reported_by.as_deref(), &self.pods)
    }

    /// Every pod that is left runs, and the agent says so too.
    fn is_settled(&self) -> bool {
        self.report_is_current()
            && self.reports_ovs
            && self.reports_controller
            && self.pods.iter().all(|p| p.ready && !p.ending)
            && self.one_of_each()
    }

    fn has_the_turn(&self) -> bool {
        if self.granted.is_empty() {
            // A leader that died between the move and the grant.
            return self.role_is_away && self.standbys().next().is_some();
        }
        !self.is_settled() || self.role_is_away
    }

    fn one_of_each(&self) -> bool {
        let mut number: BTreeMap<&str, usize> = BTreeMap::new();
        for pod in &self.pods {
            *number.entry(&pod.component).or_default() += 1;
        }
        number.values().all(|n| *n == 1)
    }
}

/// Whether a report is about the pods that there are: one of a pod that is gone, or about to go, says nothing of its
/// successor.
pub fn is_current(reported_by: Option<&str>, pods: &[PodView]) -> bool {
    reported_by.is_none_or(|uid| pods.iter().any(|pod| pod.uid == uid && !pod.ending))
}

/// Grants for each node that is to have some.
pub fn grants(nodes: &[RollingNode]) -> BTreeMap<NodeName, Vec<String>> {
    let mut grants = BTreeMap::new();
    // Only where nobody's turn is under way does one begin, also on a gateway whose role is away already.
    let is_under_way = nodes.iter().any(|n| !n.granted.is_empty() && n.has_the_turn());
    let begins = nodes.iter().find(|n| !is_under_way && n.granted.is_empty() && n.has_the_turn()).map(|n| &n.node);
    for node in nodes.iter().filter(|n| n.has_the_turn() && (begins == Some(&n.node) || !n.granted.is_empty())) {
        // Its turn goes on: what is granted stays as long as the pod is there, and standbys of the other set join when it is
        // well again.
        let mut uids: Vec<_> =
            node.granted.iter().filter(|uid| node.pods.iter().any(|p| p.uid == **uid)).cloned().collect();
        uids.extend(node.next().into_iter().filter(|uid| !node.granted.contains(uid)));
        uids.truncate(8);
        if uids.is_empty() {
            // The pod that had the grant is gone and the node is not healthy: keep the turn, so that no other begins.
            uids = node.granted.clone();
        }
        grants.insert(node.node.clone(), uids);
    }
    if grants.is_empty()
        && let Some((node, mut uids)) = nodes.iter().map(|n| (n, n.next())).find(|(_, standbys)| !standbys.is_empty())
    {
        uids.truncate(8);
        grants.insert(node.node.clone(), uids);
    }
    grants
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn pod(uid: &str, component: &str, ready: bool, at: i64) -> PodView {
        PodView {
            name: uid.into(),
            uid: uid.into(),
            component: component.into(),
            ready,
            ending: false,
            created: Some(Timestamp::new(at, 0).unwrap()),
            revision: String::new(),
        }
    }

    fn node(name: &str, pods: Vec<PodView>, granted: &[&str]) -> RollingNode {
        RollingNode {
            node: name.into(),
            pods,
            reports_ovs: true,
            reports_controller: true,
            reported_by: None,
            granted: granted.iter().map(|g| (*g).to_owned()).collect(),
            role_is_away: false,
        }
    }

    fn rolling(name: &str, granted: &[&str]) -> RollingNode {
        let uid = |kind: &str| format!("{name}-{kind}");
        node(name, vec![pod(&uid("old"), "ovs", true, 1), pod(&uid("new"), "ovs", false, 2)], granted)
    }

    fn of(nodes: &[RollingNode]) -> Vec<(String, Vec<String>)> {
        grants(nodes).into_iter().map(|(n, g)| (n.to_string(), g)).collect()
    }

    #[test]
    fn one_node_at_a_time_gets_its_standby_granted() {
        let nodes = [rolling("a", &[]), rolling("b", &[])];
        assert_eq!(of(&nodes), [("a".into(), vec!["a-new".into()])]);
    }

    #[test]
    fn the_next_waits_until_the_one_before_is_healthy_again() {
        let mut first = node("a", vec![pod("a-new", "ovs", true, 2)], &["a-new"]);
        first.reports_controller = false;
        let waiting = [first.clone(), rolling("b", &[])];
        assert_eq!(of(&waiting), [("a".into(), vec!["a-new".into()])]);
        first.reports_controller = true;
        assert_eq!(of(&[first, rolling("b", &[])]), [("b".into(), vec!["b-new".into()])]);
    }

    #[test]
    fn the_turn_of_a_gateway_ends_when_its_role_is_back() {
        let mut first = node("a", vec![pod("a-new", "ovs", true, 2)], &["a-new"]);
        first.role_is_away = true;
        assert_eq!(of(&[first.clone(), rolling("b", &[])]), [("a".into(), vec!["a-new".into()])]);
        first.role_is_away = false;
        assert_eq!(of(&[first, rolling("b", &[])]), [("b".into(), vec!["b-new".into()])]);
    }

    #[test]
    fn a_node_whose_role_moved_before_the_leader_died_is_the_next() {
        let mut second = rolling("b", &[]);
        second.role_is_away = true;
        assert_eq!(of(&[rolling("a", &[]), second]), [("b".into(), vec!["b-new".into()])]);
    }

    /// A node on which both sets are rolled, some of it granted.
    fn rolling_both(ovs: Vec<PodView>, granted: &[&str]) -> RollingNode {
        let mut pods = vec![pod("c-old", "ovn-controller", true, 1), pod("c-new", "ovn-controller", false, 2)];
        pods.extend(ovs);
        node("a", pods, granted)
    }

    fn granted_on(node: RollingNode) -> Vec<String> {
        of(&[node]).into_iter().flat_map(|(_, uids)| uids).collect()
    }

    #[test]
    fn the_second_daemon_set_of_a_node_begins_when_the_first_has_its_flows() {
        let standby = || vec![pod("o-old", "ovs", true, 1), pod("o-new", "ovs", false, 2)];
        assert_eq!(granted_on(rolling_both(standby(), &[])), ["o-new"]);
        assert_eq!(granted_on(rolling_both(standby(), &["o-new"])), ["o-new"]);
        let mut ending = standby();
        (ending[0].ending, ending[1].ready) = (true, true);
        assert_eq!(granted_on(rolling_both(ending, &["o-new"])), ["o-new"]);
        let mut new = vec![pod("o-new", "ovs", true, 2)];
        let mut held = rolling_both(new.clone(), &["o-new"]);
        held.reports_ovs = false;
        assert_eq!(granted_on(held), ["o-new"]);
        assert_eq!(granted_on(rolling_both(new.clone(), &["o-new"])), ["o-new", "c-new"]);
        // What ovn-controller says does not hold up its own successor.
        let mut sick = rolling_both(new.clone(), &["o-new"]);
        sick.reports_controller = false;
        assert_eq!(granted_on(sick), ["o-new", "c-new"]);
        new[0].ready = false;
        assert_eq!(granted_on(rolling_both(new, &["o-new"])), ["o-new"]);
    }

    #[test]
    fn what_the_pod_before_said_is_no_word_about_its_successor() {
        let mut node = node("a", vec![pod("a-new", "ovs", true, 2)], &["a-new"]);
        node.reported_by = Some("a-old".into());
        assert_eq!(of(&[node.clone(), rolling("b", &[])]), [("a".into(), vec!["a-new".into()])]);
        node.reported_by = Some("a-new".into());
        assert_eq!(of(&[node, rolling("b", &[])]), [("b".into(), vec!["b-new".into()])]);
        let mut both = rolling_both(vec![pod("o-new", "ovs", true, 2)], &["o-new"]);
        both.reported_by = Some("o-old".into());
        assert_eq!(granted_on(both.clone()), ["o-new"]);
        both.reported_by = Some("o-new".into());
        assert_eq!(granted_on(both), ["o-new", "c-new"]);
    }

    #[test]
    fn a_sick_daemon_of_the_other_set_that_is_not_rolled_holds_up_nobody() {
        let mut sick = rolling_both(vec![pod("o", "ovs", false, 1)], &[]);
        sick.reports_ovs = false;
        assert_eq!(granted_on(sick), ["c-new"]);
    }

    #[test]
    fn a_hand_over_of_ovn_controller_that_has_begun_comes_to_its_end_first() {
        let standby = || vec![pod("o-old", "ovs", true, 1), pod("o-new", "ovs", false, 2)];
        assert_eq!(granted_on(rolling_both(standby(), &["c-new"])), ["c-new"]);
        let mut over = node("a", standby(), &["c-new"]);
        over.pods.push(pod("c-new", "ovn-controller", true, 2));
        assert_eq!(granted_on(over), ["c-new", "o-new"]);
    }

    #[test]
    fn a_first_pod_needs_no_grant() {
        assert!(of(&[node("a", vec![pod("p", "ovs", false, 1)], &[])]).is_empty());
    }

    #[test]
    fn a_granted_pod_that_vanished_from_a_sick_node_keeps_the_others_waiting() {
        let sick = node("a", vec![pod("a-old", "ovs", false, 1)], &["a-new"]);
        assert_eq!(of(&[sick, rolling("b", &[])]), [("a".into(), vec!["a-new".into()])]);
    }

    #[test]
    fn the_cure_of_a_sick_ovn_controller_may_come_with_a_new_pod_of_ovs() {
        // c-new took over and is not connected; an image that mends it gives both sets a standby.
        let pods = vec![
            pod("o-new", "ovs", true, 1),
            pod("c-new", "ovn-controller", true, 1),
            pod("o-fix", "ovs", false, 2),
            pod("c-fix", "ovn-controller", false, 2),
        ];
        let mut sick = node("a", pods, &["o-new", "c-new"]);
        sick.reports_controller = false;
        assert_eq!(granted_on(sick), ["o-new", "c-new", "o-fix"]);
    }

    #[test]
    fn one_node_at_a_time_also_when_the_role_of_another_is_away_already() {
        let mut first = node("a", vec![pod("a-new", "ovs", true, 2)], &["a-new"]);
        first.reports_ovs = false;
        let mut drained = rolling("b", &[]);
        drained.role_is_away = true;
        assert_eq!(of(&[first, drained.clone()]), [("a".into(), vec!["a-new".into()])]);
        let mut other = rolling("c", &[]);
        other.role_is_away = true;
        assert_eq!(of(&[drained, other]), [("b".into(), vec!["b-new".into()])]);
    }
}
