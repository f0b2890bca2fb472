//! The bridge at work: requests one way, answers the other, connections that come and go.

use std::{
    io,
    os::{fd::AsFd as _, unix::net::UnixStream as BlockingStream},
    sync::Arc,
    time::Duration,
};

use common::{Backoff, chain};
use files::Lock;
use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, BufWriter},
    net::{UnixListener, UnixStream, unix::OwnedReadHalf},
    sync::{Notify, mpsc, watch},
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::{
    control::{self, Ask, Link, State},
    device::{self, Devices},
    line::{DISCONNECT, Head, READ, REPLY_LEN, REQUEST_LEN, SHUTDOWN, WRITE, parse_reply, reply},
    upstream::{self, Upstream, UpstreamError},
    window::{Answer, Op, Window},
};
use crate::{
    Account, AccountError,
    attach::{AttachError, Record, Records},
};

/// Longest payload that the kernel sends.
const MAX_PAYLOAD: u32 = 32 << 20;
const BUFFER: usize = 256 << 10;
/// Tries between lost connections: at once, then slower.
const FIRST: Duration = Duration::from_millis(100);
const SLOWEST: Duration = Duration::from_secs(2);
/// A storage that says so often in a row that this export is nobody's any more is believed.
const CERTAIN: u32 = 3;
/// For what was written to be on the server's disk, when the device goes.
const LAST_FLUSH: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    #[error("cannot use {what}")]
    Io {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the device cannot be had")]
    Device(#[from] AttachError),
    #[error("the credentials cannot be used")]
    Account(#[from] AccountError),
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> BridgeError {
    move |source| BridgeError::Io { what, source }
}

/// What the parts of a bridge share.
struct Shared {
    record: Record,
    window: Mutex<Window>,
    /// There is something to send.
    fresh: Notify,
    /// There is room again, or what was written is on the server's disk.
    room: Notify,
    state: Mutex<State>,
    index: Mutex<Option<u32>>,
    devices: Arc<dyn Devices>,
    renew: Notify,
    /// Everything fails from now on.
    given_up: watch::Sender<bool>,
    ended: watch::Sender<bool>,
    answers: mpsc::UnboundedSender<Vec<u8>>,
}

/// Serves one volume until its device is disconnected. Returns at once if another bridge does, or nothing is to be attached.
pub async fn run(records: &Records, volume: &str, devices: Arc<dyn Devices>) -> Result<(), BridgeError> {
    let _lock = match Lock::take(&records.path(volume, "lock")) {
        Ok(lock) => lock,
        Err(std::fs::TryLockError::WouldBlock) => return Ok(()),
        Err(std::fs::TryLockError::Error(source)) => return Err(failed("the volume's lock")(source)),
    };
    let Some(record) = records.read(volume).map_err(failed("the volume's record"))? else { return Ok(()) };
    let (ours, theirs) = sockets().map_err(failed("a pair of sockets"))?;
    let (requests, mut replies) = ours.into_split();
    let (answers, mut queued) = mpsc::unbounded_channel::<Vec<u8>>();
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            export: record.export.clone(),
            device: None,
            size: 0,
            link: Link::Away { why: "not connected yet".to_owned() },
        }),
        record,
        window: Mutex::default(),
        fresh: Notify::new(),
        room: Notify::new(),
        index: Mutex::default(),
        devices,
        renew: Notify::new(),
        given_up: watch::Sender::new(false),
        ended: watch::Sender::new(false),
        answers,
    });
    let socket = records.socket(volume);
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).map_err(failed("the bridge's socket"))?;
    // What the kernel is told is written whole, whoever is interrupted.
    let answering = async move {
        while let Some(answer) = queued.recv().await {
            if replies.write_all(&answer).await.is_err() {
                break;
            }
        }
    };
    let mut ended = shared.ended.subscribe();
    tokio::select! {
        _ = ended.wait_for(|ended| *ended) => Ok(()),
        () = take_requests(&shared, requests) => Ok(()),
        () = answering => Ok(()),
        done = keep_connected(&shared, theirs) => done,
        () = listen(&shared, listener) => Ok(()),
    }
}

fn sockets() -> io::Result<(UnixStream, BlockingStream)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let ours = BlockingStream::from(ours);
    ours.set_nonblocking(true)?;
    Ok((UnixStream::from_std(ours)?, BlockingStream::from(theirs)))
}

/// Until the kernel disconnects.
async fn take_requests(shared: &Shared, requests: OwnedReadHalf) {
    let mut requests = BufReader::with_capacity(BUFFER, requests);
    let given_up = shared.given_up.subscribe();
    while let Ok(Some(op)) = request(&mut requests).await {
        if *given_up.borrow() {
            shared.answer(&Answer { cookie: op.head.cookie, error: super::line::IO }, &[]);
            continue;
        }
        loop {
            let room = shared.room.notified();
            if shared.window.lock().has_room() || *given_up.borrow() {
                break;
            }
            room.await;
        }
        shared.window.lock().take(op);
        shared.fresh.notify_one();
    }
}

/// `None`: the kernel says goodbye.
async fn request(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Op>> {
    let mut bytes = [0; REQUEST_LEN];
    from.read_exact(&mut bytes).await?;
    let odd = || io::Error::from(io::ErrorKind::InvalidData);
    let head = Head::parse(&bytes).ok_or_else(odd)?;
    if head.command == DISCONNECT {
        return Ok(None);
    }
    let mut data = Vec::new();
    if head.command == WRITE {
        if head.length > MAX_PAYLOAD {
            return Err(odd());
        }
        data.resize(head.length as usize, 0);
        from.read_exact(&mut data).await?;
    }
    Ok(Some(Op { head, data: Arc::new(data) }))
}

/// Connects, as often as it takes; makes the device when there is a size to make it with.
async fn keep_connected(shared: &Arc<Shared>, theirs: BlockingStream) -> Result<(), BridgeError> {
    let account = Account::open(&shared.record.credentials, &shared.record.server)?;
    let mut served = Some(theirs);
    let mut backoff = Backoff::new(FIRST, SLOWEST);
    let mut refusals = 0;
    loop {
        match upstream::connect(&shared.record.credentials, &shared.record.export).await {
            Ok(upstream) => {
                (refusals, backoff) = (0, Backoff::new(FIRST, SLOWEST));
                shared.settle_device(&mut served, &upstream).await?;
                let why = shared.converse(upstream).await;
                tracing::warn!(
                    volume = shared.record.volume,
                    why,
                    "the connection to the storage is gone; it is made again"
                );
                shared.set_link(Link::Away { why });
            }
            Err(UpstreamError::NoExport) if is_refused(&account, &shared.record).await => {
                refusals += 1;
                shared.set_link(Link::Away { why: "the storage has another writer".to_owned() });
            }
            Err(error) => {
                refusals = 0;
                shared.set_link(Link::Away { why: chain(&error) });
            }
        }
        if refusals >= CERTAIN {
            let why = format!(
                "the storage gave the volume to another writer, or deleted it: {} is refused",
                shared.record.export
            );
            tracing::error!(volume = shared.record.volume, why, "everything fails from now on");
            shared.set_link(Link::Refused { why });
            shared.give_up();
            // There is no way back: what failed was told, and must not be written later.
            std::future::pending::<()>().await;
        }
        tokio::select! {
            () = sleep(backoff.pause()) => {}
            () = shared.renew.notified() => {}
        }
    }
}

/// Whether the controller says that this export is over, and not only that nobody can have it now.
async fn is_refused(account: &Account, record: &Record) -> bool {
    let Ok(mut storage) = account.storage() else { return false };
    let Ok(reply) = storage.list_volumes(wire::trestle::v1::ListVolumesRequest::default()).await else {
        return false;
    };
    let name = record.export.split(':').next().unwrap_or_default();
    let volumes = reply.into_inner().volumes;
    match volumes.iter().find(|volume| volume.name == name && volume.kept_until.is_none()) {
        None => true,
        Some(volume) => !record.read_only && volume.export != record.export,
    }
}

impl Shared {
    fn set_link(&self, link: Link) {
        self.state.lock().link = link;
    }

    fn answer(&self, answer: &Answer, data: &[u8]) {
        let mut bytes = reply(answer.error, answer.cookie);
        bytes.extend_from_slice(data);
        // Nobody takes it once the device is gone.
        let _ = self.answers.send(bytes);
    }

    fn give_up(&self) {
        self.given_up.send_replace(true);
        for answer in self.window.lock().fail() {
            self.answer(&answer, &[]);
        }
        self.room.notify_waiters();
    }

    /// The device as large as the volume: a new one, the one that a bridge before has left, or the same one.
    async fn settle_device(
        self: &Arc<Self>,
        served: &mut Option<BlockingStream>,
        upstream: &Upstream,
    ) -> Result<(), BridgeError> {
        let (size, flags) = (upstream.size, upstream.flags);
        let held = self.state.lock().size;
        if served.is_none() && size == held {
            return Ok(());
        }
        let (backend, theirs) = (self.record.backend.clone(), served.take());
        let (devices, known) = (Arc::clone(&self.devices), *self.index.lock());
        let act = move || match (theirs, known) {
            (Some(theirs), _) => devices.serve(&backend, size, flags, theirs.as_fd()),
            (None, Some(index)) => devices.resize(index, &backend, size).map(|()| index),
            (None, None) => unreachable!("a device without its number was never served"),
        };
        let index = spawn_blocking(act).await.map_err(|err| failed("a thread")(err.into()))??;
        *self.index.lock() = Some(index);
        let mut state = self.state.lock();
        (state.device, state.size) = (Some(device::path(index)), size);
        tracing::info!(volume = self.record.volume, device = %device::path(index).display(), size, "the device is served");
        Ok(())
    }

    /// Until the connection is gone; why.
    async fn converse(&self, upstream: Upstream) -> String {
        let (mut stream, size) = (upstream.stream, upstream.size);
        let again = self.window.lock().broke();
        if let Err(error) = self.replay(&mut stream, again).await {
            return format!("what was written could not be sent again: {}", chain(&error));
        }
        self.state.lock().link = Link::Up;
        tracing::debug!(volume = self.record.volume, size, "connected");
        let (from, to) = tokio::io::split(stream);
        tokio::select! {
            error = self.receive(from) => chain(&error),
            error = self.send(to) => chain(&error),
            () = self.renew.notified() => "asked to connect anew".to_owned(),
        }
    }

    /// One by one: those that overlap must stay in their order.
    async fn replay<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: &mut S,
        again: Vec<Op>,
    ) -> io::Result<()> {
        for (number, op) in again.into_iter().enumerate() {
            let cookie = u64::MAX - number as u64;
            stream.write_all(&Head { cookie, ..op.head }.bytes()).await?;
            stream.write_all(&op.data).await?;
            stream.flush().await?;
            let mut bytes = [0; REPLY_LEN];
            stream.read_exact(&mut bytes).await?;
            match parse_reply(&bytes) {
                Some((0, told)) if told == cookie => {}
                Some((SHUTDOWN, _)) | None => return Err(io::ErrorKind::InvalidData.into()),
                Some((error, _)) => {
                    tracing::error!(
                        volume = self.record.volume,
                        error,
                        "the storage does not take again what was written"
                    );
                    self.window.lock().lose();
                }
            }
        }
        Ok(())
    }

    async fn send(&self, to: impl AsyncWrite + Unpin) -> io::Error {
        let sending = async {
            let mut to = BufWriter::with_capacity(BUFFER, to);
            loop {
                let next = self.window.lock().next();
                match next {
                    Some((head, data)) => {
                        to.write_all(&head.bytes()).await?;
                        to.write_all(&data).await?;
                    }
                    None => {
                        to.flush().await?;
                        self.fresh.notified().await;
                    }
                }
            }
        };
        let error: io::Result<()> = sending.await;
        error.err().unwrap_or_else(|| io::ErrorKind::Other.into())
    }

    async fn receive(&self, from: impl AsyncRead + Unpin) -> io::Error {
        let receiving = async {
            let mut from = BufReader::with_capacity(BUFFER, from);
            let odd = || io::Error::from(io::ErrorKind::InvalidData);
            let mut bytes = [0; REPLY_LEN];
            loop {
                from.read_exact(&mut bytes).await?;
                let (error, number) = parse_reply(&bytes).ok_or_else(odd)?;
                if error == SHUTDOWN {
                    // The server goes, or this writer was cut off: the next connection tells which.
                    return Err(io::Error::from(io::ErrorKind::ConnectionAborted));
                }
                let Some((command, length)) = self.window.lock().asked(number) else { return Err(odd()) };
                let mut data = Vec::new();
                if command == READ && error == 0 {
                    data.resize(length as usize, 0);
                    from.read_exact(&mut data).await?;
                }
                let answer = self.window.lock().answered(number, error);
                if let Some(answer) = answer {
                    self.answer(&answer, &data);
                }
                // A flush of its own may be waiting, or somebody for room.
                self.fresh.notify_one();
                self.room.notify_waiters();
            }
        };
        let error: io::Result<()> = receiving.await;
        error.err().unwrap_or_else(|| io::ErrorKind::Other.into())
    }
}

async fn listen(shared: &Arc<Shared>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(shared);
                tokio::spawn(async move {
                    if let Err(error) = shared.asked(stream).await {
                        tracing::debug!(%error, "somebody asked and went away");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot be asked for a moment");
                sleep(SLOWEST).await;
            }
        }
    }
}

impl Shared {
    async fn asked(&self, mut stream: UnixStream) -> io::Result<()> {
        let ask: Ask = control::read(&mut stream).await?;
        match ask {
            Ask::State => {}
            Ask::Renew => self.renew.notify_one(),
            Ask::GiveUp => self.give_up(),
            Ask::End => self.end().await,
        }
        let state = self.state.lock().clone();
        stream.write_all(&control::line(&state)?).await?;
        if ask == Ask::End {
            self.ended.send_replace(true);
        }
        Ok(())
    }

    async fn end(&self) {
        let settled = async {
            loop {
                let changed = self.room.notified();
                if self.window.lock().is_settled() {
                    break;
                }
                self.window.lock().settle();
                self.fresh.notify_one();
                changed.await;
            }
        };
        let is_up = self.state.lock().link == Link::Up;
        if is_up && !*self.given_up.borrow() && timeout(LAST_FLUSH, settled).await.is_err() {
            tracing::warn!(
                volume = self.record.volume,
                "what was written last may not be on the storage's disk yet"
            );
        }
        let (devices, index) = (Arc::clone(&self.devices), *self.index.lock());
        if let Some(index) = index {
            let gone = spawn_blocking(move || devices.disconnect(index)).await;
            tracing::info!(volume = self.record.volume, ?gone, "the device goes");
        }
    }
}
