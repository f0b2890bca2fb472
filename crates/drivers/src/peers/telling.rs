//! What one controller tells the others, worked out from its own state. Pure: time is an argument.
//!
//! In: the hub's sessions, reports that changed, how far the objects are taken in. Out: changes of its [`Board`].
//! Holds: what was last said of each node, to say only what differs.

use std::collections::BTreeMap;

use ::transport::SessionView;
use bytes::Bytes;
use serde::Serialize;
use watch::ReportsOf;

use super::{
    board::Board,
    words::{About, NodeWord, Place, ReportWord, Shelf, shelf_of, shelves},
};

#[derive(Debug)]
pub struct Telling {
    id: String,
    nodes: BTreeMap<String, NodeWord>,
    pub board: Board,
}

impl Telling {
    /// `id` is a segment of a key.
    pub fn new(id: String) -> Self {
        let about = Place::About.key(&id).expect("the id of a process is a legal segment");
        Self { id, nodes: BTreeMap::new(), board: Board::new(about) }
    }

    /// Nodes that left and of which somebody else knows more are left to them.
    pub fn nodes(&mut self, views: &[SessionView], now: i64, is_elsewhere: impl Fn(&NodeWord, &str) -> bool) {
        let mut gone = std::mem::take(&mut self.nodes);
        for view in views {
            let before = gone.remove(&*view.name);
            let word = NodeWord::of(view, now, before.as_ref());
            if !word.connected && is_elsewhere(&word, &view.name) {
                gone.extend(before.map(|before| (view.name.to_string(), before)));
                continue;
            }
            if before.as_ref() != Some(&word) {
                self.put(&Place::Node(view.name.to_string()), &word);
            }
            self.nodes.insert(view.name.to_string(), word);
        }
        gone.into_keys().for_each(|name| self.remove(&Place::Node(name)));
    }

    /// All reports of each policy that has others than before.
    pub fn reports(&mut self, changed: Vec<ReportsOf>) {
        for (policy, reports) in changed {
            let mut by_shelf: BTreeMap<u8, Shelf> = BTreeMap::new();
            for (node, taken) in reports {
                let failure = taken.report.is_failure.then_some(taken.report.message);
                let word = ReportWord(taken.report.generation, taken.at, failure);
                by_shelf.entry(shelf_of(&node)).or_default().insert(node.to_string(), word);
            }
            for shelf in shelves() {
                let place = Place::Shelf(policy.clone(), shelf);
                match by_shelf.remove(&shelf) {
                    Some(reports) => self.put(&place, &reports),
                    None => self.remove(&place),
                }
            }
        }
    }

    pub fn about(&mut self, about: &About) {
        self.put(&Place::About, about);
    }

    fn put(&mut self, place: &Place, value: &impl Serialize) {
        if let Some(key) = place.key(&self.id) {
            let value = serde_json::to_vec(value).expect("words have text for keys");
            self.board.put(key, Bytes::from(value));
        }
    }

    fn remove(&mut self, place: &Place) {
        if let Some(key) = place.key(&self.id) {
            self.board.remove(key);
        }
    }
}
