//! The kinds of objects that are listed, made, waited for and deleted, as a table; and how one is made true.
//!
//! IBM's objects have an id that IBM chooses, so they are found by name in lists, page after page; afterwards by their id.
//! Deciding what to do with what is found is `cloud_http`'s ([`cloud_http::ensure_from`]).

use std::{fmt, marker::PhantomData, time::Duration};

use async_trait::async_trait;
use cloud_http::{
    Class, Clock, Failure, Fit, Objects, Pace, Phase, Reply, Wanted, ensure_from, gone, read_json,
};
use futures::future::try_join_all;
use http::Method;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Result,
    api::{Api, Call, Place},
    shapes::*,
};

/// How long something may stay in use by what is on its way out.
const PATIENCE: Duration = Duration::from_secs(300);

/// A kind of object, by the type that its objects are read as.
pub(crate) trait Listed: cloud_http::Kind + DeserializeOwned + 'static {
    /// `subnet`, as in `create_subnet`.
    const ONE: &'static str;
    /// `vpc_address_prefixes`, as in `list_vpc_address_prefixes`.
    const MANY: &'static str;
    /// `address_prefixes`, as in paths and lists.
    const COLLECTION: &'static str;
    /// Whether it has a state: it is not there at once, nor gone at once.
    const HAS_STATE: bool;
    /// What one is asked for as.
    type Request: Serialize + Send + Sync + 'static;

    fn id(&self) -> &str;
    fn name(&self) -> &str;
    fn requested_name(request: &Self::Request) -> &str;
    fn read_page(operation: &str, reply: &Reply) -> Result<Page<Self>, Failure>;

    /// Not deleted, nor being deleted.
    fn is_alive(&self) -> bool {
        self.phase() != Phase::Going
    }

    fn is_ready(&self) -> bool {
        self.phase() == Phase::Ready
    }
}

/// One answer to a list.
pub(crate) struct Page<K> {
    objects: Vec<K>,
    next: Option<Next>,
}

/// Where the next page is.
#[derive(Debug, Deserialize)]
pub(crate) struct Next {
    href: String,
}

impl Next {
    /// The token in its address.
    fn start(&self) -> Option<&str> {
        let (_, query) = self.href.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix("start="))
    }
}

/// How far an object is, by the fields that tell. The first says when it is ready.
fn phase(states: &[&String], ready: &str) -> Phase {
    let is = |words: &[&str]| states.iter().any(|state| words.contains(&state.as_str()));
    match states.first() {
        None => Phase::Ready,
        _ if is(&["deleting", "detaching", "detached"]) => Phase::Going,
        _ if is(&["failed"]) => Phase::Failed("IBM Cloud says no more than that it failed".to_owned()),
        Some(state) if **state == ready => Phase::Ready,
        Some(_) => Phase::Coming,
    }
}

macro_rules! kinds {
    ($($kind:ident $request:ident $name:literal $one:literal $many:literal $collection:literal [$($state:ident)*] $ready:literal $pace:ident)*) => {$(
        impl cloud_http::Kind for $kind {
            const NAME: &'static str = $name;
            const PACE: Pace = Pace::$pace;

            fn phase(&self) -> Phase {
                phase(&[$(&self.$state),*], $ready)
            }
        }

        impl Listed for $kind {
            const ONE: &'static str = $one;
            const MANY: &'static str = $many;
            const COLLECTION: &'static str = $collection;
            const HAS_STATE: bool = !$ready.is_empty();
            type Request = $request;

            fn id(&self) -> &str {
                &self.id
            }

            fn name(&self) -> &str {
                &self.name
            }

            fn requested_name(request: &$request) -> &str {
                &request.name
            }

            fn read_page(operation: &str, reply: &Reply) -> Result<Page<Self>, Failure> {
                #[derive(Deserialize)]
                struct List {
                    #[serde(rename = $collection)]
                    objects: Vec<$kind>,
                    next: Option<Next>,
                }
                let List { objects, next } = read_json(operation, reply)?;
                Ok(Page { objects, next })
            }
        }
    )*};
}

// Whose an object is, stands in its name (`names`): owner and site. An object goes before what it is in or on: rules and
// bindings before groups, instances and endpoints before their groups and subnets, connections before gateways, joints
// before what they join, NAT and gateways off their subnets; and everything before its VPC, with which go its address
// prefixes and groups.
kinds! {
//  read as         asked for as      called                     operations                   listed by                     in lists and paths   state                     ready        looked at
    Vpc             VpcRequest        "VPC"                      "vpc"                        "vpcs"                        "vpcs"               [status]                  "available"  QUICK
    AddressPrefix   PrefixRequest     "address prefix"           "vpc_address_prefix"         "vpc_address_prefixes"        "address_prefixes"   []                        ""           QUICK
    Subnet          SubnetRequest     "subnet"                   "subnet"                     "subnets"                     "subnets"            [status]                  "available"  QUICK
    PublicGateway   NatRequest        "public gateway"           "public_gateway"             "public_gateways"             "public_gateways"    [status]                  "available"  QUICK
    SecurityGroup   GroupRequest      "security group"           "security_group"             "security_groups"             "security_groups"    []                        ""           QUICK
    GroupRule       RuleRequest       "rule of a security group" "security_group_rule"        "security_group_rules"        "rules"              []                        ""           QUICK
    Instance        InstanceRequest   "instance"                 "instance"                   "instances"                   "instances"          [status lifecycle_state]  "running"    QUICK
    EndpointGateway EndpointRequest   "endpoint gateway"         "endpoint_gateway"           "endpoint_gateways"           "endpoint_gateways"  [lifecycle_state]         "stable"     QUICK
    IkePolicy       IkeRequest        "IKE policy"               "ike_policy"                 "ike_policies"                "ike_policies"       []                        ""           QUICK
    IpsecPolicy     IpsecRequest      "IPsec policy"             "ipsec_policy"               "ipsec_policies"              "ipsec_policies"     []                        ""           QUICK
    VpnGateway      VpnRequest        "VPN gateway"              "vpn_gateway"                "vpn_gateways"                "vpn_gateways"       [lifecycle_state]         "stable"     SLOW
    VpnConnection   ConnectionRequest "VPN connection"           "vpn_gateway_connection"     "vpn_gateway_connections"     "connections"        []                        ""           QUICK
    TransitGateway  TransitRequest    "transit gateway"          "transit_gateway"            "transit_gateways"            "transit_gateways"   [status]                  "available"  QUICK
    Joint           JointRequest      "joint"                    "transit_gateway_connection" "transit_gateway_connections" "connections"        [status]                  "attached"   QUICK
}

/// Objects of a kind, in one place.
pub(crate) struct Collection<'a, K> {
    api: &'a Api,
    /// None: of the transit gateway API, which is one for all regions.
    region: Option<&'a str>,
    path: String,
    /// Which of them are listed.
    filter: String,
    kind: PhantomData<fn() -> K>,
}

impl Api {
    pub(crate) fn in_region<'a, K: Listed>(&'a self, region: &'a str) -> Collection<'a, K> {
        Collection { region: Some(region), ..self.transit() }
    }

    pub(crate) fn transit<K: Listed>(&self) -> Collection<'_, K> {
        let (path, filter) = (K::COLLECTION.to_owned(), String::new());
        Collection { api: self, region: None, path, filter, kind: PhantomData }
    }
}

impl<K: Listed> Collection<'_, K> {
    /// Those that belong to another object.
    pub(crate) fn of<P: Listed>(self, parent: &str) -> Self {
        Self { path: format!("{}/{parent}/{}", P::COLLECTION, K::COLLECTION), ..self }
    }

    /// Those that have a value in a field.
    pub(crate) fn with(self, field: &str, value: &str) -> Self {
        Self { filter: format!("{field}={value}"), ..self }
    }

    fn call(&self, operation: impl Into<String>, method: Method, path: impl Into<String>) -> Call<'_> {
        Call::new(self.region.map_or(Place::Transit, Place::Region), operation, method, path)
    }

    fn call_one(&self, verb: &str, method: Method, id: &str) -> Call<'_> {
        self.call(format!("{verb}_{}", K::ONE), method, format!("{}/{id}", self.path))
    }

    /// All of them, page after page, a hundred at a time, which is the most there is. Rules come all at once.
    pub(crate) async fn list(&self) -> Result<Vec<K>, Failure> {
        let operation = format!("list_{}", K::MANY);
        let limit = if K::ONE == GroupRule::ONE { "" } else { "limit=100" };
        let (mut found, mut start) = (Vec::new(), String::new());
        loop {
            let query = [self.filter.as_str(), limit, &start].into_iter().filter(|part| !part.is_empty());
            let query = query.collect::<Vec<_>>().join("&");
            let path = format!("{}?{query}", self.path);
            let call = self.call(&operation, Method::GET, path.trim_end_matches('?'));
            let page = K::read_page(&operation, &self.api.send(call).await?)?;
            found.extend(page.objects);
            let Some(next) = page.next.as_ref().and_then(Next::start) else { return Ok(found) };
            start = format!("start={next}");
        }
    }

    /// The one of a name. One that is on its way out only if there is no other.
    pub(crate) async fn find(&self, name: &str) -> Result<Option<K>, Failure> {
        let mut named = self.list().await?.into_iter().filter(|one| one.name() == name);
        let first = named.next();
        Ok(match first {
            Some(going) if !going.is_alive() => named.find(K::is_alive).or(Some(going)),
            first => first,
        })
    }

    /// The one of an id; none if there is no such.
    pub(crate) async fn get(&self, id: &str) -> Result<Option<K>, Failure> {
        self.api.look(self.call_one("get", Method::GET, id)).await
    }

    /// Makes the object of a request's name true, from what is known of it, and waits until it is ready.
    pub(crate) async fn ensure(&self, there: Option<K>, request: &K::Request) -> Result<K> {
        let name = K::requested_name(request);
        let spot =
            Spot { name: name.to_owned(), id: Mutex::new(there.as_ref().map(|one| one.id().to_owned())) };
        // Owner and site are in the name: what has it is ours, and as it was asked for.
        let wanted = Wanted { body: request, is_ours: &|one: &K| one.name() == name, fits: &|_| Fit::Yes };
        ensure_from(self, &spot, there, wanted).await
    }

    /// Changes some fields of the object of an id.
    pub(crate) async fn update(&self, id: &str, patch: &impl Serialize) -> Result {
        Ok(self.api.send(self.call_one("update", Method::PATCH, id).body(patch)).await.map(drop)?)
    }

    /// Deletes the object of an id, and waits until it is gone.
    pub(crate) async fn remove(&self, id: &str) -> Result {
        let spot = Spot { name: id.to_owned(), id: Mutex::new(Some(id.to_owned())) };
        Objects::delete(self, &spot).await?;
        if K::HAS_STATE { gone(self, &spot).await } else { Ok(()) }
    }

    /// The same for several, at once.
    pub(crate) async fn remove_all(&self, ids: impl IntoIterator<Item = &str> + Send) -> Result {
        try_join_all(ids.into_iter().map(|id| self.remove(id))).await.map(drop)
    }
}

/// Which object of a collection: that of a name, until its id is known.
pub(crate) struct Spot {
    name: String,
    id: Mutex<Option<String>>,
}

impl fmt::Display for Spot {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

#[async_trait]
impl<K: Listed> Objects<K> for Collection<'_, K> {
    type Address = Spot;
    type Body = K::Request;

    async fn get(&self, spot: &Spot) -> Result<Option<K>, Failure> {
        let id = spot.id.lock().clone();
        let found = match id {
            Some(id) => return Collection::get(self, &id).await,
            None => self.find(&spot.name).await?,
        };
        *spot.id.lock() = found.as_ref().map(|one| one.id().to_owned());
        Ok(found)
    }

    async fn put(&self, spot: &Spot, request: &K::Request) -> Result<Option<K>, Failure> {
        *spot.id.lock() = None;
        let call = self.call(format!("create_{}", K::ONE), Method::POST, &*self.path).body(request);
        match self.api.ask::<K>(call).await {
            Ok(made) => {
                *spot.id.lock() = Some(made.id().to_owned());
                Ok(Some(made))
            }
            // Perhaps it is there already, from a request whose answer was lost, and is in its own way by its addresses.
            Err(failure) if failure.is(Class::Invalid) => match Objects::get(self, spot).await? {
                None => Err(failure),
                there => Ok(there),
            },
            Err(failure) => Err(failure),
        }
    }

    /// It may still be in use for a moment by what is on its way out.
    async fn delete(&self, spot: &Spot) -> Result<(), Failure> {
        let Some(id) = spot.id.lock().clone() else { return Ok(()) };
        let (clock, mut pause) = (self.api.clock(), Duration::from_secs(2));
        let end = clock.now() + PATIENCE;
        loop {
            match self.api.take_away(self.call_one("delete", Method::DELETE, &id)).await {
                Err(failure) if failure.is(Class::InUse) && clock.now() < end => {
                    clock.sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(15));
                }
                outcome => return outcome,
            }
        }
    }

    fn clock(&self) -> &dyn Clock {
        self.api.clock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other() {
        let start = |href: &str| Next { href: href.to_owned() }.start().map(str::to_owned);
        assert_eq!(start("https://x/v1/vpcs?limit=2&start=abc%3D&generation=2").as_deref(), Some("abc%3D"));
        assert_eq!(start("https://x/v1/vpcs"), None);
    }
}
