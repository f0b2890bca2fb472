//! Stories of calls, each repeated until it is answered: over a cloud that throttles, breaks off and loses answers they end as
//! over one that does not, in this process and through gRPC. That is all that the orchestrator rests on.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::sync::Arc;

use cloud_api::{
    grpc::{PluginService, RemoteCloud},
    *,
};
use model::{NetworkName, Segment};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Endpoint, Server};
use wire::{
    invisinetspb::cloud_plugin_server::CloudPluginServer,
    trestle::v1::cloud_extension_server::CloudExtensionServer,
};

const REGIONS: [&str; 3] = ["west", "east", "north"];

#[derive(Clone, Copy, Debug)]
enum Call {
    Network(usize, bool),
    Resource(u32, usize, bool),
    Nat(usize, bool),
    Gateway(bool),
    Peering(usize, usize, bool),
}

fn story(seed: u64) -> Vec<Call> {
    let mut dice = Dice::new(seed);
    let region = |dice: &mut Dice| dice.below(3) as usize;
    let one = |dice: &mut Dice| {
        let present = dice.below(3) > 0;
        match dice.below(6) {
            0 | 1 => Call::Network(region(dice), present),
            2 | 3 => Call::Resource(dice.below(4), region(dice), present),
            4 if dice.hits(500) => Call::Nat(region(dice), present),
            4 => Call::Gateway(present),
            _ => Call::Peering(region(dice), region(dice), present),
        }
    };
    (0..40).map(|_| one(&mut dice)).collect()
}

fn at() -> At {
    At { site: "ns.azure".parse().unwrap(), deployment: "/subscriptions/s".to_owned() }
}

fn region(index: usize) -> Segment {
    REGIONS[index].parse().unwrap()
}

fn network(index: usize) -> NetworkName {
    NetworkName { site: at().site, region: region(index) }
}

async fn ask(cloud: &dyn Cloud, call: Call) -> Result<String, CloudError> {
    let none = |()| String::new();
    match call {
        Call::Network(index, true) => {
            let space = format!("10.{index}.0.0/16").parse().unwrap();
            cloud.ensure_network(&at(), &region(index), space).await.map(none)
        }
        Call::Network(index, false) => cloud.delete_network(&at(), &region(index)).await.map(none),
        Call::Resource(number, index, true) => {
            let (name, description) =
                (format!("vm{number}").parse().unwrap(), format!("{} small", REGIONS[index]));
            let spec = ResourceSpec { name, region: region(index), description };
            cloud.create_resource(&at(), &spec).await.map(|made| format!("{made:?}"))
        }
        Call::Resource(number, _, false) => {
            cloud.delete_resource(&at(), &format!("vm{number}").parse().unwrap()).await.map(none)
        }
        Call::Nat(index, true) => cloud.ensure_nat(&at(), &region(index)).await.map(none),
        Call::Nat(index, false) => cloud.delete_nat(&at(), &region(index)).await.map(none),
        Call::Gateway(true) => cloud.create_gateway(&at(), 64_512).await.map(|made| format!("{made:?}")),
        Call::Gateway(false) => cloud.delete_gateway(&at()).await.map(none),
        Call::Peering(a, b, present) => {
            let Ok(name) = model::PeeringName::new(network(a), network(b)) else { return Ok(String::new()) };
            let spec = PeeringSpec { name, deployments: [at().deployment, at().deployment] };
            match present {
                true => cloud.ensure_peering(&spec).await.map(none),
                false => cloud.delete_peering(&spec).await.map(none),
            }
        }
    }
}

/// The answer, or the kind of a refusal that repeating does not help.
async fn insist(cloud: &dyn Cloud, call: Call) -> Result<String, CloudErrorKind> {
    for _ in 0..1_000 {
        match ask(cloud, call).await {
            Err(error) if matches!(error.kind, CloudErrorKind::Throttled | CloudErrorKind::Unavailable) => {}
            answered => return answered.map_err(|error| error.kind),
        }
    }
    panic!("{call:?} is never answered")
}

async fn tell(cloud: &dyn Cloud, seed: u64) -> Vec<Result<String, CloudErrorKind>> {
    let mut answers = Vec::new();
    for call in story(seed) {
        answers.push(insist(cloud, call).await);
    }
    answers
}

fn fake() -> Arc<FakeCloud> {
    Arc::new(FakeCloud::new("azure".parse().unwrap()))
}

fn faulty(seed: u64) -> Arc<FakeCloud> {
    let fake = fake();
    fake.set_faults(Faults { seed, throttle: 150, before: 150, after: 200, half: 100, ..Faults::default() });
    fake
}

/// How it is, asked without faults.
async fn state(fake: &FakeCloud) -> String {
    fake.set_faults(Faults::default());
    format!("{:?}", fake.list(&at()).await.unwrap())
}

#[tokio::test]
async fn what_is_repeated_until_it_is_answered_ends_as_if_nothing_had_happened() {
    let mut refused = 0;
    for seed in 0..25 {
        let (plain, faulty) = (fake(), faulty(seed));
        let (expected, answers) = (tell(&*plain, seed).await, tell(&*faulty, seed).await);
        for ((call, expected), answer) in story(seed).iter().zip(&expected).zip(&answers) {
            assert_eq!(answer, expected, "seed {seed}: {call:?}");
            refused += usize::from(answer.is_err());
        }
        assert_eq!(state(&faulty).await, state(&plain).await, "seed {seed}");
    }
    assert!(refused > 20, "stories in which nothing is refused prove little: {refused}");
}

#[tokio::test]
async fn and_so_it_does_through_grpc() {
    for seed in 0..3 {
        let (plain, faulty) = (fake(), faulty(seed));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let service = PluginService::new("azure".parse().unwrap(), Arc::clone(&faulty) as _);
        let router = Server::builder()
            .add_service(CloudPluginServer::new(service.clone()))
            .add_service(CloudExtensionServer::new(service));
        let serving = tokio::spawn(router.serve_with_incoming(TcpListenerStream::new(listener)));
        let channel = Endpoint::from_shared(url).unwrap().connect().await.unwrap();
        let remote = RemoteCloud::new(channel);
        assert_eq!(tell(&remote, seed).await, tell(&*plain, seed).await, "seed {seed}");
        assert_eq!(state(&faulty).await, state(&plain).await, "seed {seed}");
        serving.abort();
    }
}
