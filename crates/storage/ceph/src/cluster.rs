//! What a cluster says about pools, users and sessions, read from its JSON. Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use storage_provider::{ConsumerId, Found, Mark, ObservedStorage, VaultId, VolumeId};

const POOL: &str = "trestle-";
const TRASH: &str = "trestle-trash-";
const USER: &str = "client.trestle-";

pub(crate) fn pool_of(consumer: ConsumerId) -> String {
    format!("{POOL}{consumer}")
}

pub(crate) fn trash_of(consumer: ConsumerId) -> String {
    format!("{TRASH}{consumer}")
}

pub(crate) fn user_of(consumer: ConsumerId) -> String {
    format!("{USER}{consumer}")
}

/// What a block device needs of the monitors. `profile rbd` would do, and lets its holder put a whole address on the
/// blocklist (`IP:0/0`), which cuts off everybody behind it. To break the lock of a dead client, naming one instance
/// is enough. The number behind the slash is its nonce, or the length of a prefix; Ceph reads it into 32 bits and drops
/// what is above, so that 4294967296 is nobody's nonce but everybody's, and 4294967304 a prefix of 8 bits. Hence from
/// 1000, which no prefix is long, to 4289999999, which leaves one nonce in a thousand out.
const MONITOR_CAPS: &str = "allow r, allow command \"osd blocklist\" with blocklistop=add addr regex \"^[^/]+/([1-9][0-9]{3,8}|[1-3][0-9]{9}|4[01][0-9]{8}|42[0-8][0-9]{7})$\"";

/// Exactly what a consumer's user may do, in the form of `auth get-or-create`.
pub(crate) fn caps_of(consumer: ConsumerId) -> [String; 6] {
    let own = format!("profile rbd pool={}", pool_of(consumer));
    ["mon".into(), MONITOR_CAPS.into(), "mgr".into(), own.clone(), "osd".into(), own]
}

/// Under which key of a pool's application the mark is, and what the volume is called in records.
pub(crate) const MARK: &str = "trestle";
pub(crate) const VOLUME: &str = "pool";

/// A mark as the value of that key: the volume's id and its generation. Ceph takes no slash there.
pub(crate) fn mark_text(volume: VolumeId, generation: u64) -> String {
    format!("{volume}.{generation}")
}

fn parse_mark(text: &str) -> Option<(VolumeId, u64)> {
    let (volume, generation) = text.split_once('.')?;
    Some((VolumeId(volume.parse().ok()?), generation.parse().ok()?))
}

/// Pools, users and usage at one moment.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    pools: BTreeMap<String, Pool>,
    users: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) osds: Osds,
}

/// How many OSDs there are, and how many of them serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Osds {
    pub(crate) up: u64,
    pub(crate) all: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) quota: u64,
    pub(crate) applications: Vec<String>,
    pub(crate) used: u64,
    pub(crate) full: bool,
    pub(crate) replicas: u64,
    /// What is written under [`MARK`].
    pub(crate) mark: Option<String>,
}

impl Picture {
    /// From `osd dump`, `df` and `auth ls`.
    pub(crate) fn read(dump: &Value, df: &Value, auth: &Value) -> Self {
        let mut used = BTreeMap::new();
        for pool in array(&df["pools"]) {
            used.insert(text(&pool["name"]), pool["stats"]["stored"].as_u64().unwrap_or(0));
        }
        let mut pools = BTreeMap::new();
        for pool in array(&dump["pools"]) {
            let name = text(&pool["pool_name"]);
            let flags = text(&pool["flags_names"]);
            let applications = pool["application_metadata"].as_object();
            pools.insert(
                name.clone(),
                Pool {
                    quota: pool["quota_max_bytes"].as_u64().unwrap_or(0),
                    applications: applications.map(|all| all.keys().cloned().collect()).unwrap_or_default(),
                    used: used.get(&name).copied().unwrap_or(0),
                    full: flags.split(',').any(|flag| flag == "full_quota"),
                    replicas: pool["size"].as_u64().unwrap_or(0),
                    mark: pool["application_metadata"]["rbd"][MARK].as_str().map(str::to_owned),
                },
            );
        }
        let mut users = BTreeMap::new();
        for user in array(&auth["auth_dump"]) {
            let caps = user["caps"].as_object().into_iter().flatten();
            users.insert(text(&user["entity"]), caps.map(|(kind, cap)| (kind.clone(), text(cap))).collect());
        }
        let osds = Osds {
            up: array(&dump["osds"]).filter(|osd| osd["up"] == 1).count() as u64,
            all: array(&dump["osds"]).count() as u64,
        };
        Self { pools, users, osds }
    }

    pub(crate) fn pool(&self, consumer: ConsumerId) -> Option<&Pool> {
        self.pools.get(&pool_of(consumer))
    }

    pub(crate) fn has_trash(&self, consumer: ConsumerId) -> bool {
        self.pools.contains_key(&trash_of(consumer))
    }

    /// Whether the user may do exactly what it should.
    pub(crate) fn has_user(&self, consumer: ConsumerId) -> bool {
        let wanted = caps_of(consumer);
        let wanted: BTreeMap<_, _> =
            wanted.chunks(2).map(|pair| (pair[0].as_str(), pair[1].as_str())).collect();
        self.users
            .get(&user_of(consumer))
            .is_some_and(|held| held.iter().map(|(kind, cap)| (kind.as_str(), cap.as_str())).eq(wanted))
    }

    /// Everybody of whom there is anything.
    pub(crate) fn consumers(&self) -> Vec<ConsumerId> {
        let pools =
            self.pools.keys().filter_map(|name| name.strip_prefix(TRASH).or_else(|| name.strip_prefix(POOL)));
        let users = self.users.keys().filter_map(|name| name.strip_prefix(USER));
        let mut all: Vec<ConsumerId> = pools.chain(users).filter_map(|id| id.parse().ok()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Bytes stored in all consumers' pools.
    pub(crate) fn used(&self) -> u64 {
        self.pools.iter().filter(|(name, _)| name.starts_with(POOL)).map(|(_, pool)| pool.used).sum()
    }
}

impl Pool {
    /// Which pool it is.
    pub(crate) fn found(&self, vault: VaultId) -> Found {
        let Some(text) = &self.mark else { return Found::Unmarked { size: 0 } };
        match parse_mark(text) {
            // A pool has no size of its own: its quota is the grant.
            Some((volume, generation)) => {
                Found::Whole(Mark { vault, volume, generation, size: 0, key: None })
            }
            None => Found::Damaged { reason: format!("its mark reads {text:?}") },
        }
    }

    pub(crate) fn observed(&self, replicas: u64) -> ObservedStorage {
        ObservedStorage {
            // Ceph's zero means no limit, and so does ours when it says none.
            quota: Some(self.quota).filter(|quota| *quota > 0),
            used: self.used,
            in_shape: self.applications == ["rbd"] && self.replicas == replicas,
        }
    }
}

/// The instances of a user's clients, as a blocklist wants them: address and nonce.
pub(crate) fn sessions_of(sessions: &Value, user: &str) -> Vec<String> {
    let own = array(sessions).filter(|session| text(&session["entity_name"]) == user);
    let addresses = own.flat_map(|session| array(&session["addrs"]["addrvec"]));
    let mut instances: Vec<String> = addresses
        .map(|address| format!("{}/{}", text(&address["addr"]), address["nonce"].as_u64().unwrap_or(0)))
        .collect();
    instances.sort_unstable();
    instances.dedup();
    instances
}

/// Names of the monitors, and the addresses consumers use: the older protocol's where there is one, since a bare
/// address is read as that.
pub(crate) fn monitors(dump: &Value) -> Vec<(String, String)> {
    array(&dump["mons"])
        .map(|monitor| {
            let addresses: Vec<&Value> = array(&monitor["public_addrs"]["addrvec"]).collect();
            let old = addresses.iter().find(|address| address["type"] == "v1").or_else(|| addresses.first());
            (text(&monitor["name"]), old.map(|address| text(&address["addr"])).unwrap_or_default())
        })
        .collect()
}

pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn id(n: u128) -> ConsumerId {
        ConsumerId::new(Uuid::from_u128(n))
    }

    fn picture(caps: &Value) -> Picture {
        let dump = json!({"osds": [{"osd": 0, "up": 1}, {"osd": 1, "up": 0}], "pools": [
            {"pool_name": pool_of(id(1)), "quota_max_bytes": 10, "size": 3, "flags_names": "hashpspool,full,full_quota", "application_metadata": {"rbd": {}}},
            {"pool_name": trash_of(id(2)), "quota_max_bytes": 0, "application_metadata": {}},
            {"pool_name": "trestle-of-somebody", "application_metadata": {}},
        ]});
        let df = json!({"pools": [{"name": pool_of(id(1)), "stats": {"stored": 7}}]});
        Picture::read(
            &dump,
            &df,
            &json!({"auth_dump": [{"entity": user_of(id(1)), "caps": caps}, {"entity": user_of(id(3)), "caps": {}}]}),
        )
    }

    #[test]
    fn only_what_is_recognised_counts_as_ours() {
        let picture = picture(&json!({}));
        assert_eq!(picture.consumers(), [id(1), id(2), id(3)]);
        assert_eq!(picture.osds, Osds { up: 1, all: 2 });
        let pool = picture.pool(id(1)).unwrap();
        assert_eq!(pool.observed(3), ObservedStorage { quota: Some(10), used: 7, in_shape: true });
        assert!(!pool.observed(2).in_shape && pool.full);
        assert!(picture.has_trash(id(2)) && !picture.has_trash(id(1)));
    }

    #[test]
    fn a_user_with_more_or_less_than_its_caps_does_not_count() {
        let own = format!("profile rbd pool={}", pool_of(id(1)));
        let good = json!({"mon": MONITOR_CAPS, "mgr": own, "osd": own});
        assert!(picture(&good).has_user(id(1)));
        for (kind, cap) in [
            ("osd", json!("profile rbd")),
            ("mgr", json!("allow rw")),
            ("mds", json!("allow")),
            ("mon", json!("profile rbd")),
        ] {
            let mut bad = good.clone();
            bad[kind] = cap;
            assert!(!picture(&bad).has_user(id(1)), "{bad}");
        }
    }

    #[test]
    fn a_pool_is_known_by_the_mark_in_its_application() {
        let vault = VaultId(Uuid::from_u128(7));
        let volume = VolumeId(Uuid::from_u128(8));
        let found =
            |mark: Option<&str>| Pool { mark: mark.map(str::to_owned), ..Pool::default() }.found(vault);
        let text = mark_text(volume, 3);
        assert_eq!(
            found(Some(&text)),
            Found::Whole(Mark { vault, volume, generation: 3, size: 0, key: None })
        );
        assert_eq!(found(None), Found::Unmarked { size: 0 });
        for bad in ["", "x", ".1", &volume.to_string(), &format!("{volume}.x")] {
            assert!(matches!(found(Some(bad)), Found::Damaged { .. }), "{bad}");
        }
        let dump =
            json!({"pools": [{"pool_name": pool_of(id(1)), "application_metadata": {"rbd": {MARK: text}}}]});
        let picture = Picture::read(&dump, &json!({}), &json!({}));
        assert!(matches!(picture.pool(id(1)).unwrap().found(vault), Found::Whole(_)));
    }

    #[test]
    fn sessions_are_those_of_the_user_and_nobody_elses() {
        let session = |user: &str, nonce: u32| json!({"entity_name": user, "addrs": {"addrvec": [{"type": "any", "addr": "127.0.0.1:0", "nonce": nonce}]}});
        let all = json!([
            session("client.a", 5),
            session("client.admin", 6),
            session("client.a", 5),
            session("client.a", 7)
        ]);
        assert_eq!(sessions_of(&all, "client.a"), ["127.0.0.1:0/5", "127.0.0.1:0/7"]);
    }
}
