//! For tests: a clock on which nobody waits, and a server on loopback that answers as it is told.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::Clock;

/// A clock on which nobody waits: for who sleeps it is later at once.
#[derive(Default)]
pub struct TestClock(Mutex<Duration>);

impl TestClock {
    /// Since 1970.
    pub fn at(seconds: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Duration::from_secs(seconds))))
    }

    pub fn advance(&self, by: Duration) {
        *self.0.lock() += by;
    }
}

#[async_trait]
impl Clock for TestClock {
    fn now(&self) -> Duration {
        *self.0.lock()
    }

    async fn sleep(&self, pause: Duration) {
        self.advance(pause);
        tokio::task::yield_now().await;
    }
}

/// Gives requests their answers, and keeps what was asked: method and path, headers and body as they came.
pub struct Server {
    pub url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// A request's answer is found by its text; one that has none is told that nothing is there.
    pub async fn start(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::telling("", answer).await
    }

    /// The same, with a header in every answer.
    pub async fn telling(
        header: &'static str,
        answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let url = format!("http://{}", listener.local_addr().expect("it listens"));
        let (asked, answer) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(answer));
        let kept = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, kept) = (Arc::clone(&answer), Arc::clone(&kept));
                tokio::spawn(serve(stream, header, kept, answer));
            }
        });
        Self { url, asked }
    }

    /// What was asked so far.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().clone()
    }

    /// Whether something was asked for, and nothing was to be changed.
    pub fn only_read(&self) -> bool {
        let asked = self.asked();
        !asked.is_empty() && asked.iter().all(|text| text.starts_with("GET "))
    }
}

/// One request per connection.
async fn serve(
    mut stream: TcpStream,
    header: &str,
    kept: Arc<Mutex<Vec<String>>>,
    answer: Arc<impl Fn(&str) -> Option<String>>,
) {
    let (mut text, mut bytes) = (String::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut bytes).await.unwrap_or_default();
        text.push_str(&String::from_utf8_lossy(&bytes[..count]));
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            if count == 0 {
                return;
            }
            continue;
        };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if count == 0 || body.len() >= length.and_then(|text| text.parse().ok()).unwrap_or(0) {
            break;
        }
    }
    let (status, body) = answer(&text).map_or(("404 Not Found", String::new()), |body| ("200 OK", body));
    kept.lock().push(text);
    let length = body.len();
    let reply =
        format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{header}\r\n{body}");
    // Who asked may be gone.
    let _ = stream.write_all(reply.as_bytes()).await;
}
