//! What a test puts into the Northbound for the drain to find.
use std::sync::atomic::{AtomicUsize, Ordering};

use super::central::Central;
use super::world::World;

impl Central {
    /// Registrations as ovn-controller would write them: Chassis, Encap and Chassis_Private.
    pub fn seed_chassis(&self, names: &[&str]) {
        static ADDRESSES: AtomicUsize = AtomicUsize::new(0);
        for name in names {
            let number = ADDRESSES.fetch_add(1, Ordering::Relaxed);
            // The Southbound takes each address but once.
            let address = format!("198.18.{}.{}", number / 250, number % 250 + 1);
            let private = format!("name={name}");
            self.sbctl(&["chassis-add", name, "geneve", &address, "--", "create", "chassis_private", &private]);
        }
    }

    /// A router with `ports` gateway ports, each with a Gateway_Chassis row per `(chassis, priority)`.
    pub fn seed_gateway_ports(&self, router: &str, ports: usize, gateways: &[(&str, u32)]) {
        let mut call: Vec<String> = ["--", "--may-exist", "lr-add", router].map(String::from).to_vec();
        for port in 0..ports {
            let (name, high, low) = (format!("{router}-p{port}"), port / 250, port % 250);
            call.extend(
                [
                    "--",
                    "lrp-add",
                    router,
                    &name,
                    &format!("02:00:00:00:{high:02x}:{low:02x}"),
                    &format!("10.{high}.{low}.1/24"),
                ]
                .map(String::from),
            );
            for (chassis, priority) in gateways {
                call.extend(["--", "lrp-set-gateway-chassis", &name, chassis, &priority.to_string()].map(String::from));
            }
        }
        self.nbctl(&call.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// An HA chassis group with members, and a port of `router` that uses it.
    pub fn seed_ha_group(&self, router: &str, group: &str, members: &[(&str, u32)]) {
        let mut call: Vec<String> = ["--", "ha-chassis-group-add", group].map(String::from).to_vec();
        for (chassis, priority) in members {
            call.extend(
                ["--", "ha-chassis-group-add-chassis", group, chassis, &priority.to_string()].map(String::from),
            );
        }
        self.nbctl(&call.iter().map(String::as_str).collect::<Vec<_>>());
        let id = self.nbctl(&[
            "--bare",
            "--no-headings",
            "--columns=_uuid",
            "find",
            "ha_chassis_group",
            &format!("name={group}"),
        ]);
        let port = format!("{group}-port");
        self.nbctl(&[
            "--may-exist",
            "lr-add",
            router,
            "--",
            "lrp-add",
            router,
            &port,
            "02:00:00:01:00:01",
            "172.16.0.1/24",
            "--",
            "set",
            "logical_router_port",
            &port,
            &format!("ha_chassis_group={}", id.trim()),
        ]);
    }
}

impl World {
    pub fn seed_gateway_ports(&self, router: &str, ports: usize, gateways: &[(&str, u32)]) {
        self.central.seed_gateway_ports(router, ports, gateways);
    }

    pub fn seed_ha_group(&self, router: &str, group: &str, members: &[(&str, u32)]) {
        self.central.seed_ha_group(router, group, members);
    }
}
