//! Two pods of one node: the agent that stands by writes nothing.
use std::time::Duration;

use serde_json::json;

use crate::harness::until;
use crate::harness::world::SOON;
use crate::stage::{NODE, Stage};

#[test]
fn only_the_agent_whose_pod_holds_the_claim_acts() {
    let mut stage = Stage::applied("agent-two");
    let claim = stage.world.node(NODE).run_dir.join("ovs.claim");
    let first_uid = std::fs::read_to_string(&claim).unwrap();
    let first = stage.world.node_mut(NODE).agent.take().unwrap();
    stage.world.start_agent(NODE);
    let second_log = || stage.world.node(NODE).agent.as_ref().unwrap().log();
    until(
        "the second stands by",
        SOON,
        || if second_log().contains("standing by") { Ok(()) } else { Err(second_log()) },
    );
    assert_eq!(std::fs::read_to_string(&claim).unwrap(), first_uid);

    // The first one's process stands still: nobody writes, because its pod is alive.
    first.pause();
    let before = stage.external_ids();
    stage.specify(json!({"gateway": true}));
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(stage.external_ids(), before);
    first.resume();
    stage.wait_applied();

    // The claim given up, as the last pre-stop hook does it: the second acts although the first still lives, and the
    // first does no more.
    std::fs::write(&claim, "").unwrap();
    first.pause();
    until("the claim passes", SOON, || {
        let holder = std::fs::read_to_string(&claim).unwrap();
        if !holder.is_empty() && holder != first_uid { Ok(()) } else { Err(holder) }
    });
    first.resume();
    until("the first notices", SOON, || {
        if first.log().contains("the claim has passed on") { Ok(()) } else { Err("not yet") }
    });
    stage.specify(json!({"gateway": false}));
    stage.wait_applied();
    assert!(second_log().contains("written: ovn-cms-options"), "{}", second_log());
}

#[test]
fn an_agent_that_dies_with_its_pod_is_succeeded() {
    let mut stage = Stage::applied("agent-orphan");
    let mut first = stage.world.node_mut(NODE).agent.take().unwrap();
    stage.world.start_agent(NODE);
    first.kill();
    stage.specify(json!({"gateway": true}));
    stage.wait_applied();
}
