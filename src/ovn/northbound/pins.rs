//! What else keeps traffic on a chassis and is no gateway row: options that name it. They are found and reported, never
//! changed: whoever set them knows why.

use crate::ovsdb::{Condition, Datum, Operation, Outcome, ValueError};

use super::{NorthboundError, tables};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PinKind {
    /// `Logical_Router.options:chassis`: a gateway router bound to the chassis.
    GatewayRouter,
    /// `Logical_Switch_Port.options:requested-chassis`.
    RequestedChassis,
    /// `Logical_Switch_Port.options:l2gateway-chassis`.
    L2Gateway,
    /// A row of `Chassis_Template_Var`.
    TemplateVariables,
}

impl std::fmt::Display for PinKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::GatewayRouter => "Logical_Router options:chassis",
            Self::RequestedChassis => "Logical_Switch_Port options:requested-chassis",
            Self::L2Gateway => "Logical_Switch_Port options:l2gateway-chassis",
            Self::TemplateVariables => "Chassis_Template_Var chassis",
        })
    }
}

/// One object that is pinned to the chassis.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin {
    pub kind: PinKind,
    /// The object's name; for template variables the chassis' own.
    pub object: String,
}

impl std::fmt::Display for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.object, self.kind)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pins(pub Vec<Pin>);

/// One select per kind and name of the chassis. OVN takes the system-id or the hostname in these options, so a chassis
/// may have two names here. An option that lists several chassis matches none of them: such a port is not pinned to one.
pub fn plan_pins(names: &[&str]) -> Vec<(PinKind, Operation)> {
    let mut plan = Vec::new();
    for name in names {
        let option = |key: &str| vec![Condition::includes("options", Datum::map([(key, *name)]))];
        plan.push((PinKind::GatewayRouter, Operation::select(tables::ROUTER, option("chassis"), &["name"])));
        for (kind, key) in [(PinKind::RequestedChassis, "requested-chassis"), (PinKind::L2Gateway, "l2gateway-chassis")]
        {
            plan.push((kind, Operation::select(tables::SWITCH_PORT, option(key), &["name"])));
        }
    }
    plan
}

/// Apart from the others: the table exists from OVN 22.12 on only.
pub fn plan_template_pins(names: &[&str]) -> Vec<(PinKind, Operation)> {
    names
        .iter()
        .map(|name| {
            let is_chassis = vec![Condition::equals("chassis", *name)];
            let select = Operation::select(tables::TEMPLATE_VAR, is_chassis, &["chassis"]);
            (PinKind::TemplateVariables, select)
        })
        .collect()
}

pub fn parse_pins(kinds: &[PinKind], outcomes: &[Outcome]) -> Result<Pins, NorthboundError> {
    if kinds.len() != outcomes.len() {
        return Err(NorthboundError::Reply { expected: kinds.len(), found: outcomes.len() });
    }
    let mut pins = Vec::new();
    for (kind, outcome) in kinds.iter().zip(outcomes) {
        let (table, column) = match kind {
            PinKind::GatewayRouter => (tables::ROUTER, "name"),
            PinKind::RequestedChassis | PinKind::L2Gateway => (tables::SWITCH_PORT, "name"),
            PinKind::TemplateVariables => (tables::TEMPLATE_VAR, "chassis"),
        };
        for row in outcome.rows() {
            let object =
                row.text(column).map_err(|source: ValueError| NorthboundError::Row { table, source })?.to_owned();
            pins.push(Pin { kind: *kind, object });
        }
    }
    pins.sort();
    pins.dedup();
    Ok(Pins(pins))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ovsdb::Row;
    use serde_json::json;

    #[test]
    fn each_kind_is_asked_for_by_each_name() {
        let plan = plan_pins(&["id", "host"]);
        assert_eq!(plan.len(), 6);
        assert_eq!(
            plan.first().unwrap().1.to_json(),
            json!({"op": "select", "table": "Logical_Router",
                   "where": [["options", "includes", ["map", [["chassis", "id"]]]]], "columns": ["name"]})
        );
        assert_eq!(plan_template_pins(&["id"]).len(), 1);
    }

    #[test]
    fn pins_are_named_with_their_kind() {
        let kinds = [PinKind::GatewayRouter, PinKind::L2Gateway];
        let outcomes = [Outcome::Rows(vec![Row::new().with("name", "lr0")]), Outcome::Rows(vec![])];
        let pins = parse_pins(&kinds, &outcomes).unwrap();
        let texts: Vec<String> = pins.0.iter().map(Pin::to_string).collect();
        assert_eq!(texts, ["lr0 (Logical_Router options:chassis)"]);
        assert!(parse_pins(&kinds, &[]).is_err());
    }
}
