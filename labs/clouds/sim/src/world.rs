//! All simulated clouds together, and the server in front of them.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use cloud_http::{Clock as _, auth::Environment};
use model::Packet;
use tokio::{net::TcpListener, task::JoinHandle};

use crate::{
    Fault, Faults, VirtualClock,
    aws::Ec2,
    azure::Azure,
    faults::Trouble,
    gcp::Gce,
    ibm::Ibm,
    record::Recorder,
    server::{self, Shared},
    wire::{Gateway, Host, Network, Trip, Wire},
};

/// One request that a cloud heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// `ec2:DescribeVpcs`, `Microsoft.Network/virtualNetworks/write`, `compute.networks.insert`, `is.create_vpc`.
    pub operation: String,
    pub status: u16,
}

/// A place of one's own on the wire, with one network, one gateway and one host, all of one name.
#[derive(Clone, Debug, Default)]
pub struct OwnSite {
    pub network: Network,
    pub gateway: Gateway,
    pub host: Host,
}

/// A machine that somebody else made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// As a user writes it to attach it.
    pub id: String,
    pub address: std::net::Ipv4Addr,
    /// The space of its network.
    pub space: ipnet::Ipv4Net,
}

#[derive(Default)]
pub(crate) struct World {
    pub(crate) aws: Ec2,
    /// As it was before the last change, for reads that come too early.
    pub(crate) aws_before: Ec2,
    pub(crate) aws_changed: u64,
    pub(crate) azure: Azure,
    pub(crate) gcp: Gce,
    /// What is no cloud, by name.
    pub(crate) sites: BTreeMap<String, OwnSite>,
    pub(crate) ibm: Ibm,
    pub(crate) trouble: Trouble,
    pub(crate) calls: Vec<Call>,
    pub(crate) recorder: Option<Recorder>,
    /// Answers of our own that do not fit the cloud's API description.
    pub(crate) defects: Vec<String>,
}

impl World {
    pub(crate) fn wire(&self) -> Wire {
        let mut wire = Wire::default();
        self.aws.join(&mut wire);
        self.azure.join(&mut wire);
        self.gcp.join(&mut wire);
        self.ibm.join(&mut wire);
        for (name, site) in &self.sites {
            wire.networks.insert(name.clone(), site.network.clone());
            wire.gateways.insert(name.clone(), site.gateway.clone());
            wire.hosts.push(site.host.clone());
        }
        wire
    }

    /// What was under way comes to its end, if it is time.
    pub(crate) fn settle(&mut self, now: u64) {
        self.aws.settle(now);
        self.azure.settle(now);
        self.gcp.settle(now);
        self.ibm.settle(now);
    }

    pub(crate) fn left_in(&self, cloud: &str) -> Vec<String> {
        match cloud {
            "aws" => self.aws.left(),
            "azure" => self.azure.left(),
            "gcp" => self.gcp.left(),
            "ibm" => self.ibm.left(),
            _ => Vec::new(),
        }
    }
}

/// The clouds, listening.
pub struct Sim {
    pub clock: Arc<VirtualClock>,
    shared: Shared,
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Sim {
    /// On a free port of this machine.
    pub async fn start() -> std::io::Result<Self> {
        Self::listen("127.0.0.1:0".parse().map_err(std::io::Error::other)?).await
    }

    pub async fn listen(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = Shared::default();
        let router = server::router(shared.clone());
        let serving = tokio::spawn(async move {
            // Ends with the task; there is nobody to tell.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { clock: Arc::clone(&shared.clock), shared, address, serving })
    }

    /// `http://127.0.0.1:PORT`, the same for all clouds.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What a plugin needs to find its cloud here: the variables by which the clouds' own tools are led, and the clock, on
    /// which waiting takes no time.
    pub fn world(&self) -> cloud_http::World {
        let url = self.url();
        let below = |path: &str| format!("{url}/{path}");
        let environment = Environment::of([
            ("AWS_ENDPOINT_URL_EC2", url.clone()),
            ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "aSecretKey".to_owned()),
            ("ARM_ENDPOINT", url.clone()),
            ("AZURE_AUTHORITY_HOST", url.clone()),
            ("AZURE_TENANT_ID", "t1".to_owned()),
            ("AZURE_CLIENT_ID", "c1".to_owned()),
            ("AZURE_CLIENT_SECRET", "s".to_owned()),
            ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", below("compute/v1")),
            ("CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER", url.clone()),
            ("CLOUDSDK_API_ENDPOINT_OVERRIDES_DNS", below("dns/v1")),
            ("CLOUDSDK_AUTH_ACCESS_TOKEN", "ya29.token".to_owned()),
            ("IBMCLOUD_IAM_API_ENDPOINT", url.clone()),
            ("IBMCLOUD_IS_NG_API_ENDPOINT", below("{region}/v1")),
            ("IBMCLOUD_TG_API_ENDPOINT", below("v1")),
            ("IBMCLOUD_CS_API_ENDPOINT", below("global")),
            ("IBMCLOUD_API_KEY", "aSecretKey".to_owned()),
        ]);
        cloud_http::World { environment, clock: Some(Arc::clone(&self.clock) as _), recorder: None }
    }

    pub fn set_faults(&self, faults: Faults) {
        self.shared.world.lock().trouble.set(faults);
    }

    /// Lets time pass by itself, `speed` times as fast as it does. For clients that do not know the virtual clock.
    pub fn run_clock(&self, speed: u32) -> JoinHandle<()> {
        let clock = Arc::clone(&self.clock);
        tokio::spawn(async move {
            let step = Duration::from_millis(50);
            loop {
                tokio::time::sleep(step).await;
                clock.advance(step * speed);
            }
        })
    }

    /// Writes every request down, its credentials aside, so that it can be replayed.
    pub fn record(&self, file: std::fs::File) {
        self.shared.world.lock().recorder = Some(Recorder { file, last: self.clock.now() });
    }

    /// The next `times` requests whose operation contains `part` go wrong.
    pub fn script(&self, part: &str, fault: Fault, times: u32) {
        self.shared.world.lock().trouble.script.push((part.to_owned(), fault, times));
    }

    /// After so many more requests comes one that gets no answer, carried out or not. Ends when it has come.
    pub fn fall_silent(&self, after: usize, carried_out: bool) -> impl Future<Output = ()> + use<> {
        self.shared.world.lock().trouble.silence = Some((after, carried_out));
        let silence = Arc::clone(&self.shared.silence);
        async move { silence.notified().await }
    }

    /// Every request gets an answer again.
    pub fn speak_again(&self) {
        self.shared.world.lock().trouble.silence = None;
    }

    /// Time goes on, and what was under way comes to its end.
    pub fn pass(&self, time: Duration) {
        self.shared.pass(time);
    }

    /// Somebody who has never heard of Trestle makes a machine, in a network of their own, of the given cloud.
    pub fn put_machine(&self, cloud: &str) -> Machine {
        self.put(cloud, None)
    }

    /// And another one, elsewhere in the same network.
    pub fn put_neighbour(&self, cloud: &str, of: &Machine) -> Machine {
        self.put(cloud, Some(of))
    }

    fn put(&self, cloud: &str, neighbour: Option<&Machine>) -> Machine {
        self.pass(Duration::ZERO);
        let now = self.clock.now().as_secs();
        let machine = {
            let mut world = self.shared.world.lock();
            match cloud {
                "aws" => world.aws.put_machine(neighbour, now),
                "azure" => world.azure.put_machine(neighbour, now),
                "gcp" => world.gcp.put_machine(neighbour, now),
                "ibm" => world.ibm.put_machine(neighbour, now),
                other => panic!("no machine can be put into {other}"),
            }
        };
        self.pass(Duration::from_secs(600));
        machine
    }

    /// Everything that is in the clouds, by id, as they would show it.
    pub fn objects(&self) -> BTreeMap<String, serde_json::Value> {
        self.pass(Duration::from_secs(7200));
        let world = self.shared.world.lock();
        let all = world.aws.all_objects().into_iter().chain(world.azure.all_objects());
        all.chain(world.gcp.all_objects()).chain(world.ibm.all_objects()).collect()
    }

    /// The owner of a Google Cloud project asks for something there, by the path below `compute/v1/`, and waits for it.
    pub fn ask_google(&self, method: http::Method, path: &str, body: serde_json::Value) -> serde_json::Value {
        let now = self.clock.now().as_secs();
        self.shared.world.lock().gcp.do_by_hand(now, method, path, body)
    }

    /// The firewall policies that an organisation puts before the firewalls of Google Cloud's networks.
    pub fn set_google_policies(&self, policies: Vec<serde_json::Value>) {
        self.shared.world.lock().gcp.policies = policies;
    }

    /// Puts something on the wire that is no cloud: a site with a gateway of its own.
    pub fn put_site(&self, name: &str, site: OwnSite) {
        self.shared.world.lock().sites.insert(name.to_owned(), site);
    }

    /// The requests since the last call of this.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.shared.world.lock().calls)
    }

    /// Answers that did not fit the clouds' API descriptions. There must be none.
    pub fn defects(&self) -> Vec<String> {
        self.shared.world.lock().defects.clone()
    }

    /// Whether a packet that opens a connection gets from one host to another.
    pub fn reaches(&self, from: std::net::IpAddr, to: std::net::IpAddr, packet: &Packet) -> bool {
        self.trip(from, to, packet).is_some_and(Trip::is_made)
    }

    /// What becomes of a packet and its answer; none if there is no such host.
    pub fn trip(&self, from: std::net::IpAddr, to: std::net::IpAddr, packet: &Packet) -> Option<Trip> {
        let (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) = (from, to) else { return None };
        self.wire().trip(from, to, packet)
    }

    /// The addresses of the hosts in a block.
    pub fn hosts_in(&self, block: ipnet::IpNet) -> Vec<std::net::IpAddr> {
        let found = self.wire().hosts.into_iter().filter_map(|host| Some(host.address?.into()));
        found.filter(|address| block.contains(address)).collect()
    }

    /// The wire as it is now.
    pub fn wire(&self) -> Wire {
        self.pass(Duration::ZERO);
        self.shared.world.lock().wire()
    }

    /// Why a packet does or does not get through, for people.
    pub fn explain(&self, from: std::net::IpAddr, to: std::net::IpAddr, packet: &Packet) -> String {
        let (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) = (from, to) else { return String::new() };
        self.shared.world.lock().wire().explain(from, to, packet)
    }

    pub fn reaches_public(&self, from: std::net::IpAddr, to: std::net::IpAddr, packet: &Packet) -> bool {
        let (std::net::IpAddr::V4(from), std::net::IpAddr::V4(to)) = (from, to) else { return false };
        self.pass(Duration::ZERO);
        self.shared.world.lock().wire().reaches_public(from, to, packet)
    }

    /// Somebody with a console deletes every permit and every tunnel, and opens what was closed.
    pub fn vandalise(&self) {
        let mut world = self.shared.world.lock();
        world.aws.vandalise();
        world.azure.vandalise();
        world.gcp.vandalise();
        world.ibm.vandalise();
    }

    /// What is left in any cloud, by id; what every account has from the beginning aside.
    pub fn left(&self) -> Vec<String> {
        ["aws", "azure", "gcp", "ibm"].iter().flat_map(|cloud| self.left_in(cloud)).collect()
    }

    /// The same of one cloud: `aws`, `azure`, `gcp` or `ibm`.
    pub fn left_in(&self, cloud: &str) -> Vec<String> {
        self.shared.left_in(cloud)
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
