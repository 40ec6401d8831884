//! Row 9: what the API server itself refuses, with our message and without a webhook.
use serde_json::{Value, json};

use crate::harness::central::Shape;
use crate::harness::kube_api::OVN_CHASSIS;
use crate::harness::world::World;

/// A change to a valid spec that makes it invalid, and words of the message that says what to write instead.
fn invalid_specs() -> Vec<(&'static str, Value, &'static str)> {
    let endpoints = |nb: &str, sb: &str, secret: Option<&str>| {
        let mut central = json!({"northbound": nb, "southbound": sb});
        if let Some(secret) = secret {
            central["clientSecretName"] = json!(secret);
        }
        json!({"centralRef": null, "central": central})
    };
    let mapping = |network: &str, bridge: &str| json!({"physicalNetwork": network, "bridge": bridge});
    vec![
        ("no central at all", json!({"centralRef": null}), "exactly one of spec.centralRef"),
        (
            "both centrals",
            json!({"central": {"northbound": "tcp:192.0.2.1:6641", "southbound": "tcp:192.0.2.1:6642"}}),
            "exactly one of spec.centralRef",
        ),
        (
            "central by a name that cannot be one",
            json!({"centralRef": {"name": "Not_A_Name"}}),
            "must be the name of an OVNCentral",
        ),
        (
            "ssl without a certificate",
            endpoints("ssl:192.0.2.1:6641", "ssl:192.0.2.1:6642", None),
            "clientSecretName is needed for ssl:",
        ),
        ("northbound without a scheme", endpoints("192.0.2.1:6641", "tcp:192.0.2.1:6642", None), "ssl:192.0.2.1:6641"),
        ("southbound without a port", endpoints("tcp:192.0.2.1:6641", "tcp:192.0.2.1", None), "ssl:192.0.2.1:6642"),
        (
            "IPv6 without brackets",
            endpoints("tcp:2001:db8::1:6641", "tcp:192.0.2.1:6642", None),
            "ssl:[2001:db8::1]:6641",
        ),
        (
            "certificate by a name that cannot be one",
            endpoints("ssl:192.0.2.1:6641", "ssl:192.0.2.1:6642", Some("A B")),
            "must be the name of a Secret",
        ),
        ("empty node selector", json!({"nodeSelector": {}}), "spec.nodeSelector must hold at least one label"),
        (
            "node selector of 17 labels",
            json!({"nodeSelector": (0..17).map(|i| (format!("l{i}"), json!("x"))).collect::<serde_json::Map<_, _>>()}),
            "at most 16 labels",
        ),
        (
            "empty gateway selector",
            json!({"gateway": {"nodeSelector": {}}}),
            "spec.gateway.nodeSelector must hold at least one label",
        ),
        (
            "image with tag and digest",
            json!({"image": {"repository": "r.example/ovn", "tag": "1", "digest": format!("sha256:{}", "a".repeat(64))}}),
            "exactly one of tag and digest",
        ),
        ("image with neither", json!({"image": {"repository": "r.example/ovn"}}), "exactly one of tag and digest"),
        (
            "tag inside the repository",
            json!({"image": {"repository": "r.example/ovn:1", "tag": "1"}}),
            "put the tag into spec.image.tag",
        ),
        ("tag with a blank", json!({"image": {"repository": "r.example/ovn", "tag": "a b"}}), "must be an image tag"),
        (
            "short digest",
            json!({"image": {"repository": "r.example/ovn", "digest": "sha256:abc"}}),
            "64 lower case hexadecimal digits",
        ),
        (
            "physical network twice",
            json!({"bridgeMappings": [mapping("physnet1", "br-a"), mapping("physnet1", "br-b")]}),
            "names a physical network twice",
        ),
        (
            "bridge twice",
            json!({"bridgeMappings": [mapping("physnet1", "br-a"), mapping("physnet2", "br-a")]}),
            "names a bridge twice",
        ),
        (
            "mapping with a comma",
            json!({"bridgeMappings": [mapping("a,b", "br-a")]}),
            "bridgeMappings[].physicalNetwork must be",
        ),
        ("OVN's own bridge", json!({"bridgeMappings": [mapping("physnet1", "br-int")]}), "not br-int"),
        ("encapsulation that is neither", json!({"encapType": "stt"}), "\"geneve\", \"vxlan\""),
        (
            "maxUnavailable with OnDelete",
            json!({"updateStrategy": {"type": "OnDelete", "maxUnavailable": 1}}),
            "goes with type RollingUpdate only",
        ),
        (
            "maxUnavailable 0",
            json!({"updateStrategy": {"type": "RollingUpdate", "maxUnavailable": 0}}),
            "with 0 no pod would ever be replaced",
        ),
        (
            "maxUnavailable 0%",
            json!({"updateStrategy": {"type": "RollingUpdate", "maxUnavailable": "0%"}}),
            "with 0 no pod would ever be replaced",
        ),
        (
            "maxUnavailable as a word",
            json!({"updateStrategy": {"maxUnavailable": "some"}}),
            "a percentage from 1% to 100%",
        ),
        ("probe interval of 5 ms", json!({"remoteProbeIntervalMs": 5}), "between 1000 and 3600000"),
        ("negative probe interval", json!({"remoteProbeIntervalMs": -1}), "between 1000 and 3600000"),
        ("datapath that is neither", json!({"datapathType": "dpdk"}), "\"system\", \"netdev\""),
        (
            "node certificate by a name that cannot be one",
            json!({"nodeClientSecretName": "../x"}),
            "must be the name of a Secret",
        ),
        ("last gateway neither way", json!({"drain": {"lastGateway": "Maybe"}}), "\"Proceed\", \"Hold\""),
        ("deletion policy neither way", json!({"deletionPolicy": "Delete"}), "\"Orphan\", \"Drain\""),
    ]
}

#[test]
fn row09_invalid_objects_are_refused_with_a_message_that_says_what_to_write() {
    let world = World::new("row09", Shape::default().without_northd());
    let create = |name: &str, changes: &Value| {
        let mut spec = World::chassis_spec(changes);
        spec.as_object_mut().unwrap().retain(|_, v| !v.is_null());
        world.kube.try_create(OVN_CHASSIS, &world.namespace, json!({"metadata": {"name": name}, "spec": spec}))
    };
    create("valid", &json!({})).expect("the spec that the cases change is valid itself");

    let cases = invalid_specs();
    assert!(cases.len() >= 25);
    for (what, changes, words) in cases {
        let refused = create("bad", &changes).expect_err(what);
        assert_eq!(refused.code, 422, "{what}: {refused}");
        assert!(refused.message.contains(words), "{what}: the message lacks {words:?}: {refused}");
    }
}

#[test]
fn row09_a_name_of_42_characters_is_taken_and_one_of_43_refused() {
    let world = World::new("row09-name", Shape::default().without_northd());
    let create = |length: usize| {
        world.kube.try_create(
            OVN_CHASSIS,
            &world.namespace,
            json!({"metadata": {"name": "n".repeat(length)}, "spec": World::chassis_spec(&json!({}))}),
        )
    };
    create(42).expect("42 characters");
    let refused = create(43).expect_err("43 characters");
    assert!(refused.code == 422 && refused.message.contains("at most 42 characters"), "{refused}");
}

#[test]
fn row09_the_central_cannot_be_changed_on_update() {
    let world = World::new("row09-update", Shape::default().without_northd());
    world.create_chassis(json!({}));
    let update =
        |patch: Value| world.kube.try_merge(OVN_CHASSIS, &world.namespace, &world.chassis, "", &json!({"spec": patch}));
    let endpoints = json!({"northbound": "tcp:192.0.2.1:6641", "southbound": "tcp:192.0.2.1:6642"});
    for patch in [json!({"centralRef": {"name": "other"}}), json!({"centralRef": null, "central": endpoints})] {
        let refused = update(patch.clone()).expect_err("a changed central");
        assert!(
            refused.code == 422 && refused.message.contains("spec.centralRef cannot be changed"),
            "{patch}: {refused}"
        );
    }
    update(json!({"encapType": "vxlan"})).expect("other fields can be changed");
}
