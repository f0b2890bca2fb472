//! The orchestrator in its house: its tags, its namespaces, its clouds, and what its errors are to callers.

use std::{fs, io, path::PathBuf, sync::Arc, time::Duration};

use ::tags::{Graph, Request};
use async_trait::async_trait;
use cloud_api::{Cloud, CloudError, CloudErrorKind, FakeCloud, grpc::RemoteCloud};
use model::{Leaf, Segment, Site, Subscriber, TagName};
use orchestrator::{
    execute::{Deployments, Options, Orchestrator, OrchestratorError, TagBook},
    plan::Pools,
};
use parking_lot::Mutex;
use store::{Revision, Store};
use tonic::{
    Code,
    transport::{Certificate, ClientTlsConfig, Endpoint, Identity},
};
use tracing::{info, warn};

use crate::{
    config::{CloudConfig, Config, PluginConfig, StoreKind},
    controller::host_name,
    failure::{Failure, chain},
    leader::Leader,
    namespaces::{NamespaceError, Namespaces},
    parts::Parts,
    store_failure,
    tags::{TagError, Tags},
};

/// How often the clouds are compared with what was made.
const CHECK_EVERY: Duration = Duration::from_secs(300);
/// Pause before a plugin that does not answer is asked again.
const PLUGIN_RETRY: Duration = Duration::from_secs(2);

/// Why the clouds could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum CloudsError {
    #[error("cannot load what was made")]
    Load(#[source] OrchestratorError),
    #[error("cannot use the Linux cloud {cloud}")]
    Linux {
        cloud: Segment,
        #[source]
        err: CloudError,
    },
    #[error("cannot use the public cloud {cloud}")]
    Public {
        cloud: Segment,
        #[source]
        err: CloudError,
    },
    #[error("the plugin of cloud {cloud} is at {url:?}, which cannot be used")]
    Url {
        cloud: Segment,
        url: String,
        #[source]
        err: tonic::transport::Error,
    },
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
}

/// Reads what is stored. Nothing happens yet.
pub async fn load(
    config: &Config,
    store: Store,
    tags: Arc<Tags>,
    namespaces: Namespaces,
) -> Result<Arc<Orchestrator>, CloudsError> {
    let pools = Pools::new(config.address_pools.clone()).unwrap_or_default();
    let options =
        Options { pools, check_every: Some(CHECK_EVERY), awaits_policies: true, ..Options::default() };
    let book = Book { tags, seen: Mutex::new(Revision(0)) };
    let loaded = Orchestrator::load(store, Arc::new(book), Arc::new(Sites(namespaces)), options).await;
    loaded.map_err(CloudsError::Load)
}

/// Makes the configured clouds known, each as soon as it answers, and starts the work.
pub async fn run(parts: &Parts) -> Result<(), CloudsError> {
    for config in &parts.config.clouds {
        let cloud = open(config, &parts.config.data_dir).await?;
        let (orchestrator, name) = (Arc::clone(&parts.orchestrator), config.name.clone());
        parts.life.spawn(async move {
            while let Err(err) = orchestrator.add_cloud(name.clone(), Arc::clone(&cloud)).await {
                warn!(cloud = %name, error = chain(&err), "a plugin does not answer and is asked again");
                tokio::time::sleep(PLUGIN_RETRY).await;
            }
            info!(cloud = %name, "a cloud is ready");
        });
    }
    let orchestrator = Arc::clone(&parts.orchestrator);
    match &parts.config.store {
        // Its file is locked: nobody else can work on it.
        StoreKind::Embedded => parts.life.spawn_to_end(orchestrator.run(parts.life.stopping())),
        StoreKind::Etcd(_) => {
            let leader = Leader::new(parts.store.clone(), orchestrator, leader_name(&parts.config));
            parts.life.spawn_to_end(leader.run(parts.life.stopping()));
        }
    }
    Ok(())
}

/// What people are told to go to while this controller leads.
fn leader_name(config: &Config) -> String {
    let host = host_name().unwrap_or_else(|| "a host without a name".to_owned());
    format!("the controller on {host} with gRPC at {}, process {}", config.listen.grpc, std::process::id())
}

async fn open(config: &CloudConfig, data_dir: &std::path::Path) -> Result<Arc<dyn Cloud>, CloudsError> {
    let name = config.name.clone();
    match &config.plugin {
        PluginConfig::Aws(options) => {
            let opened = cloud_aws::AwsCloud::new(options);
            Ok(Arc::new(opened.map_err(|err| CloudsError::Public { cloud: name, err })?))
        }
        PluginConfig::Azure(options) => {
            let opened = cloud_azure::AzureCloud::new(options);
            Ok(Arc::new(opened.map_err(|err| CloudsError::Public { cloud: name, err })?))
        }
        PluginConfig::Gcp(options) => {
            let opened = cloud_gcp::GcpCloud::new(options);
            Ok(Arc::new(opened.map_err(|err| CloudsError::Public { cloud: name, err })?))
        }
        PluginConfig::Ibm(options) => {
            let opened = cloud_ibm::IbmCloud::new(options);
            Ok(Arc::new(opened.map_err(|err| CloudsError::Public { cloud: name, err })?))
        }
        PluginConfig::Fake {} => Ok(Arc::new(FakeCloud::new(name))),
        PluginConfig::Linux { uplink } => {
            let opened = cloud_linux::LinuxCloud::open(
                name.clone(),
                data_dir.join("linux"),
                cloud_linux::Options { uplink: uplink.clone() },
            )
            .await;
            Ok(Arc::new(opened.map_err(|err| CloudsError::Linux { cloud: name, err })?))
        }
        PluginConfig::Remote { url, ca, client } => {
            let bad = |err| CloudsError::Url { cloud: name.clone(), url: url.clone(), err };
            let mut endpoint = Endpoint::from_shared(url.clone())
                .map_err(bad)?
                .connect_timeout(Duration::from_secs(5))
                .http2_keep_alive_interval(Duration::from_secs(20))
                .keep_alive_while_idle(true);
            if let Some(ca) = ca {
                let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?));
                if let Some(client) = client {
                    tls = tls.identity(Identity::from_pem(read(&client.certificate)?, read(&client.key)?));
                }
                endpoint = endpoint.tls_config(tls).map_err(bad)?;
            }
            Ok(Arc::new(RemoteCloud::new(name, endpoint.connect_lazy())))
        }
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>, CloudsError> {
    fs::read(path).map_err(|err| CloudsError::Read { path: path.clone(), err })
}

/// The controller's tags, as the orchestrator asks for them.
struct Book {
    tags: Arc<Tags>,
    /// The revision of the last change that was told.
    seen: Mutex<Revision>,
}

impl Book {
    async fn ask(&self, request: Request) -> Result<(), String> {
        self.tags.request(request).await.map_err(|err| chain(&err))
    }
}

#[async_trait]
impl TagBook for Book {
    fn graph(&self) -> Option<Graph> {
        self.tags.snapshot().ok().map(|snapshot| snapshot.graph.clone())
    }

    async fn changed(&self) {
        let seen = *self.seen.lock();
        let now = self.tags.later_than(seen).await;
        *self.seen.lock() = now;
    }

    async fn set_leaf(&self, tag: &TagName, leaf: Leaf) -> Result<(), String> {
        self.ask(Request::SetLeaf { tag: tag.clone(), leaf }).await
    }

    async fn delete(&self, tag: &TagName) -> Result<(), String> {
        match self.tags.request(Request::DeleteTag { tag: tag.clone() }).await {
            Ok(()) | Err(TagError::Refused(::tags::RequestError::NotFound(_))) => Ok(()),
            Err(err) => Err(chain(&err)),
        }
    }

    async fn subscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Result<(), String> {
        self.ask(Request::Subscribe { tag: tag.clone(), subscriber: subscriber.clone() }).await
    }

    async fn unsubscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Result<(), String> {
        self.ask(Request::Unsubscribe { tag: tag.clone(), subscriber: subscriber.clone() }).await
    }
}

/// The controller's namespaces, as the orchestrator asks for them.
struct Sites(Namespaces);

#[async_trait]
impl Deployments for Sites {
    async fn deployment(&self, site: &Site) -> Result<Option<String>, String> {
        match self.0.get(&site.namespace).await {
            Ok(namespace) => {
                let id =
                    namespace.deployments.get(&site.cloud).map(|deployment| deployment.as_str().to_owned());
                Ok(Some(id.unwrap_or_default()))
            }
            Err(NamespaceError::NotFound { .. }) => Ok(None),
            Err(err) => Err(chain(&err)),
        }
    }

    async fn has_namespace(&self, namespace: &Segment) -> Result<bool, String> {
        match self.0.get(namespace).await {
            Ok(_) => Ok(true),
            Err(NamespaceError::NotFound { .. }) => Ok(false),
            Err(err) => Err(chain(&err)),
        }
    }
}

impl From<OrchestratorError> for Failure {
    fn from(error: OrchestratorError) -> Self {
        use OrchestratorError as E;
        let code = match &error {
            E::UnknownResource { .. }
            | E::UnknownTag { .. }
            | E::UnknownRule { .. }
            | E::UnknownLink { .. }
            | E::UnknownJob { .. }
            | E::UnknownCloud { .. }
            | E::UnknownNamespace { .. } => Code::NotFound,
            E::ResourceExists { .. } | E::TagExists { .. } => Code::AlreadyExists,
            E::JobEnded { .. } | E::Leaving { .. } | E::Problem(_) | E::Unreadable { .. } => {
                Code::FailedPrecondition
            }
            E::Cloud { err, .. } => match err.kind {
                CloudErrorKind::Invalid => Code::InvalidArgument,
                CloudErrorKind::NotFound => Code::NotFound,
                CloudErrorKind::Conflict => Code::FailedPrecondition,
                CloudErrorKind::Unsupported => Code::Unimplemented,
                CloudErrorKind::Throttled => Code::ResourceExhausted,
                // Not UNAVAILABLE, which says that this controller cannot be reached and that nothing happened.
                CloudErrorKind::Unavailable => Code::Unknown,
            },
            E::NoSpace(_) => Code::ResourceExhausted,
            E::Superseded => Code::Aborted,
            E::Timeout { .. } => Code::DeadlineExceeded,
            E::Write(err) => return store_failure::transact(&error, err),
            E::Read(err) => return store_failure::read(&error, err),
            // Another controller can do it at once, this one perhaps in a few seconds.
            E::NotLeading { .. } => Code::FailedPrecondition,
            E::Tags { .. } | E::Namespaces { .. } | E::NotLoaded | E::NotReady { .. } => Code::Unavailable,
            // It may have been written.
            E::Ended => Code::Unknown,
            E::Panicked { .. } | E::Unbelievable { .. } => Code::Internal,
        };
        Failure::from_error(code, &error)
    }
}
