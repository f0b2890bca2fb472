//! What a request did to its tag, for the record (pure). O(what the request names), however large the tag is.

use model::{
    Member, TagName,
    change::{Change, Field, MAX_FIELDS, What},
};
use serde_json::Value;
use tags::{Graph, Request, TagView};

/// From the graphs that an accepted request was judged on and led to. A leaf is a document and has digests; of a group
/// the members that came or went are told.
pub(super) fn change(request: &Request, before: &Graph, after: &Graph) -> Change {
    match request {
        Request::SetLeaf { tag, .. } => {
            Change::between(tag, leaf(before, tag).as_ref(), leaf(after, tag).as_ref())
        }
        Request::SetGroup { tag, members } => {
            let had = |member: &&Member| group(before, tag).is_some_and(|members| members.contains(member));
            let new = members.iter().filter(|member| !had(member));
            let fields: Vec<_> = new.map(|member| field("member", None, Some(member.to_string()))).collect();
            let what = match before.get(tag) {
                Err(_) => What::Created,
                Ok(_) if fields.is_empty() => What::Unchanged,
                Ok(_) => What::Changed,
            };
            Change::named(tag, what).with_fields(fields)
        }
        Request::DeleteMembers { tag, members } => {
            let gone = members.iter().map(|member| field("member", Some(member.to_string()), None));
            Change::named(tag, What::Changed).with_fields(gone.collect())
        }
        Request::DeleteTag { tag } => match group(before, tag) {
            None => Change::between(tag, leaf(before, tag).as_ref(), None),
            Some(members) => {
                let shown = members.iter().take(MAX_FIELDS);
                let fields = shown.map(|member| field("member", Some(member.to_string()), None)).collect();
                let mut change = Change::named(tag, What::Deleted).with_fields(fields);
                change.fields_left_out = members.len().saturating_sub(MAX_FIELDS);
                change
            }
        },
        Request::Subscribe { tag, subscriber } => {
            let fields = vec![field("subscriber", None, Some(subscriber.to_string()))];
            Change::named(tag, What::Changed).with_fields(fields)
        }
        Request::Unsubscribe { tag, subscriber } => {
            let fields = vec![field("subscriber", Some(subscriber.to_string()), None)];
            Change::named(tag, What::Changed).with_fields(fields)
        }
    }
}

fn field(path: &str, before: Option<String>, after: Option<String>) -> Field {
    Field { path: path.to_owned(), before, after }
}

fn leaf(graph: &Graph, tag: &TagName) -> Option<Value> {
    match graph.get(tag) {
        Ok(TagView::Leaf(leaf)) => serde_json::to_value(leaf).ok(),
        Ok(TagView::Group(_)) | Err(_) => None,
    }
}

fn group<'g>(graph: &'g Graph, tag: &TagName) -> Option<tags::Members<'g>> {
    match graph.get(tag) {
        Ok(TagView::Group(members)) => Some(members),
        Ok(TagView::Leaf(_)) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use tags::Batch;

    use super::*;

    fn apply(graph: &Graph, request: &Request) -> (Graph, Change) {
        let mut batch = Batch::new(graph);
        batch.add(request).unwrap();
        let change = change(request, graph, batch.graph());
        (batch.graph().clone(), change)
    }

    fn members(change: &Change) -> Vec<(Option<&str>, Option<&str>)> {
        change.fields.iter().map(|field| (field.before.as_deref(), field.after.as_deref())).collect()
    }

    #[test]
    fn each_request_tells_what_it_did_and_no_more() {
        let tag = |name: &str| name.parse::<TagName>().unwrap();
        let ip = |text: &str| model::Leaf { uri: None, ip: Some(text.parse().unwrap()) };
        let group = |names: &[&str]| Request::SetGroup {
            tag: tag("g"),
            members: names.iter().map(|name| name.parse().unwrap()).collect(),
        };
        let graph = Graph::default();
        let (graph, made) = apply(&graph, &Request::SetLeaf { tag: tag("a"), leaf: ip("10.0.0.1") });
        assert_eq!((made.what, made.before.is_some(), made.after.is_some()), (What::Created, false, true));
        let (graph, moved) = apply(&graph, &Request::SetLeaf { tag: tag("a"), leaf: ip("10.0.0.2") });
        assert_eq!((moved.what, &moved.before), (What::Changed, &made.after));
        assert_eq!(members(&moved), [(Some("10.0.0.1"), Some("10.0.0.2"))]);
        let (_, same) = apply(&graph, &Request::SetLeaf { tag: tag("a"), leaf: ip("10.0.0.2") });
        assert_eq!((same.what, same.fields), (What::Unchanged, vec![]));
        let (graph, made) = apply(&graph, &group(&["a"]));
        assert_eq!((made.what, members(&made)), (What::Created, vec![(None, Some("a"))]));
        let (graph, grown) = apply(&graph, &group(&["a", "10.1.0.0/16"]));
        assert_eq!((grown.what, members(&grown)), (What::Changed, vec![(None, Some("10.1.0.0/16"))]));
        let (_, same) = apply(&graph, &group(&["a"]));
        assert_eq!(same.what, What::Unchanged);
        let (_, gone) = apply(&graph, &Request::DeleteTag { tag: tag("g") });
        assert_eq!((gone.what, gone.fields.len(), gone.fields_left_out), (What::Deleted, 2, 0));
    }
}
