//! References to objects, as Google writes them: `https://…/compute/v1/projects/P/regions/R/subnetworks/N`.

use std::{fmt, marker::PhantomData};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::kinds::Resource;

/// A place in a project: `projects/P/global`, `projects/P/regions/R`, `projects/P/zones/Z`, `projects/P/locations/L`.
#[derive(Clone, Debug)]
pub(crate) struct Place(String);

impl Place {
    pub(crate) fn global(project: &str) -> Self {
        Self(format!("projects/{project}/global"))
    }

    pub(crate) fn region(project: &str, region: &str) -> Self {
        Self(format!("projects/{project}/regions/{region}"))
    }

    pub(crate) fn zone(project: &str, zone: &str) -> Self {
        Self(format!("projects/{project}/zones/{zone}"))
    }

    pub(crate) fn path(&self) -> &str {
        &self.0
    }

    /// What kind of place it is: `global`, `regions`, `zones`.
    pub(crate) fn kind(&self) -> &str {
        self.0.split('/').nth(2).unwrap_or_default()
    }

    /// An object here.
    pub(crate) fn object<K: Resource>(&self, name: &str) -> Link<K> {
        format!("{}/{}/{name}", self.0, K::COLLECTION).as_str().into()
    }
}

/// A reference to an object of a kind. Two are the same if their paths are: the host that one may begin with says only
/// how it was asked for. Any text is one, since lists have references of others in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link<K = ()> {
    path: String,
    kind: PhantomData<fn() -> K>,
}

impl<K> Link<K> {
    /// `projects/…`, without a host.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The last part.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    pub(crate) fn place(&self) -> Place {
        let end = self.path.rmatch_indices('/').nth(1).map_or(0, |(end, _)| end);
        Place(self.path[..end].to_owned())
    }
}

impl<K> From<&str> for Link<K> {
    fn from(text: &str) -> Self {
        let start = text.find("projects/").unwrap_or_default();
        Self { path: text[start..].to_owned(), kind: PhantomData }
    }
}

impl<K> fmt::Display for Link<K> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.path)
    }
}

impl<K> Serialize for Link<K> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.path)
    }
}

impl<'de, K> Deserialize<'de> for Link<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(String::deserialize(from)?.as_str().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::Subnet;

    #[test]
    fn references_are_the_same_however_they_are_written() {
        let made = Place::region("p", "us-west1").object::<Subnet>("s");
        let told: Link<Subnet> =
            "https://www.googleapis.com/compute/v1/projects/p/regions/us-west1/subnetworks/s".into();
        assert_eq!(made, told);
        assert_eq!((told.name(), told.place().path()), ("s", "projects/p/regions/us-west1"));
        for odd in ["", "x", "projects/", "projects/p"] {
            let odd: Link = odd.into();
            assert_eq!(odd.place().path(), "");
        }
    }
}
