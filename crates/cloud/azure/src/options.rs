//! How the plugin is set up.

use cloud_api::CloudError;
use cloud_http::auth::Environment;
use ipnet::Ipv4Net;
use serde::Deserialize;

use crate::names::group_path;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AzureOptions {
    /// Where the resource manager is: `https://management.azure.com` by default.
    pub endpoint: Option<String>,
    /// The subscription and the resource group of namespaces that name none.
    pub subscription: Option<String>,
    pub resource_group: Option<String>,
    /// Whether descriptions of managed Kubernetes clusters are taken.
    pub kubernetes_clusters: bool,
    /// Marks what this controller made. Two controllers on one resource group need two owners.
    pub owner: Option<String>,
    /// Where gateways stand, a /27 or larger that no network may have: 100.127.255.224/27 by default.
    pub gateway_space: Option<Ipv4Net>,
    /// What VPN gateways are sold as: `VpnGw1AZ` by default.
    pub gateway_sku: Option<String>,
    /// Zones of the gateways' public addresses: 1, 2 and 3 by default; none where a region has none.
    pub zones: Option<Vec<String>>,
    /// A token to use as it is, instead of looking for credentials.
    #[serde(skip)]
    pub token: Option<String>,
    /// PEM file of a CA to trust instead of the machine's.
    pub ca: Option<std::path::PathBuf>,
}

/// Where gateways stand if nothing else was said: the last of the addresses that providers share (RFC 6598), which
/// Azure takes for networks and pools of private addresses do not hold.
const GATEWAY_SPACE: Ipv4Net = Ipv4Net::new_assert(std::net::Ipv4Addr::new(100, 127, 255, 224), 27);

/// What the options come to, for all sites.
pub struct Settings {
    pub owner: String,
    pub gateway_space: Ipv4Net,
    pub gateway_sku: String,
    pub zones: Vec<String>,
    /// `/subscriptions/S/resourceGroups/G` of namespaces that name none.
    pub group: Option<String>,
    pub makes_clusters: bool,
}

impl Settings {
    pub fn of(options: &AzureOptions, environment: &Environment) -> Result<Self, CloudError> {
        let subscription = options.subscription.clone().or_else(|| environment.get("AZURE_SUBSCRIPTION_ID"));
        let group = options.resource_group.clone().or_else(|| environment.get("AZURE_RESOURCE_GROUP"));
        let group = subscription.zip(group).map(|(subscription, group)| group_path(&subscription, &group));
        let gateway_space = options.gateway_space.unwrap_or(GATEWAY_SPACE);
        if gateway_space.prefix_len() > 27 {
            return Err(CloudError::invalid(format!(
                "gateways of Azure do not fit into {gateway_space}: a /27 or larger is needed"
            )));
        }
        Ok(Self {
            owner: options.owner.clone().unwrap_or_else(|| "trestle".to_owned()),
            gateway_space,
            gateway_sku: options.gateway_sku.clone().unwrap_or_else(|| "VpnGw1AZ".to_owned()),
            zones: options.zones.clone().unwrap_or_else(|| ["1", "2", "3"].map(str::to_owned).to_vec()),
            group: group.transpose()?,
            makes_clusters: options.kubernetes_clusters,
        })
    }
}
