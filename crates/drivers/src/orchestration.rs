//! The orchestrator in its house: its tags, its namespaces, its clouds.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use ::tags::{Graph, Request};
use async_trait::async_trait;
use cloud_api::{Cloud, CloudError, FakeCloud, grpc};
use cloud_aws::AwsCloud;
use cloud_azure::AzureCloud;
use cloud_gcp::GcpCloud;
use cloud_ibm::IbmCloud;
use life::Life;
use model::{CloudTraits, Leaf, ResourceName, Segment, Site, Subscriber, TagName, change::Change};
use orchestrator::{
    execute::{
        Deployments, DeploymentsError, Options, Orchestrator, OrchestratorError, TagBook, TagBookError,
    },
    plan::Pools,
};
use parking_lot::Mutex;
use store::{Revision, Store};
use time::OffsetDateTime;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tracing::{info, warn};

use crate::{
    config::{CloudConfig, PluginConfig, StoreKind},
    leader::Leader,
    namespaces::{NamespaceError, Namespaces},
    pki::{Pki, PkiError},
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
    #[error("cannot make the certificate that the controller shows to plugins")]
    Identity(#[source] PkiError),
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        err: io::Error,
    },
}

/// Reads what is stored. Nothing happens yet.
pub async fn load(
    pools: Pools,
    store: Store,
    tags: Arc<Tags>,
    namespaces: Namespaces,
) -> Result<Arc<Orchestrator>, CloudsError> {
    let options =
        Options { pools, check_every: Some(CHECK_EVERY), awaits_policies: true, ..Options::default() };
    let book = Book { tags: Arc::clone(&tags), seen: Mutex::new(Revision(0)) };
    let loaded = Orchestrator::load(store, Arc::new(book), Arc::new(Sites(namespaces)), options).await;
    let orchestrator = loaded.map_err(CloudsError::Load)?;
    // A resource's tag is its own: whoever permits it by name means it, and nobody else.
    let owner = Arc::downgrade(&orchestrator);
    tags.set_owner(move |tag| {
        let resource = tag.as_str().parse::<ResourceName>().ok();
        owner.upgrade().zip(resource).is_some_and(|(owner, name)| owner.resource(&name).is_ok())
    });
    Ok(orchestrator)
}

/// Makes the configured clouds known, each as soon as it answers.
pub async fn add_clouds(
    orchestrator: &Arc<Orchestrator>,
    clouds: &[CloudConfig],
    data_dir: &Path,
    pki: &Pki,
    life: &Life,
) -> Result<(), CloudsError> {
    for config in clouds {
        let way = open(config, data_dir, pki, life).await?;
        let plugin = config.plugin.describe();
        orchestrator.expect_cloud(config.name.clone(), plugin.clone());
        let (orchestrator, name) = (Arc::clone(orchestrator), config.name.clone());
        let (task, stopping) = (format!("clouds: {name}"), life.stopping());
        life.spawn_once(task, async move {
            let added = async {
                while let Err(err) = add(&orchestrator, &name, &plugin, &way).await {
                    orchestrator.cloud_waits(&name, common::chain(&err));
                    warn!(cloud = %name, error = common::chain(&err), "a plugin does not answer and is asked again");
                    tokio::time::sleep(PLUGIN_RETRY).await;
                }
                info!(cloud = %name, "a cloud is ready");
            };
            stopping.run_until_cancelled(added).await;
        });
    }
    Ok(())
}

/// Starts the work: at once on a store of our own, in turns with others on a shared one.
pub fn run(orchestrator: Arc<Orchestrator>, store: &Store, kind: &StoreKind, name: String, life: &Life) {
    life.spawn("orchestrator: keeper", orchestrator.unkept());
    match kind {
        // Its file is locked: nobody else can work on it.
        StoreKind::Embedded => life.spawn_to_end("orchestrator", orchestrator.run(life.stopping())),
        StoreKind::Etcd(_) => {
            let leader = Leader::new(store.clone(), orchestrator, name);
            life.spawn_to_end("orchestrator", leader.run(life.stopping()));
        }
    }
}

/// Deletes a namespace that holds no resources.
pub async fn delete_namespace(
    orchestrator: &Orchestrator,
    namespaces: &Namespaces,
    name: &Segment,
) -> Result<Change, NamespaceError> {
    let mut names = orchestrator.resources().into_iter().map(|resource| resource.name);
    if let Some(resource) = names.find(|resource| resource.namespace == *name) {
        return Err(NamespaceError::NotEmpty { name: name.clone(), resource });
    }
    namespaces.delete(name).await
}

/// A cloud of this process, or the way to a plugin elsewhere.
enum Way {
    Here(Arc<dyn Cloud>),
    Elsewhere(Channel, Option<grpc::Revision>),
}

async fn add(orchestrator: &Orchestrator, name: &Segment, plugin: &str, way: &Way) -> Result<(), CloudError> {
    let (cloud, revision) = match way {
        Way::Here(cloud) => (Arc::clone(cloud), None),
        Way::Elsewhere(channel, revision) => {
            let connected = grpc::connect(channel.clone(), bounds(name), *revision).await?;
            (connected.cloud, connected.revision)
        }
    };
    let plugin = revision.map(|revision| format!("{plugin} (Paraglider's protocol, revision {revision})"));
    orchestrator.add_cloud_of(name.clone(), cloud, plugin).await
}

/// What is known of a cloud by its name, if its plugin cannot describe itself.
fn bounds(name: &Segment) -> CloudTraits {
    match name.as_str() {
        "aws" => AwsCloud::traits(),
        "azure" => AzureCloud::traits(),
        "gcp" => GcpCloud::traits(),
        "ibm" => IbmCloud::traits(),
        _ => CloudTraits::default(),
    }
}

async fn open(config: &CloudConfig, data_dir: &Path, pki: &Pki, life: &Life) -> Result<Way, CloudsError> {
    let name = config.name.clone();
    let public = |err| CloudsError::Public { cloud: name.clone(), err };
    let cloud: Arc<dyn Cloud> = match &config.plugin {
        PluginConfig::Aws(options) => Arc::new(AwsCloud::new(options).map_err(public)?),
        PluginConfig::Azure(options) => Arc::new(AzureCloud::new(options).map_err(public)?),
        PluginConfig::Gcp(options) => Arc::new(GcpCloud::new(options).map_err(public)?),
        PluginConfig::Ibm(options) => Arc::new(IbmCloud::new(options).map_err(public)?),
        PluginConfig::Fake {} => Arc::new(FakeCloud::new(name)),
        PluginConfig::Linux { uplink } => {
            let opened = cloud_linux::LinuxCloud::open(
                name.clone(),
                data_dir.join("linux"),
                cloud_linux::Options { uplink: uplink.clone() },
            )
            .await;
            let cloud = opened.map_err(|err| CloudsError::Linux { cloud: name.clone(), err })?;
            life.spawn(format!("clouds: daemons of {name}"), cloud.unsupervised());
            Arc::new(cloud)
        }
        PluginConfig::Remote { url, ca, client, revision } => {
            let bad = |err| CloudsError::Url { cloud: name.clone(), url: url.clone(), err };
            let mut endpoint = Endpoint::from_shared(url.clone())
                .map_err(bad)?
                .connect_timeout(Duration::from_secs(5))
                .http2_keep_alive_interval(Duration::from_secs(20))
                .keep_alive_while_idle(true);
            if let Some(ca) = ca {
                let identity = match client {
                    Some(client) => Identity::from_pem(read(&client.certificate)?, read(&client.key)?),
                    None => own_identity(pki).map_err(CloudsError::Identity)?,
                };
                let authority = Certificate::from_pem(read(ca)?);
                let tls = ClientTlsConfig::new().ca_certificate(authority).identity(identity);
                endpoint = endpoint.tls_config(tls).map_err(bad)?;
            }
            return Ok(Way::Elsewhere(endpoint.connect_lazy(), *revision));
        }
    };
    Ok(Way::Here(cloud))
}

/// What a controller shows to a plugin unless told otherwise.
fn own_identity(pki: &Pki) -> Result<Identity, PkiError> {
    let issued = pki.issue_controller(OffsetDateTime::from(SystemTime::now()))?;
    Ok(Identity::from_pem(issued.certificate_pem, issued.key_pem.expose()))
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
    async fn ask(&self, request: Request) -> Result<(), TagBookError> {
        self.tags.request_as_owner(request).await.map(drop).map_err(failed)
    }
}

fn failed(error: TagError) -> TagBookError {
    match error {
        TagError::Refused(refused) => TagBookError::Refused(refused),
        error => TagBookError::Failed(Box::new(error)),
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

    async fn set_leaf(&self, tag: &TagName, leaf: Leaf) -> Result<(), TagBookError> {
        self.ask(Request::SetLeaf { tag: tag.clone(), leaf }).await
    }

    async fn delete(&self, tag: &TagName) -> Result<(), TagBookError> {
        match self.tags.request_as_owner(Request::DeleteTag { tag: tag.clone() }).await {
            Ok(_) | Err(TagError::Refused(::tags::RequestError::NotFound(_))) => Ok(()),
            Err(err) => Err(failed(err)),
        }
    }

    async fn subscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Result<(), TagBookError> {
        self.ask(Request::Subscribe { tag: tag.clone(), subscriber: subscriber.clone() }).await
    }

    async fn unsubscribe(&self, tag: &TagName, subscriber: &Subscriber) -> Result<(), TagBookError> {
        self.ask(Request::Unsubscribe { tag: tag.clone(), subscriber: subscriber.clone() }).await
    }
}

/// The controller's namespaces, as the orchestrator asks for them.
struct Sites(Namespaces);

#[async_trait]
impl Deployments for Sites {
    async fn deployment(&self, site: &Site) -> Result<Option<String>, DeploymentsError> {
        match self.0.get(&site.namespace).await {
            Ok(namespace) => {
                let id =
                    namespace.deployments.get(&site.cloud).map(|deployment| deployment.as_str().to_owned());
                Ok(Some(id.unwrap_or_default()))
            }
            Err(NamespaceError::NotFound { .. }) => Ok(None),
            Err(err) => Err(DeploymentsError(Box::new(err))),
        }
    }

    async fn namespaces(&self) -> Result<Vec<Segment>, DeploymentsError> {
        let known = self.0.list().await.map_err(|err| DeploymentsError(Box::new(err)))?;
        Ok(known.into_iter().map(|namespace| namespace.name).collect())
    }

    async fn has_namespace(&self, namespace: &Segment) -> Result<bool, DeploymentsError> {
        match self.0.get(namespace).await {
            Ok(_) => Ok(true),
            Err(NamespaceError::NotFound { .. }) => Ok(false),
            Err(err) => Err(DeploymentsError(Box::new(err))),
        }
    }
}
