//! Field case 24: drain, return and leaving while a real Neutron schedules gateways of its own, its API restarted in the middle.
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::chassis_side::{bind_gateway_ports, register};
use crate::harness::central::Shape;
use crate::harness::until;
use crate::harness::world::{CHASSIS_LABEL, GATEWAY_LABEL, SOON, World};
use crate::server::Neutron;
use crate::transactions::trespasses;

const ROUTERS: usize = 4;
/// Neutron answers an event of the Southbound within a second; three times that is quiet.
const QUIET: Duration = Duration::from_secs(3);

/// How many rows of the Northbound name each chassis.
fn rows(world: &World) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    for name in world.central.gateway_rows() {
        *count.entry(name).or_insert(0) += 1;
    }
    count
}

#[track_caller]
fn wait_rows(world: &World, wanted: &BTreeMap<String, usize>) {
    until(&format!("the rows {wanted:?}"), SOON * 2, || {
        let now = rows(world);
        if now == *wanted { Ok(()) } else { Err(format!("{now:?}")) }
    });
}

/// For a while no row names the chassis, at any look.
#[track_caller]
fn assert_stays_without(world: &World, id: &str, during: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < during {
        assert!(!rows(world).contains_key(id), "a row is back after {:?}: {:?}", begun.elapsed(), rows(world));
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn said<'a>(chapter: &'a str, begun: &mut Instant) -> &'a str {
    println!("{chapter}: {:.1} s", begun.elapsed().as_secs_f64());
    *begun = Instant::now();
    chapter
}

#[test]
#[ignore = "needs a real Neutron: make test-neutron"]
fn field24_a_gateway_drains_returns_and_leaves_beside_a_real_neutron() {
    let names = ["neutron-a", "neutron-b", "neutron-c"];
    let mut begun = Instant::now();
    let mut world = World::new("neutron", Shape::default());
    world.create_chassis(json!({"bridgeMappings": [{"physicalNetwork": "physnet1", "bridge": "br-ex"}]}));
    for name in names {
        world.add_node(name, true, true);
    }
    world.start_controller(&[], &[]);
    for name in names {
        world.start_agent(name);
    }
    for name in names {
        world.wait_applied(name);
    }
    let ids: Vec<String> = names.iter().map(|name| world.recorded_system_id(name)).collect();
    let ours: BTreeSet<String> = ids.iter().cloned().collect();
    let all = |rows: [usize; 3]| ids.iter().cloned().zip(rows).filter(|(_, n)| *n > 0).collect::<BTreeMap<_, _>>();
    let mut registered: Vec<_> = names.iter().map(|name| Some(register(&world, world.node(name)))).collect();
    let _bindings = bind_gateway_ports(&world);
    let mut neutron = Neutron::start(world.folder.join("neutron"), &world.central);
    let outside = neutron.create_outside();
    let mut routers: Vec<String> =
        (0..ROUTERS).map(|n| neutron.create_router(&format!("router{n}"), &outside)).collect();
    wait_rows(&world, &all([ROUTERS, ROUTERS, ROUTERS]));
    let complaints = neutron.differences();
    said("Neutron runs and schedules routers", &mut begun);

    // The drain: Neutron is restarted in the middle of it, and routers come and go meanwhile.
    world.label(names[0], &[(GATEWAY_LABEL, None)]);
    neutron.restart_api();
    neutron.delete_router(&routers.remove(0));
    routers.push(neutron.create_router("while-drained", &outside));
    world.wait_evacuated(names[0]);
    world.wait_job("evacuate", names[0], "Complete");
    wait_rows(&world, &all([0, ROUTERS, ROUTERS]));
    routers.push(neutron.create_router("after-the-drain", &outside));
    wait_rows(&world, &all([0, ROUTERS + 1, ROUTERS + 1]));
    assert_stays_without(&world, &ids[0], QUIET);
    said("drained", &mut begun);

    // Somebody puts a row back: once it is found and removed; again and again it is not fought for ever.
    let groups = world.central.nbctl(&["--bare", "--no-headings", "--columns=name", "list", "ha_chassis_group"]);
    let group =
        groups.split_whitespace().find(|name| name.contains("neutron")).expect("a group of Neutron's").to_owned();
    let put_back = || world.central.nbctl(&["ha-chassis-group-add-chassis", &group, &ids[0], "1"]);
    let mut removed = 0;
    while removed < 40 {
        put_back();
        let deadline = Instant::now() + QUIET;
        while Instant::now() < deadline && rows(&world).contains_key(&ids[0]) {
            std::thread::sleep(Duration::from_millis(20));
        }
        if rows(&world).contains_key(&ids[0]) {
            break;
        }
        removed += 1;
    }
    assert!((1..40).contains(&removed), "removed {removed} times: found, and not fought for ever");
    println!("put back and removed {removed} times, then left");
    world.central.nbctl(&["ha-chassis-group-remove-chassis", &group, &ids[0]]);
    said("rows put back", &mut begun);

    // The return: the rows are Neutron's to give, and ours to leave alone.
    world.label(names[0], &[(GATEWAY_LABEL, Some("true"))]);
    world.wait_gateway(names[0]);
    let number = routers.len();
    wait_rows(&world, &all([number, number, number]));
    std::thread::sleep(QUIET);
    assert_eq!(rows(&world), all([number, number, number]), "left alone");
    said("returned", &mut begun);

    // Leaving with both labels at once; its ovn-controller ends with its pods, before the registration goes.
    world.label(names[1], &[(GATEWAY_LABEL, None), (CHASSIS_LABEL, None)]);
    neutron.delete_router(&routers.remove(0));
    until("its pods to be let go", SOON, || match world.owner_label(names[1]) {
        None => Ok(()),
        Some(label) => Err(label),
    });
    registered[1] = None;
    world.wait_job("chassis-del", names[1], "Complete");
    world.wait_forgotten(names[1]);
    let number = routers.len();
    wait_rows(&world, &all([number, 0, number]));
    assert_stays_without(&world, &ids[1], QUIET);
    assert!(!world.central.chassis_names().contains(&ids[1]), "{:?}", world.central.chassis_names());
    said("left", &mut begun);

    let more: Vec<_> = neutron.differences().difference(&complaints).cloned().collect();
    assert!(more.is_empty(), "Neutron finds what is not its own: {more:#?}");
    let log = world.folder.join("nb0.db");
    let (transactions, found) = trespasses(&log, &ours);
    assert!(transactions > 0, "our transactions carry a comment");
    assert!(found.is_empty(), "{transactions} transactions of ours changed what is not ours: {found:#?}");
    println!("{transactions} transactions of ours, none on anything of others");
    said("checked", &mut begun);
}
