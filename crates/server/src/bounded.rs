//! Bodies with an end: of so many bytes, or until something happens, whichever is first.
//!
//! In: a body, and what ends it. Out: a body that ends then, as its reader understands it. What a body holds, a place for
//! instance, is given back when it is dropped.

use std::{
    any::Any,
    pin::Pin,
    task::{Context, Poll, ready},
};

use axum::{Error, body::Body};
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;

/// Why a body ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cut {
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    #[error("it took too long")]
    TooSlow,
}

impl Cut {
    /// What is behind the failure of a body, if it is this.
    pub fn behind(failure: &Error) -> Option<Self> {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(failure);
        while let Some(err) = cause {
            if let Some(cut) = err.downcast_ref::<Self>() {
                return Some(*cut);
            }
            cause = err.source();
        }
        None
    }
}

/// How the reader is told that a body ends before its time.
pub enum Ending {
    /// It fails.
    Fail(Cut),
    /// As if that were all: for streams that have no last word.
    Quiet,
    /// In trailers, as gRPC does.
    Grpc(Box<Status>),
}

/// A body with an end.
pub struct Bounded {
    inner: Body,
    /// How many bytes there may be, and how many of them may still come.
    bytes: Option<(u64, u64)>,
    until: Pin<Box<dyn Future<Output = ()> + Send>>,
    ending: Option<Ending>,
    _held: Option<Box<dyn Any + Send>>,
}

impl Bounded {
    /// A body that ends when `until` does.
    pub fn until(inner: Body, until: impl Future<Output = ()> + Send + 'static, ending: Ending) -> Self {
        Self { inner, bytes: None, until: Box::pin(until), ending: Some(ending), _held: None }
    }

    /// And has at most so many bytes.
    pub fn at_most(mut self, bytes: u64) -> Self {
        self.bytes = Some((bytes, bytes));
        self
    }

    /// And holds something until it is dropped.
    pub fn holding(mut self, held: impl Any + Send) -> Self {
        self._held = Some(Box::new(held));
        self
    }

    pub fn into_body(self) -> Body {
        Body::new(self)
    }

    /// Ends it now; what was below it is dropped.
    fn end(&mut self, ending: Ending) -> Option<Result<Frame<Bytes>, Error>> {
        (self.inner, self.ending, self._held) = (Body::empty(), None, None);
        match ending {
            Ending::Fail(cut) => Some(Err(Error::new(cut))),
            Ending::Quiet => None,
            Ending::Grpc(status) => {
                let mut trailers = HeaderMap::new();
                // Without a status the stream is broken for the caller all the same.
                let _ = status.add_header(&mut trailers);
                Some(Ok(Frame::trailers(trailers)))
            }
        }
    }
}

impl HttpBody for Bounded {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.ending.is_some() && self.until.as_mut().poll(context).is_ready() {
            let ending = self.ending.take().unwrap_or(Ending::Quiet);
            return Poll::Ready(self.end(ending));
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        let length = match &frame {
            Some(Ok(frame)) => frame.data_ref().map_or(0, |data| data.len() as u64),
            _ => 0,
        };
        if let Some((most, left)) = &mut self.bytes {
            match left.checked_sub(length) {
                Some(rest) => *left = rest,
                None => {
                    let cut = Cut::TooLarge(*most);
                    return Poll::Ready(self.end(Ending::Fail(cut)));
                }
            }
        }
        if frame.is_none() {
            (self.ending, self._held) = (None, None);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use futures::{StreamExt as _, stream};
    use http_body_util::BodyExt as _;

    use super::*;

    fn two() -> Body {
        let parts = ["one", "two"].map(|part| Ok::<_, Error>(Bytes::from_static(part.as_bytes())));
        Body::from_stream(stream::iter(parts).chain(stream::pending()))
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_in_time_and_gives_back_what_it_held() {
        let held = Arc::new(());
        let sleep = || tokio::time::sleep(Duration::from_secs(1));
        let status = || Ending::Grpc(Box::new(Status::unauthenticated("over")));
        let mut body = Bounded::until(two(), sleep(), status()).holding(Arc::clone(&held)).into_body();
        for part in ["one", "two"] {
            assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), part);
        }
        let trailers = body.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "16");
        assert!(body.frame().await.is_none());
        assert_eq!(Arc::strong_count(&held), 1);

        let body = Bounded::until(two(), sleep(), Ending::Quiet).into_body();
        assert_eq!(body.collect().await.unwrap().to_bytes(), "onetwo");
        let body = Bounded::until(two(), sleep(), Ending::Fail(Cut::TooSlow)).into_body();
        assert_eq!(Cut::behind(&body.collect().await.unwrap_err()), Some(Cut::TooSlow));
    }

    #[tokio::test]
    async fn it_has_at_most_so_many_bytes() {
        let endless = || Bounded::until(two(), std::future::pending(), Ending::Quiet);
        let mut body = endless().at_most(5).into_body();
        body.frame().await.unwrap().unwrap();
        assert_eq!(Cut::behind(&body.frame().await.unwrap().unwrap_err()), Some(Cut::TooLarge(5)));
        assert!(body.frame().await.is_none());
        let mut body = endless().at_most(6).into_body();
        for _ in 0..2 {
            body.frame().await.unwrap().unwrap();
        }
    }
}
