//! Objects of Azure's resource manager as types: the envelope that all of them share, and how they refer to each other.
//!
//! In: answers. Out: requests, in which what is none is left out. Only what the plugin uses has a field. Other fields of
//! answers are ignored, except where an object is written again as it was found (`rest`): what others put in has to survive.
//! A field without which an object cannot be understood is required; its absence is an error that names it.
//!
//! Not here: which kinds there are, and where (`kinds`).

mod gateway;
mod machine;
mod network;

use std::{collections::BTreeMap, fmt, marker::PhantomData, str::FromStr};

use cloud_http::Kind;
use serde::{Deserialize, Serialize, Serializer, de::DeserializeOwned};
use serde_json::{Map, Value};

pub use gateway::*;
pub use machine::*;
pub use network::*;

/// An object that can be addressed.
pub trait Object: Kind + DeserializeOwned + 'static {
    const TYPE: &'static str;

    fn state(&self) -> State;

    fn is_made(&self) -> bool {
        self.state() == State::Succeeded
    }
}

/// The id of an object: `/subscriptions/S/resourceGroups/G/providers/TYPE/NAME`. Ids are the same whatever their case.
#[derive(Serialize, Deserialize)]
#[serde(transparent, bound = "")]
pub struct Id<K>(String, #[serde(skip)] PhantomData<fn() -> K>);

impl<K> Id<K> {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into(), PhantomData)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last part.
    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// `/subscriptions/S/resourceGroups/G`.
    pub fn group(&self) -> &str {
        self.0.split("/providers/").next().unwrap_or_default()
    }

    /// The id of something that lives inside this object.
    pub fn child<C: Object>(&self, name: &str) -> Id<C> {
        let collection = C::TYPE.rsplit('/').next().unwrap_or_default();
        Id::new(format!("{self}/{collection}/{name}"))
    }
}

impl<K> Clone for Id<K> {
    fn clone(&self) -> Self {
        Self::new(&self.0)
    }
}

impl<K> PartialEq for Id<K> {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl<K> fmt::Display for Id<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How an object names another one.
#[derive(Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Ref<K> {
    pub id: Id<K>,
}

impl<K> Ref<K> {
    pub fn to(id: &Id<K>) -> Self {
        Self { id: id.clone() }
    }
}

/// Whether a reference is there, and to that object.
pub fn is_to<K>(reference: &Option<Ref<K>>, id: &Id<K>) -> bool {
    reference.as_ref().is_some_and(|reference| reference.id == *id)
}

/// An object of a resource group.
#[derive(Clone, Serialize, Deserialize)]
pub struct Resource<P> {
    #[serde(bound = "")]
    pub id: Id<Resource<P>>,
    pub name: String,
    pub location: String,
    #[serde(default)]
    pub tags: Tags,
    pub properties: P,
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// What lives inside another object: a subnet, a peering, a rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Child<P> {
    pub name: String,
    pub properties: P,
}

impl<P> Child<P> {
    pub fn new(name: &str, properties: P) -> Self {
        Self { name: name.to_owned(), properties }
    }
}

/// An object of a resource group as it is asked for.
#[derive(Serialize)]
pub struct Draft<P> {
    pub location: String,
    pub tags: Tags,
    pub sku: Option<Sku>,
    pub zones: Option<Vec<String>>,
    pub properties: P,
}

impl<P> Draft<P> {
    pub fn new(location: impl Into<String>, tags: Tags, properties: P) -> Self {
        Self { location: location.into(), tags, sku: None, zones: None, properties }
    }
}

/// What a thing is sold as.
#[derive(Clone, Serialize, Deserialize)]
pub struct Sku {
    pub name: String,
    pub tier: Option<String>,
}

/// How far an object is. Who says nothing is done. Only Azure sets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum State {
    #[default]
    Succeeded,
    Failed,
    Canceled,
    Creating,
    Deleting,
    /// Something else is done to it.
    #[serde(other)]
    Working,
}

impl State {
    /// Whether work on it is over, well or not.
    pub fn is_settled(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Canceled)
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_none()
    }
}

/// Azure does not tell upper from lower case in the names of tags.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tags(pub BTreeMap<String, String>);

impl Tags {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value.as_str())
    }

    /// None too if it cannot be one: somebody wrote something else.
    pub fn parsed<T: FromStr>(&self, key: &str) -> Option<T> {
        self.get(key)?.parse().ok()
    }

    pub fn set(&mut self, key: &str, value: &str) {
        self.0.retain(|name, _| !name.eq_ignore_ascii_case(key));
        self.0.insert(key.to_owned(), value.to_owned());
    }
}

/// A page of a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Page<K> {
    pub value: Vec<K>,
    pub next_link: Option<String>,
}
