//! A cloud's objects by id. A copy of all of them costs nothing, and a change copies what it changes alone: every request
//! keeps the state from before it, for refusals and for reads that come too early.

use std::{ops::Index, sync::Arc};

use imbl::OrdMap;
use serde_json::Value;

#[derive(Clone, Debug, Default)]
pub(crate) struct Objects(OrdMap<String, Arc<Value>>);

impl Objects {
    pub(crate) fn get(&self, id: &str) -> Option<&Value> {
        self.0.get(id).map(|object| &**object)
    }

    pub(crate) fn get_mut(&mut self, id: &str) -> Option<&mut Value> {
        self.0.get_mut(id).map(Arc::make_mut)
    }

    pub(crate) fn contains_key(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    pub(crate) fn insert(&mut self, id: String, object: Value) {
        self.0.insert(id, Arc::new(object));
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Value> {
        self.0.remove(id).map(Arc::unwrap_or_clone)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter().map(|(id, object)| (id, &**object))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Value> {
        self.0.values().map(|object| &**object)
    }

    /// Those whose ids begin with `start`.
    pub(crate) fn below<'o>(&'o self, start: &'o str) -> impl Iterator<Item = (&'o String, &'o Value)> {
        let rest = self.0.range(start.to_owned()..).map(|(id, object)| (id, &**object));
        rest.take_while(move |(id, _)| id.starts_with(start))
    }

    pub(crate) fn retain(&mut self, stays: impl Fn(&String, &Value) -> bool) {
        let gone: Vec<String> =
            self.iter().filter(|(id, object)| !stays(id, object)).map(|(id, _)| id.clone()).collect();
        for id in gone {
            self.0.remove(&id);
        }
    }

    pub(crate) fn find_mut(&mut self, is_meant: impl Fn(&Value) -> bool) -> Option<&mut Value> {
        let id = self.iter().find(|(_, object)| is_meant(object)).map(|(id, _)| id.clone())?;
        self.get_mut(&id)
    }

    /// Changes those that are meant.
    pub(crate) fn change(
        &mut self,
        is_meant: impl Fn(&String, &Value) -> bool,
        mut how: impl FnMut(&mut Value),
    ) {
        let meant: Vec<String> =
            self.iter().filter(|(id, object)| is_meant(id, object)).map(|(id, _)| id.clone()).collect();
        for id in meant {
            self.get_mut(&id).into_iter().for_each(&mut how);
        }
    }
}

impl<S: AsRef<str> + ?Sized> Index<&S> for Objects {
    type Output = Value;

    fn index(&self, id: &S) -> &Value {
        self.get(id.as_ref()).expect("whoever asks so knows that it is there")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_copy_stays_as_it_was() {
        let mut objects = Objects::default();
        for id in ["a/1", "a/2", "b/1"] {
            objects.insert(id.to_owned(), json!({ "n": 1 }));
        }
        let before = objects.clone();
        objects.change(|_, object| object["n"] == 1, |object| object["n"] = 2.into());
        objects.retain(|id, _| id != "a/2");
        assert_eq!(objects.below("a/").map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["a/1"]);
        assert_eq!((&objects["a/1"]["n"], &before["a/1"]["n"]), (&json!(2), &json!(1)));
        assert_eq!(before.keys().count(), 3);
    }
}
