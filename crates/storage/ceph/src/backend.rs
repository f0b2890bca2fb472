//! Ceph pools as storage for consumers.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    thread,
};

use async_trait::async_trait;
use serde_json::{Value, json};
use storage_backend::{Backend, BackendError, Usage};
use storage_provider::{ConnectionItem, ConsumerId, Found, Observed, VaultId, VolumeId};
use tokio::sync::{Semaphore, oneshot};
use uuid::Builder;

use crate::{
    cluster::{
        MARK, Osds, Picture, Pool, VOLUME, caps_of, mark_text, monitors, pool_of, sessions_of, text,
        trash_of, user_of,
    },
    command::{CommandError, Commands, EINVAL, ENOENT, EPERM, command},
    connection,
};

/// How pools are made.
#[derive(Clone, Debug)]
pub struct CephConfig {
    /// Copies of each object.
    pub replicas: u64,
    /// Placement groups of each pool.
    pub placement_groups: u64,
}

impl Default for CephConfig {
    fn default() -> Self {
        Self { replicas: 3, placement_groups: 32 }
    }
}

/// Commands that wait for the monitors at once.
const PLACES: usize = 32;
/// Seconds a session stays on the blocklist: longer than any ticket of its user is good (an hour by default).
const BLOCKLIST_SECONDS: u64 = 4 * 3600;
/// Of the raw space, how much may be promised: Ceph stops writing at 95 %, and warns at 85 %.
const USABLE_PERCENT: u64 = 85;
/// Looks at the sessions after the user is gone; one session may be on its way in when the first look is taken.
const REVOKE_LOOKS: usize = 2;

pub struct CephBackend {
    cluster: Arc<dyn Commands>,
    config: CephConfig,
    /// The cluster's id, once it was asked for.
    fsid: Arc<OnceLock<VaultId>>,
    /// For work under way.
    places: Arc<Semaphore>,
}

impl CephBackend {
    pub fn new(cluster: Arc<dyn Commands>, config: CephConfig) -> Self {
        Self { cluster, config, fsid: Arc::default(), places: Arc::new(Semaphore::new(PLACES)) }
    }

    /// Runs blocking work with the cluster where it may block.
    async fn with<T: Send + 'static>(
        &self,
        attempt: String,
        work: impl FnOnce(&Cluster) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, BackendError> {
        let (commands, fsid) = (Arc::clone(&self.cluster), Arc::clone(&self.fsid));
        let cluster = Cluster { commands, config: self.config.clone(), fsid };
        let gone = |error: &dyn std::fmt::Display| BackendError::failed(&attempt, error);
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|error| gone(&error))?;
        let (told, heard) = oneshot::channel();
        // A thread of its own: one that waits for a monitor that is gone keeps no process from ending.
        let thread = thread::Builder::new().name("ceph".to_owned()).spawn(move || {
            let _ = told.send(work(&cluster));
            drop(place);
        });
        thread.map_err(|error| gone(&error))?;
        match heard.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(Fault::Command(error))) => Err(gone(&error)),
            Ok(Err(Fault::Backend(error))) => Err(error),
            Err(panicked) => Err(gone(&panicked)),
        }
    }
}

enum Fault {
    Command(CommandError),
    Backend(BackendError),
}

impl From<CommandError> for Fault {
    fn from(error: CommandError) -> Self {
        Self::Command(error)
    }
}

/// The cluster as the steps see it.
struct Cluster {
    commands: Arc<dyn Commands>,
    config: CephConfig,
    fsid: Arc<OnceLock<VaultId>>,
}

impl Cluster {
    fn run<const N: usize>(&self, prefix: &str, fields: [(&str, Value); N]) -> Result<Value, CommandError> {
        self.commands.run(&command(prefix, fields))
    }

    fn picture(&self) -> Result<Picture, CommandError> {
        let (dump, df, auth) = (self.run("osd dump", [])?, self.run("df", [])?, self.run("auth ls", [])?);
        Ok(Picture::read(&dump, &df, &auth))
    }

    /// The cluster is the vault of all pools.
    fn vault(&self) -> Result<VaultId, Fault> {
        if let Some(vault) = self.fsid.get() {
            return Ok(*vault);
        }
        let fsid = text(&self.run("mon dump", [])?["fsid"]);
        let vault = fsid.parse().map(VaultId).map_err(|error| {
            Fault::Backend(BackendError::failed(format!("reading the cluster's id {fsid:?}"), error))
        })?;
        Ok(*self.fsid.get_or_init(|| vault))
    }

    fn observed(&self, picture: &Picture, vault: VaultId, consumer: ConsumerId) -> Observed {
        let found = picture.pool(consumer).map(|pool| (VOLUME.to_owned(), pool.found(vault)));
        Observed {
            found: found.into_iter().collect(),
            trouble: None,
            storage: picture.pool(consumer).map(|pool| pool.observed(self.config.replicas)),
            credentials: picture.has_user(consumer),
            trash: picture.has_trash(consumer),
            ..Observed::default()
        }
    }

    fn ensure_pool(&self, consumer: ConsumerId) -> Result<(), Fault> {
        let pool = pool_of(consumer);
        if let Some(found) = self.picture()?.pool(consumer)
            && found.applications.iter().any(|application| application != "rbd")
        {
            let what = format!("the pool {pool} with the application {}", found.applications.join(", "));
            return Err(Fault::Backend(BackendError::NotOurs { what }));
        }
        let groups = json!(self.config.placement_groups);
        // Succeeds when the pool is there.
        self.run(
            "osd pool create",
            [
                ("pool", json!(pool)),
                ("pg_num", groups.clone()),
                ("pgp_num", groups),
                ("pool_type", json!("replicated")),
            ],
        )?;
        let fields =
            [("pool", json!(pool)), ("var", json!("size")), ("val", json!(self.config.replicas.to_string()))];
        if self.config.replicas == 1 {
            let [pool, var, val] = fields;
            self.run("osd pool set", [pool, var, val, ("yes_i_really_mean_it", json!(true))])?;
        } else {
            self.run("osd pool set", fields)?;
        }
        self.run("osd pool application enable", [("pool", json!(pool)), ("app", json!("rbd"))])?;
        Ok(())
    }

    /// Makes the pool and its mark. Data is only made where the consumer's record knows of none, so a pool without a
    /// mark is one that was being made.
    fn make_pool(&self, consumer: ConsumerId) -> Result<(), Fault> {
        self.ensure_pool(consumer)?;
        match self.picture()?.pool(consumer).map(|pool| pool.mark.is_some()) {
            Some(true) => Ok(()),
            _ => self.mark(consumer, fresh_volume()?, 1),
        }
    }

    /// Puts a pool right that was made before.
    fn keep_pool(&self, consumer: ConsumerId) -> Result<(), Fault> {
        self.picture()?.pool(consumer).ok_or(Fault::Backend(BackendError::NoStorage { consumer }))?;
        self.ensure_pool(consumer)
    }

    fn adopt_pool(&self, consumer: ConsumerId, generation: u64) -> Result<(), Fault> {
        let (picture, vault) = (self.picture()?, self.vault()?);
        let pool = picture.pool(consumer).ok_or(Fault::Backend(BackendError::NoStorage { consumer }))?;
        let (volume, generation) = match pool.found(vault) {
            Found::Whole(mark) => (mark.volume, generation.max(mark.generation + 1)),
            _ => (fresh_volume()?, generation),
        };
        self.ensure_pool(consumer)?;
        self.mark(consumer, volume, generation)
    }

    fn mark(&self, consumer: ConsumerId, volume: VolumeId, generation: u64) -> Result<(), Fault> {
        let fields = [
            ("pool", json!(pool_of(consumer))),
            ("app", json!("rbd")),
            ("key", json!(MARK)),
            ("value", json!(mark_text(volume, generation))),
        ];
        self.run("osd pool application set", fields)?;
        Ok(())
    }

    fn set_quota(&self, consumer: ConsumerId, bytes: u64) -> Result<(), Fault> {
        let picture = self.picture()?;
        let pool = picture.pool(consumer).ok_or(Fault::Backend(BackendError::NoStorage { consumer }))?;
        if bytes < pool.used {
            return Err(Fault::Backend(BackendError::BelowUse { bytes, used: pool.used }));
        }
        // Plain bytes: to Ceph `1G` is 2^30, and 0 is no limit at all, which a grant never is.
        let val = json!(bytes.max(1).to_string());
        self.run(
            "osd pool set-quota",
            [("pool", json!(pool_of(consumer))), ("field", json!("max_bytes")), ("val", val)],
        )?;
        Ok(())
    }

    fn ensure_user(&self, consumer: ConsumerId) -> Result<(), Fault> {
        let picture = self.picture()?;
        picture.pool(consumer).ok_or(Fault::Backend(BackendError::NoStorage { consumer }))?;
        let fields = || [("entity", json!(user_of(consumer))), ("caps", json!(caps_of(consumer)))];
        match self.run("auth get-or-create", fields()) {
            // It is there with other capabilities.
            Err(error) if error.errno == EINVAL => self.run("auth caps", fields())?,
            done => done?,
        };
        Ok(())
    }

    fn key(&self, consumer: ConsumerId) -> Result<Option<String>, CommandError> {
        match self.run("auth get", [("entity", json!(user_of(consumer)))]) {
            Ok(found) => Ok(Some(text(&found[0]["key"]))),
            Err(error) if error.errno == ENOENT => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Deletes the user, then ends the sessions it has open: they would go on for as long as they like.
    fn revoke(&self, consumer: ConsumerId) -> Result<(), Fault> {
        let user = user_of(consumer);
        let monitors = monitors(&self.run("mon dump", [])?);
        let mut sessions = self.sessions(&monitors, &user)?;
        self.run("auth del", [("entity", json!(user))])?;
        for _ in 0..REVOKE_LOOKS {
            for address in sessions {
                let fields = [
                    ("blocklistop", json!("add")),
                    ("addr", json!(address)),
                    ("expire", json!(BLOCKLIST_SECONDS as f64)),
                ];
                self.run("osd blocklist", fields)?;
            }
            sessions = self.sessions(&monitors, &user)?;
        }
        Ok(())
    }

    fn sessions(&self, monitors: &[(String, String)], user: &str) -> Result<Vec<String>, CommandError> {
        let mut all = Vec::new();
        for (name, _) in monitors {
            match self.commands.tell(name, &command("sessions", [])) {
                Ok(sessions) => all.extend(sessions_of(&sessions, user)),
                // A monitor that is down has no sessions; its clients have moved to the others.
                Err(error) if monitors.len() > 1 => {
                    tracing::warn!(monitor = name, %error, "sessions could not be listed")
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    fn trash(&self, consumer: ConsumerId) -> Result<(), Fault> {
        let picture = self.picture()?;
        if picture.pool(consumer).is_none() {
            return Ok(());
        }
        if picture.has_trash(consumer) {
            self.purge(consumer)?;
        }
        let fields = [("srcpool", json!(pool_of(consumer))), ("destpool", json!(trash_of(consumer)))];
        self.run("osd pool rename", fields)?;
        Ok(())
    }

    fn purge(&self, consumer: ConsumerId) -> Result<(), Fault> {
        let pool = json!(trash_of(consumer));
        let sure = ("yes_i_really_really_mean_it", json!(true));
        match self.run("osd pool delete", [("pool", pool.clone()), ("pool2", pool), sure]) {
            Err(mut error) if error.errno == EPERM => {
                error
                    .message
                    .push_str(" (set mon_allow_pool_delete to true, so that consumers' data can be deleted)");
                Err(error.into())
            }
            Err(error) if error.errno == ENOENT => Ok(()),
            done => Ok(done.map(|_| ())?),
        }
    }

    fn details(&self, consumer: ConsumerId) -> Result<Vec<ConnectionItem>, Fault> {
        let key = self.key(consumer)?.ok_or(Fault::Backend(BackendError::NoStorage { consumer }))?;
        Ok(connection::items(consumer, &key, &self.run("mon dump", [])?))
    }

    fn usage(&self, consumer: ConsumerId) -> Result<Usage, Fault> {
        let picture = self.picture()?;
        let pool = picture.pool(consumer).ok_or(Fault::Backend(BackendError::NoStorage { consumer }))?;
        Ok(usage(pool, picture.osds))
    }

    fn usage_all(&self) -> Result<BTreeMap<ConsumerId, Usage>, Fault> {
        let picture = self.picture()?;
        let pools = picture.consumers().into_iter().filter_map(|id| Some((id, picture.pool(id)?)));
        Ok(pools.map(|(id, pool)| (id, usage(pool, picture.osds))).collect())
    }

    /// Raw space that is free, counted once for all copies, and what consumers have stored.
    fn capacity(&self) -> Result<u64, CommandError> {
        let picture = self.picture()?;
        let stats = &self.run("df", [])?["stats"];
        let free = stats["total_avail_bytes"].as_u64().unwrap_or(0) / self.config.replicas.max(1);
        Ok((free.saturating_add(picture.used()) / 100).saturating_mul(USABLE_PERCENT))
    }
}

#[async_trait]
impl Backend for CephBackend {
    async fn vault(&self) -> Result<VaultId, BackendError> {
        self.with("asking which cluster it is".to_owned(), Cluster::vault).await
    }

    async fn capacity(&self) -> Result<u64, BackendError> {
        self.with("measuring the cluster".to_owned(), |cluster| Ok(cluster.capacity()?)).await
    }

    async fn observe(&self, consumer: ConsumerId) -> Result<Observed, BackendError> {
        let attempt = format!("looking at the storage of the consumer {consumer}");
        self.with(attempt, move |cluster| {
            Ok(cluster.observed(&cluster.picture()?, cluster.vault()?, consumer))
        })
        .await
    }

    async fn observe_all(&self) -> Result<BTreeMap<ConsumerId, Observed>, BackendError> {
        let all = |cluster: &Cluster| -> Result<_, Fault> {
            let picture = cluster.picture()?;
            let vault = cluster.vault()?;
            Ok(picture
                .consumers()
                .into_iter()
                .map(|id| (id, cluster.observed(&picture, vault, id)))
                .collect())
        };
        self.with("looking at all storage".to_owned(), all).await
    }

    async fn ensure_storage(
        &self,
        consumer: ConsumerId,
        _bytes: u64,
        encrypted: bool,
    ) -> Result<(), BackendError> {
        let attempt = format!("making the pool of the consumer {consumer}");
        if encrypted {
            let reason = "its ticket says that what is stored for it is encrypted, which is so on the embedded storage only; \
                          on Ceph a client encrypts its images itself (`rbd encryption format`)";
            return Err(BackendError::failed(attempt, reason));
        }
        self.with(attempt, move |cluster| cluster.make_pool(consumer)).await
    }

    async fn keep_storage(&self, consumer: ConsumerId, _bytes: u64) -> Result<(), BackendError> {
        self.with(format!("keeping the pool of the consumer {consumer}"), move |cluster| {
            cluster.keep_pool(consumer)
        })
        .await
    }

    async fn adopt_storage(&self, consumer: ConsumerId, generation: u64) -> Result<(), BackendError> {
        self.with(format!("adopting the pool of the consumer {consumer}"), move |cluster| {
            cluster.adopt_pool(consumer, generation)
        })
        .await
    }

    async fn withhold(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        // Clients reach Ceph without us, and nothing they do there makes the loss of a pool worse.
        tracing::warn!(%consumer, "its pool is not the one that was made for it; its user is left as it is");
        Ok(())
    }

    async fn set_quota(&self, consumer: ConsumerId, bytes: u64) -> Result<(), BackendError> {
        self.with(format!("setting the quota of the consumer {consumer}"), move |cluster| {
            cluster.set_quota(consumer, bytes)
        })
        .await
    }

    async fn ensure_credentials(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        self.with(format!("making the user of the consumer {consumer}"), move |cluster| {
            cluster.ensure_user(consumer)
        })
        .await
    }

    async fn connection_details(&self, consumer: ConsumerId) -> Result<Vec<ConnectionItem>, BackendError> {
        self.with(format!("reading the user of the consumer {consumer}"), move |cluster| {
            cluster.details(consumer)
        })
        .await
    }

    async fn usage(&self, consumer: ConsumerId) -> Result<Usage, BackendError> {
        self.with(format!("measuring the use of the consumer {consumer}"), move |cluster| {
            cluster.usage(consumer)
        })
        .await
    }

    async fn usage_all(&self) -> Result<BTreeMap<ConsumerId, Usage>, BackendError> {
        self.with("measuring the use of all consumers".to_owned(), Cluster::usage_all).await
    }

    async fn revoke(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        self.with(format!("ending the access of the consumer {consumer}"), move |cluster| {
            cluster.revoke(consumer)
        })
        .await
    }

    async fn trash(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        self.with(format!("trashing the pool of the consumer {consumer}"), move |cluster| {
            cluster.trash(consumer)
        })
        .await
    }

    async fn purge(&self, consumer: ConsumerId) -> Result<(), BackendError> {
        self.with(format!("deleting the pool of the consumer {consumer}"), move |cluster| {
            cluster.purge(consumer)
        })
        .await
    }
}

fn fresh_volume() -> Result<VolumeId, Fault> {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|error| Fault::Backend(BackendError::failed("naming a pool", error)))?;
    Ok(VolumeId(Builder::from_random_bytes(bytes).into_uuid()))
}

/// Ceph is late to enforce a quota, and then does not refuse but wait; so it does when too few OSDs serve.
fn usage(pool: &Pool, osds: Osds) -> Usage {
    let notice = if osds.up < pool.replicas {
        let Osds { up, all } = osds;
        Some(format!("only {up} of {all} OSDs serve: data may wait until there are {} again", pool.replicas))
    } else if pool.full {
        Some("the pool is full: Ceph makes writers wait, and lets them go on when data is deleted or the grant raised".to_owned())
    } else if pool.used > pool.quota {
        Some(
            "the grant is exceeded: Ceph enforces it some seconds late, and then makes writers wait"
                .to_owned(),
        )
    } else {
        None
    };
    // Images are made and resized by the consumer; how large they are is not known here.
    Usage { used: pool.used, limit: pool.quota, notice, ..Usage::default() }
}
