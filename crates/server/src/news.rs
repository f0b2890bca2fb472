//! Which nouns have changed, for pages that follow along.
//!
//! In: the change counters of the rooms. Out: one version per noun, as of now. Holds: nothing but those versions: a
//! reader who was away compares what it last saw with what is, so nobody is queued for and nobody can fall behind.
//! A version is raised after the change can be read, so who reads then reads it.
//! What has no counter of its own (how nodes are) is looked at once a second while anybody follows.

use std::{
    hash::{DefaultHasher, Hasher as _},
    sync::Arc,
    time::Duration,
};

use drivers::{flows::Flows, hosts::Hosts, peers::Peers, policy::Policy, random, tags::Tags};
use life::Life;
use orchestrator::execute::Orchestrator;
use store::{
    Prefix, Revision, Store,
    follow::{Follower, Step},
};
use tokio::sync::watch;
use transport::Hub;

/// How often what has no counter is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// What can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noun {
    Tags,
    Namespaces,
    /// Resources, rules and links.
    Resources,
    Jobs,
    /// Stored objects: workloads, services, policies.
    Objects,
    /// How far nodes are with policies.
    Realisation,
    Nodes,
    Hosts,
    /// Tickets and consumers.
    Storage,
    Audit,
    Flows,
}

impl Noun {
    pub const ALL: [Self; 11] = [
        Self::Tags,
        Self::Namespaces,
        Self::Resources,
        Self::Jobs,
        Self::Objects,
        Self::Realisation,
        Self::Nodes,
        Self::Hosts,
        Self::Storage,
        Self::Audit,
        Self::Flows,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tags => "tags",
            Self::Namespaces => "namespaces",
            Self::Resources => "resources",
            Self::Jobs => "jobs",
            Self::Objects => "objects",
            Self::Realisation => "realisation",
            Self::Nodes => "nodes",
            Self::Hosts => "hosts",
            Self::Storage => "storage",
            Self::Audit => "audit",
            Self::Flows => "flows",
        }
    }
}

/// Whose changes are told.
pub struct Rooms {
    pub tags: Arc<Tags>,
    pub policy: Arc<Policy>,
    pub orchestrator: Arc<Orchestrator>,
    pub hub: Arc<Hub>,
    pub peers: Arc<Peers>,
    pub hosts: Arc<Hosts>,
    pub watch: Arc<::watch::Cache>,
    pub flows: Option<Arc<Flows>>,
}

/// The version of each noun, in the order of [`Noun::ALL`].
pub type Versions = [u64; Noun::ALL.len()];

/// The news of one controller.
pub struct News {
    /// Tells this process from others: versions of another one cannot be compared.
    pub epoch: String,
    versions: watch::Sender<Versions>,
}

impl News {
    pub fn new() -> Arc<Self> {
        let epoch = common::hex(&random::bytes::<8>());
        Arc::new(Self { epoch, versions: watch::Sender::new([1; Noun::ALL.len()]) })
    }

    pub fn subscribe(&self) -> watch::Receiver<Versions> {
        self.versions.subscribe()
    }

    /// How many follow.
    pub fn followers(&self) -> usize {
        self.versions.receiver_count()
    }

    fn raise(&self, nouns: &[Noun]) {
        self.versions.send_modify(|versions| nouns.iter().for_each(|noun| versions[*noun as usize] += 1));
    }

    /// Starts to listen to the rooms.
    pub fn start(self: &Arc<Self>, rooms: Rooms, audit: watch::Receiver<u64>, store: &Store, life: &Life) {
        let news = || Arc::clone(self);
        let (tags, told) = (Arc::clone(&rooms.tags), news());
        life.spawn("news: tags", async move {
            let mut seen = Revision(0);
            loop {
                seen = tags.later_than(seen).await;
                told.raise(&[Noun::Tags]);
            }
        });
        life.spawn("news: objects", news().follow(rooms.policy.changes(), &[Noun::Objects]));
        life.spawn(
            "news: resources",
            news().follow(rooms.orchestrator.changes(), &[Noun::Resources, Noun::Jobs]),
        );
        life.spawn("news: hosts", news().follow(rooms.hosts.changes(), &[Noun::Hosts]));
        life.spawn("news: audit", news().follow(audit, &[Noun::Audit]));
        life.spawn("news: namespaces", news().follow_store(store.clone(), "namespaces", Noun::Namespaces));
        life.spawn("news: storage", news().follow_store(store.clone(), "storage", Noun::Storage));
        life.spawn("news: nodes", look(news(), rooms));
    }

    async fn follow<T>(self: Arc<Self>, mut changes: watch::Receiver<T>, nouns: &'static [Noun]) {
        while changes.changed().await.is_ok() {
            changes.mark_unchanged();
            self.raise(nouns);
        }
    }

    async fn follow_store(self: Arc<Self>, store: Store, path: &'static str, noun: Noun) {
        let prefix = Prefix::below(path).expect("a fixed path is a legal prefix");
        let mut follower = Follower::new(store, prefix);
        loop {
            if let Step::Complete { .. } = follower.next().await {
                self.raise(&[noun]);
            }
        }
    }
}

/// Looks at what has no counter, while anybody follows.
async fn look(news: Arc<News>, rooms: Rooms) {
    let (mut nodes, mut reports, mut troubles, mut flows) = (0, 0, 0, 0);
    loop {
        tokio::time::sleep(LOOK).await;
        if news.followers() == 0 {
            continue;
        }
        let tell = |noun, before: &mut u64, now| {
            if std::mem::replace(before, now) != now {
                news.raise(&[noun]);
            }
        };
        let seen = of_nodes(&rooms);
        tell(Noun::Nodes, &mut nodes, seen);
        tell(Noun::Realisation, &mut reports, digest(&(seen, rooms.watch.reports())));
        tell(Noun::Resources, &mut troubles, digest(&rooms.orchestrator.troubles()));
        tell(Noun::Flows, &mut flows, rooms.flows.as_ref().map_or(0, |flows| flows.recorded()));
    }
}

fn of_nodes(rooms: &Rooms) -> u64 {
    let sessions = rooms.hub.sessions();
    let seen = sessions.iter().map(|session| {
        let revisions = (session.revision.0, session.sent.0, session.applied.map(|applied| applied.0));
        (&session.name, session.connected, revisions, session.errors.len(), session.lag.as_secs())
    });
    // What other controllers say of theirs changes with this.
    let elsewhere = rooms.peers.progress().and_then(|progress| progress.reached());
    digest(&(elsewhere, seen.collect::<Vec<_>>()))
}

fn digest(value: &impl std::hash::Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nouns_stand_in_the_order_of_their_versions() {
        for (at, noun) in Noun::ALL.into_iter().enumerate() {
            assert_eq!(noun as usize, at, "{noun:?}");
        }
    }

    #[tokio::test]
    async fn a_reader_who_was_away_sees_the_latest_and_only_once() {
        let news = News::new();
        let mut reader = news.subscribe();
        (0..1000).for_each(|_| news.raise(&[Noun::Tags, Noun::Jobs]));
        reader.changed().await.unwrap();
        let seen = *reader.borrow_and_update();
        assert_eq!((seen[Noun::Tags as usize], seen[Noun::Nodes as usize]), (1001, 1));
        assert!(!reader.has_changed().unwrap());
    }
}
