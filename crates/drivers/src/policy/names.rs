//! Which objects there are, by name alone, in little room: there is one for each object that is stored.

use std::collections::HashSet;

use model::policy::{Kind, ObjectId};

/// Names of objects.
#[derive(Debug, Default)]
pub(super) struct Names(HashSet<(Kind, Box<str>)>);

/// Neither a namespace nor a name has a slash.
fn packed(id: &ObjectId) -> (Kind, Box<str>) {
    (id.kind, [&id.namespace, "/", &id.name].concat().into())
}

fn unpacked((kind, packed): &(Kind, Box<str>)) -> ObjectId {
    let (namespace, name) = packed.split_once('/').unwrap_or(("", packed));
    ObjectId { kind: *kind, namespace: namespace.to_owned(), name: name.to_owned() }
}

impl Names {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn insert(&mut self, id: &ObjectId) {
        self.0.insert(packed(id));
    }

    pub(super) fn remove(&mut self, id: &ObjectId) {
        self.0.remove(&packed(id));
    }

    pub(super) fn contains(&self, id: &ObjectId) -> bool {
        self.0.contains(&packed(id))
    }

    /// Those that the others are not among, sorted.
    pub(super) fn without(&self, others: &Self) -> Vec<ObjectId> {
        let mut left: Vec<_> = self.0.difference(&others.0).map(unpacked).collect();
        left.sort_unstable();
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(kind: Kind, namespace: &str, name: &str) -> ObjectId {
        ObjectId { kind, namespace: namespace.into(), name: name.into() }
    }

    #[test]
    fn what_is_put_in_comes_out_as_it_was() {
        let all = [
            id(Kind::Namespace, "", "x"),
            id(Kind::Pod, "", "x"),
            id(Kind::Pod, "x", "a"),
            id(Kind::Pod, "x", "b"),
        ];
        let (mut names, mut others) = (Names::default(), Names::default());
        all.iter().for_each(|id| names.insert(id));
        assert!(all.iter().all(|id| names.contains(id)) && !names.contains(&id(Kind::Node, "", "x")));
        assert_eq!(names.without(&others), all);
        others.insert(&all[1]);
        names.remove(&all[2]);
        assert_eq!(names.without(&others), [all[0].clone(), all[3].clone()]);
    }
}
