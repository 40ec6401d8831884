//! When a warm restart is over: from what was observed, whether the flag goes and whether the flows have arrived. Pure.

use std::time::Duration;

use crate::hook::daemon::Daemon;
use crate::hook::warm_restart::{ARRIVAL_AT_MOST, FLAG_AT_MOST, HandOver, Phase};
use crate::ovs::datapath::FlowTable;

/// The tables stand still when the number of rules was seen this often …
const SIGHTINGS: u32 = 4;
/// … over this long. An `ovn-controller` that just started asks the Southbound in a few rounds, and fills in as many.
const CALM: Duration = Duration::from_millis(1200);
/// The same for flows that an `ovn-controller` without Southbound has in its memory: there is nothing to ask for.
const CALM_WITHOUT_SOUTHBOUND: Duration = Duration::from_secs(5);
/// How long to rest between two looks at the flows themselves: each costs a process and a list of all flows.
const FLOWS_EVERY: Duration = Duration::from_millis(600);
/// The view of the database may be this old: a flag that was just set is not there yet.
const VIEW_LAG: Duration = Duration::from_secs(5);

/// What was observed at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Facts {
    /// The machine's uptime.
    pub now: Duration,
    /// `flow-restore-wait` in the database; none while that is not known.
    pub flag: Option<bool>,
    /// What is in flight for `ovs-vswitchd` and for `ovn-controller`.
    pub vswitchd: Option<HandOver>,
    pub controller: Option<HandOver>,
    /// `ovn-controller`'s process lives.
    pub controller_runs: bool,
    /// It is connected to the Southbound.
    pub connected: bool,
    /// How many rules all bridges hold, if `ovs-vswitchd` answers.
    pub rules: Option<u64>,
    /// The integration bridge's flows, where they were looked at and could be read: see [`is_time_for_flows`].
    pub flows: Option<FlowTable>,
}

/// What earlier observations say about this one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// The restart that was seen: the same number of rules says nothing of the next one.
    begun: Option<Duration>,
    rules: u64,
    sightings: u32,
    rules_since: Duration,
    /// When the flows themselves were looked at last.
    looked_at: Option<Duration>,
    /// Since when the flag is seen on.
    flag_since: Option<Duration>,
}

impl Memory {
    /// What to remember after these facts, before the flows are looked at.
    #[must_use]
    pub fn after(self, facts: &Facts) -> Self {
        let flag_since = match facts.flag {
            Some(true) => Some(self.flag_since.unwrap_or(facts.now)),
            Some(false) => None,
            None => self.flag_since,
        };
        let begun = [facts.vswitchd, facts.controller].into_iter().filter(|note| is_held(*note)).flatten();
        let begun = begun.map(|note| note.since).max();
        match facts.rules {
            // Who does not answer in time says nothing about the tables: the count goes on with the next answer.
            None if begun == self.begun => Self { flag_since, ..self },
            Some(rules) if begun == self.begun && rules == self.rules => {
                Self { sightings: self.sightings.saturating_add(1), flag_since, ..self }
            }
            rules => Self {
                begun,
                rules: rules.unwrap_or_default(),
                sightings: u32::from(rules.is_some()),
                rules_since: facts.now,
                looked_at: None,
                flag_since,
            },
        }
    }

    /// The same, when the flows were looked at as well.
    #[must_use]
    pub fn after_flows(self, facts: &Facts) -> Self {
        Self { looked_at: Some(facts.now), ..self }
    }

    fn calm_for(&self, now: Duration) -> Duration {
        if self.sightings < SIGHTINGS { Duration::ZERO } else { now.saturating_sub(self.rules_since) }
    }
}

/// Why something is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The flows are in.
    FlowsAreIn,
    /// Somebody else undid it already.
    UndoneByOthers,
    /// The time is over.
    Overdue,
}

/// What to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Plan {
    pub release_flows: Option<Why>,
    pub flows_arrived: Option<Why>,
}

/// True when there is anything to look at closely.
pub fn is_worth_a_look(facts: &Facts) -> bool {
    facts.flag == Some(true) || is_held(facts.vswitchd) || is_held(facts.controller)
}

fn is_held(hand_over: Option<HandOver>) -> bool {
    hand_over.is_some_and(|hand_over| hand_over.phase == Phase::Held)
}

/// True when a look at the flows themselves may end something: the tables stand still, and were not looked at just now.
pub fn is_time_for_flows(facts: &Facts, memory: &Memory) -> bool {
    let rested = memory.looked_at.is_none_or(|then| facts.now.saturating_sub(then) >= FLOWS_EVERY);
    facts.controller_runs && facts.rules.is_some() && rested && memory.calm_for(facts.now) >= calm(facts)
}

/// Decides; `memory` includes these facts.
pub fn decide(facts: &Facts, memory: &Memory) -> Plan {
    Plan { release_flows: judge_flag(facts, memory), flows_arrived: judge_arrival(facts) }
}

fn judge_flag(facts: &Facts, memory: &Memory) -> Option<Why> {
    let Some(held) = facts.vswitchd.filter(|hand_over| hand_over.phase == Phase::Held) else {
        // Not set by a start of ours, or long overdue: whoever set it gets the whole time. Left on, it silences the
        // node, so nobody gets more.
        let since = memory.flag_since.filter(|_| facts.flag == Some(true))?;
        return (facts.now.saturating_sub(since) >= FLAG_AT_MOST).then_some(Why::Overdue);
    };
    let age = held.age(facts.now);
    if age >= FLAG_AT_MOST {
        return Some(Why::Overdue);
    }
    if facts.flag == Some(false) && age >= VIEW_LAG {
        return Some(Why::UndoneByOthers);
    }
    // A new ovs-vswitchd begins with empty tables: whatever is in them is of its own time.
    flows_are_in(facts, age).then_some(Why::FlowsAreIn)
}

fn judge_arrival(facts: &Facts) -> Option<Why> {
    let held = facts.controller.filter(|hand_over| hand_over.phase == Phase::Held)?;
    let age = held.age(facts.now);
    if age >= ARRIVAL_AT_MOST {
        return Some(Why::Overdue);
    }
    flows_are_in(facts, age).then_some(Why::FlowsAreIn)
}

fn calm(facts: &Facts) -> Duration {
    if facts.connected { CALM } else { CALM_WITHOUT_SOUTHBOUND }
}

/// The bridge holds flows that came after the restart began, all of them, and no more are coming. How many there are
/// says nothing: a chassis may have few, and fewer than before, or just as many.
///
/// Flows are only looked at while the tables stand still. That these were already there for as long is what makes the calm
/// theirs, and not one of the flows before them.
fn flows_are_in(facts: &Facts, age: Duration) -> bool {
    facts.flows.is_some_and(|flows| flows.count > 0 && flows.oldest >= calm(facts) && flows.oldest <= age)
}

/// The daemons that a hand-over is read for.
pub const WATCHED: [Daemon; 2] = [Daemon::OvsVswitchd, Daemon::OvnController];

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds after the machine's start at which the restarts of these tests begin.
    const BEGUN: u64 = 1000;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn held() -> Option<HandOver> {
        Some(HandOver { phase: Phase::Held, since: Duration::from_secs(BEGUN) })
    }

    /// A node some time after a restart began, all well: the flows came half a second after it.
    fn facts(after: f64, count: u64) -> Facts {
        Facts {
            now: Duration::from_secs(BEGUN) + seconds(after),
            flag: Some(true),
            vswitchd: held(),
            controller: None,
            controller_runs: true,
            connected: true,
            rules: Some(count),
            flows: Some(FlowTable { count, oldest: seconds(after - 0.5) }),
        }
    }

    /// The plans of a series of looks, each with the memory of those before. Flows are seen only when it is time for them.
    fn plans(looks: &[Facts]) -> Vec<Plan> {
        let mut memory = Memory::default();
        looks
            .iter()
            .map(|facts| {
                let mut facts = *facts;
                memory = memory.after(&facts);
                if is_time_for_flows(&facts, &memory) {
                    memory = memory.after_flows(&facts);
                } else {
                    facts.flows = None;
                }
                decide(&facts, &memory)
            })
            .collect()
    }

    fn came(look: &Facts, after: f64) -> Option<FlowTable> {
        let since_begun = look.now.as_secs_f64() - BEGUN as f64;
        Some(FlowTable { count: 3, oldest: seconds((since_begun - after).max(0.0)) })
    }

    fn looks(from: f64, until: f64, change: impl Fn(&mut Facts)) -> Vec<Facts> {
        let mut looks = Vec::new();
        let mut at = from;
        while at <= until {
            let mut look = facts(at, 3);
            change(&mut look);
            looks.push(look);
            at += 0.4;
        }
        looks
    }

    fn flag(looks: &[Facts]) -> Option<Why> {
        plans(looks).iter().find_map(|plan| plan.release_flows)
    }

    fn arrival(looks: &[Facts]) -> Option<Why> {
        plans(looks).iter().find_map(|plan| plan.flows_arrived)
    }

    #[test]
    fn a_few_flows_that_stay_the_same_are_enough() {
        let plans = plans(&looks(1.0, 3.0, |_| {}));
        let first = plans.iter().position(|plan| plan.release_flows.is_some());
        assert_eq!(first, Some(3), "{plans:?}");
        assert_eq!(plans[3], Plan { release_flows: Some(Why::FlowsAreIn), flows_arrived: None });
    }

    #[test]
    fn nothing_is_released_before_the_flows_are_in() {
        type Spoil = fn(&mut Facts);
        let cases: [(&str, Spoil); 6] = [
            ("empty tables", |look| look.flows = Some(FlowTable { count: 0, oldest: Duration::ZERO })),
            ("vswitchd does not answer", |look| look.rules = None),
            ("ovn-controller is away", |look| look.controller_runs = false),
            ("still filling", |look| look.rules = Some(look.now.as_millis() as u64)),
            ("flows that keep being replaced", |look| {
                look.flows = Some(FlowTable { count: 3, oldest: seconds(0.3) });
            }),
            ("flows from before the restart", |look| {
                look.flows = Some(FlowTable { count: 3, oldest: Duration::from_secs(900) });
            }),
        ];
        for (name, change) in cases {
            assert_eq!(flag(&looks(1.0, 59.0, change)), None, "{name}");
            // And whatever it is, the time ends.
            assert_eq!(flag(&looks(1.0, 60.4, change)), Some(Why::Overdue), "{name}");
        }
    }

    #[test]
    fn one_answer_that_did_not_come_in_time_does_not_begin_the_count_again() {
        let mut series = looks(1.0, 3.0, |_| {});
        series[2].rules = None;
        let plans = plans(&series);
        assert_eq!(plans[2].release_flows, None, "nothing is released on an answer that did not come");
        assert_eq!(plans.iter().position(|plan| plan.release_flows.is_some()), Some(4), "{plans:?}");
    }

    #[test]
    fn without_a_southbound_the_flows_in_memory_count_after_a_longer_calm() {
        assert_eq!(flag(&looks(1.0, 4.0, |look| look.connected = false)), None);
        assert_eq!(flag(&looks(1.0, 7.0, |look| look.connected = false)), Some(Why::FlowsAreIn));
    }

    #[test]
    fn case_5_a_flag_of_nobody_is_cleared_after_the_bound_and_not_before() {
        let nobody: fn(&mut Facts) = |look| look.vswitchd = None;
        assert_eq!(flag(&looks(1.0, 60.0, nobody)), None);
        assert_eq!(flag(&looks(1.0, 62.0, nobody)), Some(Why::Overdue));
        // One that was overdue and was set again, by whomever: the same.
        let again: fn(&mut Facts) = |look| {
            look.vswitchd = Some(HandOver { phase: Phase::Overdue, since: Duration::from_secs(10) });
        };
        assert_eq!(flag(&looks(1.0, 60.0, again)), None);
        assert_eq!(flag(&looks(1.0, 62.0, again)), Some(Why::Overdue));
    }

    #[test]
    fn a_flag_that_a_person_took_away_ends_the_hand_over() {
        let gone: fn(&mut Facts) = |look| {
            look.flag = Some(false);
            look.rules = None;
        };
        assert_eq!(flag(&looks(1.0, 3.0, gone)), None);
        assert_eq!(flag(&looks(1.0, 6.0, gone)), Some(Why::UndoneByOthers));
    }

    #[test]
    fn the_flows_of_a_new_ovn_controller_are_told_from_the_old_ones() {
        let started: fn(&mut Facts) = |look| {
            (look.flag, look.vswitchd, look.controller) = (Some(false), None, held());
        };
        assert_eq!(arrival(&looks(1.0, 3.0, started)), Some(Why::FlowsAreIn));
        // The old tables are full and calm, and prove nothing.
        let old: fn(&mut Facts) = |look| {
            (look.flag, look.vswitchd, look.controller) = (Some(false), None, held());
            look.flows = Some(FlowTable { count: 3, oldest: Duration::from_secs(900) });
        };
        assert_eq!(arrival(&looks(1.0, 19.0, old)), None);
        assert_eq!(arrival(&looks(1.0, 20.4, old)), Some(Why::Overdue));
    }

    #[test]
    fn flows_of_before_and_of_the_restart_before_are_no_part_of_the_calm() {
        let started = |since: u64, came_after: f64| {
            move |look: &mut Facts| {
                (look.flag, look.vswitchd) = (Some(false), None);
                look.controller = Some(HandOver { phase: Phase::Held, since: Duration::from_secs(since) });
                look.flows = came(look, came_after);
            }
        };
        let first = |series: &[Facts]| plans(series).iter().position(|plan| plan.flows_arrived.is_some());
        // The old tables stood still long enough; the new ones have as many rules, and nobody looked in between.
        let old = looks(1.0, 5.0, started(BEGUN, -900.0));
        let mut series = old.clone();
        series.extend(looks(5.4, 8.0, started(BEGUN, 5.2)));
        assert_eq!(first(&series), Some(old.len() + 4), "the flows have to be calm themselves");
        // The next restart, before anybody looked in between.
        let before = looks(1.0, 2.0, started(BEGUN, 0.5));
        let mut series = before.clone();
        series.extend(looks(4.0, 7.0, started(BEGUN + 3, 3.5)));
        assert_eq!(first(&series), Some(before.len() + 3));
    }

    #[test]
    fn the_flows_are_looked_at_seldom_and_only_while_the_tables_stand_still() {
        let mut memory = Memory::default();
        let mut looked = 0;
        for look in looks(1.0, 11.0, |look| look.rules = Some(if look.now.as_secs() < BEGUN + 6 { 1 } else { 2 })) {
            memory = memory.after(&look);
            if is_time_for_flows(&look, &memory) {
                memory = memory.after_flows(&look);
                looked += 1;
            }
        }
        // Of 26 looks; at 2.2, then every second one, and again from 1.2 s after the change on.
        assert!((8..=12).contains(&looked), "{looked}");
    }

    #[test]
    fn without_anything_in_flight_there_is_nothing_to_do() {
        let idle: fn(&mut Facts) = |look| (look.flag, look.vswitchd) = (Some(false), None);
        assert!(plans(&looks(1.0, 100.0, idle)).iter().all(|plan| *plan == Plan::default()));
        assert!(!looks(1.0, 1.0, idle).iter().any(is_worth_a_look));
        assert!(looks(1.0, 1.0, |_| {}).iter().all(is_worth_a_look));
        let unknown: fn(&mut Facts) = |look| (look.flag, look.vswitchd) = (None, None);
        assert_eq!(flag(&looks(1.0, 100.0, unknown)), None);
    }
}
