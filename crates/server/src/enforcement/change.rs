//! Changes, and who does not have them. Pure: time is an argument.
//!
//! In: a change when it was stored; whom it concerns once that is worked out; places that have it. Out: how far one change is,
//! or several together. Holds: the last changes, and of each who is to have it and who does not.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    hash::{Hash as _, Hasher as _},
    sync::Arc,
    time::Duration,
};

use ::transport::Revision;
use model::{
    ResourceName,
    policy::{Kind as ObjectKind, ObjectId},
};
use tokio::time::Instant;

/// Changes remembered, and places that they concern, in all.
const KEPT: usize = 4_096;
const KEPT_PLACES: usize = 1 << 20;
/// Who does not have a change after so long is late.
const FRESH: Duration = Duration::from_secs(60);
/// For so long who does not have a change is asked at all, unless somebody waits for it.
const FOLLOWED: Duration = Duration::from_secs(600);

pub const COMPUTING: &str = "computing";
pub const PENDING: &str = "pending";
pub const ENFORCED: &str = "enforced";

/// What was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    Policy,
    /// Pods, nodes, namespaces, groups, entities.
    Workload,
    Service,
    /// Objects of several of these.
    Objects,
    Tag,
    Rule,
    Permission,
    Resource,
    Link,
}

/// Where a change is to be in force.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Node(Arc<str>),
    Resource(ResourceName),
}

/// One change.
#[derive(Clone, Debug)]
pub struct Change {
    pub kind: Kind,
    pub began: Instant,
    /// Nothing that the hub handed out up to here is of it.
    pub after: Revision,
    concerned: Arc<BTreeSet<Place>>,
    /// With the revision up to which each must have what the hub handed out; none while it is worked out whom the change
    /// concerns.
    waiting: Option<Arc<BTreeMap<Place, Revision>>>,
    policies: Arc<[ObjectId]>,
    /// What it stored, by hashes, for as long as it is open.
    objects: Arc<[u64]>,
    /// When the last place that has it had it.
    last: Option<Instant>,
    /// It was counted how many do not have it after a minute.
    is_late: bool,
}

/// How far several changes are.
#[derive(Debug, PartialEq, Eq)]
pub struct Together {
    pub word: &'static str,
    pub concerned: usize,
    pub enforced: usize,
    /// From the first call until the last place had them, or until now.
    pub took: Duration,
}

/// The last changes, by number.
#[derive(Debug, Default)]
pub struct Book {
    next: u64,
    changes: BTreeMap<u64, Change>,
    /// Those that somebody does not have, or of which that is not known yet.
    open: BTreeSet<u64>,
    /// Of those, the ones that each place does not have.
    waiting: BTreeMap<Place, BTreeSet<u64>>,
    /// The last of them that stored an object.
    by_object: HashMap<u64, u64>,
    /// Places that changes concern, in all.
    places: usize,
}

/// A place that is to be asked whether it has a change.
#[derive(Debug)]
pub struct Question {
    pub number: u64,
    pub change: Change,
    /// Up to where it must have what the hub handed out.
    pub needed: Revision,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Workload => "workload",
            Self::Service => "service",
            Self::Objects => "objects",
            Self::Tag => "tag",
            Self::Rule => "rule",
            Self::Permission => "permission",
            Self::Resource => "resource",
            Self::Link => "link",
        }
    }

    /// Of a call that changed these.
    pub fn of_objects<'a>(ids: impl Iterator<Item = &'a ObjectId>) -> Option<Self> {
        let kind = |id: &ObjectId| match id.kind {
            kind if kind.is_policy() => Self::Policy,
            ObjectKind::Service | ObjectKind::EndpointSlice => Self::Service,
            _ => Self::Workload,
        };
        ids.map(kind).reduce(|one, other| if one == other { one } else { Self::Objects })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(name) => f.write_str(name),
            Self::Resource(name) => name.fmt(f),
        }
    }
}

impl Change {
    pub fn new(kind: Kind, began: Instant, after: Revision) -> Self {
        Self {
            kind,
            began,
            after,
            concerned: Arc::default(),
            waiting: None,
            policies: Arc::default(),
            objects: Arc::default(),
            last: None,
            is_late: false,
        }
    }

    /// The same of these objects.
    pub fn of(self, objects: &[ObjectId]) -> Self {
        Self { objects: objects.iter().map(hash).collect(), ..self }
    }

    /// Who does not have it, as far as that is known.
    pub fn waiting(&self) -> impl Iterator<Item = (&Place, Revision)> {
        self.waiting.iter().flat_map(|waiting| waiting.iter()).map(|(place, needed)| (place, *needed))
    }

    pub fn policies(&self) -> impl Iterator<Item = &ObjectId> {
        self.policies.iter()
    }

    fn is_fresh(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) < FRESH
    }

    fn is_everywhere(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.is_empty())
    }
}

fn hash(object: &ObjectId) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    object.hash(&mut hasher);
    hasher.finish()
}

/// How far changes are, as one.
pub fn together(changes: &[Change], now: Instant) -> Together {
    let concerned: HashSet<&Place> = changes.iter().flat_map(|change| change.concerned.iter()).collect();
    let waiting: HashSet<&Place> = changes.iter().flat_map(Change::waiting).map(|(place, _)| place).collect();
    let word = match changes {
        changes if changes.iter().all(Change::is_everywhere) => ENFORCED,
        changes if changes.iter().any(|change| change.waiting.is_none()) => COMPUTING,
        _ => PENDING,
    };
    let began = changes.iter().map(|change| change.began).min().unwrap_or(now);
    let last = changes.iter().filter_map(|change| change.last).max();
    let until = if word == ENFORCED { last.unwrap_or(began) } else { now };
    Together {
        word,
        concerned: concerned.len(),
        enforced: concerned.len() - waiting.len(),
        took: until.saturating_duration_since(began),
    }
}

impl Book {
    /// The number of a new change. The oldest one is forgotten for it if there are too many.
    pub fn enter(&mut self, change: Change) -> u64 {
        self.next += 1;
        self.by_object.extend(change.objects.iter().map(|object| (*object, self.next)));
        self.changes.insert(self.next, change);
        self.open.insert(self.next);
        self.forget();
        self.next
    }

    fn forget(&mut self) {
        while self.changes.len() > 1 && (self.changes.len() > KEPT || self.places > KEPT_PLACES) {
            let Some(oldest) = self.changes.keys().next().copied() else { break };
            self.close(oldest);
            if let Some(change) = self.changes.remove(&oldest) {
                self.places -= change.concerned.len();
            }
        }
    }

    /// Nobody is asked about a change any more.
    fn close(&mut self, number: u64) {
        self.end(number);
        let Some(change) = self.changes.get(&number) else { return };
        for (place, _) in change.waiting() {
            if let Some(numbers) = self.waiting.get_mut(place) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    self.waiting.remove(place);
                }
            }
        }
    }

    /// A change is open no more.
    fn end(&mut self, number: u64) {
        self.open.remove(&number);
        let objects = self.changes.get_mut(&number).map(|change| std::mem::take(&mut change.objects));
        for object in objects.iter().flat_map(|objects| objects.iter()) {
            if self.by_object.get(object) == Some(&number) {
                self.by_object.remove(object);
            }
        }
    }

    /// The open changes that made these objects as they are.
    pub fn open_of(&self, objects: &[ObjectId]) -> BTreeSet<u64> {
        if self.by_object.is_empty() {
            return BTreeSet::new();
        }
        objects.iter().filter_map(|object| self.by_object.get(&hash(object)).copied()).collect()
    }

    pub fn get(&self, number: u64) -> Option<&Change> {
        self.changes.get(&number)
    }

    /// It is known whom a change concerns.
    pub fn settle(
        &mut self,
        number: u64,
        places: Vec<(Place, Revision)>,
        policies: Vec<ObjectId>,
        now: Instant,
    ) {
        let Some(change) = self.changes.get_mut(&number) else { return };
        let mut waiting = BTreeMap::new();
        for (place, needed) in places {
            let known = waiting.entry(place).or_insert(needed);
            *known = needed.max(*known);
        }
        change.concerned = Arc::new(waiting.keys().cloned().collect());
        change.policies = policies.into();
        self.places += waiting.len();
        let is_everywhere = waiting.is_empty();
        if is_everywhere {
            change.last = Some(now);
        }
        for place in waiting.keys() {
            self.waiting.entry(place.clone()).or_default().insert(number);
        }
        change.waiting = Some(Arc::new(waiting));
        if is_everywhere {
            self.end(number);
        }
        self.forget();
    }

    /// Places have a change, each since when.
    pub fn had(&mut self, number: u64, places: Vec<(Place, Instant)>) {
        let Some(change) = self.changes.get_mut(&number) else { return };
        let Some(waiting) = &mut change.waiting else { return };
        let waiting = Arc::make_mut(waiting);
        for (place, since) in places {
            if waiting.remove(&place).is_none() {
                continue;
            }
            change.last = change.last.max(Some(since));
            if let Some(numbers) = self.waiting.get_mut(&place) {
                numbers.remove(&number);
                if numbers.is_empty() {
                    self.waiting.remove(&place);
                }
            }
        }
        if waiting.is_empty() {
            self.end(number);
        }
    }

    /// How many changes somebody is not known to have.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Places that do not have some change.
    pub fn waiting(&self) -> impl Iterator<Item = &Place> {
        self.waiting.keys()
    }

    /// What a place is to be asked.
    pub fn questions(&self, place: &Place) -> Vec<Question> {
        let numbers = self.waiting.get(place).into_iter().flatten();
        let question = |number: &u64| {
            let change = self.changes.get(number)?.clone();
            let needed = *change.waiting.as_ref()?.get(place)?;
            Some(Question { number: *number, change, needed })
        };
        numbers.filter_map(question).collect()
    }

    /// Tells, once for each change, how many do not have it after a minute; and gives up those that are long ago.
    pub fn age(&mut self, now: Instant, mut late: impl FnMut(Kind, usize)) {
        let mut given_up = Vec::new();
        for number in &self.open {
            let Some(change) = self.changes.get_mut(number) else { continue };
            if !change.is_late && !change.is_fresh(now) {
                change.is_late = true;
                late(change.kind, change.waiting.as_ref().map_or(0, |waiting| waiting.len()));
            }
            if now.saturating_duration_since(change.began) > FOLLOWED {
                given_up.push(*number);
            }
        }
        given_up.into_iter().for_each(|number| self.close(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Place {
        Place::Node(name.into())
    }

    fn after(begin: Instant, millis: u64) -> Instant {
        begin + Duration::from_millis(millis)
    }

    fn told(book: &Book, numbers: &[u64], now: Instant) -> (&'static str, usize, usize, u128) {
        let changes: Vec<Change> = numbers.iter().map(|number| book.get(*number).unwrap().clone()).collect();
        let Together { word, concerned, enforced, took } = together(&changes, now);
        (word, concerned, enforced, took.as_millis())
    }

    #[test]
    fn a_change_is_in_force_when_the_last_place_has_it() {
        let (begin, mut book) = (Instant::now(), Book::default());
        let one = book.enter(Change::new(Kind::Policy, begin, Revision(3)));
        assert_eq!(told(&book, &[one], after(begin, 5)), (COMPUTING, 0, 0, 5));
        let places = vec![(node("a"), Revision(4)), (node("b"), Revision(5)), (node("a"), Revision(6))];
        book.settle(one, places, Vec::new(), after(begin, 6));
        let needed = |name| book.questions(&node(name)).iter().map(|one| one.needed.0).collect::<Vec<_>>();
        assert_eq!([needed("a"), needed("b")], [[6], [5]], "each must have the last that concerned it");
        book.had(one, vec![(node("b"), after(begin, 20))]);
        assert_eq!(told(&book, &[one], after(begin, 30)), (PENDING, 2, 1, 30));
        book.had(one, vec![(node("a"), after(begin, 15)), (node("c"), after(begin, 999))]);
        assert_eq!(told(&book, &[one], after(begin, 500)), (ENFORCED, 2, 2, 20));
        assert_eq!(book.open(), 0);
    }

    #[test]
    fn a_change_that_concerns_nobody_is_in_force_at_once() {
        let (begin, mut book) = (Instant::now(), Book::default());
        let one = book.enter(Change::new(Kind::Tag, begin, Revision(0)));
        book.settle(one, Vec::new(), Vec::new(), after(begin, 7));
        assert_eq!(told(&book, &[one], after(begin, 50)), (ENFORCED, 0, 0, 7));
    }

    #[test]
    fn several_are_one_and_a_place_counts_once() {
        let (begin, mut book) = (Instant::now(), Book::default());
        let one = book.enter(Change::new(Kind::Policy, begin, Revision(0)));
        let two = book.enter(Change::new(Kind::Workload, after(begin, 10), Revision(1)));
        book.settle(one, vec![(node("a"), Revision(1)), (node("b"), Revision(1))], Vec::new(), begin);
        book.settle(two, vec![(node("b"), Revision(2)), (node("c"), Revision(2))], Vec::new(), begin);
        book.had(one, vec![(node("a"), after(begin, 12)), (node("b"), after(begin, 12))]);
        assert_eq!(told(&book, &[one, two], after(begin, 30)), (PENDING, 3, 1, 30));
        book.had(two, vec![(node("b"), after(begin, 40)), (node("c"), after(begin, 35))]);
        assert_eq!(told(&book, &[one, two], after(begin, 99)), (ENFORCED, 3, 3, 40));
    }

    #[test]
    fn an_object_is_of_the_last_change_that_stored_it_for_as_long_as_that_is_open() {
        let (begin, mut book) = (Instant::now(), Book::default());
        let id = |name: &str| ObjectId {
            kind: ObjectKind::NetworkPolicy,
            namespace: "shop".to_owned(),
            name: name.to_owned(),
        };
        let enter = |book: &mut Book, names: &[&str]| {
            let ids: Vec<ObjectId> = names.iter().map(|name| id(name)).collect();
            let number = book.enter(Change::new(Kind::Policy, begin, Revision(0)).of(&ids));
            book.settle(number, vec![(node("a"), Revision(1))], Vec::new(), begin);
            number
        };
        let (one, two) = (enter(&mut book, &["x", "y"]), enter(&mut book, &["y"]));
        let open = |book: &Book, name: &str| book.open_of(&[id(name)]).into_iter().collect::<Vec<_>>();
        assert_eq!([open(&book, "x"), open(&book, "y"), open(&book, "z")], [vec![one], vec![two], vec![]]);
        book.had(two, vec![(node("a"), begin)]);
        assert_eq!([open(&book, "x"), open(&book, "y")], [vec![one], vec![]]);
        book.age(begin + FOLLOWED + FRESH, |_, _| {});
        assert_eq!(open(&book, "x"), Vec::<u64>::new(), "it is given up");
        let nobody = book.enter(Change::new(Kind::Policy, begin, Revision(0)).of(&[id("x")]));
        assert_eq!(open(&book, "x"), [nobody]);
        book.settle(nobody, Vec::new(), Vec::new(), begin);
        assert!(book.by_object.is_empty());
    }

    #[test]
    fn what_is_late_is_told_once_and_what_is_long_ago_is_given_up() {
        let (begin, mut book) = (Instant::now(), Book::default());
        let one = book.enter(Change::new(Kind::Rule, begin, Revision(0)));
        book.settle(one, vec![(node("a"), Revision(1))], Vec::new(), begin);
        let mut late = Vec::new();
        for minutes in [0, 2, 3] {
            book.age(begin + Duration::from_secs(60 * minutes), |kind, count| {
                late.push((minutes, kind, count))
            });
        }
        assert_eq!(late, [(2, Kind::Rule, 1)]);
        assert_eq!(book.open(), 1);
        book.age(begin + FOLLOWED + FRESH, |_, _| panic!("it was told"));
        assert_eq!(book.open(), 0);
        // Who asks is still answered.
        assert_eq!(told(&book, &[one], begin).0, PENDING);
    }

    #[test]
    fn the_book_is_bounded() {
        let (begin, mut book) = (Instant::now(), Book::default());
        let numbers: Vec<u64> =
            (0..=KEPT).map(|_| book.enter(Change::new(Kind::Tag, begin, Revision(0)))).collect();
        assert!(book.get(numbers[0]).is_none() && book.get(numbers[1]).is_some());
        assert_eq!(book.open(), KEPT);
        // Large ones count for more.
        let last = *numbers.last().unwrap();
        let many = (0..KEPT_PLACES).map(|number| (node(&number.to_string()), Revision(1))).collect();
        book.settle(last, many, Vec::new(), begin);
        assert!(book.get(last).is_some() && book.waiting().count() == KEPT_PLACES);
        let next = book.enter(Change::new(Kind::Tag, begin, Revision(0)));
        book.settle(next, vec![(node("a"), Revision(1))], Vec::new(), begin);
        assert!(book.get(last).is_none(), "it was one place too many");
        assert_eq!(book.waiting().collect::<Vec<_>>(), [&node("a")]);
    }

    #[test]
    fn a_change_of_objects_is_of_their_kind() {
        let id = |kind| ObjectId { kind, namespace: String::new(), name: String::new() };
        let of = |kinds: &[ObjectKind]| {
            let ids: Vec<ObjectId> = kinds.iter().map(|kind| id(*kind)).collect();
            Kind::of_objects(ids.iter())
        };
        assert_eq!(of(&[ObjectKind::NetworkPolicy, ObjectKind::AntreaNetworkPolicy]), Some(Kind::Policy));
        assert_eq!(of(&[ObjectKind::Pod, ObjectKind::Namespace]), Some(Kind::Workload));
        assert_eq!(of(&[ObjectKind::Pod, ObjectKind::NetworkPolicy]), Some(Kind::Objects));
        assert_eq!(of(&[]), None);
    }
}
