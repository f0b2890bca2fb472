//! Resource groups as a whole. All are there; what is in them is listed, and goes with them.

use serde_json::{Value, json};

use super::{
    Done, Outcome, Target, is,
    state::{Azure, key},
};
use crate::{rest::show, server::Ask};

/// Seconds after which everything in a group is gone.
const DELETES: u64 = 60;

impl Azure {
    /// Answers what is asked of a group or of all, as far as objects matter.
    pub(super) fn groups(&mut self, ask: &Ask<'_>) -> Option<Outcome> {
        let parts: Vec<&str> = ask.uri.path().trim_matches('/').split('/').collect();
        let bare = |status| Done { status, body: Value::Null, headers: Vec::new() };
        let done = match (ask.method.as_str(), parts.as_slice()) {
            ("HEAD", [_, _, g, _]) if is(g, "resourceGroups") => bare(204),
            ("DELETE", [_, subscription, g, group]) if is(g, "resourceGroups") => {
                self.empty(&scope(subscription, group), ask.now);
                let number = self.start(ask.now + DELETES, false, Value::Null);
                let place = format!("/subscriptions/{subscription}/operationresults/{number}");
                let place = format!("{}{place}?api-version=2021-04-01", ask.origin);
                Done { headers: vec![("location", place), ("retry-after", "15".to_owned())], ..bare(202) }
            }
            ("GET", [_, _, o, number]) if is(o, "operationresults") => {
                let target = Target { child: (*number).to_owned(), ..Target::default() };
                return Some(self.operation(&target, ask.now));
            }
            ("GET", [_, subscription, g]) if is(g, "resourceGroups") => {
                Done::now(json!({"value": self.used_groups(subscription)}))
            }
            ("GET", [_, subscription, r]) if is(r, "resources") => {
                Done::now(json!({"value": self.contents(&format!("/subscriptions/{subscription}"))}))
            }
            ("GET", [_, subscription, g, group, r]) if is(g, "resourceGroups") && is(r, "resources") => {
                Done::now(json!({"value": self.contents(&scope(subscription, group))}))
            }
            _ => return None,
        };
        Some(Ok(done))
    }

    fn empty(&mut self, scope: &str, now: u64) {
        let start = format!("{}/", key(scope));
        self.objects.change(
            |id, _| id.starts_with(&start),
            |object| {
                object["_until"] = (now + DELETES).into();
                object["_gone"] = true.into();
                object["properties"]["provisioningState"] = "Deleting".into();
            },
        );
    }

    fn used_groups(&self, subscription: &str) -> Vec<Value> {
        let start = format!("{}/", key(&scope(subscription, "")).trim_end_matches('/'));
        let mut names: Vec<&str> =
            self.objects.keys().filter_map(|id| id.strip_prefix(&start)?.split('/').next()).collect();
        names.dedup();
        names.into_iter().map(|name| group(subscription, name)).collect()
    }

    fn contents(&self, scope: &str) -> Vec<Value> {
        let start = format!("{}/", key(scope));
        let inside = self.objects.iter().filter(|(id, _)| id.starts_with(&start));
        let fields = ["id", "name", "type", "location", "tags"];
        let line = |object: &Value| -> Value {
            let shown = show(object);
            let kept = fields.iter().filter(|name| !shown[**name].is_null());
            kept.map(|name| ((*name).to_owned(), shown[*name].clone()))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        inside.map(|(_, object)| line(object)).collect()
    }
}

fn scope(subscription: &str, group: &str) -> String {
    format!("/subscriptions/{subscription}/resourceGroups/{group}")
}

pub(super) fn group(subscription: &str, name: &str) -> Value {
    json!({"id": scope(subscription, name), "name": name, "type": "Microsoft.Resources/resourceGroups", "location": "westus2", "properties": {"provisioningState": "Succeeded"}})
}
