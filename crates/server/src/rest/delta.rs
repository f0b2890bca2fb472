//! Long lists in pieces: a reader who holds an older version of a list is told where it differs (RFC 3229).
//!
//! ```text
//!   GET /policies   A-IM: list                        200   ETag: "v"             the list
//!   GET /policies   A-IM: list   If-None-Match: "v"   226   ETag: "w"  IM: list   [[0, 120], {…}, [121, 2879]]
//!                                                     304   when nothing differs
//! ```
//!
//! A pair `[first, count]` stands for that part of the older list, anything else for a new item. A version that is not
//! remembered any more gets the whole list. In: replies of the routes. Holds: digests of lists that were sent lately.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The name of this way of telling differences.
const MANIPULATION: &str = "list";
/// Shorter lists are sent whole.
const FEW: usize = 64;
/// Larger replies pass as they are.
const MOST_BYTES: usize = 64 << 20;
/// How much is remembered: versions, and items of all of them together.
const VERSIONS: usize = 128;
const ITEMS: usize = 1 << 20;

/// Digests of the items of lists, by version, newest last.
#[derive(Default)]
pub struct Versions {
    /// Keyed at random: nobody can make two items that look alike.
    hasher: RandomState,
    kept: Mutex<VecDeque<(String, Arc<[u64]>)>>,
}

impl Versions {
    fn find(&self, version: &str) -> Option<Arc<[u64]>> {
        let kept = self.kept.lock();
        kept.iter().rev().find(|(known, _)| known == version).map(|(_, items)| Arc::clone(items))
    }

    fn keep(&self, version: &str, items: Arc<[u64]>) {
        let mut kept = self.kept.lock();
        kept.retain(|(known, _)| known != version);
        kept.push_back((version.to_owned(), items));
        while kept.len() > VERSIONS || kept.iter().map(|(_, items)| items.len()).sum::<usize>() > ITEMS {
            kept.pop_front();
        }
    }
}

/// Around all routes.
pub async fn answer_with_difference(
    State(versions): State<Arc<Versions>>,
    request: Request,
    next: Next,
) -> Response {
    let wanted =
        request.method() == Method::GET && request.headers().get("a-im").is_some_and(|im| im == MANIPULATION);
    if !wanted {
        return next.run(request).await;
    }
    let held = version_of(request.headers());
    let reply = next.run(request).await;
    let is_json = reply.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if reply.status() != StatusCode::OK || !is_json {
        return reply;
    }
    let (mut head, body) = reply.into_parts();
    let Ok(bytes) = to_bytes(body, MOST_BYTES).await else {
        return StatusCode::INSUFFICIENT_STORAGE.into_response();
    };
    let items: Vec<Value> = match serde_json::from_slice(&bytes) {
        Ok(Value::Array(items)) if items.len() >= FEW && items.iter().all(Value::is_object) => items,
        _ => return Response::from_parts(head, Body::from(bytes)),
    };
    let digests: Arc<[u64]> = items.iter().map(|item| versions.hasher.hash_one(item.to_string())).collect();
    let version = format!("\"{:016x}\"", versions.hasher.hash_one(&digests));
    let Ok(tag) = HeaderValue::from_str(&version) else {
        return Response::from_parts(head, Body::from(bytes));
    };
    head.headers.insert(header::ETAG, tag);
    head.headers.remove(header::CONTENT_LENGTH);
    let body = match held.and_then(|held| versions.find(&held).map(|old| (held, old))) {
        Some((held, _)) if held == version => {
            head.status = StatusCode::NOT_MODIFIED;
            Body::empty()
        }
        Some((_, old)) => {
            head.status = StatusCode::IM_USED;
            head.headers.insert("im", HeaderValue::from_static(MANIPULATION));
            Body::from(Value::Array(difference(&old, &digests, items)).to_string())
        }
        None => Body::from(bytes),
    };
    versions.keep(&version, digests);
    Response::from_parts(head, body)
}

fn version_of(headers: &HeaderMap) -> Option<String> {
    headers.get(header::IF_NONE_MATCH)?.to_str().ok().map(str::to_owned)
}

/// The new list as parts of the old one and new items. O(both).
fn difference(old: &[u64], new: &[u64], items: Vec<Value>) -> Vec<Value> {
    let places: HashMap<u64, usize> =
        old.iter().enumerate().map(|(place, digest)| (*digest, place)).collect();
    let mut told = Vec::new();
    let mut run: Option<(usize, usize)> = None;
    for (digest, item) in new.iter().zip(items) {
        let place = places.get(digest).copied();
        run = match (run, place) {
            (Some((first, count)), Some(place)) if first + count == place => Some((first, count + 1)),
            (run, place) => {
                told.extend(run.map(|(first, count)| json!([first, count])));
                if place.is_none() {
                    told.push(item);
                }
                place.map(|place| (place, 1))
            }
        };
    }
    told.extend(run.map(|(first, count)| json!([first, count])));
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(names: &[u64]) -> Vec<Value> {
        names.iter().map(|name| json!({ "name": name })).collect()
    }

    /// As a reader puts it together.
    fn put_together(old: &[Value], told: &[Value]) -> Vec<Value> {
        let mut list = Vec::new();
        for part in told {
            match part.as_array() {
                Some(pair) => {
                    let [first, count] =
                        [0, 1].map(|at| usize::try_from(pair[at].as_u64().unwrap()).unwrap());
                    list.extend_from_slice(&old[first..first + count]);
                }
                None => list.push(part.clone()),
            }
        }
        list
    }

    #[test]
    fn whatever_changes_the_reader_has_the_new_list() {
        let old: Vec<u64> = (0..200).collect();
        let mut shuffled = old.clone();
        shuffled.reverse();
        let cases: [Vec<u64>; 6] = [
            old.clone(),
            Vec::new(),
            (0..200).map(|n| if n == 77 { 1000 } else { n }).collect(),
            (0..200).filter(|n| n % 3 != 0).chain([500, 501]).collect(),
            shuffled,
            old.iter().chain(&old).copied().collect(),
        ];
        for new in cases {
            let told = difference(&old, &new, items(&new));
            assert_eq!(put_together(&items(&old), &told), items(&new));
        }
    }

    #[test]
    fn one_change_is_told_in_three_parts() {
        let old: Vec<u64> = (0..3000).collect();
        let new: Vec<u64> = (0..3000).map(|n| if n == 77 { 9999 } else { n }).collect();
        let told = difference(&old, &new, items(&new));
        assert_eq!(told, [json!([0, 77]), json!({ "name": 9999 }), json!([78, 2922])]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let versions = Versions::default();
        for n in 0..1000 {
            versions.keep(&n.to_string(), vec![n; 100].into());
        }
        assert!(versions.find("0").is_none() && versions.find("999").is_some());
        assert_eq!(versions.kept.lock().len(), VERSIONS);
        versions.keep("large", vec![0; ITEMS].into());
        assert_eq!(versions.kept.lock().len(), 1);
        versions.keep("too large", vec![0; ITEMS + 1].into());
        assert!(versions.find("too large").is_none());
    }
}
