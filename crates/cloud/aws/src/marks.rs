//! How objects of ours are recognised: by tags, all set in the request that makes them.

use cloud_api::CloudError;
use model::Site;
use serde::Serialize;

use crate::{
    kinds::{Ec2Kind, Tagged},
    shapes::{NewTag, TagSpecification, Tags},
};

/// EC2's bound on the value of a tag.
const LONGEST_VALUE: usize = 256;

/// Passes objects of which something is one of some values.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Filter {
    name: String,
    value: Vec<String>,
}

impl Filter {
    pub(crate) fn new<V: Into<String>>(name: impl Into<String>, values: impl IntoIterator<Item = V>) -> Self {
        Self { name: name.into(), value: values.into_iter().map(Into::into).collect() }
    }
}

/// Who owns an object, and what it is for.
#[derive(Clone, Debug)]
pub(crate) struct Marks<'m> {
    pub(crate) owner: &'m str,
    pub(crate) site: &'m Site,
}

impl Marks<'_> {
    /// Filters that find objects of ours with these further tags.
    pub(crate) fn filters(&self, more: &[(&str, &str)]) -> Vec<Filter> {
        let mut filters = self.filters_of_any_site(more);
        filters.insert(1, Filter::new("tag:trestle:site", [self.site.to_string()]));
        filters
    }

    /// The same, whichever site they were made for.
    pub(crate) fn filters_of_any_site(&self, more: &[(&str, &str)]) -> Vec<Filter> {
        let all = [("owner", self.owner)].into_iter().chain(more.iter().copied());
        all.map(|(key, value)| Filter::new(format!("tag:trestle:{key}"), [value])).collect()
    }

    /// Whether an object was made for the site.
    pub(crate) fn own(&self, object: &impl Tagged) -> bool {
        mark(object, "owner") == Some(self.owner) && mark(object, "site") == Some(&self.site.to_string())
    }

    /// Whether an object was adopted for the site.
    pub(crate) fn adopts(&self, object: &impl Tagged) -> bool {
        mark(object, "adopted-by") == Some(&self.adopter())
    }

    /// Who adopted a network, as the value of a tag.
    pub(crate) fn adopter(&self) -> String {
        format!("{}/{}", self.owner, self.site)
    }

    /// The tags of a new object. `Name` is what people see in the console.
    pub(crate) fn tags<K: Ec2Kind>(&self, name: &str, more: &[(&str, &str)]) -> Result<Tags, CloudError> {
        let site = self.site.to_string();
        let own = [("owner", self.owner), ("site", site.as_str())];
        let all: Vec<_> = own.into_iter().chain(more.iter().copied()).collect();
        if let Some((key, value)) = all.iter().find(|(_, value)| value.len() > LONGEST_VALUE) {
            return Err(CloudError::invalid(format!(
                "the {key} {value} is {} characters long; AWS keeps at most {LONGEST_VALUE} in a tag. Use shorter names",
                value.len()
            )));
        }
        let shown: String = format!("trestle {site} {name}").chars().take(LONGEST_VALUE).collect();
        let mut tag: Vec<NewTag> = all.iter().map(|(key, value)| new_mark(key, *value)).collect();
        tag.push(NewTag { key: "Name".to_owned(), value: Some(shown) });
        Ok([TagSpecification { resource_type: K::TAGGED, tag }])
    }
}

/// One of our tags, to be set.
pub(crate) fn new_mark(key: &str, value: impl Into<String>) -> NewTag {
    NewTag { key: format!("trestle:{key}"), value: Some(value.into()) }
}

/// One of our tags, to be taken away.
pub(crate) fn old_mark(key: &str) -> NewTag {
    NewTag { key: format!("trestle:{key}"), value: None }
}

/// The value of one of our tags.
pub(crate) fn mark<'o>(object: &'o impl Tagged, key: &str) -> Option<&'o str> {
    let tag = object.tags().iter().find(|tag| tag.key.strip_prefix("trestle:") == Some(key))?;
    Some(&tag.value)
}
