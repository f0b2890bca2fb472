//! Clients of OCS's releases: what they say of themselves, and which kind of answers they read.
//!
//! In: the fields of their requests. Out: a [`Client`] that is kept with its consumer, and what the one field means that
//! changed its meaning. Not here: the OCS design's clients, which say nothing of themselves.
//!
//! ```text
//!   release       field 2   field 3
//!   4.10 to 4.13  name      capacity, "1Ti"        answered with what was granted
//!   4.14 to 4.18  name      version, "4.16.2"      the capacity is the ticket's
//!   4.19 on       name, mostly empty; version; then six fields more
//! ```

use serde::{Deserialize, Serialize};

use crate::{
    capacity::{Capacity, CapacityError, CapacityForm},
    quantity::Quantity,
};

/// Longest word of a client about itself: longer than any name of Kubernetes.
const LONGEST: usize = 253;
/// Longest name of a namespace.
const LABEL: usize = 63;

/// What a client says of itself. Empty: it does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Client {
    pub name: String,
    /// The UID of its StorageClient: who shows a used ticket again must have the same.
    pub id: String,
    pub operator_version: String,
    pub platform_version: String,
    /// Where the objects of its desired state go.
    pub operator_namespace: String,
    pub cluster_id: String,
    pub cluster_name: String,
}

/// Why it cannot be what a client says of itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    #[error("{field} is longer than {LONGEST} bytes or has control characters")]
    Text { field: &'static str },
    #[error("{field} {text:?} is no version such as 4.16.2")]
    Version { field: &'static str, text: String },
    #[error("clientOperatorNamespace {text:?} is no name of a namespace")]
    Namespace { text: String },
    #[error("field 3 {text:?} is neither a capacity such as 1Ti nor a version such as 4.16.2")]
    NeitherCapacityNorVersion { text: String },
}

impl Client {
    pub fn check(&self) -> Result<(), ClientError> {
        for (field, text) in self.fields() {
            if text.len() > LONGEST || text.chars().any(char::is_control) {
                return Err(ClientError::Text { field });
            }
        }
        for (field, text) in [
            ("clientOperatorVersion", &self.operator_version),
            ("clientPlatformVersion", &self.platform_version),
        ] {
            if !text.is_empty() && !is_version(text) {
                return Err(ClientError::Version { field, text: text.clone() });
            }
        }
        if !self.operator_namespace.is_empty() && !is_label(&self.operator_namespace) {
            return Err(ClientError::Namespace { text: self.operator_namespace.clone() });
        }
        Ok(())
    }

    /// What is known after it has said this, too: what it leaves out stays.
    #[must_use]
    pub fn told(&self, news: &Self) -> Self {
        let newer = |old: &String, new: &String| if new.is_empty() { old.clone() } else { new.clone() };
        Self {
            name: newer(&self.name, &news.name),
            id: newer(&self.id, &news.id),
            operator_version: newer(&self.operator_version, &news.operator_version),
            platform_version: newer(&self.platform_version, &news.platform_version),
            operator_namespace: newer(&self.operator_namespace, &news.operator_namespace),
            cluster_id: newer(&self.cluster_id, &news.cluster_id),
            cluster_name: newer(&self.cluster_name, &news.cluster_name),
        }
    }

    /// Whether this may be the client of a consumer that `other` was onboarded as.
    pub fn may_be(&self, other: &Self) -> bool {
        self.id.is_empty() || other.id.is_empty() || self.id == other.id
    }

    /// The channel its operator is in: we have none to move it to. Empty: its version is not known.
    pub fn channel(&self) -> String {
        let mut parts = self.operator_version.split('.');
        match (parts.next(), parts.next()) {
            (Some(major), Some(minor)) => format!("stable-{major}.{minor}"),
            _ => String::new(),
        }
    }

    fn fields(&self) -> [(&'static str, &str); 7] {
        [
            ("consumerName or clientName", &self.name),
            ("clientID", &self.id),
            ("clientOperatorVersion", &self.operator_version),
            ("clientPlatformVersion", &self.platform_version),
            ("clientOperatorNamespace", &self.operator_namespace),
            ("clusterID", &self.cluster_id),
            ("clusterName", &self.cluster_name),
        ]
    }
}

/// What field 3 of a client's onboarding says: until 4.13 a capacity, afterwards a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Third {
    Nothing,
    Capacity(Capacity),
    Version(String),
}

impl Third {
    pub fn read(text: &str) -> Result<Self, ThirdError> {
        if text.is_empty() {
            return Ok(Self::Nothing);
        }
        if is_version(text) {
            return Ok(Self::Version(text.to_owned()));
        }
        if text.parse::<Quantity>().is_err() {
            return Err(ClientError::NeitherCapacityNorVersion { text: text.to_owned() }.into());
        }
        Ok(Self::Capacity(Capacity::parse(text, CapacityForm::Text)?))
    }
}

/// Why field 3 says nothing that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThirdError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Capacity(#[from] CapacityError),
}

/// Three numbers joined by dots, and what semantic versions may have after them. No quantity has two dots.
fn is_version(text: &str) -> bool {
    let core = text.split(['-', '+']).next().unwrap_or_default();
    let is_number =
        |part: &str| !part.is_empty() && part.len() < 10 && part.bytes().all(|byte| byte.is_ascii_digit());
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+');
    core.split('.').count() == 3 && core.split('.').all(is_number) && text.bytes().all(legal)
}

fn is_label(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= LABEL && text.bytes().all(legal) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_field_is_told_apart_by_what_it_says() {
        assert_eq!(Third::read(""), Ok(Third::Nothing));
        for version in ["4.14.0", "4.16.2-rhodf", "4.19.0-0+abc", "5.0.0"] {
            assert_eq!(Third::read(version), Ok(Third::Version(version.to_owned())));
        }
        for capacity in ["1Ti", "4.14", "1073741824", "1e9", "1.5Gi"] {
            assert!(matches!(Third::read(capacity), Ok(Third::Capacity(_))), "{capacity}");
        }
        for neither in ["consumer-one", "4.14.x", "1.2.3.4", "4..1", " 1Ti", "4.14.0\n"] {
            let error = Third::read(neither).unwrap_err();
            assert!(error.to_string().starts_with("field 3"), "{error}");
        }
        assert!(matches!(Third::read("0"), Err(ThirdError::Capacity(CapacityError::NotPositive { .. }))));
    }

    #[test]
    fn what_a_client_says_is_bounded_and_named_where_it_is_wrong() {
        let said = |client: Client| client.check().map_err(|error| error.to_string());
        assert_eq!(said(Client::default()), Ok(()));
        let long = "x".repeat(254);
        for (client, field) in [
            (Client { id: long.clone(), ..Client::default() }, "clientID"),
            (Client { name: "a\nb".into(), ..Client::default() }, "consumerName or clientName"),
            (Client { operator_version: "new".into(), ..Client::default() }, "clientOperatorVersion"),
            (Client { platform_version: "4.x".into(), ..Client::default() }, "clientPlatformVersion"),
            (Client { operator_namespace: "A/b".into(), ..Client::default() }, "clientOperatorNamespace"),
        ] {
            let error = said(client).unwrap_err();
            assert!(error.starts_with(field), "{error}");
        }
    }

    #[test]
    fn news_leave_what_they_do_not_mention() {
        let known = Client { id: "u".into(), operator_version: "4.18.1".into(), ..Client::default() };
        let news = Client { operator_version: "4.19.0".into(), ..Client::default() };
        let now = known.told(&news);
        assert_eq!((now.id.as_str(), now.operator_version.as_str()), ("u", "4.19.0"));
        assert_eq!((now.channel(), Client::default().channel()), ("stable-4.19".into(), String::new()));
        assert!(now.may_be(&Client::default()) && !now.may_be(&Client { id: "v".into(), ..now.clone() }));
    }
}
