//! Devices of the kernel's nbd module, each served by a bridge process of its own.
//!
//! In: volumes to attach. Out: bridges started, asked and ended. Holds: nothing that a new process would miss: records say what should be
//! attached, the kernel what is, and a bridge's socket whether it lives. A bridge that has died is started again, and its device, which
//! the kernel has kept, goes on.

use std::{collections::BTreeSet, ffi::OsString, io, process::Stdio, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::{
    process::Command,
    task::spawn_blocking,
    time::{Instant, sleep},
};

use super::{AttachError, Attached, Attacher, Record, Records, Standing};
use crate::{
    Account,
    bridge::{self, Ask, Link, State, device},
};

/// How long a volume may take to come: less than an orchestrator waits for a call.
const PATIENCE: Duration = Duration::from_secs(40);
const LOOK: Duration = Duration::from_millis(50);
/// How often bridges are looked after.
const ROUND: Duration = Duration::from_secs(2);

/// Which program is a bridge, with the words before the volume's name.
#[derive(Clone, Debug)]
pub struct KernelAttacher {
    records: Records,
    account: Account,
    /// Volumes with a bridge that this process has started: one that is slow to answer needs no second one.
    started: Arc<Mutex<BTreeSet<String>>>,
    program: Arc<[OsString]>,
}

impl KernelAttacher {
    pub fn new(records: Records, account: Account, program: Vec<OsString>) -> Self {
        Self { records, account, started: Arc::default(), program: program.into() }
    }

    /// Keeps a bridge at each volume that is attached, for as long as it is polled.
    pub async fn keep(self) {
        loop {
            match self.records.all() {
                Ok(all) => {
                    for Record { volume, .. } in all {
                        if !self.lives(&volume).await {
                            self.start(&volume).await;
                        }
                    }
                }
                Err(error) => {
                    tracing::error!(%error, dir = %self.records.dir().display(), "cannot see what is attached")
                }
            }
            sleep(ROUND).await;
        }
    }

    async fn lives(&self, volume: &str) -> bool {
        self.ask(volume, Ask::State).await.is_some()
    }

    async fn ask(&self, volume: &str, ask: Ask) -> Option<State> {
        bridge::ask(&self.records.socket(volume), ask).await.ok()
    }

    /// One that is there already lets the new one end.
    async fn start(&self, volume: &str) {
        if !self.started.lock().insert(volume.to_owned()) {
            return;
        }
        let mut command = Command::new(&self.program[0]);
        command.args(&self.program[1..]).arg("--state").arg(self.records.dir()).arg(volume);
        // A group of its own: what is sent to the driver's terminal or group is not for it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).process_group(0);
        match command.spawn() {
            Ok(mut child) => {
                tracing::info!(volume, pid = child.id(), "a bridge was started");
                let (volume, started) = (volume.to_owned(), Arc::clone(&self.started));
                tokio::spawn(async move {
                    match child.wait().await {
                        Ok(status) => tracing::info!(volume, %status, "a bridge has ended"),
                        Err(error) => tracing::warn!(volume, %error, "cannot wait for a bridge"),
                    }
                    started.lock().remove(&volume);
                });
            }
            Err(error) => {
                tracing::error!(volume, %error, "cannot start a bridge");
                self.started.lock().remove(volume);
            }
        }
    }

    /// What the bridge says once it satisfies `enough`; it is started if it is not there.
    async fn until(
        &self,
        volume: &str,
        ask: Ask,
        enough: impl Fn(&State) -> bool,
    ) -> Result<State, AttachError> {
        let end = Instant::now() + PATIENCE;
        let (mut last, mut round) = (None, 0_u32);
        loop {
            match self.ask(volume, if round == 0 { ask } else { Ask::State }).await {
                Some(state) if enough(&state) => return Ok(state),
                Some(state) => {
                    if let Link::Refused { .. } = &state.link {
                        return Err(AttachError::Refused { export: state.export });
                    }
                    (last, round) = (Some(state), round + 1);
                }
                None => {
                    if round % 40 == 0 {
                        self.start(volume).await;
                    }
                    round += 1;
                }
            }
            if Instant::now() >= end {
                let why = match last.map(|state| state.link) {
                    Some(Link::Away { why }) => why,
                    Some(_) => "it does not have the size yet that it should have".to_owned(),
                    None => "its bridge does not answer; the driver's log says more".to_owned(),
                };
                return Err(AttachError::Away { volume: volume.to_owned(), why });
            }
            sleep(LOOK).await;
        }
    }

    fn record(&self, volume: &str) -> Result<Option<Record>, AttachError> {
        let what = || format!("read what is known of {volume:?} in {}", self.records.dir().display());
        self.records.read(volume).map_err(|source| AttachError::Io { what: what(), source })
    }

    fn there(&self, volume: &str) -> Result<Record, AttachError> {
        self.record(volume)?.ok_or_else(|| AttachError::NotAttached { volume: volume.to_owned() })
    }
}

fn attached(record: &Record, state: &State) -> Option<Attached> {
    Some(Attached {
        device: state.device.clone()?,
        size: state.size,
        export: record.export.clone(),
        read_only: record.read_only,
    })
}

#[async_trait]
impl Attacher for KernelAttacher {
    async fn ready(&self) -> Result<(), AttachError> {
        blocking(|| device::Kernel::open().map(drop)).await
    }

    async fn attach(&self, volume: &str, export: &str, read_only: bool) -> Result<Attached, AttachError> {
        self.ready().await?;
        let record = match self.record(volume)? {
            Some(held) if held.export != export => {
                let (volume, wanted) = (volume.to_owned(), export.to_owned());
                return Err(AttachError::Other { volume, held: held.export, wanted });
            }
            Some(held) => held,
            None => {
                let record = Record {
                    volume: volume.to_owned(),
                    // With the epoch: what the kernel holds of one must never go out under the next.
                    backend: format!("trestle:{}:{export}", self.account.mark()),
                    export: export.to_owned(),
                    read_only,
                    server: self.account.server().to_owned(),
                    credentials: self.account.dir().to_owned(),
                };
                let what = || format!("write down that {volume:?} is attached");
                self.records.write(&record).map_err(|source| AttachError::Io { what: what(), source })?;
                record
            }
        };
        let state =
            self.until(volume, Ask::State, |state| state.device.is_some() && state.link == Link::Up).await?;
        attached(&record, &state).ok_or_else(|| AttachError::NotAttached { volume: volume.to_owned() })
    }

    async fn attached(&self, volume: &str) -> Result<Option<Attached>, AttachError> {
        let Some(record) = self.record(volume)? else { return Ok(None) };
        let backend = record.backend.clone();
        // The kernel knows, with or without a bridge.
        let found = blocking(move || Ok(device::find(&backend))).await?;
        Ok(found.map(|(number, size)| Attached {
            device: device::path(number),
            size,
            export: record.export,
            read_only: record.read_only,
        }))
    }

    async fn detach(&self, volume: &str) -> Result<(), AttachError> {
        let Some(record) = self.record(volume)? else { return Ok(()) };
        // First the record: from now on nobody starts a bridge again.
        let failed = |source| AttachError::Io { what: format!("forget that {volume:?} is attached"), source };
        match std::fs::remove_file(self.records.path(volume, "json")) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(failed(err)),
            _ => {}
        }
        let ended = async {
            let _ = self.ask(volume, Ask::End).await;
            let backend = record.backend.clone();
            blocking(move || device::disconnect(&backend)).await?;
            let end = Instant::now() + PATIENCE;
            while self.lives(volume).await {
                if Instant::now() >= end {
                    return Err(AttachError::Away {
                        volume: volume.to_owned(),
                        why: "its bridge does not end".to_owned(),
                    });
                }
                sleep(LOOK).await;
            }
            Ok(())
        };
        if let Err(error) = ended.await {
            // It is still to be detached.
            self.records.write(&record).map_err(failed)?;
            return Err(error);
        }
        self.records.remove(volume).map_err(failed)
    }

    async fn renew(&self, volume: &str, least: u64) -> Result<Attached, AttachError> {
        let record = self.there(volume)?;
        let large = |state: &State| state.device.is_some() && state.size >= least && state.link == Link::Up;
        let state = match self.ask(volume, Ask::State).await {
            Some(state) if least > 0 && large(&state) => state,
            _ => self.until(volume, Ask::Renew, large).await?,
        };
        attached(&record, &state).ok_or_else(|| AttachError::NotAttached { volume: volume.to_owned() })
    }

    async fn standing(&self, volume: &str) -> Result<Standing, AttachError> {
        self.there(volume)?;
        Ok(match self.ask(volume, Ask::State).await.map(|state| state.link) {
            Some(Link::Up) => Standing::Well,
            Some(Link::Away { why }) => Standing::Waiting(why),
            Some(Link::Refused { why }) => Standing::Failing(why),
            None => Standing::Waiting("its bridge does not answer and is started again".to_owned()),
        })
    }

    async fn give_up(&self, volume: &str) -> Result<(), AttachError> {
        if self.record(volume)?.is_none() {
            return Ok(());
        }
        let answers = |state: &State| state.device.is_some();
        match self.until(volume, Ask::State, answers).await {
            Ok(State { link: Link::Up, .. }) | Err(AttachError::Refused { .. }) => Ok(()),
            Ok(_) => {
                let _ = self.ask(volume, Ask::GiveUp).await;
                Ok(())
            }
            // Without a bridge nothing can be told; the kernel fails everything when the device goes.
            Err(_) => {
                let backend = self.there(volume)?.backend;
                blocking(move || device::disconnect(&backend)).await
            }
        }
    }
}

async fn blocking<T: Send + 'static>(
    act: impl FnOnce() -> Result<T, AttachError> + Send + 'static,
) -> Result<T, AttachError> {
    let failed = |source: tokio::task::JoinError| AttachError::Io {
        what: "ask the kernel".to_owned(),
        source: source.into(),
    };
    spawn_blocking(act).await.map_err(failed)?
}
