//! The retry loop.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tracing::{debug, warn};

use crate::{
    Answer, Class, Clock, Exchange, Failure, Recorder, Repeat, Reply, Request, Transport,
    limit::{Limiter, Rates},
};

/// Puts credentials on a request.
#[async_trait]
pub trait Signer: Send + Sync {
    async fn sign(&self, request: &mut Request) -> Result<(), Failure>;
    /// The cloud did not accept the credentials. True if something was learnt and it is worth another try.
    fn refused(&self, _reply: &Reply) -> bool {
        false
    }
}

/// Reads a cloud's refusals.
pub trait Dialect: Send + Sync {
    /// None if the reply is a success.
    fn judge(&self, reply: &Reply) -> Option<Answer>;
}

/// How long to go on.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub attempts: u32,
    pub first_pause: Duration,
    pub longest_pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { attempts: 8, first_pause: Duration::from_millis(500), longest_pause: Duration::from_secs(30) }
    }
}

/// What a client is made of.
pub struct Parts {
    pub transport: Arc<dyn Transport>,
    pub signer: Arc<dyn Signer>,
    pub dialect: Arc<dyn Dialect>,
    pub clock: Arc<dyn Clock>,
    pub recorder: Option<Arc<dyn Recorder>>,
    pub rates: Rates,
    pub patience: Patience,
}

pub struct Client {
    parts: Parts,
    limiter: Limiter,
}

impl Client {
    pub fn new(parts: Parts) -> Self {
        let limiter = Limiter::new(parts.rates);
        Self { parts, limiter }
    }

    pub fn clock(&self) -> &dyn Clock {
        &*self.parts.clock
    }

    /// Sends a request until there is an answer that another try would not change.
    pub async fn call(&self, request: Request) -> Result<Reply, Failure> {
        let patience = self.parts.patience;
        let mut backoff = common::Backoff::new(patience.first_pause, patience.longest_pause);
        let mut attempt = 1;
        let mut resigned = false;
        loop {
            self.limiter.admit(&request.scope, request.access, self.clock()).await;
            let (outcome, reply) = self.once(&request).await;
            let failure = match outcome {
                Ok(reply) => {
                    self.limiter.fine(&request.scope, request.access, self.clock().now());
                    return Ok(reply);
                }
                Err(failure) => failure,
            };
            let again = match failure.class() {
                Class::Throttled => {
                    self.limiter.throttled(&request.scope, request.access, self.clock().now());
                    true
                }
                Class::Busy => true,
                Class::Failed => request.repeat == Repeat::Safe,
                Class::Unauthenticated => {
                    let learnt = reply.as_ref().is_some_and(|reply| self.parts.signer.refused(reply));
                    learnt && !std::mem::replace(&mut resigned, true)
                }
                _ => false,
            };
            if !again || attempt >= patience.attempts {
                debug!(operation = request.operation, attempt, error = %failure, "a cloud refused");
                return Err(failure);
            }
            let asked = reply.as_ref().and_then(retry_after);
            let spread = backoff.spread(jitter());
            warn!(operation = request.operation, attempt, error = %failure, "a cloud is asked again");
            self.clock().sleep(asked.unwrap_or(spread)).await;
            attempt += 1;
        }
    }

    async fn once(&self, request: &Request) -> (Result<Reply, Failure>, Option<Reply>) {
        let mut signed = request.clone();
        if let Err(failure) = self.parts.signer.sign(&mut signed).await {
            return (Err(failure), None);
        }
        let sent = self.parts.transport.send(&signed).await;
        if let Some(recorder) = &self.parts.recorder {
            recorder.record(Exchange::new(request, sent.as_ref().ok()));
        }
        let reply = match sent {
            Ok(reply) => reply,
            Err(err) => {
                let operation = request.operation.clone();
                return (Err(Failure::Unreachable { operation, message: err.to_string() }), None);
            }
        };
        debug!(operation = request.operation, url = request.url, status = reply.status, "asked a cloud");
        match self.parts.dialect.judge(&reply) {
            None => (Ok(reply.clone()), Some(reply)),
            Some(answer) => {
                let (operation, status) = (request.operation.clone(), reply.status);
                (Err(Failure::Refused { operation, status, answer }), Some(reply))
            }
        }
    }
}

fn retry_after(reply: &Reply) -> Option<Duration> {
    let seconds: u64 = reply.header("retry-after")?.parse().ok()?;
    Some(Duration::from_secs(seconds.min(300)))
}

/// From 0 to 1. If there is no randomness, pauses are just not spread.
fn jitter() -> f64 {
    let mut byte = [0u8; 1];
    let _ = aws_lc_rs::rand::fill(&mut byte);
    f64::from(byte[0]) / 255.0
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::{Access, TransportError, testing::TestClock};

    /// Answers with the next of a list of statuses; 0 is no answer.
    struct Script(Mutex<Vec<u16>>);

    #[async_trait]
    impl Transport for Script {
        async fn send(&self, _: &Request) -> Result<Reply, TransportError> {
            match self.0.lock().remove(0) {
                0 => Err(TransportError("cut".into())),
                status => Ok(Reply { status, headers: Default::default(), body: Default::default() }),
            }
        }
    }

    struct Nobody;

    #[async_trait]
    impl Signer for Nobody {
        async fn sign(&self, _: &mut Request) -> Result<(), Failure> {
            Ok(())
        }
        fn refused(&self, _: &Reply) -> bool {
            true
        }
    }

    struct Status;

    impl Dialect for Status {
        fn judge(&self, reply: &Reply) -> Option<Answer> {
            let class = match reply.status {
                200 => return None,
                401 => Class::Unauthenticated,
                429 => Class::Throttled,
                500.. => Class::Failed,
                _ => Class::Invalid,
            };
            Some(Answer { class, code: String::new(), message: String::new() })
        }
    }

    async fn run(script: &[u16], repeat: Repeat) -> (Result<u16, Class>, usize) {
        let transport = Arc::new(Script(Mutex::new(script.to_vec())));
        let client = Client::new(Parts {
            transport: Arc::clone(&transport) as _,
            signer: Arc::new(Nobody),
            dialect: Arc::new(Status),
            clock: TestClock::at(0),
            recorder: None,
            rates: Rates { read: 10.0, write: 10.0 },
            patience: Patience { attempts: 4, ..Patience::default() },
        });
        let mut request = Request::new("x", http::Method::POST, "http://x/");
        (request.repeat, request.access) = (repeat, Access::Write);
        let outcome = client.call(request).await.map(|reply| reply.status).map_err(|failure| failure.class());
        let left = transport.0.lock().len();
        (outcome, left)
    }

    #[tokio::test]
    async fn what_may_help_is_tried_again_and_nothing_else() {
        assert_eq!(run(&[429, 429, 200], Repeat::LookFirst).await, (Ok(200), 0));
        assert_eq!(run(&[429; 5], Repeat::Safe).await, (Err(Class::Throttled), 1));
        assert_eq!(run(&[400, 200], Repeat::Safe).await, (Err(Class::Invalid), 1));
        assert_eq!(run(&[0, 500, 200], Repeat::Safe).await, (Ok(200), 0));
        // Nobody knows whether it happened, and twice would be wrong.
        assert_eq!(run(&[500, 200], Repeat::LookFirst).await, (Err(Class::Failed), 1));
        assert_eq!(run(&[0, 200], Repeat::LookFirst).await, (Err(Class::Failed), 1));
        // Stale credentials are renewed once.
        assert_eq!(run(&[401, 200], Repeat::LookFirst).await, (Ok(200), 0));
        assert_eq!(run(&[401, 401, 200], Repeat::LookFirst).await, (Err(Class::Unauthenticated), 1));
    }
}
