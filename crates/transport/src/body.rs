//! The body of a node's stream: shared frames, merged into few writes, made only when the peer takes them.
//!
//! HTTP/2 asks for the next frame when the peer's window and the send buffer have room. So a slow peer is simply
//! asked later, and gets the newest state then; nothing is queued for it but the rest of the step it is in.

use std::{
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use futures::{FutureExt as _, ready};
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use tokio::sync::oneshot;
use tokio_util::sync::PollSemaphore;

use crate::{
    core::{From, Plan},
    hub::Hub,
    key::Revision,
    session::{End, Session},
};

/// Small frames are merged up to this: the size of one HTTP/2 frame and of one TLS record.
const WRITE: usize = 16 << 10;

/// The stream of one node.
pub struct FeedBody {
    hub: Arc<Hub>,
    state: State,
    /// Frames of the step under way, last first.
    rest: Vec<Bytes>,
    /// Held by the step under way, for others to share its snapshot.
    step: Option<Plan>,
    waiting: Option<Box<PollSemaphore>>,
}

enum State {
    /// The node has not said who it is.
    Opening(oneshot::Receiver<Result<Arc<Session>, End>>),
    /// The sources are not in sync. `told`: the node knows.
    Waiting {
        session: Arc<Session>,
        told: bool,
    },
    Streaming {
        session: Arc<Session>,
        at: Position,
    },
    Ended,
}

/// Where the node stands once the step under way is sent.
enum Position {
    Start(From),
    At(Revision),
}

/// What is to be done next.
enum Next {
    Send(Bytes),
    End(End),
    Again,
}

impl FeedBody {
    /// A stream that starts when its session, or a refusal, arrives.
    pub fn new(hub: Arc<Hub>, opening: oneshot::Receiver<Result<Arc<Session>, End>>) -> Self {
        Self { hub, state: State::Opening(opening), rest: Vec::new(), step: None, waiting: None }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        match &mut self.state {
            State::Opening(opening) => {
                let opened = ready!(opening.poll_unpin(context));
                let end = End { code: 1, message: "the stream ended before the node said hello".to_owned() };
                match opened.unwrap_or(Err(end)) {
                    Ok(session) => self.state = State::Waiting { session, told: false },
                    Err(end) => return Poll::Ready(Next::End(end)),
                }
                Poll::Ready(Next::Again)
            }
            State::Waiting { session, told } => {
                session.waker.register(context.waker());
                if let Some(end) = session.end.get() {
                    return Poll::Ready(Next::End(end.clone()));
                }
                if self.hub.is_synced() {
                    let session = Arc::clone(session);
                    let from = session.from.lock().take().unwrap_or(From::Nothing);
                    self.state = State::Streaming { session, at: Position::Start(from) };
                    return Poll::Ready(Next::Again);
                }
                session.idle.store(true, Relaxed);
                if std::mem::replace(told, true) {
                    return Poll::Pending;
                }
                let wait = self.hub.core().wait(session.dialect, &self.hub.unsynced());
                Poll::Ready(wait.map_or(Next::Again, Next::Send))
            }
            State::Streaming { session, .. } => {
                let session = Arc::clone(session);
                session.waker.register(context.waker());
                if let Some(end) = session.end.get() {
                    return Poll::Ready(Next::End(end.clone()));
                }
                if !self.rest.is_empty() {
                    return Poll::Ready(Next::Send(take_write(&mut self.rest)));
                }
                ready!(self.poll_step(&session, context));
                Poll::Ready(Next::Again)
            }
            State::Ended => Poll::Ready(Next::Again),
        }
    }

    /// Finds the next step. A large one first waits for its turn, and is then made of what is true by that time.
    fn poll_step(&mut self, session: &Session, context: &mut Context<'_>) -> Poll<()> {
        self.step = None;
        let mut may_be_large = match &mut self.waiting {
            None => false,
            Some(waiting) => {
                let permit = ready!(waiting.poll_acquire(context));
                *session.permit.lock() = permit;
                self.stop_waiting();
                true
            }
        };
        loop {
            let Some(plan) = self.plan(session) else {
                session.permit.lock().take();
                session.idle.store(true, Relaxed);
                return Poll::Pending;
            };
            if may_be_large || !self.hub.is_large(&plan) {
                self.take_up(session, plan);
                return Poll::Ready(());
            }
            // The place of an earlier large step goes back to the end of the queue.
            session.permit.lock().take();
            session.idle.store(true, Relaxed);
            self.hub.counters.large_waiting.fetch_add(1, Relaxed);
            let waiting = self.waiting.insert(Box::new(PollSemaphore::new(Arc::clone(&self.hub.large))));
            let permit = ready!(waiting.poll_acquire(context));
            *session.permit.lock() = permit;
            self.stop_waiting();
            may_be_large = true;
        }
    }

    fn stop_waiting(&mut self) {
        if self.waiting.take().is_some() {
            self.hub.counters.large_waiting.fetch_sub(1, Relaxed);
        }
    }

    fn plan(&mut self, session: &Session) -> Option<Plan> {
        let State::Streaming { at, .. } = &mut self.state else { return None };
        let core = self.hub.core();
        match at {
            Position::Start(from) => Some(core.first_plan(session.node, from, session.dialect)),
            Position::At(reached) => {
                let plan = core.next_plan(session.node, *reached, session.dialect);
                if plan.is_none() {
                    *reached = core.head();
                }
                plan
            }
        }
    }

    fn take_up(&mut self, session: &Session, mut plan: Plan) {
        let State::Streaming { at, .. } = &mut self.state else { return };
        *at = Position::At(plan.to);
        session.note_step(plan.to);
        self.hub.counters.steps.fetch_add(1, Relaxed);
        self.rest = std::mem::take(&mut plan.frames);
        self.rest.reverse();
        self.step = Some(plan);
    }

    fn session(&self) -> Option<&Arc<Session>> {
        match &self.state {
            State::Waiting { session, .. } | State::Streaming { session, .. } => Some(session),
            State::Opening(_) | State::Ended => None,
        }
    }

    fn close(&mut self) {
        self.stop_waiting();
        if let Some(session) = self.session().cloned() {
            self.hub.close(&session);
        } else if let State::Opening(opening) = &mut self.state {
            opening.close();
            if let Ok(Ok(session)) = opening.try_recv() {
                self.hub.close(&session);
            }
        }
        (self.state, self.rest, self.step) = (State::Ended, Vec::new(), None);
    }
}

/// The next write: one frame as it is, or several small ones copied together.
fn take_write(rest: &mut Vec<Bytes>) -> Bytes {
    let mut length = 0;
    let fits = |frame: &&Bytes| {
        length += frame.len();
        length <= WRITE
    };
    let count = rest.iter().rev().take_while(fits).count().max(1);
    let frames = rest.split_off(rest.len() - count);
    match frames.as_slice() {
        [one] => one.clone(),
        many => {
            let mut write = BytesMut::with_capacity(many.iter().map(Bytes::len).sum());
            many.iter().rev().for_each(|frame| write.extend_from_slice(frame));
            write.freeze()
        }
    }
}

impl Body for FeedBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        loop {
            if matches!(self.state, State::Ended) {
                return Poll::Ready(None);
            }
            match ready!(self.poll_next(context)) {
                Next::Again => {}
                Next::Send(bytes) => {
                    self.hub.counters.bytes.fetch_add(bytes.len() as u64, Relaxed);
                    self.hub.counters.frames.fetch_add(1, Relaxed);
                    if let Some(session) = self.session() {
                        session.note_bytes(bytes.len());
                    }
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Next::End(end) => {
                    self.close();
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers(&end)))));
                }
            }
        }
    }
}

impl Drop for FeedBody {
    fn drop(&mut self) {
        self.close();
    }
}

fn trailers(end: &End) -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(2);
    trailers.insert("grpc-status", HeaderValue::from(u16::from(end.code)));
    if let Ok(message) = HeaderValue::from_str(&percent_encode(&end.message)) {
        trailers.insert("grpc-message", message);
    }
    trailers
}

/// As the gRPC specification wants it: printable ASCII stays, but for the percent sign.
fn percent_encode(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
        match byte {
            b' '..=b'~' if byte != b'%' => out.push(char::from(byte)),
            _ => write!(out, "%{byte:02X}").expect("writing to a String cannot fail"),
        }
        out
    })
}
