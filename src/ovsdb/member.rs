//! What a server says about itself in its `_Server` database, and whether it is one to act through.
//!
//! A clustered database has one leader. A follower may lag behind, a member cut off from its cluster shows what was true
//! once, and a relay only repeats what it heard: none of them may be the ground for a decision.

use thiserror::Error;

use super::value::{Row, Uuid, ValueError};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    Standalone,
    Clustered,
    Relay,
}

/// One row of `_Server.Database`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub model: Model,
    pub leader: bool,
    pub connected: bool,
    /// The Raft log's index: where this member is in the cluster's history.
    pub index: Option<u64>,
    /// The cluster.
    pub cid: Option<Uuid>,
    /// The member.
    pub sid: Option<Uuid>,
}

/// The columns of `_Server.Database` that [`Member::parse`] reads.
pub const COLUMNS: [&str; 7] = ["name", "model", "connected", "leader", "index", "cid", "sid"];

/// Why a server is not one to act through.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unfit {
    #[error("it is a follower, not the leader")]
    NotLeader,
    #[error("it has lost the connection to its cluster")]
    CutOff,
    #[error("it is a relay; expected a member of the database itself")]
    Relay,
    #[error("it is behind: its log ends at {index}, another member had {seen} already")]
    Behind { index: u64, seen: u64 },
}

/// Which servers a client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Demand {
    /// The leader of a cluster, or a standalone server. Never a relay.
    #[default]
    Leader,
    /// Any server that is connected to its cluster, relays too: for reading what may be a little old.
    Any,
}

/// The furthest point of a cluster's history that we have seen, over all connections: a view never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watermark {
    cid: Option<Uuid>,
    index: u64,
}

impl Watermark {
    /// Takes note of what a member that was found fit reports. Another cluster starts a history of its own.
    pub fn note(&mut self, member: &Member) {
        if self.cid != member.cid {
            *self = Self { cid: member.cid, index: 0 };
        }
        self.index = self.index.max(member.index.unwrap_or(0));
    }
}

impl Member {
    pub fn parse(row: &Row) -> Result<Self, ValueError> {
        let model = match row.text("model")? {
            "standalone" => Model::Standalone,
            "clustered" => Model::Clustered,
            "relay" => Model::Relay,
            other => {
                return Err(ValueError::Column {
                    column: "model".to_owned(),
                    expected: "standalone, clustered or relay",
                    found: super::value::excerpt(other),
                });
            }
        };
        Ok(Self {
            model,
            leader: row.boolean("leader")?,
            connected: row.boolean("connected")?,
            index: row.optional_integer("index")?.and_then(|index| u64::try_from(index).ok()),
            cid: row.optional_uuid("cid")?,
            sid: row.optional_uuid("sid")?,
        })
    }

    /// Whether this server may be acted through, given what was seen before.
    pub fn check(&self, demand: Demand, watermark: &Watermark) -> Result<(), Unfit> {
        match (self.model, demand) {
            (Model::Relay, Demand::Leader) => return Err(Unfit::Relay),
            _ if !self.connected => return Err(Unfit::CutOff),
            (Model::Clustered, Demand::Leader) if !self.leader => return Err(Unfit::NotLeader),
            _ => {}
        }
        match self.index {
            Some(index) if self.cid == watermark.cid && index < watermark.index => {
                Err(Unfit::Behind { index, seen: watermark.index })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn member(model: Model, leader: bool, connected: bool, index: u64) -> Member {
        let cid = Some(Uuid::from_u128(1));
        Member { model, leader, connected, index: Some(index), cid, sid: Some(Uuid::from_u128(2)) }
    }

    #[test]
    fn only_a_connected_leader_or_a_standalone_server_will_do() {
        use Model::{Clustered, Relay, Standalone};
        let fresh = Watermark::default();
        for (candidate, verdict) in [
            (member(Standalone, true, true, 0), Ok(())),
            (member(Clustered, true, true, 9), Ok(())),
            (member(Clustered, false, true, 9), Err(Unfit::NotLeader)),
            (member(Clustered, true, false, 9), Err(Unfit::CutOff)),
            (member(Clustered, false, false, 9), Err(Unfit::CutOff)),
            (member(Relay, false, true, 9), Err(Unfit::Relay)),
            (member(Relay, true, true, 9), Err(Unfit::Relay)),
        ] {
            assert_eq!(candidate.check(Demand::Leader, &fresh), verdict, "{candidate:?}");
        }
        assert_eq!(member(Relay, false, true, 9).check(Demand::Any, &fresh), Ok(()));
        assert_eq!(member(Relay, false, false, 9).check(Demand::Any, &fresh), Err(Unfit::CutOff));
    }

    #[test]
    fn the_index_never_goes_back_within_one_cluster() {
        let mut seen = Watermark::default();
        seen.note(&member(Model::Clustered, true, true, 100));
        seen.note(&member(Model::Clustered, true, true, 90));
        let behind = member(Model::Clustered, true, true, 99);
        assert_eq!(behind.check(Demand::Leader, &seen), Err(Unfit::Behind { index: 99, seen: 100 }));
        assert_eq!(member(Model::Clustered, true, true, 100).check(Demand::Leader, &seen), Ok(()));
        let elsewhere = Member { cid: Some(Uuid::from_u128(7)), ..behind };
        assert_eq!(elsewhere.check(Demand::Leader, &seen), Ok(()));
        seen.note(&elsewhere);
        assert_eq!(elsewhere.check(Demand::Leader, &seen), Ok(()));
    }

    #[test]
    fn a_row_of_the_server_database_is_read() {
        let row =
            Row::parse(json!({"name": "OVN_Southbound", "model": "clustered", "connected": true, "leader": false,
            "index": 17, "cid": ["uuid", "00000000-0000-0000-0000-000000000001"], "sid": ["set", []]}));
        let read = Member::parse(&row.unwrap()).unwrap();
        let expected = Member { sid: None, ..member(Model::Clustered, false, true, 17) };
        assert_eq!(read, expected);
        let odd = Row::parse(json!({"model": "quantum"})).unwrap();
        assert!(Member::parse(&odd).unwrap_err().to_string().contains("quantum"));
    }
}
