//! How far the objects were when the hub had handed out a revision of its own. Pure.
//!
//! In: both, looked at now and then. Out: how far the objects must be with another controller, so that its nodes have what
//! this hub has for them. Holds: the last looks. Without this every change of any object would make all nodes elsewhere
//! look behind until their controller has said that it has it, whether it concerns them or not.

use std::collections::VecDeque;

use store::Revision;

/// Looks kept. What is older than all of them counts as the oldest: long since everywhere.
const KEPT: usize = 600;

#[derive(Debug, Default)]
pub struct Marks(VecDeque<Mark>);

#[derive(Clone, Copy, Debug)]
struct Mark {
    head: transport::Revision,
    objects: Revision,
}

impl Marks {
    /// The hub has handed out `head`, and its changes come from objects up to `objects`.
    pub fn note(&mut self, head: transport::Revision, objects: Revision) {
        if self.0.back().is_some_and(|last| last.head >= head) {
            return;
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(Mark { head, objects });
    }

    /// From objects up to where a revision of the hub comes, at most; none if it is newer than the last look.
    pub fn objects_of(&self, revision: transport::Revision) -> Option<Revision> {
        let place = self.0.partition_point(|mark| mark.head < revision);
        self.0.get(place).map(|mark| mark.objects)
    }
}
