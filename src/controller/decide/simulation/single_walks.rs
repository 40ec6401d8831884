//! Walks that are worth a name: the guide's, and those that the random search found to break a promise once.

use super::super::{Entry, Step};
use super::*;
use crate::cluster::jobs::JobPhase;
use crate::model::names::JobKind;
use Event::{Agent, CreateNode, DeleteNode, PodsFollow, Report};

fn pass(steps: usize) -> Event {
    Event::Pass { steps }
}

fn labels(chassis: bool, gateway: bool) -> Event {
    Event::Labels { chassis, gateway }
}

#[test]
fn a_node_that_comes_back_while_it_leaves_and_is_deleted_then_leaves_no_chassis_row_behind() {
    walk([
        pass(3),
        Agent,
        pass(3),
        labels(false, false),
        pass(2),
        pass(1),
        Report,
        Agent,
        pass(2),
        pass(0),
        Report,
        pass(2),
        labels(false, false),
        CreateNode,
        pass(2),
        labels(true, true),
        pass(1),
        PodsFollow,
        labels(false, false),
        DeleteNode,
    ]);
}

#[test]
fn a_node_that_is_back_for_a_moment_and_then_deleted_leaves_no_job_that_never_ends() {
    walk([
        pass(3),
        Agent,
        pass(1),
        pass(2),
        labels(false, false),
        pass(2),
        pass(1),
        Agent,
        pass(1),
        pass(1),
        Report,
        pass(0),
        labels(true, false),
        Report,
        pass(1),
        pass(2),
        labels(false, false),
        pass(2),
        pass(2),
        DeleteNode,
        pass(2),
    ]);
}

#[test]
fn a_node_that_is_back_before_its_mark_and_its_agent_are_seen_leaves_no_chassis_row_behind() {
    walk([
        pass(0),
        DeleteNode,
        Report,
        pass(2),
        Agent,
        CreateNode,
        pass(2),
        Agent,
        pass(1),
        pass(2),
        pass(0),
        Report,
        pass(2),
        labels(true, false),
        pass(1),
        PodsFollow,
        DeleteNode,
    ]);
}

#[test]
fn a_departure_whose_status_is_on_its_way_ends_before_the_node_begins_anew() {
    walk([
        pass(3),
        labels(false, false),
        pass(2),
        Report,
        DeleteNode,
        CreateNode,
        Agent,
        pass(2),
        pass(1),
        pass(2),
        pass(0),
        Event::ReportSent,
        labels(true, false),
        pass(1),
        PodsFollow,
        labels(false, false),
    ]);
}

#[test]
fn a_node_whose_id_is_known_only_while_it_departs_is_not_stuck() {
    walk([pass(0), DeleteNode, Report, pass(2), pass(0), Event::ReportSent, CreateNode, Agent, pass(2), pass(1)]);
}

#[test]
fn a_node_that_is_deleted_before_the_status_shows_its_return_is_not_said_to_be_deregistered() {
    walk([
        labels(true, false),
        pass(0),
        Report,
        labels(false, false),
        pass(2),
        Agent,
        pass(2),
        Agent,
        DeleteNode,
        CreateNode,
        pass(1),
        pass(2),
        pass(0),
        Report,
        pass(2),
        labels(true, false),
        pass(2),
        labels(false, false),
        PodsFollow,
        pass(3),
        pass(1),
        DeleteNode,
    ]);
}

#[test]
fn gateway_rows_that_are_put_back_while_the_northbound_is_away_do_not_outlive_the_node() {
    walk([
        pass(3),
        Agent,
        pass(3),
        Agent,
        labels(false, false),
        PodsFollow,
        DeleteNode,
        pass(2),
        Report,
        pass(0),
        Report,
        Event::Seconds(30),
        pass(1),
        pass(2),
        pass(0),
        Report,
        Event::Northbound(false),
        Event::RowsPutBack,
        PodsFollow,
        pass(2),
        pass(1),
    ]);
}

#[test]
fn a_node_that_is_deleted_and_created_anew_while_it_comes_back_leaves_no_chassis_row_behind() {
    let mut toy = Toy::new();
    toy.happens(labels(true, false));
    toy.settle();
    toy.happens(labels(false, false));
    toy.settle();
    toy.happens(labels(true, false));
    // Dies right after the step that starts the pods.
    let steps = decide(&toy.view(), toy.now).steps;
    let mark = steps.iter().position(|step| matches!(step, Step::MarkNode { .. })).unwrap();
    toy.pass(mark + 1);
    toy.happens(PodsFollow);
    toy.happens(Event::Crash);
    toy.happens(DeleteNode);
    toy.happens(CreateNode);
    assert!(toy.registered);
    toy.settle();
    toy.assert_settled();
}

/// The row would be out of the sweep's reach, too: that waits until the Node is gone.
#[test]
fn a_node_whose_return_got_no_further_than_its_mark_is_deregistered_again() {
    let mut toy = Toy::new();
    toy.happens(labels(true, false));
    toy.settle();
    toy.happens(labels(false, false));
    toy.settle();
    toy.assert_settled();
    toy.happens(labels(true, false));
    toy.act(Step::MarkNode { system_id: None });
    toy.happens(Event::Crash);
    toy.happens(PodsFollow);
    toy.happens(labels(false, false));
    assert!(toy.registered, "its daemons start with what its disk holds");
    toy.settle();
    toy.assert_settled();
}

#[test]
fn the_guides_two_steps() {
    let mut toy = Toy::new();
    toy.happens(Event::Labels { chassis: true, gateway: true });
    toy.settle();
    toy.assert_settled();
    assert!(toy.jobs.is_empty(), "no Job without a drain");
    toy.happens(Event::Labels { chassis: true, gateway: false });
    toy.settle();
    toy.assert_settled();
    let record = toy.record.as_ref().unwrap();
    assert_eq!((record.gateway, record.gateway_evacuated), (false, true));
    assert_eq!(toy.jobs.keys().copied().collect::<Vec<_>>(), [JobKind::Apply, JobKind::Evacuate]);
    toy.happens(Event::Labels { chassis: false, gateway: false });
    toy.settle();
    toy.assert_settled();
    assert!(matches!(toy.jobs[&JobKind::ChassisDel].phase, JobPhase::Complete(_)));
    assert!(toy.departed.is_some());
}

#[test]
fn row19_a_node_object_that_is_deleted_with_a_dead_agent_leaves_after_the_wait() {
    let mut toy = Toy::new();
    toy.happens(Event::Labels { chassis: true, gateway: true });
    toy.settle();
    toy.agent_alive = false;
    toy.happens(Event::DeleteNode);
    toy.pods = false;
    for _ in 0..20 {
        toy.pass(usize::MAX);
        toy.write_status();
    }
    assert!(toy.record.as_ref().is_some_and(|r| r.gateway), "waits for the agent, for a bounded time");
    toy.happens(Event::Seconds(31));
    for _ in 0..20 {
        toy.pass(usize::MAX);
        toy.write_status();
    }
    toy.assert_settled();
}

/// Flipped in all ways that a person could while the evacuation's end is on its way into the status.
#[test]
fn row04_a_role_that_comes_and_goes_while_its_evacuation_is_being_written_is_never_both() {
    for (chassis, gateway) in [(true, true), (false, false), (false, true)] {
        let mut toy = Toy::new();
        toy.happens(labels(true, true));
        toy.settle();
        toy.happens(labels(true, false));
        let confirms = |toy: &Toy| matches!(&toy.pending, Some((Entry::Is(next), _)) if next.gateway_evacuated);
        for _ in 0..40 {
            toy.pass(usize::MAX);
            if confirms(&toy) {
                break;
            }
            toy.write_status();
            toy.happens(Agent);
            toy.happens(Event::PortMoves);
            toy.happens(Event::Seconds(1));
        }
        assert!(confirms(&toy), "{:?}", toy.record);
        toy.happens(Event::ReportSent);
        toy.happens(labels(true, true));
        toy.pass(usize::MAX);
        toy.happens(Agent);
        toy.write_status();
        toy.happens(labels(chassis, gateway));
        for event in [pass(9), Report, Agent, pass(9), Report, PodsFollow, pass(9), Report] {
            toy.happens(event);
        }
        toy.settle();
        toy.assert_settled();
    }
}
