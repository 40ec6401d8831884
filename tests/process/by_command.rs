//! `ovn-chassis drain`, `undrain` and `status`, as a person types them.
use std::process::Command;

use serde_json::json;

use crate::harness::binaries::ovn_chassis;
use crate::harness::central::Shape;
use crate::harness::world::World;

/// Whether it succeeded, and all that it printed. A machine of a developer: backtraces are asked for.
fn typed(world: &World, words: &str) -> (bool, String) {
    let mut command = Command::new(ovn_chassis());
    command.args(words.split(' ')).env("KUBECONFIG", &world.lane.admin_kubeconfig).env("RUST_BACKTRACE", "1");
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
    (output.status.success(), text)
}

#[test]
fn a_node_is_drained_and_put_back_by_one_command_each() {
    let world = World::ready("by-command", Shape::default().without_northd(), &["command-a"], &["command-a"]);
    let namespace = &world.namespace;
    let id = world.recorded_system_id("command-a");
    world.central.seed_chassis(&[&id, "foreign"]);
    world.seed_gateway_ports("lr0", 2, &[(&id, 2), ("foreign", 1)]);

    let (done, said) = typed(&world, &format!("drain command-a --gateway-only -n {namespace}"));
    assert!(done && said.contains("gateway duties are evacuated"), "{said}");
    assert_eq!(world.record("command-a").unwrap()["gatewayEvacuated"], json!(true));
    assert_eq!(world.central.gateway_rows(), ["foreign", "foreign"]);
    let (done, said) = typed(&world, &format!("drain command-a -n {namespace}"));
    assert!(done && said.contains("deregistered and forgotten"), "{said}");
    assert!(world.record("command-a").is_none());
    assert_eq!(world.central.chassis_names(), ["foreign"]);

    let (done, said) = typed(&world, &format!("undrain command-a --gateway -n {namespace}"));
    assert!(done && said.contains("settings are applied"), "{said}");
    let (done, said) = typed(&world, &format!("status -n {namespace}"));
    assert!(done && said.contains("command-a  gateway"), "{said}");
}

#[test]
fn a_name_that_is_wrong_gets_one_line_that_says_so() {
    let world = World::ready("mistyped", Shape::default().without_northd(), &["mistyped-a"], &[]);
    let namespace = &world.namespace;
    for (words, expected) in [
        (format!("drain mistyped-b -n {namespace}"), "there is no Node mistyped-b"),
        (format!("undrain mistyped-b -n {namespace}"), "there is no Node mistyped-b"),
        (format!("drain mistyped-a -n {namespace} -c none"), "no OVNChassis has node mistyped-a"),
        (format!("drain mistyped-a -n {namespace} --gateway-only"), "gateway"),
    ] {
        let (done, said) = typed(&world, &words);
        assert!(!done || words.ends_with("only"), "{words}: {said}");
        assert!(said.contains(expected) && said.lines().count() == 1, "{words}: {said}");
    }
}
