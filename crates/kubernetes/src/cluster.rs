//! One cluster: its watches, and how each stands.

use std::{sync::Arc, time::Duration};

use common::{Backoff, chain};
use kube::Client;
use life::Life;
use parking_lot::Mutex;
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use crate::{
    access::Access,
    follow::{Follow, Told},
    resource::RESOURCES,
    standing::{KindState, Standings},
};

/// What is told and was not taken yet. Small: an object is in memory once it was taken, and once only.
const AHEAD: usize = 256;
/// From this minor version of 1 on a first state comes as a stream where that is not switched off.
const STREAMS_SINCE: u32 = 32;
const ANSWER: Duration = Duration::from_secs(10);

/// How a cluster stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterState {
    pub name: String,
    /// Empty until its credentials have been read.
    pub server: String,
    /// As the API server says; empty until it has answered.
    pub version: String,
    /// Why nobody can even be asked.
    pub trouble: Option<String>,
    pub kinds: Vec<KindState>,
}

impl ClusterState {
    /// All that there is has been told.
    pub fn is_known(&self) -> bool {
        self.kinds.iter().all(|kind| kind.known)
    }
}

/// A cluster that is read.
pub struct Cluster {
    name: String,
    standings: Arc<Standings>,
    reached: Mutex<Reached>,
}

#[derive(Default)]
struct Reached {
    client: Option<Client>,
    server: String,
    version: String,
    trouble: Option<String>,
}

impl Cluster {
    /// Reads a cluster until nobody takes what it tells.
    pub fn start(name: &str, access: Access, life: &Life) -> (Arc<Self>, mpsc::Receiver<Told>) {
        let (told, taken) = mpsc::channel(AHEAD);
        let cluster = Arc::new(Self {
            name: name.to_owned(),
            standings: Arc::new(Standings::new(name)),
            reached: Mutex::default(),
        });
        let (reading, stop, within) = (Arc::clone(&cluster), life.stopping(), life.clone());
        life.spawn_once(format!("cluster {name}: first answer"), async move {
            stop.run_until_cancelled(reading.read(&access, told, &within)).await;
        });
        (cluster, taken)
    }

    pub fn state(&self) -> ClusterState {
        let kinds = self.standings.kinds();
        let reached = self.reached.lock();
        ClusterState {
            name: self.name.clone(),
            server: reached.server.clone(),
            version: reached.version.clone(),
            trouble: reached.trouble.clone(),
            kinds,
        }
    }

    pub(crate) fn client(&self) -> Option<Client> {
        self.reached.lock().client.clone()
    }

    async fn read(&self, access: &Access, told: mpsc::Sender<Told>, life: &Life) {
        let (client, streaming) = self.reach(access).await;
        for resource in RESOURCES {
            let follow = Follow {
                client: client.clone(),
                resource: *resource,
                streaming,
                told: told.clone(),
                standings: Arc::clone(&self.standings),
            };
            life.spawn(format!("cluster {}: {}", self.name, resource.name()), follow.run());
        }
    }

    /// A client whose API server has answered once, and whether that streams first states.
    async fn reach(&self, access: &Access) -> (Client, bool) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(20));
        loop {
            let trouble = match self.try_reach(access).await {
                Ok(reached) => return reached,
                Err(trouble) => trouble,
            };
            tracing::warn!(cluster = self.name, trouble, "a cluster cannot be asked; trying again");
            self.reached.lock().trouble = Some(trouble);
            sleep(backoff.pause()).await;
        }
    }

    async fn try_reach(&self, access: &Access) -> Result<(Client, bool), String> {
        let (client, server) = access.client().await.map_err(|err| chain(&err))?;
        self.reached.lock().server = server;
        let version = match timeout(ANSWER, client.apiserver_version()).await {
            Ok(Ok(version)) => version,
            Ok(Err(err)) => return Err(chain(&err)),
            Err(_) => return Err(format!("no answer within {} s", ANSWER.as_secs())),
        };
        let mut reached = self.reached.lock();
        (reached.version, reached.trouble) = (version.git_version.clone(), None);
        reached.client = Some(client.clone());
        Ok((client, streams(&version.major, &version.minor)))
    }
}

/// Some providers write `32+`.
fn streams(major: &str, minor: &str) -> bool {
    let digits: String = minor.chars().take_while(char::is_ascii_digit).collect();
    major == "1" && digits.parse::<u32>().is_ok_and(|minor| minor >= STREAMS_SINCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_states_are_streamed_by_servers_that_can() {
        assert!(streams("1", "34") && streams("1", "32+"));
        assert!(!streams("1", "31") && !streams("1", "") && !streams("2", "40"));
    }
}
