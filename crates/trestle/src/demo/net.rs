//! Sockets inside network namespaces: servers in Pods, a way from nodes to the controller, and probes.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use cloud_api::CloudError;
use cloud_linux::namespace;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

/// What a probe found.
#[derive(Debug)]
pub struct Answer {
    /// Who answered, in its own words.
    pub from: String,
    pub took: Duration,
}

/// A listener inside a namespace, for tasks outside of it.
async fn listen(name: &str, at: SocketAddr) -> anyhow::Result<TcpListener> {
    let listener = namespace::inside(name, move || {
        let failed = |err: io::Error| CloudError::unavailable(format!("cannot listen on {at}: {err}"));
        let listener = StdListener::bind(at).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(listener)
    })
    .await?;
    TcpListener::from_std(listener).context("cannot use a listener of a namespace")
}

/// Answers every connection on this port inside a namespace with a name, as a web server would. Runs until it is aborted.
pub async fn answer(
    name: &str,
    port: u16,
    word: &'static str,
) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let listener = listen(name, ([0, 0, 0, 0], port).into()).await?;
    Ok(tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(greet(stream, word));
        }
    }))
}

async fn greet(mut stream: TcpStream, word: &str) {
    // Whoever asks may go at any moment.
    let _ = stream.read(&mut [0; 1024]).await;
    let reply =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{word}\n", word.len() + 1);
    let _ = stream.write_all(reply.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Lets the inside of a namespace reach a port of this machine's loopback under the same address. Nothing of the
/// machine's own network changes for it. Runs until it is aborted.
pub async fn lead_out(name: &str, to: SocketAddr) -> anyhow::Result<tokio::task::JoinHandle<()>> {
    let listener = listen(name, to).await?;
    Ok(tokio::spawn(async move {
        while let Ok((mut inside, _)) = listener.accept().await {
            tokio::spawn(async move {
                if let Ok(mut outside) = TcpStream::connect(to).await {
                    let _ = copy_bidirectional(&mut inside, &mut outside).await;
                }
            });
        }
    }))
}

/// Asks a server from inside a namespace; none if it does not answer in time.
pub async fn ask(name: &str, to: SocketAddr, patience: Duration) -> anyhow::Result<Option<Answer>> {
    let asked = namespace::inside(name, move || Ok(get(to, patience).ok()));
    Ok(asked.await?)
}

fn get(to: SocketAddr, patience: Duration) -> io::Result<Answer> {
    let start = Instant::now();
    let mut stream = StdStream::connect_timeout(&to, patience)?;
    stream.set_read_timeout(Some(patience))?;
    write!(stream, "GET / HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let body = text.split("\r\n\r\n").nth(1).unwrap_or_default().trim().to_owned();
    Ok(Answer { from: body, took: start.elapsed() })
}
