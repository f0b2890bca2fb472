//! Whom agents that are Pods trust: this controller's CA, kept in a ConfigMap of their cluster, whose API server they trust already.
//!
//! In: the file with the CA's certificate. Out: the ConfigMap's `ca.pem`, said again now and then, since others may change it: the same
//! again is no write there. Holds nothing. Not here: who may read it, and that it is there (`trestle install kubernetes`).

use std::{path::PathBuf, sync::Arc, time::Duration};

use common::{Backoff, chain};
use drivers::ConfigMapName;
use kubernetes::Cluster;
use tracing::{info, warn};

const AGAIN: Duration = Duration::from_secs(300);
const RETRY: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
const KEY: &str = "ca.pem";

pub struct Publisher {
    pub cluster: Arc<Cluster>,
    pub place: ConfigMapName,
    pub ca: PathBuf,
}

impl Publisher {
    pub async fn run(self) {
        let ConfigMapName { namespace, name } = &self.place;
        let (mut backoff, mut told) = (RETRY, None);
        loop {
            let wait = match self.publish().await {
                Ok(()) => {
                    if told.as_deref() != Some("") {
                        info!(namespace, name, "agents find the CA in the cluster");
                    }
                    (backoff, told) = (RETRY, Some(String::new()));
                    AGAIN
                }
                Err(error) => {
                    if told.as_ref() != Some(&error) {
                        warn!(
                            namespace,
                            name, error, "agents do not find the CA in the cluster; trying again"
                        );
                    }
                    told = Some(error);
                    backoff.pause()
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    async fn publish(&self) -> Result<(), String> {
        let text = tokio::fs::read_to_string(&self.ca).await;
        let text = text.map_err(|err| format!("cannot read {}: {err}", self.ca.display()))?;
        let ConfigMapName { namespace, name } = &self.place;
        self.cluster.publish(namespace, name, KEY, &text).await.map_err(|err| chain(&err))
    }
}
