//! A link between a cloud and a site of one's own, such as a Linux site: the wire says whether both ends fit.

use std::net::{IpAddr, Ipv4Addr};

use cloud_api::{At, ResourceSpec};
use cloud_sim::{
    Fault, OwnSite, Sim,
    wire::{Bgp, Firewall, Gateway, GatewayHop, Host, Line, Network, Tunnel},
};
use model::{ConnectionSpec, Direction, EntryName, PermitEntry, Ports, Protocol, Secret, Traffic};

use super::house::{CLOUDS, PING, deployment, description, plugin};

const SITE: &str = "ns.linux";
const KEY: &str = "aKeyOfThirtyTwoLettersOrSoItIs12";
const ASN: u32 = 64_600;

fn address(value: IpAddr) -> Ipv4Addr {
    let IpAddr::V4(address) = value else { panic!("{value} is IPv4") };
    address
}

/// The site's end of a link, as `spec` is the cloud's.
fn site(spec: &ConnectionSpec, cloud_asn: u32, addresses: &[IpAddr]) -> OwnSite {
    let space = "10.200.0.0/16".parse().unwrap();
    let tunnels = (0..spec.local_bgp.len()).map(|number| Tunnel {
        local: address(spec.peer_addresses[number]),
        remote: address(addresses[number % addresses.len()]),
        key: KEY.to_owned(),
        ike: 2,
        bgp: Some(Bgp {
            local: spec.peer_bgp[number],
            peer: spec.local_bgp[number],
            local_asn: ASN,
            peer_asn: cloud_asn,
        }),
        routes: vec![],
    });
    let open = Firewall(vec![Line {
        priority: 1,
        allow: true,
        protocol: None,
        ports: vec![],
        src_ports: vec![],
        peers: vec!["0.0.0.0/0".parse().unwrap()],
    }]);
    OwnSite {
        network: Network { spaces: vec![space], routes: vec![], learns_from: vec![SITE.to_owned()] },
        gateway: Gateway {
            routes: vec![(space, GatewayHop::Network(SITE.to_owned()))],
            tunnels: tunnels.collect(),
        },
        host: Host {
            address: Some([10, 200, 0, 4].into()),
            network: SITE.to_owned(),
            inbound: open.clone(),
            outbound: open,
            ..Host::default()
        },
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_cloud_links_with_a_site_of_ones_own() {
    for kind in CLOUDS {
        let sim = Sim::start().await.unwrap();
        let cloud = plugin(kind, &sim);
        let at = At { site: format!("ns.{kind}").parse().unwrap(), deployment: deployment(kind).to_owned() };
        let region = cloud.inspect_resource(&at, &"a".parse().unwrap(), description(kind, 0)).await.unwrap();
        cloud.ensure_network(&at, &region, "10.0.0.0/16".parse().unwrap()).await.unwrap();
        let spec = ResourceSpec {
            name: "a".parse().unwrap(),
            region: region.clone(),
            description: description(kind, 0).to_owned(),
        };
        let vm = cloud.create_resource(&at, &spec).await.unwrap();
        let entry = |direction| {
            let traffic = Traffic::new(direction, Protocol::Any, Ports::Any, Ports::Any).unwrap();
            let name = EntryName::reported(format!("{direction}"));
            let targets = ["10.200.0.4".parse().unwrap()].into();
            PermitEntry::new(name, traffic, targets, Default::default()).unwrap()
        };
        let both = [entry(Direction::Inbound), entry(Direction::Outbound)];
        cloud.put_list(&at, &vm.uri, &[], &both).await.unwrap();
        let gateway = cloud.create_gateway(&at, 64_514).await.unwrap();
        let first = u8::from(!cloud.describe().await.unwrap().bgp_first_host) + 1;
        let inside = |host: u8| (0..2u8).map(|n| [169, 254, 21, 4 * n + host].into()).collect::<Vec<_>>();
        let link = ConnectionSpec {
            bgp: true,
            site: at.site.clone(),
            peer: SITE.parse().unwrap(),
            peer_asn: ASN,
            peer_addresses: vec![IpAddr::from([198, 51, 100, 1]), IpAddr::from([198, 51, 100, 2])],
            local_bgp: inside(first),
            peer_bgp: inside(3 - first),
            peer_spaces: vec![],
            shared_key: Secret::new(KEY),
        };
        cloud.create_bgp_sessions(&at, &link).await.unwrap();
        cloud.create_connections(&at, &link).await.unwrap();
        let late = cloud.connection_addresses(&at, &link.peer).await.unwrap();
        let addresses = if late.is_empty() { gateway.addresses } else { late };
        let host: IpAddr = [10, 200, 0, 4].into();
        let address = vm.address.net().addr();
        let joined = || sim.reaches(address, host, &PING) && sim.reaches(host, address, &PING);
        assert!(!joined(), "{kind}: the other end is not there");
        sim.put_site(SITE, site(&link, gateway.asn, &addresses));
        assert!(joined(), "{kind}: {}", sim.explain(address, host, &PING));
        let status = cloud.connection_status(&at, &link.peer).await.unwrap();
        assert_eq!((status.tunnels, status.tunnels_up, status.bgp_established), (2, 2, 2), "{kind}");
        assert_eq!(status.routes, ["10.200.0.0/16".parse().unwrap()], "{kind}");
        if kind == "aws" {
            sim.script("SearchTransitGatewayRoutes", Fault::Denied, 1);
            let unseen = cloud.connection_status(&at, &link.peer).await.unwrap();
            assert_eq!(
                (unseen.tunnels_up, unseen.routes),
                (2, vec![]),
                "tunnels without the right to see routes"
            );
        }
        // A wrong number at the other end, and everything is down.
        sim.put_site(SITE, site(&link, gateway.asn + 1, &addresses));
        assert!(!joined(), "{kind}");
        sim.put_site(SITE, OwnSite::default());
        cloud.delete_connections(&at, &link.peer).await.unwrap();
        cloud.delete_gateway(&at).await.unwrap();
        cloud.delete_resource(&at, &"a".parse().unwrap()).await.unwrap();
        cloud.delete_network(&at, &region).await.unwrap();
        assert_eq!(sim.left(), Vec::<String>::new(), "{kind}");
    }
}
