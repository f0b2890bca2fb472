//! Clusters of Kubernetes Engine, as it tells them. What is said of one is what a user wrote, and more
//! ([`crate::clusters::description`]).

use cloud_http::{Kind, Pace, Phase};

use crate::mark::Remark;

shapes! {
    Cluster {
        told {
            description: Remark,
            status: String,
            status_message: String,
            conditions: Vec<Condition>,
            autopilot: Autopilot,
            node_pool_auto_config: AutoConfig,
            node_pools: Vec<Pool>,
        }
        given {
            name: String,
            /// A region or a zone.
            location: String,
        }
    }

    Condition { told { message: String, } }

    Autopilot { told { enabled: bool, } }

    AutoConfig { told { network_tags: NodeTags, } }

    NodeTags { told { tags: Vec<String>, } }

    Pool { told { config: NodeTags, } given { name: String, } }

    Clusters { told { clusters: Vec<Cluster>, missing_zones: Vec<String>, } }
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
        let told = self.conditions.first().map(|one| &one.message).into_iter().chain([&self.status_message]);
        let told = told.map(String::as_str).find(|text| !text.is_empty());
        (self.status == "ERROR").then_some(told.unwrap_or("Google does not say why"))
    }
}
