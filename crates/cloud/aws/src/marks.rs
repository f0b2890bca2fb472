//! How objects of ours are recognised: by tags, all set in the request that makes them.

use cloud_api::CloudError;
use model::Site;
use serde_json::{Value, json};

/// EC2's bound on the value of a tag.
const LONGEST_VALUE: usize = 256;

/// Who owns an object, and what it is for.
#[derive(Clone, Debug)]
pub(crate) struct Marks<'m> {
    pub(crate) owner: &'m str,
    pub(crate) site: &'m Site,
}

impl Marks<'_> {
    /// Filters that find objects of ours with these further tags.
    pub(crate) fn filters(&self, more: &[(&str, &str)]) -> Value {
        let site = self.site.to_string();
        let of_site: Vec<_> = [("site", site.as_str())].into_iter().chain(more.iter().copied()).collect();
        self.filters_of_any_site(&of_site)
    }

    /// The same, whichever site they were made for.
    pub(crate) fn filters_of_any_site(&self, more: &[(&str, &str)]) -> Value {
        let filter =
            |(key, value): (&str, &str)| json!({"Name": format!("tag:trestle:{key}"), "Value": [value]});
        [("owner", self.owner)].into_iter().chain(more.iter().copied()).map(filter).collect()
    }

    /// Whether an object was made for the site.
    pub(crate) fn own(&self, object: &Value) -> bool {
        mark(object, "owner") == Some(self.owner) && mark(object, "site") == Some(&self.site.to_string())
    }

    /// Whether an object was adopted for the site.
    pub(crate) fn adopts(&self, object: &Value) -> bool {
        mark(object, "adopted-by") == Some(&self.adopter())
    }

    /// Who adopted a network, as the value of a tag.
    pub(crate) fn adopter(&self) -> String {
        format!("{}/{}", self.owner, self.site)
    }

    /// The tags of a new object. `Name` is what people see in the console.
    pub(crate) fn specification(
        &self,
        kind: &str,
        name: &str,
        more: &[(&str, &str)],
    ) -> Result<Value, CloudError> {
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
        let tags = all.iter().map(|(key, value)| json!({"Key": format!("trestle:{key}"), "Value": value}));
        let tags: Vec<Value> = tags.chain([json!({"Key": "Name", "Value": shown})]).collect();
        Ok(json!([{"ResourceType": kind, "Tag": tags}]))
    }
}

/// The value of one of our tags.
pub(crate) fn mark<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    let wanted = format!("trestle:{key}");
    crate::api::items(&object["tagSet"]).find(|tag| tag["key"] == wanted.as_str())?["value"].as_str()
}
