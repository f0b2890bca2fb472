//! The permissions that the documentation asks for are the ones that the plugins use: no more, no less.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::{
    collections::BTreeSet,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use cloud_api::{At, PeeringSpec, ResourceSpec, prelude::*};
use cloud_aws::{AwsCloud, AwsOptions};
use cloud_azure::{AzureCloud, AzureOptions};
use cloud_gcp::{GcpCloud, GcpOptions};
use cloud_http::{Exchange, Recorder, World};
use cloud_ibm::{IbmCloud, IbmOptions};
use cloud_sim::{Machine, Sim};
use model::{
    ConnectionSpec, Direction, EntryName, NetworkName, PeeringName, PermitEntry, Ports, Protocol, Secret,
    Segment, Traffic,
};

#[derive(Default)]
struct Operations(Mutex<BTreeSet<String>>);

impl Recorder for Operations {
    fn record(&self, exchange: Exchange) {
        for text in [&exchange.url, &exchange.body, &exchange.reply] {
            assert!(!text.contains("aSecretKey"), "{} shows a key: {text}", exchange.operation);
        }
        self.0.lock().unwrap().insert(exchange.operation);
    }
}

/// The simulators, with every request written down.
fn told_to(operations: &Arc<Operations>, sim: &Sim) -> World {
    World { recorder: Some(Arc::clone(operations) as _), ..sim.world() }
}

fn entry(name: &str, targets: &[&str], direction: Direction) -> PermitEntry {
    let traffic = Traffic::new(direction, Protocol::TCP, Ports::Any, Ports::one(80)).unwrap();
    let targets = targets.iter().map(|text| text.parse().unwrap()).collect();
    PermitEntry::new(EntryName::reported(name), traffic, targets, BTreeSet::new()).unwrap()
}

/// Everything a plugin can be asked for.
async fn everything(cloud: &dyn Cloud, at: &At, other: &At, descriptions: [&str; 2], machine: Machine) {
    let regions: [Segment; 2] = [
        cloud.inspect_resource(at, &"a".parse().unwrap(), descriptions[0]).await.unwrap(),
        cloud.inspect_resource(at, &"a".parse().unwrap(), descriptions[1]).await.unwrap(),
    ];
    let network = |at: &At, region: &Segment| NetworkName { site: at.site.clone(), region: region.clone() };
    for (at, region, space) in [
        (at, &regions[0], "10.0.0.0/16"),
        (at, &regions[1], "10.1.0.0/16"),
        (other, &regions[0], "10.2.0.0/16"),
    ] {
        cloud.ensure_network(at, region, space.parse().unwrap()).await.unwrap();
    }
    let name: Segment = "a".parse().unwrap();
    let spec = ResourceSpec {
        name: name.clone(),
        region: regions[0].clone(),
        description: descriptions[0].to_owned(),
    };
    let made = cloud.create_resource(at, &spec).await.unwrap();
    for direction in [Direction::Inbound, Direction::Outbound] {
        let tag = direction.to_string();
        let (x, y) = (
            entry(&format!("x-{tag}"), &["10.9.0.1"], direction),
            entry(&format!("y-{tag}"), &["10.9.0.1", "10.9.0.2"], direction),
        );
        cloud.put_list(at, &made.uri, &[], std::slice::from_ref(&x)).await.unwrap();
        cloud.put_list(at, &made.uri, &[], std::slice::from_ref(&y)).await.unwrap();
        cloud
            .put_list(at, &made.uri, &[], &[entry(&format!("y-{tag}"), &["10.9.0.3"], direction)])
            .await
            .unwrap();
        cloud.put_list(at, &made.uri, &[x], &[]).await.unwrap();
    }
    let peering = PeeringSpec {
        name: PeeringName::new(network(at, &regions[0]), network(other, &regions[0])).unwrap(),
        deployments: [at.deployment.clone(), other.deployment.clone()],
    };
    cloud.ensure_peering(&peering).await.unwrap();
    cloud.ensure_nat(at, &regions[0]).await.unwrap();
    cloud.create_gateway(at, 64_999).await.unwrap();
    let link = |key: &str| ConnectionSpec {
        bgp: true,
        site: at.site.clone(),
        peer: "ns.other".parse().unwrap(),
        peer_asn: 64_997,
        peer_addresses: vec![IpAddr::from([203, 0, 113, 251]), IpAddr::from([203, 0, 113, 252])],
        local_bgp: vec![[169, 254, 21, 241].into(), [169, 254, 21, 245].into()],
        peer_bgp: vec![[169, 254, 21, 242].into(), [169, 254, 21, 246].into()],
        peer_spaces: vec![],
        shared_key: Secret::new(key),
    };
    cloud.create_connections(at, &link("aSecretKey1aSecretKey1")).await.unwrap();
    cloud.create_connections(at, &link("aSecretKey2aSecretKey2")).await.unwrap();
    cloud.connection_status(at, &link("").peer).await.unwrap();
    cloud.connection_addresses(at, &link("").peer).await.unwrap();
    attach_and_let_go(cloud, at, &machine).await;
    cloud.list(at).await.unwrap();
    cloud.delete_network(at, &regions[1]).await.unwrap();
    cloud.delete_connections(at, &link("").peer).await.unwrap();
    cloud.delete_gateway(at).await.unwrap();
    cloud.delete_nat(at, &regions[0]).await.unwrap();
    cloud.delete_peering(&peering).await.unwrap();
    cloud.delete_resource(at, &name).await.unwrap();
    cloud.delete_network(at, &regions[0]).await.unwrap();
    cloud.delete_network(other, &regions[0]).await.unwrap();
}

/// A service of somebody else, behind an address of ours.
async fn make_and_remove_endpoint(cloud: &dyn Cloud, at: &At, space: &str, description: &str) {
    let name: Segment = "e".parse().unwrap();
    let region = cloud.inspect_resource(at, &name, description).await.unwrap();
    cloud.ensure_network(at, &region, space.parse().unwrap()).await.unwrap();
    let description = description.to_owned();
    let spec = ResourceSpec { name: name.clone(), region: region.clone(), description };
    let made = cloud.create_resource(at, &spec).await.unwrap();
    for targets in [&["10.9.0.1"][..], &["10.9.0.2"][..]] {
        cloud.put_list(at, &made.uri, &[], &[entry("x", targets, Direction::Inbound)]).await.unwrap();
    }
    let entries = [entry("x", &["10.9.0.2"], Direction::Inbound)];
    cloud.put_list(at, &made.uri, &entries, &[]).await.unwrap();
    cloud.list(at).await.unwrap();
    cloud.delete_resource(at, &name).await.unwrap();
    cloud.delete_network(at, &region).await.unwrap();
}

/// A cluster of IBM's, which is in a network of its own.
async fn cluster_comes_and_goes(cloud: &IbmCloud, at: &At, description: &str) {
    let name: Segment = "k".parse().unwrap();
    let region = cloud.inspect_resource(at, &name, description).await.unwrap();
    cloud.ensure_network(at, &region, "10.4.0.0/16".parse().unwrap()).await.unwrap();
    let description = description.to_owned();
    let spec = ResourceSpec { name: name.clone(), region: region.clone(), description };
    let made = cloud.create_resource(at, &spec).await.unwrap();
    cloud.put_list(at, &made.uri, &[], &[entry("x", &["10.9.0.1"], Direction::Outbound)]).await.unwrap();
    cloud.list(at).await.unwrap();
    cloud.delete_resource(at, &name).await.unwrap();
    cloud.delete_network(at, &region).await.unwrap();
}

/// Both kinds of endpoints, with a gateway that must not advertise them, in a network that was there before the flag.
async fn endpoints_beside_instances(before: &GcpCloud, cloud: &GcpCloud, at: &At, instance: &str) {
    let region = before.inspect_resource(at, &"a".parse().unwrap(), instance).await.unwrap();
    before.ensure_network(at, &region, "10.0.0.0/16".parse().unwrap()).await.unwrap();
    cloud.create_gateway(at, 64_999).await.unwrap();
    let attachment = r#"{"url":"projects/p2/regions/us-west1/serviceAttachments/db"}"#;
    make_and_remove_endpoint(cloud, at, "10.3.0.0/16", attachment).await;
    make_and_remove_endpoint(cloud, at, "10.4.0.0/16", r#"{"bundle":"all-apis"}"#).await;
    cloud.delete_gateway(at).await.unwrap();
    cloud.delete_network(at, &region).await.unwrap();
}

/// What exists, on a gateway that is there.
async fn attach_and_let_go(cloud: &dyn Cloud, at: &At, machine: &Machine) {
    let found = cloud.inspect_attachment(at, &machine.id).await.unwrap();
    cloud.adopt_network(at, &found.region, machine.space).await.unwrap();
    let name: Segment = "old".parse().unwrap();
    cloud.attach_resource(at, &name, &machine.id).await.unwrap();
    cloud.delete_resource(at, &name).await.unwrap();
    cloud.release_network(at, &found.region).await.unwrap();
}

/// What only EC2 needs: a further group for a long list, and a further subnet on a gateway.
async fn many_rules_and_zones(cloud: &AwsCloud, at: &At) {
    let region: Segment = "us-east-1".parse().unwrap();
    cloud.ensure_network(at, &region, "10.1.0.0/16".parse().unwrap()).await.unwrap();
    cloud.create_gateway(at, 64_999).await.unwrap();
    let name: Segment = "z".parse().unwrap();
    let description = r#"{"zone":"us-east-1b","ImageId":"ami-1"}"#.to_owned();
    let spec = ResourceSpec { name: name.clone(), region: region.clone(), description };
    let made = cloud.create_resource(at, &spec).await.unwrap();
    let targets: Vec<String> = (0..90).map(|host| format!("10.9.0.{host}")).collect();
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    cloud.put_list(at, &made.uri, &[], &[entry("many", &targets, Direction::Inbound)]).await.unwrap();
    cloud.delete_gateway(at).await.unwrap();
    cloud.delete_resource(at, &name).await.unwrap();
    cloud.delete_network(at, &region).await.unwrap();
}

fn documented(page: &str, prefix: &str) -> BTreeSet<String> {
    documented_below(page, "## Permissions", prefix)
}

/// In the first block below a heading.
fn documented_below(page: &str, heading: &str, prefix: &str) -> BTreeSet<String> {
    let path = format!("{}/../../../docs/clouds/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let (_, section) = text.split_once(heading).unwrap();
    let block = section.split("```").nth(1).unwrap();
    let words = block.split(|letter: char| !letter.is_ascii_alphanumeric() && !":./_".contains(letter));
    words.filter(|word| word.starts_with(prefix)).map(str::to_owned).collect()
}

fn at(site: &str, deployment: &str) -> At {
    At { site: site.parse().unwrap(), deployment: deployment.to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aws_permissions_are_the_documented_ones() {
    let sim = Sim::start().await.unwrap();
    let operations = Arc::new(Operations::default());
    let cloud = AwsCloud::with(&AwsOptions::default(), told_to(&operations, &sim)).unwrap();
    let descriptions =
        [r#"{"region":"eu-west-1","ImageId":"ami-1"}"#, r#"{"region":"us-east-1","ImageId":"ami-1"}"#];
    let machine = sim.put_machine("aws");
    let before = sim.objects();
    everything(&cloud, &at("ns.aws", ""), &at("other.aws", ""), descriptions, machine).await;
    many_rules_and_zones(&cloud, &at("ns.aws", "")).await;
    let mut used = operations.0.lock().unwrap().clone();
    // Tags are set in the requests that make things, which takes a permission of its own.
    used.insert("ec2:CreateTags".to_owned());
    assert_eq!(used, documented("aws.md", "ec2:"));
    assert_eq!(sim.objects(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gcp_permissions_are_the_documented_ones() {
    let sim = Sim::start().await.unwrap();
    let operations = Arc::new(Operations::default());
    let options = GcpOptions { private_endpoints: true, ..GcpOptions::default() };
    let cloud = GcpCloud::with(&options, told_to(&operations, &sim)).unwrap();
    let descriptions = [
        r#"{"zone":"us-west1-a","machineType":"e2-micro","disks":[{"boot":true}]}"#,
        r#"{"zone":"europe-west1-b","machineType":"e2-micro","disks":[{"boot":true}]}"#,
    ];
    let machine = sim.put_machine("gcp");
    let objects = sim.objects();
    everything(&cloud, &at("ns.gcp", "p1"), &at("other.gcp", "p1"), descriptions, machine).await;
    let options = GcpOptions { private_endpoints: false, ..options };
    let before = GcpCloud::with(&options, sim.world()).unwrap();
    endpoints_beside_instances(&before, &cloud, &at("ns.gcp", "p1"), descriptions[0]).await;
    // Permissions are one for several requests, and one for the rules of a policy.
    let permission = |operation: &String| {
        let renamed = [
            ("ddresses.insert", "ddresses.createInternal"),
            ("ddresses.delete", "ddresses.deleteInternal"),
            (".insert", ".create"),
            (".getRouterStatus", ".get"),
            (".addRule", ".update"),
            (".patchRule", ".update"),
            (".removeRule", ".update"),
            ("firewallPolicies.addAssociation", "networks.setFirewallPolicy"),
            ("firewallPolicies.removeAssociation", "networks.setFirewallPolicy"),
        ];
        renamed.iter().fold(operation.clone(), |name, (from, to)| name.replace(from, to))
    };
    let used: BTreeSet<String> = operations.0.lock().unwrap().iter().map(permission).collect();
    // Referring to an object takes a permission on it, which no request names.
    let referring = |name: &String| {
        [".use", ".useInternal", ".pscCreate", ".pscDelete", "networks.updatePolicy"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    let documented: BTreeSet<String> =
        documented("gcp.md", "compute.").into_iter().filter(|name| !referring(name)).collect();
    assert_eq!(used, documented);
    assert_eq!(sim.objects(), objects);

    // Clusters take a few more, of APIs that nobody needs who has none.
    let operations = Arc::new(Operations::default());
    let options = GcpOptions { kubernetes_clusters: true, ..options };
    let cloud = GcpCloud::with(&options, told_to(&operations, &sim)).unwrap();
    let cluster = r#"{"location":"us-west1","cluster":{"initialNodeCount":1}}"#;
    make_and_remove_endpoint(&cloud, &at("ns.gcp", "p1"), "10.3.0.0/16", cluster).await;
    let more: BTreeSet<String> = operations.0.lock().unwrap().iter().map(permission).collect();
    let implied = ["networks.bindPrivateDNSZone", "resourceRecordSets.create", "resourceRecordSets.delete"];
    let documented: BTreeSet<String> = ["container.", "dns."]
        .iter()
        .flat_map(|service| documented_below("gcp.md", "### Permissions for clusters", service))
        .filter(|name| !implied.iter().any(|end| name.ends_with(end)))
        .collect();
    assert_eq!(more.difference(&used).cloned().collect::<BTreeSet<_>>(), documented);
    assert_eq!(sim.objects(), objects);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn azure_permissions_are_the_documented_ones() {
    let sim = Sim::start().await.unwrap();
    let operations = Arc::new(Operations::default());
    let options = AzureOptions { token: Some("t".to_owned()), ..AzureOptions::default() };
    let cloud = AzureCloud::with(&options, told_to(&operations, &sim)).unwrap();
    let descriptions = ["westus2", "westeurope"].map(|location| {
        format!(
            r#"{{"location":"{location}","properties":{{"hardwareProfile":{{"vmSize":"Standard_B1s"}}}}}}"#
        )
    });
    let group = "/subscriptions/s1/resourceGroups/g1";
    let descriptions = [descriptions[0].as_str(), descriptions[1].as_str()];
    let machine = sim.put_machine("azure");
    let before = sim.objects();
    everything(&cloud, &at("ns.azure", group), &at("other.azure", group), descriptions, machine).await;
    let mut used = operations.0.lock().unwrap().clone();
    // Azure deletes the interface with the machine, unless that was never made.
    used.insert("Microsoft.Network/networkInterfaces/delete".to_owned());
    // Referring to an object takes a permission on it, which no request names.
    let referring = |name: &String| name.ends_with("/join/action") || name.ends_with("/peer/action");
    let documented: BTreeSet<String> =
        documented("azure.md", "Microsoft.").into_iter().filter(|name| !referring(name)).collect();
    assert_eq!(used, documented);
    assert_eq!(sim.objects(), before);

    // Clusters take a few more, which nobody needs who has none.
    let operations = Arc::new(Operations::default());
    let options = AzureOptions { kubernetes_clusters: true, ..options };
    let cloud = AzureCloud::with(&options, told_to(&operations, &sim)).unwrap();
    let cluster = r#"{"location":"westus2","identity":{"type":"UserAssigned","userAssignedIdentities":{"/i":{}}},"properties":{"agentPoolProfiles":[{"name":"nodes","mode":"System"}]}}"#;
    make_and_remove_endpoint(&cloud, &at("ns.azure", group), "10.3.0.0/16", cluster).await;
    let more: BTreeSet<String> = operations.0.lock().unwrap().difference(&used).cloned().collect();
    let documented = documented_below("azure.md", "### Further permissions", "Microsoft.");
    let referring = |name: &String| name.ends_with("/assign/action");
    assert_eq!(more, documented.into_iter().filter(|name| !referring(name)).collect());
    assert_eq!(sim.objects(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ibm_operations_are_the_documented_ones() {
    let sim = Sim::start().await.unwrap();
    let operations = Arc::new(Operations::default());
    let options = IbmOptions { private_endpoints: true, kubernetes_clusters: true, ..IbmOptions::default() };
    let cloud = IbmCloud::with(&options, told_to(&operations, &sim)).unwrap();
    let descriptions = [
        r#"{"zone":"us-south-1","profile":{"name":"bx2-2x8"},"image":{"id":"i"}}"#,
        r#"{"zone":"eu-de-1","profile":{"name":"bx2-2x8"},"image":{"id":"i"}}"#,
    ];
    let machine = sim.put_machine("ibm");
    let before = sim.objects();
    everything(&cloud, &at("ns.ibm", ""), &at("other.ibm", ""), descriptions, machine).await;
    let endpoint = r#"{"zone":"us-south-1","target":{"resource_type":"provider_infrastructure_service","name":"ibm-ntp-server"}}"#;
    make_and_remove_endpoint(&cloud, &at("ns.ibm", ""), "10.3.0.0/16", endpoint).await;
    // Without clusters, the Kubernetes Service is never asked.
    assert!(!operations.0.lock().unwrap().iter().any(|name| name.starts_with("containers.")));
    let cluster = r#"{"zone":"us-south-1","workerPool":{"flavor":"bx2.4x16"}}"#;
    cluster_comes_and_goes(&cloud, &at("ns.ibm", ""), cluster).await;
    let services = ["is.", "transit.", "containers."];
    let documented: BTreeSet<String> =
        services.iter().flat_map(|service| documented("ibm.md", service)).collect();
    assert_eq!(*operations.0.lock().unwrap(), documented);
    assert_eq!(sim.objects(), before);
}
