//! The floor: one thread that writes a small event to every socket, without TLS, HTTP/2 or anything else.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use tokio::io::AsyncReadExt as _;

use crate::{
    EVENTS, Latencies, Outcome,
    agents::{Agents, Seen, tell},
    nanoseconds,
};

/// Bytes of one event, about those of the real one.
const EVENT: usize = 96;

pub async fn measure(count: usize) -> Outcome<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut agents = Agents::spawn(&format!("floor {count} {}", listener.local_addr()?), count)?;
    let mut sockets = tokio::task::spawn_blocking(move || accept(&listener, count)).await??;
    agents.hear("connected").await?;
    let mut rounds = Vec::new();
    for _ in 0..EVENTS {
        let now = nanoseconds();
        let (back, wrote) = tokio::task::spawn_blocking(move || {
            let mut event = [7; EVENT];
            event[..8].copy_from_slice(&now.to_le_bytes());
            let wrote = sockets.iter_mut().try_for_each(|socket| socket.write_all(&event));
            (sockets, wrote)
        })
        .await?;
        sockets = back;
        wrote?;
        rounds.push(Latencies::parse(&agents.hear(&format!("tick {now}")).await?)?);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Latencies::median(rounds).report("transport.fanout.floor")
}

fn accept(listener: &TcpListener, count: usize) -> std::io::Result<Vec<TcpStream>> {
    (0..count)
        .map(|_| {
            let (mut socket, _) = listener.accept()?;
            socket.set_nodelay(true)?;
            socket.read_exact(&mut [0])?;
            Ok(socket)
        })
        .collect()
}

/// The other end.
pub async fn run(count: usize, addr: SocketAddr) -> Outcome<()> {
    let seen = std::sync::Arc::new(Seen::new(count));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        let mut socket = tokio::net::TcpStream::connect(addr).await?;
        tokio::io::AsyncWriteExt::write_all(&mut socket, &[1]).await?;
        let seen = std::sync::Arc::clone(&seen);
        tasks.spawn(async move {
            let mut event = [0; EVENT];
            while socket.read_exact(&mut event).await.is_ok() {
                let (time, _) = event.split_first_chunk::<8>().expect("an event is longer than a time");
                let sent = i64::from_le_bytes(*time);
                seen.tick(sent, nanoseconds() - sent);
            }
        });
    }
    tell("connected");
    while tasks.join_next().await.is_some() {}
    Ok(())
}
