//! `/events`: which nouns have changed, as server-sent events.
//!
//! The first event has the version of every noun, each further one those that differ from what this reader was last
//! told. A reader that comes back compares: what differs it reads anew. Events are made when the connection takes
//! them, from the versions as they are then, so a slow reader gets one event for all that it missed.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::header,
    response::{
        IntoResponse, Response,
        sse::{Event, KeepAlive, Sse},
    },
};
use futures::{Stream, StreamExt as _, stream};
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tonic::Code;

use crate::{
    failure::{Failure, Problem},
    news::{News, Noun, Versions},
    serving::Serving,
};

/// Changes that come within this time are one event.
const TOGETHER: Duration = Duration::from_millis(80);
/// A line is sent this often even if nothing changed, so that both ends know the other is there.
const ALIVE: Duration = Duration::from_secs(15);
/// Readers at once.
const MOST: usize = 512;

/// Which nouns have changed: `{"epoch": …, "versions": {"tags": 12, …}}`, the first event with all nouns, the next ones
/// with those that changed. Versions of different epochs cannot be compared.
#[utoipa::path(get, path = "/events", tag = "system", responses(
    (status = 200, content_type = "text/event-stream", body = String),
    (status = "default", body = Problem, content_type = "application/problem+json"),
))]
pub(super) async fn events(
    State(news): State<Arc<News>>,
    State(serving): State<Arc<Serving>>,
) -> Result<Response, Failure> {
    if news.followers() >= MOST {
        return Err(Failure::new(Code::ResourceExhausted, "too many pages follow this controller already"));
    }
    let stopping = serving.streams();
    let reader = Reader { changes: news.subscribe(), told: [0; Noun::ALL.len()], news };
    let events = events_of(reader).take_until(stopping.cancelled_owned());
    let headers =
        [(header::CACHE_CONTROL, "no-store"), (header::HeaderName::from_static("x-accel-buffering"), "no")];
    Ok((headers, Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE))).into_response())
}

struct Reader {
    news: Arc<News>,
    changes: watch::Receiver<Versions>,
    told: Versions,
}

fn events_of(reader: Reader) -> impl Stream<Item = Result<Event, Infallible>> {
    stream::unfold(reader, |mut reader| async {
        loop {
            let now = *reader.changes.borrow_and_update();
            if now != reader.told {
                let event = reader.event(&now);
                reader.told = now;
                return Some((Ok(event), reader));
            }
            if reader.changes.changed().await.is_err() {
                return None;
            }
            tokio::time::sleep(TOGETHER).await;
        }
    })
}

impl Reader {
    fn event(&self, now: &Versions) -> Event {
        let changed = Noun::ALL.iter().zip(now.iter().zip(&self.told)).filter(|(_, (now, told))| now != told);
        let versions: Map<String, Value> =
            changed.map(|(noun, (now, _))| (noun.as_str().to_owned(), json!(now))).collect();
        Event::default().data(json!({ "epoch": self.news.epoch, "versions": versions }).to_string())
    }
}
