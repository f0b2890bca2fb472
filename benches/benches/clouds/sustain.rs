//! How many calls a plugin behind gRPC carries out in a second, and how many requests of the cloud's API that is: permit lists
//! read by many at once. Plugin, caller and simulator share the machine.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use benches::report;
use cloud_api::{
    grpc::{PluginService, RemoteCloud},
    prelude::*,
};
use futures::future::{join_all, try_join_all};
use tokio::net::TcpListener;
use tonic::transport::{Channel, Server};
use wire::{
    invisinetspb::cloud_plugin_server::CloudPluginServer,
    trestle::v1::cloud_extension_server::CloudExtensionServer,
};

use crate::{AWS_VM, AZURE_VM, Clouds, GCP_VM, IBM_VM, at, clouds, entry, make};

const CALLERS: usize = 32;
const FOR: Duration = Duration::from_secs(3);

pub async fn run() {
    let Clouds { sim, aws, azure, gcp, ibm } = clouds().await;
    let all: [(Arc<dyn Cloud>, _, _); 4] = [
        (Arc::new(aws), "aws", AWS_VM),
        (Arc::new(azure), "azure", AZURE_VM),
        (Arc::new(gcp), "gcp", GCP_VM),
        (Arc::new(ibm), "ibm", IBM_VM),
    ];
    for (number, (cloud, kind, description)) in all.into_iter().enumerate() {
        let made = make(cloud.as_ref(), kind, description, &format!("10.{number}.0.0/16")).await;
        let entries: Vec<_> = (0..20).map(|n| entry(&format!("e{n}"), &[format!("10.9.{n}.1")])).collect();
        cloud.put_list(&at(kind), &made.uri, &[], &entries).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let name: model::Segment = kind.parse().unwrap();
        let service = PluginService::new(name.clone(), cloud);
        let router = Server::builder()
            .add_service(CloudPluginServer::new(service.clone()))
            .add_service(CloudExtensionServer::new(service));
        let incoming = futures::stream::unfold(listener, |listener| async {
            Some((listener.accept().await.map(|(stream, _)| stream), listener))
        });
        let serving = tokio::spawn(router.serve_with_incoming(incoming));
        let channel = Channel::from_shared(url).unwrap().connect().await.unwrap();
        let remote = RemoteCloud::new(channel);
        let place = at(kind);
        try_join_all((0..4).map(|_| remote.permit_list(&place, &made.uri))).await.unwrap();
        sim.take_calls();
        let started = Instant::now();
        let callers = (0..CALLERS).map(|_| async {
            let mut count = 0_u32;
            while started.elapsed() < FOR {
                assert_eq!(remote.permit_list(&place, &made.uri).await.unwrap().len(), 20);
                count += 1;
            }
            count
        });
        let calls: u32 = join_all(callers).await.into_iter().sum();
        let (seconds, requests) = (started.elapsed().as_secs_f64(), sim.take_calls().len());
        let story = format!("clouds.sustained_{kind}");
        report(&story, "calls_per_s", f64::from(calls) / seconds, "1/s");
        report(&story, "requests_per_s", requests as f64 / seconds, "1/s");
        serving.abort();
    }
}
