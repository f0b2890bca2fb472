//! What the kernel's log says of a packet that is refused: where, in which direction, and why if that was no policy.
//!
//! The rule that decides is not in it: what is in force is all rules worked out together, and naming one would make as many decisions
//! as there are rules. Who wants to know asks [`Plane::ruling`](crate::Plane::ruling), which reads the same rules.

use model::policy::output::Direction;

/// Who is judged by what a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Judged {
    Workload,
    Host,
    /// The host, by the port that was asked for before translation.
    Published,
}

/// The prefix of a message of the kernel's log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Refusal {
    pub judged: Judged,
    /// As the one who is judged sees it.
    pub direction: Direction,
    /// Empty: policies decided.
    pub why: String,
}

impl Refusal {
    pub fn prefix(&self) -> String {
        let judged = match self.judged {
            Judged::Workload => "workload",
            Judged::Host => "host",
            Judged::Published => "published",
        };
        let direction = if self.direction == Direction::In { "in" } else { "out" };
        let why = if self.why.is_empty() { String::new() } else { format!(": {}", self.why) };
        format!("trestle {judged} {direction}{why}")
    }

    /// `None` if somebody else logs to the group.
    pub fn parse(prefix: &str) -> Option<Self> {
        let said = prefix.strip_prefix("trestle ")?;
        let (place, why) = said.split_once(": ").unwrap_or((said, ""));
        let (judged, direction) = place.split_once(' ')?;
        let judged = match judged {
            "workload" => Judged::Workload,
            "host" => Judged::Host,
            "published" => Judged::Published,
            _ => return None,
        };
        let direction = match direction {
            "in" => Direction::In,
            "out" => Direction::Out,
            _ => return None,
        };
        Some(Self { judged, direction, why: why.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_says_what_was_refused() {
        for judged in [Judged::Workload, Judged::Host, Judged::Published] {
            for (direction, why) in [(Direction::In, ""), (Direction::Out, "not its own address")] {
                let refusal = Refusal { judged, direction, why: why.to_owned() };
                assert_eq!(Refusal::parse(&refusal.prefix()), Some(refusal));
            }
        }
        for other in ["", "trestle", "trestle ", "trestle host", "trestle host up", "fw: workload in"] {
            assert_eq!(Refusal::parse(other), None, "{other}");
        }
    }
}
