//! Clusters of Kubernetes Engine, as it tells them. What is said of one is what a user wrote, and more
//! ([`crate::clusters::description`]).

use cloud_http::{Kind, Pace, Phase};
use serde::{Deserialize, Serialize};

use crate::mark::Remark;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cluster {
    pub name: String,
    #[serde(default)]
    pub description: Remark,
    /// A region or a zone.
    pub location: String,
    #[serde(default)]
    pub status: String,
    #[serde(default)]
    status_message: String,
    #[serde(default)]
    conditions: Vec<Condition>,
    #[serde(default)]
    pub autopilot: Autopilot,
    #[serde(default)]
    pub node_pool_auto_config: AutoConfig,
    #[serde(default)]
    pub node_pools: Vec<Pool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Condition {
    #[serde(default)]
    message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Autopilot {
    pub enabled: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct AutoConfig {
    pub network_tags: NodeTags,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NodeTags {
    pub tags: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Pool {
    pub name: String,
    #[serde(default)]
    pub config: NodeTags,
}

impl Kind for Cluster {
    const NAME: &'static str = "cluster";
    const PACE: Pace = Pace::SLOW;

    /// One in error is there, and may be somebody's: it is not made anew by itself.
    fn phase(&self) -> Phase {
        match self.status.as_str() {
            "PROVISIONING" | "STATUS_UNSPECIFIED" | "" => Phase::Coming,
            "STOPPING" => Phase::Going,
            _ => Phase::Ready,
        }
    }
}

impl Cluster {
    /// Whether it is being changed, by whomever; Google takes no other change meanwhile.
    pub(crate) fn is_changing(&self) -> bool {
        self.phase() != Phase::Ready || self.status == "RECONCILING"
    }

    /// What Google says is wrong with one in error.
    pub(crate) fn failure(&self) -> Option<&str> {
        let told = self.conditions.iter().map(|one| &one.message).take(1).chain([&self.status_message]);
        let told = told.map(String::as_str).find(|text| !text.is_empty());
        (self.status == "ERROR").then_some(told.unwrap_or("Google does not say why"))
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Clusters {
    pub clusters: Vec<Cluster>,
    pub missing_zones: Vec<String>,
}

#[derive(Serialize)]
pub(crate) struct NewCluster<'c, B> {
    pub cluster: &'c B,
}
