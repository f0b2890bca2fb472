//! The members of a group at one moment: cheap to keep, cheap to compare with a later moment.
//!
//! ```text
//!  Few:  one sorted slice          most groups; nothing but the slice
//!  Many: a persistent ordered map  a change copies O(log n); what two versions share is skipped when they are compared
//! ```

use std::{cmp::Ordering, sync::Arc};

use imbl::{OrdMap, ordmap::DiffItem};
use model::policy::output::Member;

const FEW: usize = 16;

/// What makes a member the same member in one kind of group.
pub trait Key: Clone + Ord {
    fn new(member: Arc<Member>) -> Self;
}

/// In an AddressGroup: the workload and its addresses.
#[derive(Clone, Debug)]
pub struct AddressKey(Arc<Member>);

/// In an AppliedToGroup: where it is enforced, then the workload, so that one node's members lie together.
#[derive(Clone, Debug)]
pub struct AppliedToKey(Arc<Member>);

pub fn workload_order(a: &Member, b: &Member) -> Ordering {
    (&a.namespace, &a.name, a.kind).cmp(&(&b.namespace, &b.name, b.kind))
}

impl Ord for AddressKey {
    fn cmp(&self, other: &Self) -> Ordering {
        workload_order(&self.0, &other.0).then_with(|| self.0.addresses.cmp(&other.0.addresses))
    }
}

impl Ord for AppliedToKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.node.cmp(&other.0.node).then_with(|| workload_order(&self.0, &other.0))
    }
}

macro_rules! key {
    ($key:ident) => {
        impl PartialEq for $key {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other).is_eq()
            }
        }
        impl Eq for $key {}
        impl PartialOrd for $key {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }
        impl Key for $key {
            fn new(member: Arc<Member>) -> Self {
                $key(member)
            }
        }
    };
}

key!(AddressKey);
key!(AppliedToKey);

#[derive(Clone, Debug)]
pub enum Members<K: Key> {
    Few(Arc<[Arc<Member>]>, std::marker::PhantomData<K>),
    Many(OrdMap<K, Arc<Member>>),
}

/// What came or changed, and what went.
#[derive(Debug, Default)]
pub struct Difference {
    pub added: Vec<Arc<Member>>,
    pub removed: Vec<Arc<Member>>,
}

impl<K: Key> Default for Members<K> {
    fn default() -> Self {
        Members::Few(Arc::new([]), std::marker::PhantomData)
    }
}

impl<K: Key> Members<K> {
    pub fn len(&self) -> usize {
        match self {
            Members::Few(list, _) => list.len(),
            Members::Many(map) => map.len(),
        }
    }

    pub fn iter(&self) -> Box<dyn Iterator<Item = &Arc<Member>> + '_> {
        match self {
            Members::Few(list, _) => Box::new(list.iter()),
            Members::Many(map) => Box::new(map.values()),
        }
    }

    /// The next moment. O(change × log size), or O(size) while it is small.
    #[must_use]
    pub fn with(&self, added: &[Arc<Member>], removed: &[Arc<Member>]) -> Self {
        if let Members::Few(list, _) = self
            && list.len() + added.len() <= FEW
        {
            let mut list = list.to_vec();
            for member in removed {
                if let Ok(at) = find::<K>(&list, member) {
                    list.remove(at);
                }
            }
            for member in added {
                match find::<K>(&list, member) {
                    Ok(at) => list[at] = Arc::clone(member),
                    Err(at) => list.insert(at, Arc::clone(member)),
                }
            }
            return Members::Few(list.into(), std::marker::PhantomData);
        }
        let mut map = self.to_map();
        for member in removed {
            map.remove(&K::new(Arc::clone(member)));
        }
        for member in added {
            map.insert(K::new(Arc::clone(member)), Arc::clone(member));
        }
        // Half of the bound, so that a group at the bound does not go back and forth.
        if map.len() <= FEW / 2 {
            return Members::Few(map.values().cloned().collect(), std::marker::PhantomData);
        }
        Members::Many(map)
    }

    fn to_map(&self) -> OrdMap<K, Arc<Member>> {
        match self {
            Members::Few(list, _) => {
                list.iter().map(|member| (K::new(Arc::clone(member)), Arc::clone(member))).collect()
            }
            Members::Many(map) => map.clone(),
        }
    }

    /// From `self` to `later`.
    pub fn difference(&self, later: &Self) -> Difference {
        let (before, after) = (self.to_map(), later.to_map());
        let mut difference = Difference::default();
        for item in before.diff(&after) {
            match item {
                DiffItem::Add(_, member) | DiffItem::Update { new: (_, member), .. } => {
                    difference.added.push(Arc::clone(member));
                }
                DiffItem::Remove(_, member) => difference.removed.push(Arc::clone(member)),
            }
        }
        difference
    }
}

impl Members<AppliedToKey> {
    /// One node's part. O(log size + part).
    pub fn on_node<'a>(&'a self, node: &'a Arc<str>) -> Box<dyn Iterator<Item = &'a Arc<Member>> + 'a> {
        let is_local = |member: &&Arc<Member>| member.node.as_ref() == Some(node);
        match self {
            Members::Few(list, _) => Box::new(list.iter().filter(is_local)),
            Members::Many(map) => {
                let first = AppliedToKey(Arc::new(least_on(node)));
                Box::new(map.range(first..).map(|(_, member)| member).take_while(is_local))
            }
        }
    }
}

/// Sorts before every member on the node.
fn least_on(node: &Arc<str>) -> Member {
    Member {
        kind: model::policy::output::MemberKind::Pod,
        enforced: true,
        namespace: "".into(),
        name: "".into(),
        addresses: Default::default(),
        ports: Box::default(),
        node: Some(Arc::clone(node)),
    }
}

fn find<K: Key>(list: &[Arc<Member>], member: &Arc<Member>) -> Result<usize, usize> {
    let key = K::new(Arc::clone(member));
    list.binary_search_by(|at| K::new(Arc::clone(at)).cmp(&key))
}

#[cfg(test)]
mod tests {
    use model::policy::output::MemberKind;

    use super::*;

    fn member(name: &str, node: &str) -> Arc<Member> {
        Arc::new(Member {
            kind: MemberKind::Pod,
            enforced: true,
            namespace: "ns".into(),
            name: name.into(),
            addresses: Default::default(),
            ports: Box::default(),
            node: Some(node.into()),
        })
    }

    fn some(count: usize) -> Vec<Arc<Member>> {
        (0..count).map(|n| member(&format!("p{n:04}"), &format!("n{}", n % 7))).collect()
    }

    #[test]
    fn small_and_large_groups_grow_and_shrink_alike() {
        for count in [3, FEW, FEW + 1, 500] {
            let all = some(count);
            let full = Members::<AppliedToKey>::default().with(&all, &[]);
            assert_eq!(full.len(), count);
            let fewer = full.with(&[], &all[1..]);
            assert_eq!(fewer.iter().cloned().collect::<Vec<_>>(), [Arc::clone(&all[0])]);
            let back = fewer.difference(&full);
            assert_eq!((back.added.len(), back.removed.len()), (count - 1, 0));
            let forth = full.difference(&fewer);
            assert_eq!((forth.added.len(), forth.removed.len()), (0, count - 1));
        }
    }

    #[test]
    fn a_node_has_its_own_members_and_no_others() {
        for count in [10, 500] {
            let group = Members::<AppliedToKey>::default().with(&some(count), &[]);
            let node: Arc<str> = "n3".into();
            let local: Vec<_> = group.on_node(&node).collect();
            assert_eq!(local.len(), (0..count).filter(|n| n % 7 == 3).count());
            assert!(local.iter().all(|member| member.node.as_ref() == Some(&node)));
        }
    }
}
