//! One object of a cloud made true: get, is it ours, does it fit, put, wait.
//!
//! A plugin has a type for each kind of object it reads ([`Kind`]), and says once how its API gets, puts and deletes one
//! ([`Objects`]). What to do with what is found is decided here, for all clouds alike:
//!
//! ```text
//!            ┌────────────── none ◄──────────── gone ◄── going away ─┐
//!            ▼                                   ▲                   │
//!   get ──► put ──► look again ──► ours? ──► failed: delete          │
//!                        │           └─ no: refused, not touched     │
//!                        ├── coming: wait ───────────────────────────┤
//!                        └── ready: fits? ── yes: done               │
//!                                  ├── to be written again: put ─────┘
//!                                  └── never: refused, with what differs
//! ```
//!
//! Not here: what objects look like and how they are addressed (`cloud/aws`, …).

use std::{fmt::Display, time::Duration};

use async_trait::async_trait;
use cloud_api::CloudError;
use serde::de::DeserializeOwned;

use crate::{Class, Clock, Failure, Pace, Progress, Reply, wait};

/// How far an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    Ready,
    Coming,
    Going,
    /// Its making failed, and it will not come by itself.
    Failed(String),
}

/// A kind of object, as an API tells one.
pub trait Kind: Send + Sync {
    /// What people call it: `VPN gateway`.
    const NAME: &'static str;
    const PACE: Pace = Pace::QUICK;

    fn phase(&self) -> Phase {
        Phase::Ready
    }
}

/// What an API can do with one object of a kind.
#[async_trait]
pub trait Objects<K: Kind>: Send + Sync {
    /// Which object: a path, an id, a name in a region.
    type Address: Display + Send + Sync;
    type Body: Send + Sync;

    /// None if there is no such object; one that is on its way out is there.
    async fn get(&self, address: &Self::Address) -> Result<Option<K>, Failure>;
    /// Asks for it. What the API answers with is looked at as if it had been got; none: it has to be got.
    async fn put(&self, address: &Self::Address, body: &Self::Body) -> Result<Option<K>, Failure>;
    /// One that is not there is fine.
    async fn delete(&self, address: &Self::Address) -> Result<(), Failure>;
    fn clock(&self) -> &dyn Clock;
}

/// Whether an object that is there will do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fit {
    Yes,
    /// It is ours to write again.
    Rewrite,
    /// It cannot become what is wanted; why, as the end of a sentence: `has the space 10.0.0.0/16, not 10.1.0.0/16`.
    Never(String),
}

/// What is wanted of an object.
pub struct Wanted<'w, K, B> {
    /// What is sent if it has to be made or written again.
    pub body: &'w B,
    pub is_ours: &'w (dyn Fn(&K) -> bool + Sync),
    pub fits: &'w (dyn Fn(&K) -> Fit + Sync),
}

/// Times that an object is put before it is given up.
const TRIES: u32 = 4;
/// How long to wait until what was in the way is gone.
const PAUSE: Duration = Duration::from_secs(10);

/// Makes an object true, and answers with it when it is ready. What is not ours is never touched.
pub async fn ensure<K, O>(
    api: &O,
    address: &O::Address,
    wanted: Wanted<'_, K, O::Body>,
) -> Result<K, CloudError>
where
    K: Kind,
    O: Objects<K>,
{
    let there = api.get(address).await?;
    ensure_from(api, address, there, wanted).await
}

/// The same for an object that was looked for already, in a list that shows others too.
pub async fn ensure_from<K, O>(
    api: &O,
    address: &O::Address,
    mut there: Option<K>,
    wanted: Wanted<'_, K, O::Body>,
) -> Result<K, CloudError>
where
    K: Kind,
    O: Objects<K>,
{
    let mut puts = 0;
    // Why it was last not taken, in the cloud's own words.
    let mut refused = None;
    loop {
        let found = match there.take() {
            Some(found) => found,
            None => {
                if puts == TRIES {
                    return Err(refused.unwrap_or_else(|| {
                        CloudError::unavailable(format!(
                            "the {} {address} was asked for {TRIES} times and is not there; look at it in the cloud's console",
                            K::NAME
                        ))
                    }));
                }
                puts += 1;
                there = put(api, address, wanted.body, &mut refused).await?;
                continue;
            }
        };
        if !(wanted.is_ours)(&found) {
            return Err(CloudError::conflict(format!(
                "the {} {address} is there, and somebody else's; it is left as it is. Delete or rename it",
                K::NAME
            )));
        }
        match found.phase() {
            Phase::Coming => there = look(api, address, Some(found)).await?,
            Phase::Going => gone(api, address).await?,
            Phase::Failed(why) => {
                refused = Some(CloudError::unavailable(format!("the {} {address} failed: {why}", K::NAME)));
                api.delete(address).await?;
                gone(api, address).await?;
            }
            Phase::Ready => match (wanted.fits)(&found) {
                Fit::Yes => return Ok(found),
                Fit::Rewrite if puts < TRIES => {
                    puts += 1;
                    there = put(api, address, wanted.body, &mut refused).await?;
                }
                Fit::Rewrite => {
                    return Err(refused.unwrap_or_else(|| {
                        CloudError::unavailable(format!(
                            "the {} {address} was written {TRIES} times and is not as it was written; somebody else \
                             changes it",
                            K::NAME
                        ))
                    }));
                }
                Fit::Never(why) => {
                    return Err(CloudError::conflict(format!("the {} {address} {why}", K::NAME)));
                }
            },
        }
    }
}

/// Deletes an object if it is ours, and waits until it is gone. One that is not there is fine.
pub async fn remove<K, O>(
    api: &O,
    address: &O::Address,
    is_ours: &(dyn Fn(&K) -> bool + Sync),
) -> Result<(), CloudError>
where
    K: Kind,
    O: Objects<K>,
{
    match api.get(address).await? {
        Some(found) if !is_ours(&found) => Ok(()),
        Some(_) => {
            api.delete(address).await?;
            gone(api, address).await
        }
        None => Ok(()),
    }
}

/// Puts, and looks. Something may be in its own way: it is there already, from a request whose answer was lost.
async fn put<K, O>(
    api: &O,
    address: &O::Address,
    body: &O::Body,
    refused: &mut Option<CloudError>,
) -> Result<Option<K>, CloudError>
where
    K: Kind,
    O: Objects<K>,
{
    *refused = None;
    match api.put(address, body).await {
        Ok(Some(made)) => Ok(Some(made)),
        Ok(None) => Ok(api.get(address).await?),
        Err(failure) if matches!(failure.class(), Class::Exists | Class::InUse) => {
            *refused = Some(failure.into());
            let there = api.get(address).await?;
            if there.is_none() {
                api.clock().sleep(PAUSE).await;
            }
            Ok(there)
        }
        Err(failure) => Err(failure.into()),
    }
}

/// The object when the cloud is through with it, one way or the other; none if it went away.
pub async fn settled<K, O>(api: &O, address: &O::Address) -> Result<Option<K>, CloudError>
where
    K: Kind,
    O: Objects<K>,
{
    look(api, address, None).await
}

/// What is known of it already is not asked for at once.
async fn look<K, O>(api: &O, address: &O::Address, mut known: Option<K>) -> Result<Option<K>, CloudError>
where
    K: Kind,
    O: Objects<K>,
{
    wait(api.clock(), K::PACE, &format!("the {} {address}", K::NAME), || {
        let known = known.take();
        async move {
            let now = match known {
                Some(known) => Some(known),
                None => api.get(address).await?,
            };
            Ok(match now {
                Some(now) if now.phase() == Phase::Coming => Progress::Pending,
                now => Progress::Done(now),
            })
        }
    })
    .await
}

/// Waits until there is no such object.
pub async fn gone<K, O>(api: &O, address: &O::Address) -> Result<(), CloudError>
where
    K: Kind,
    O: Objects<K>,
{
    wait(api.clock(), K::PACE, &format!("the end of the {} {address}", K::NAME), || async {
        let left: Option<K> = api.get(address).await?;
        Ok(if left.is_some() { Progress::Pending } else { Progress::Done(()) })
    })
    .await
}

/// An answer of a known shape. What is missing or of another type is told by its path: `items[2].network.id`.
pub fn read_json<T: DeserializeOwned>(operation: &str, reply: &Reply) -> Result<T, Failure> {
    let mut reader = serde_json::Deserializer::from_slice(&reply.body);
    serde_path_to_error::deserialize(&mut reader).map_err(|err| {
        let message = match err.path().to_string().as_str() {
            "." => err.inner().to_string(),
            path => format!("{path}: {}", err.inner()),
        };
        Failure::Unreadable { operation: operation.to_owned(), message }
    })
}

#[cfg(test)]
mod tests;
