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
        ("OVN's own bridge", json!({"bridgeMappings": [mapping("physnet1", "br-int")]}), "not be br-int"),
        (
            "bridge of 16 characters",
            json!({"bridgeMappings": [mapping("physnet1", "br-3456789abcdef")]}),
            "1 to 15 letters",
        ),
        ("bridge like an option", json!({"bridgeMappings": [mapping("physnet1", "--if-exists")]}), "not start with"),
        (
            "a physical network of 65 characters",
            json!({"bridgeMappings": [mapping(&"n".repeat(65), "br-a")]}),
            "1 to 64 letters",
        ),
        ("a port past 65535", endpoints("tcp:192.0.2.1:6641", "tcp:192.0.2.1:65536", None), "ssl:192.0.2.1:6642"),
        (
            "a list that ends in a comma",
            endpoints("tcp:192.0.2.1:6641,", "tcp:192.0.2.1:6642", None),
            "ssl:192.0.2.1:6641",
        ),
        (
            "a socket of the node",
            endpoints("unix:/run/ovn/ovnnb_db.sock", "tcp:192.0.2.1:6642", None),
            "ssl:192.0.2.1:6641",
        ),
        (
            "a selector that no label can match",
            json!({"nodeSelector": {"a b": "true"}}),
            "spec.nodeSelector must hold labels as nodes",
        ),
        (
            "a gateway value that no label can have",
            json!({"gateway": {"nodeSelector": {"gateway": "x".repeat(64)}}}),
            "spec.gateway.nodeSelector must hold labels as nodes",
        ),
        (
            "toleration by a typo",
            json!({"tolerations": [{"key": "a", "operator": "Exist"}]}),
            "operator must be Exists or Equal",
        ),
        (
            "toleration of every value of one",
            json!({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}),
            "value must be left out",
        ),
        ("toleration of nothing", json!({"tolerations": [{"operator": "Equal", "value": "b"}]}), "key is needed"),
        (
            "effect by a typo",
            json!({"tolerations": [{"operator": "Exists", "effect": "NoExec"}]}),
            "effect must be NoSchedule",
        ),
        (
            "seconds of a taint that evicts nothing",
            json!({"tolerations": [{"operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}]}),
            "goes with effect: NoExecute only",
        ),
        ("no node selector", json!({"nodeSelector": null}), "spec.nodeSelector"),
        ("maxUnavailable 101%", json!({"updateStrategy": {"maxUnavailable": "101%"}}), "a percentage from 1% to 100%"),
        ("negative maxUnavailable", json!({"updateStrategy": {"maxUnavailable": -1}}), "must be a number above 0"),
        (
            "a strategy that DaemonSets do not know",
            json!({"updateStrategy": {"type": "Recreate"}}),
            "\"RollingUpdate\", \"OnDelete\"",
        ),
        (
            "an hour and a second between probes",
            json!({"remoteProbeIntervalMs": 3_601_000}),
            "between 1000 and 3600000",
        ),
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

/// Changes that keep a spec valid: the rules refuse no more than they say.
fn valid_specs() -> Vec<(&'static str, Value)> {
    let mapping = |network: &str, bridge: &str| json!({"physicalNetwork": network, "bridge": bridge});
    let many: Vec<_> = (0..64).map(|i| mapping(&format!("physnet-{i}.example"), &format!("br-{i}"))).collect();
    vec![
        ("no gateways", json!({"gateway": null})),
        ("a label with an empty value", json!({"nodeSelector": {"node-role.kubernetes.io/chassis": ""}})),
        (
            "addresses of all kinds",
            json!({"centralRef": null, "central": {
                "northbound": "ssl:192.0.2.1:6641,ssl:[2001:db8::1]:65535,tcp:ovn-nb.example:1", "southbound": "tcp:ovn-sb:6642",
                "clientSecretName": "ovn-client.v2",
            }}),
        ),
        (
            "tcp without a certificate",
            json!({"centralRef": null, "central": {"northbound": "tcp:192.0.2.1:6641", "southbound": "tcp:192.0.2.1:6642"}}),
        ),
        (
            "an image of a registry with a port",
            json!({"image": {"repository": "registry.example:5000/net/ovn", "tag": "24.03_1"}}),
        ),
        ("an image by digest", json!({"image": {"repository": "ovn", "digest": format!("sha256:{}", "0".repeat(64))}})),
        ("64 mappings", json!({"bridgeMappings": many})),
        ("a bridge of 15 characters", json!({"bridgeMappings": [mapping("physnet1", "br-3456789abcde")]})),
        ("no probes", json!({"remoteProbeIntervalMs": 0})),
        ("maxUnavailable as a number", json!({"updateStrategy": {"maxUnavailable": 2}})),
        ("maxUnavailable 100%", json!({"updateStrategy": {"type": "RollingUpdate", "maxUnavailable": "100%"}})),
        ("OnDelete", json!({"updateStrategy": {"type": "OnDelete"}})),
        (
            "tolerations of all kinds",
            json!({"tolerations": [
                {"operator": "Exists"},
                {"key": "a", "value": "b"},
                {"key": "a", "operator": "Equal", "value": "b", "effect": "PreferNoSchedule"},
                {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
            ]}),
        ),
        ("a userspace datapath", json!({"datapathType": "netdev", "encapType": "vxlan"})),
        (
            "resources",
            json!({"ovs": {"resources": {"limits": {"memory": "1Gi"}}}, "controller": {"resources": {"requests": {"cpu": 1}}}}),
        ),
        (
            "the careful ways",
            json!({"drain": {"lastGateway": "Hold"}, "deletionPolicy": "Drain", "nodeClientSecretName": "node-client"}),
        ),
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
    for (number, (what, changes)) in valid_specs().into_iter().enumerate() {
        create(&format!("valid-{number}"), &changes).unwrap_or_else(|refused| panic!("{what}: {refused}"));
    }

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

    // The other way round: from addresses to an OVNCentral. Addresses themselves may change.
    let spec = World::chassis_spec(&json!({"central": endpoints}));
    let mut by_address = json!({"metadata": {"name": "by-address"}, "spec": spec});
    by_address["spec"].as_object_mut().unwrap().remove("centralRef");
    world.kube.create(OVN_CHASSIS, &world.namespace, by_address);
    let update =
        |spec: Value| world.kube.try_merge(OVN_CHASSIS, &world.namespace, "by-address", "", &json!({"spec": spec}));
    let refused = update(json!({"centralRef": {"name": "other"}, "central": null})).expect_err("a changed central");
    assert!(refused.message.contains("spec.centralRef cannot be changed"), "{refused}");
    let refused = update(json!({"central": null})).expect_err("no central at all");
    assert!(refused.message.contains("exactly one of spec.centralRef"), "{refused}");
    update(json!({"central": {"southbound": "tcp:192.0.2.2:6642"}})).expect("addresses can be changed");
}

/// The OVNChassis of the walk-through in our own words, and the sample that we hand out.
#[test]
fn row09_the_sample_is_taken_as_it_is() {
    let world = World::new("row09-sample", Shape::default().without_northd());
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/manifests/sample/ovnchassis.yaml");
    let text = std::fs::read_to_string(file).expect("the sample");
    let mut sample: Value = serde_saphyr::from_str(&text).expect("YAML");
    sample["metadata"]["namespace"] = json!(world.namespace);
    let created = world.kube.create(OVN_CHASSIS, &world.namespace, sample.clone());
    for (field, value) in sample["spec"].as_object().unwrap() {
        assert_eq!(created["spec"][field], *value, "{field} was changed or dropped");
    }
    // What is left out is filled in, so that `kubectl get -o yaml` shows what holds.
    assert_eq!(created["spec"]["encapType"], "geneve");
    assert_eq!(created["spec"]["remoteProbeIntervalMs"], 60_000);
    assert_eq!(created["spec"]["datapathType"], "system");
    assert_eq!(created["spec"]["deletionPolicy"], "Orphan");
}
