//! Hosts as people see and remove them, over gRPC and REST alike. How they join is `access::join`.

use std::sync::Arc;

use drivers::hosts::{self, HostRecord};
use jiff::Timestamp;
use model::{Host, TagName};
use wire::trestle::v1::{HostInfo, RemoveHostResponse};

use crate::{
    access::{Credentials, join::forget_certificates},
    audit,
    failure::Failure,
};

/// Where hosts are known from, and what they have.
#[derive(Clone)]
pub struct Hosts {
    pub records: Arc<hosts::Hosts>,
    pub credentials: Arc<Credentials>,
}

impl Hosts {
    /// Every host there is, by name.
    pub fn list(&self) -> Vec<HostInfo> {
        self.records.list().iter().map(|record| info(record)).collect()
    }

    pub fn get(&self, name: &str) -> Result<HostInfo, Failure> {
        let name = parse(name)?;
        match self.records.get(&name) {
            Some(record) => Ok(info(&record)),
            None => Err(hosts::HostsError::NotFound { name }.into()),
        }
    }

    /// Takes everything away that makes a host one.
    pub async fn remove(&self, name: &str) -> Result<RemoveHostResponse, Failure> {
        let name = parse(name)?;
        let (record, change) =
            self.records.remove(&name, Timestamp::now().as_second(), forget_certificates).await?;
        audit::changed(change);
        Ok(RemoveHostResponse { notice: self.credentials.way_back(&record.host.joined.by) })
    }
}

fn parse(name: &str) -> Result<TagName, Failure> {
    Host::parse_name(name).map_err(|err| Failure::invalid(&err))
}

pub fn info(record: &HostRecord) -> HostInfo {
    let host = &record.host;
    HostInfo {
        name: host.name.to_string(),
        labels: host.labels.clone(),
        tags: host.tags.iter().map(ToString::to_string).collect(),
        tag: host.tag().to_string(),
        addresses: host.addresses.iter().map(ToString::to_string).collect(),
        fingerprint: host.fingerprint.to_string(),
        joined_by: host.joined.by.to_string(),
        joined_at: host.joined.at,
        certificate_until: record.certificate_until(),
    }
}
