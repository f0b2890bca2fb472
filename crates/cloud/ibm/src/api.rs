//! One request to IBM's VPC, transit gateway or Kubernetes Service API.
//!
//! In: a [`Call`]. Out: an answer of a known shape. Holds: the client, and the list of regions. Not here: objects that are
//! listed, made and waited for (`objects`).

use cloud_api::CloudError;
use cloud_http::{
    Class, Client, Clock, Failure, Rates, Reply, Request, World, auth::ibm::IbmTokens, if_there, or_gone,
    read_json,
};
use http::Method;
use model::Segment;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::Result;
use crate::dialect::IbmDialect;
use crate::shapes::{Regions, Zones};

/// How the plugin is set up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IbmOptions {
    /// Where the VPC API is; `{region}` in it stands for a region's name.
    pub endpoint: Option<String>,
    /// Where the transit gateway API is.
    pub transit_endpoint: Option<String>,
    /// Where the Kubernetes Service's API is.
    pub containers_endpoint: Option<String>,
    /// The resource group, by id, of namespaces that name none; the account's default one otherwise.
    pub resource_group: Option<String>,
    /// Regions to look at; all of the account by default.
    pub regions: Option<Vec<Segment>>,
    /// Whether descriptions of private endpoints are taken.
    pub private_endpoints: bool,
    /// Whether descriptions of managed Kubernetes clusters are taken.
    pub kubernetes_clusters: bool,
    /// Marks what this controller made. Two controllers on one account need two owners.
    pub owner: Option<String>,
    /// PEM file of a CA to trust instead of the machine's.
    pub ca: Option<std::path::PathBuf>,
}

const ENDPOINT: &str = "https://{region}.iaas.cloud.ibm.com/v1";
const TRANSIT: &str = "https://transit.cloud.ibm.com/v1";
const CONTAINERS: &str = "https://containers.cloud.ibm.com/global";
/// The date whose behaviour is asked for: BGP, names of rules, and `icmp_tcp_udp` for what was `all`.
const VERSION: &str = "2026-09-15";
const RATES: Rates = Rates { read: 10.0, write: 10.0 };

/// Which API, and where.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place<'p> {
    Region(&'p str),
    Transit,
    /// The Kubernetes Service's, which is told a resource group in a header.
    Containers(Option<&'p str>),
}

/// What is asked: an operation by IBM's name for it, `is.create_vpc`.
pub(crate) struct Call<'c> {
    place: Place<'c>,
    pub(crate) operation: String,
    method: Method,
    path: String,
    body: Option<serde_json::Result<String>>,
}

impl<'c> Call<'c> {
    pub(crate) fn new(place: Place<'c>, operation: &str, method: Method, path: impl Into<String>) -> Self {
        let service = match place {
            Place::Region(_) => "is",
            Place::Transit => "transit",
            Place::Containers(_) => "containers",
        };
        Self { place, operation: format!("{service}.{operation}"), method, path: path.into(), body: None }
    }

    pub(crate) fn get(place: Place<'c>, operation: &str, path: impl Into<String>) -> Self {
        Self::new(place, operation, Method::GET, path)
    }

    pub(crate) fn body(self, body: &impl Serialize) -> Self {
        Self { body: Some(serde_json::to_string(body)), ..self }
    }
}

pub(crate) struct Api {
    client: Client,
    endpoint: String,
    transit: String,
    containers: String,
    given_regions: Option<Vec<Segment>>,
    regions: tokio::sync::OnceCell<Vec<String>>,
}

impl Api {
    pub(crate) fn new(options: &IbmOptions, world: World) -> Result<Self> {
        // The same variables that IBM's Terraform provider takes.
        let chosen = |option, variable, usual| world.environment.endpoint(option, variable, usual);
        let endpoint = chosen(&options.endpoint, "IBMCLOUD_IS_NG_API_ENDPOINT", ENDPOINT);
        let transit = chosen(&options.transit_endpoint, "IBMCLOUD_TG_API_ENDPOINT", TRANSIT);
        let containers = chosen(&options.containers_endpoint, "IBMCLOUD_CS_API_ENDPOINT", CONTAINERS);
        let (ca, source) = (options.ca.as_deref(), IbmTokens::new);
        let client = Client::bearing("IBM Cloud", world, ca, IbmDialect, RATES, None, source)?;
        let given_regions = options.regions.clone();
        Ok(Self { client, endpoint, transit, containers, given_regions, regions: Default::default() })
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.client.clock()
    }

    /// One request. Names make a change safe to send again.
    pub(crate) async fn send(&self, call: Call<'_>) -> Result<Reply, Failure> {
        let (path, operation) = (call.path, call.operation);
        let mark = if path.contains('?') { '&' } else { '?' };
        let (scope, url) = match call.place {
            Place::Region(region) => {
                let base = self.endpoint.replace("{region}", region);
                (region, format!("{base}/{path}{mark}version={VERSION}&generation=2"))
            }
            Place::Transit => ("transit", format!("{}/{path}{mark}version={VERSION}", self.transit)),
            Place::Containers(_) => ("containers", format!("{}/{path}", self.containers)),
        };
        let mut request = Request::new(&operation, call.method, url).scope(scope).safe();
        if let Place::Containers(Some(group)) = call.place {
            request.header(http::HeaderName::from_static("x-auth-resource-group"), group);
        }
        if let Some(body) = call.body {
            let unwritten = |err: serde_json::Error| Failure::Unreadable {
                operation,
                message: format!("the request: {err}"),
            };
            request = request.body("application/json", body.map_err(unwritten)?);
        }
        self.client.call(request).await
    }

    /// The answer to a request, of a known shape.
    pub(crate) async fn ask<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<T, Failure> {
        let operation = call.operation.clone();
        read_json(&operation, &self.send(call).await?)
    }

    /// The same; none if what is asked for is not there.
    pub(crate) async fn look<T: DeserializeOwned>(&self, call: Call<'_>) -> Result<Option<T>, Failure> {
        if_there(self.ask(call).await)
    }

    /// Takes something away, which may be gone already.
    pub(crate) async fn take_away(&self, call: Call<'_>) -> Result<(), Failure> {
        or_gone(self.send(call).await)
    }

    /// The regions to look at.
    pub(crate) async fn regions(&self) -> Result<&[String]> {
        let find = || async {
            if let Some(given) = &self.given_regions {
                return Ok(given.iter().map(ToString::to_string).collect());
            }
            let found: Regions =
                self.ask(Call::get(Place::Region("us-south"), "list_regions", "regions")).await?;
            let usable = found.regions.into_iter().filter(|region| region.status != "unavailable");
            Ok::<_, CloudError>(usable.map(|region| region.name).collect())
        };
        self.regions.get_or_try_init(find).await.map(Vec::as_slice)
    }

    /// The zones of a region, in order.
    pub(crate) async fn zones(&self, region: &str) -> Result<Vec<String>> {
        let call = Call::get(Place::Region(region), "list_region_zones", format!("regions/{region}/zones"));
        let found: Zones = match self.ask(call).await {
            Err(failure) if failure.is(Class::NotFound) => {
                return Err(CloudError::invalid(format!("IBM Cloud has no region {region}: {failure}")));
            }
            answer => answer?,
        };
        let usable =
            found.zones.into_iter().filter(|zone| ["available", "impaired"].contains(&zone.status.as_str()));
        let mut names: Vec<String> = usable.map(|zone| zone.name).collect();
        names.sort();
        match names.is_empty() {
            true => {
                Err(CloudError::conflict(format!("the region {region} of IBM Cloud has no zone in service")))
            }
            false => Ok(names),
        }
    }
}
