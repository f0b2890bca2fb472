//! How a bridge is asked: one line of JSON on its socket, one line back.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    time::timeout,
};

/// A bridge answers at once, but its machine may be busy.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ask {
    State,
    /// Connect anew, for a size that has changed.
    Renew,
    /// What waits fails, and whatever comes.
    GiveUp,
    /// The device goes, and the bridge with it.
    End,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    Up,
    Away { why: String },
    Refused { why: String },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub export: String,
    pub device: Option<PathBuf>,
    pub size: u64,
    pub link: Link,
}

/// Asks the bridge that answers on a socket. An error: there is none.
pub async fn ask(socket: &Path, ask: Ask) -> io::Result<State> {
    let asking = async {
        let mut stream = UnixStream::connect(socket).await?;
        stream.write_all(&line(&ask)?).await?;
        read(&mut stream).await
    };
    timeout(PATIENCE, asking).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

pub(super) async fn read<T: for<'a> Deserialize<'a>>(stream: &mut UnixStream) -> io::Result<T> {
    let mut text = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut text).await?;
    Ok(serde_json::from_str(&text)?)
}

pub(super) fn line<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    Ok(text)
}
