use proptest::prelude::*;

use super::*;

fn name(text: &str) -> ServiceName {
    ServiceName::new("default", text)
}

fn port(number: i32, protocol: &str, node_port: i32) -> ServicePort {
    let name = format!("{number}-{protocol}").to_lowercase();
    ServicePort { name, protocol: protocol.into(), port: number, node_port, ..ServicePort::default() }
}

fn spec(kind: &str, cluster_ip: &str, ports: &[ServicePort]) -> ServiceSpec {
    ServiceSpec {
        kind: kind.into(),
        cluster_ip: cluster_ip.into(),
        ports: ports.to_vec(),
        ..ServiceSpec::default()
    }
}

fn ranges(prefixes: &[&str], ports: &str) -> Ranges {
    let prefixes = prefixes.iter().map(|prefix| prefix.parse().unwrap()).collect();
    Ranges::new(prefixes, ports.parse().unwrap()).unwrap()
}

fn wish<'a>(service: &str, wanted: &'a ServiceSpec) -> Wish<'a> {
    Wish { name: name(service), wanted, before: None, as_said: false }
}

fn one(ranges: &Ranges, taken: &Taken, wish: Wish<'_>) -> Result<Allotted, AllotError> {
    allot(ranges, taken, &[wish]).map(|mut all| all.remove(0))
}

/// As the store does: what was given is taken from then on, and stands in the Service.
fn keep(taken: &mut Taken, service: &str, spec: &ServiceSpec, got: &Allotted) -> ServiceSpec {
    taken.retain(|_, owner| *owner != name(service));
    taken.extend(got.claims().into_iter().map(|claim| (claim, name(service))));
    let mut stored = spec.clone();
    stored.cluster_ips = got.cluster_ips.iter().map(ToString::to_string).collect();
    stored.cluster_ip = stored.cluster_ips.first().cloned().unwrap_or(stored.cluster_ip);
    for (port, number) in stored.ports.iter_mut().zip(&got.node_ports) {
        port.node_port = i32::from(*number);
    }
    stored.health_check_node_port = i32::from(got.health_check_node_port);
    stored
}

#[test]
fn each_type_gets_what_kubernetes_gives_it() {
    let ranges = ranges(&["10.96.0.0/12", "fd00::/108"], "30000-32767");
    let http = [port(80, "", 0)];
    let in_range = |one: &IpAddr| "10.96.0.0/12".parse::<ipnet::IpNet>().unwrap().contains(one);
    let get = |spec: ServiceSpec| one(&ranges, &Taken::new(), wish("web", &spec)).unwrap();
    for (kind, addresses, ports, check) in [
        ("", 1, 0, false),
        ("ClusterIP", 1, 0, false),
        ("NodePort", 1, 1, false),
        ("LoadBalancer", 1, 1, true),
    ] {
        let got = get(ServiceSpec { external_traffic_policy: "Local".into(), ..spec(kind, "", &http) });
        assert_eq!(got.cluster_ips.len(), addresses, "{kind}");
        assert!(got.cluster_ips.iter().all(in_range), "{kind}: {got:?}");
        assert_eq!(
            got.node_ports.iter().filter(|port| (30_000..=32_767).contains(*port)).count(),
            ports,
            "{kind}"
        );
        assert_eq!(got.health_check_node_port != 0, check, "{kind}");
        assert_eq!(got.claims().len(), addresses + ports + usize::from(check), "{kind}: all differ");
    }
    assert_eq!(get(spec("", "None", &http)).claims().len(), 0, "headless");
    assert_eq!(get(spec("ExternalName", "", &[])).claims().len(), 0);
    let unwanted =
        ServiceSpec { allocate_load_balancer_node_ports: Some(false), ..spec("LoadBalancer", "", &http) };
    assert_eq!(get(unwanted).node_ports, [0]);
    let cluster =
        ServiceSpec { external_traffic_policy: "Cluster".into(), ..spec("LoadBalancer", "", &http) };
    assert_eq!(get(cluster).health_check_node_port, 0);
}

#[test]
fn both_families_are_given_where_both_are_asked_for_and_there() {
    let both = ranges(&["10.96.0.0/16", "fd00::/108"], "30000-32767");
    let only_four = ranges(&["10.96.0.0/16"], "30000-32767");
    let six_first = ranges(&["fd00::/108", "10.96.0.0/16"], "30000-32767");
    let families = |ranges: &Ranges, policy: &str, families: &[&str]| {
        let spec = ServiceSpec {
            ip_family_policy: policy.into(),
            ip_families: families.iter().map(ToString::to_string).collect(),
            ..spec("", "", &[port(80, "", 0)])
        };
        let got = one(ranges, &Taken::new(), wish("web", &spec));
        got.map(|got| got.cluster_ips.iter().map(|one| if one.is_ipv6() { 6 } else { 4 }).collect::<Vec<_>>())
    };
    assert_eq!(families(&both, "", &[]), Ok(vec![4]));
    assert_eq!(families(&six_first, "", &[]), Ok(vec![6]));
    assert_eq!(families(&both, "SingleStack", &["IPv6"]), Ok(vec![6]));
    assert_eq!(families(&both, "PreferDualStack", &[]), Ok(vec![4, 6]));
    assert_eq!(families(&both, "RequireDualStack", &["IPv6", "IPv4"]), Ok(vec![6, 4]));
    assert_eq!(families(&only_four, "PreferDualStack", &[]), Ok(vec![4]));
    for (policy, named) in [("RequireDualStack", &[][..]), ("", &["IPv6"])] {
        let refused = families(&only_four, policy, named).unwrap_err();
        assert!(refused.to_string().contains("needs an IPv6 address"), "{refused}");
    }
    assert_eq!(
        families(&ranges(&[], "30000-32767"), "", &[]),
        Ok(vec![]),
        "without prefixes nothing is allotted"
    );
}

#[test]
fn what_a_service_had_it_keeps_and_what_it_gives_up_is_free() {
    let ranges = ranges(&["10.96.0.0/16", "fd00::/108"], "30000-32767");
    let mut taken = Taken::new();
    let wanted = spec("NodePort", "", &[port(80, "", 0), port(443, "TCP", 0)]);
    let first = one(&ranges, &taken, wish("web", &wanted)).unwrap();
    let stored = keep(&mut taken, "web", &wanted, &first);
    let again = |wanted: &ServiceSpec, taken: &Taken| {
        one(&ranges, taken, Wish { name: name("web"), wanted, before: Some(&stored), as_said: false })
            .unwrap()
    };
    assert_eq!(again(&wanted, &taken), first);
    assert_eq!(again(&stored, &taken), first, "as it was exported");
    // Ports are known by number and protocol, in whatever order.
    let swapped = spec("NodePort", "", &[port(443, "TCP", 0), port(80, "", 0), port(8080, "", 0)]);
    let got = again(&swapped, &taken);
    assert_eq!(got.node_ports[..2], [first.node_ports[1], first.node_ports[0]]);
    assert!(!first.node_ports.contains(&got.node_ports[2]));
    let internal = again(&spec("ClusterIP", "", &[port(80, "", 0)]), &taken);
    assert_eq!((internal.cluster_ips, internal.node_ports), (first.cluster_ips.clone(), vec![0]));
    let dual = ServiceSpec { ip_family_policy: "PreferDualStack".into(), ..wanted.clone() };
    let dual = again(&dual, &taken);
    assert_eq!((dual.cluster_ips[0], dual.cluster_ips.len()), (first.cluster_ips[0], 2));
    let moved = again(&spec("NodePort", "10.96.7.7", &[port(80, "", 0)]), &taken);
    assert_eq!(moved.cluster_ips, ["10.96.7.7".parse::<IpAddr>().unwrap()]);
    let none = again(&spec("", "None", &[]), &taken);
    assert_eq!(none.claims().len(), 0);
}

#[test]
fn what_another_has_is_refused_by_name() {
    let ranges = Ranges::default();
    let taken: Taken = [
        (Claim::ClusterIp("10.96.0.10".parse().unwrap()), name("web")),
        (Claim::NodePort(30_080), name("web")),
        (Claim::NodePort(30_081), name("checked")),
    ]
    .into();
    let refused = |spec: ServiceSpec| one(&ranges, &taken, wish("other", &spec)).unwrap_err().to_string();
    let text = refused(spec("", "10.96.0.10", &[port(80, "", 0)]));
    assert_eq!(
        text,
        "Service default/other: cluster address 10.96.0.10 is taken by Service default/web; choose another, or leave \
         it out to get a free one"
    );
    assert!(
        refused(spec("", "10.96.0.010", &[port(80, "", 0)])).contains("10.96.0.10 is taken"),
        "the same address"
    );
    let text = refused(spec("NodePort", "", &[port(53, "UDP", 30_080)]));
    assert!(text.contains("node port 30080 is taken by Service default/web"), "{text}");
    let balancer = ServiceSpec {
        external_traffic_policy: "Local".into(),
        health_check_node_port: 30_081,
        ..spec("LoadBalancer", "", &[port(80, "", 0)])
    };
    assert!(refused(balancer).contains("30081 is taken by Service default/checked"));
    // Two of one request.
    let twin = spec("", "10.96.5.5", &[port(80, "", 0)]);
    let text = allot(&ranges, &Taken::new(), &[wish("a", &twin), wish("b", &twin)]).unwrap_err().to_string();
    assert!(text.contains("default/b: cluster address 10.96.5.5 is taken by Service default/a"), "{text}");
    // One gives up what the other takes, in one request.
    let (old, new) = (spec("", "10.96.0.10", &[port(80, "", 0)]), spec("", "10.96.9.9", &[port(80, "", 0)]));
    let wishes = [
        Wish { name: name("web"), wanted: &new, before: Some(&old), as_said: false },
        Wish { name: name("zoo"), wanted: &old, before: None, as_said: false },
    ];
    assert!(allot(&ranges, &taken, &wishes).is_ok());
}

#[test]
fn services_that_come_with_theirs_are_taken_as_they_are_wherever_it_is_from() {
    let imported = ServiceSpec {
        cluster_ips: vec!["172.20.1.1".into(), "2001:db8::1".into()],
        ..spec("NodePort", "172.20.1.1", &[port(80, "", 8080)])
    };
    let got = one(&Ranges::default(), &Taken::new(), wish("web", &imported)).unwrap();
    assert_eq!(got, asked(&imported));
    assert_eq!(got.node_ports, [8080]);
    // Two that already share one, from before anybody looked, stay.
    let taken: Taken = [(Claim::ClusterIp("172.20.1.1".parse().unwrap()), name("other"))].into();
    let again = Wish { name: name("web"), wanted: &imported, before: Some(&imported), as_said: false };
    assert_eq!(one(&Ranges::default(), &taken, again).unwrap(), got);
}

#[test]
fn one_port_over_two_protocols_has_one_node_port() {
    let dns = spec("NodePort", "", &[port(53, "UDP", 0), port(53, "TCP", 0), port(9153, "TCP", 0)]);
    let got = one(&Ranges::default(), &Taken::new(), wish("dns", &dns)).unwrap();
    assert_eq!(got.node_ports[0], got.node_ports[1]);
    assert_ne!(got.node_ports[0], got.node_ports[2]);
}

#[test]
fn a_range_is_used_up_to_the_last_and_then_says_so() {
    let ranges = ranges(&["10.0.0.0/28"], "30000-30019");
    let mut taken = Taken::new();
    let wanted = spec("NodePort", "", &[port(80, "", 0)]);
    let mut seen = BTreeSet::new();
    for number in 0..14 {
        let service = format!("s{number}");
        let got = one(&ranges, &taken, wish(&service, &wanted)).unwrap();
        seen.extend(got.claims());
        keep(&mut taken, &service, &wanted, &got);
    }
    assert_eq!(seen.len(), 28);
    assert!(!seen.contains(&Claim::ClusterIp("10.0.0.0".parse().unwrap())), "the network's own");
    assert!(!seen.contains(&Claim::ClusterIp("10.0.0.15".parse().unwrap())), "all of it");
    let full = one(&ranges, &taken, wish("more", &wanted)).unwrap_err().to_string();
    assert_eq!(
        full,
        "Service default/more: no address is left of 10.0.0.0/28; widen it in the controller's configuration"
    );
    taken.retain(|_, owner| *owner != name("s3"));
    assert!(one(&ranges, &taken, wish("more", &wanted)).is_ok(), "what was released is given again");
    let ports = |count: i32| (0..count).map(|number| port(number + 1, "TCP", 0)).collect::<Vec<_>>();
    let many = spec("NodePort", "", &ports(30));
    let full = one(&ranges, &Taken::new(), wish("many", &many)).unwrap_err().to_string();
    assert!(full.contains("no node port is left of 30000-30019"), "{full}");
}

#[test]
fn ranges_that_cannot_be_are_refused() {
    let new = |prefixes: &[&str]| {
        Ranges::new(prefixes.iter().map(|one| one.parse().unwrap()).collect(), NodePorts::default())
    };
    assert!(matches!(new(&["10.0.0.0/8", "10.96.0.0/12"]), Err(RangesError::Overlap { .. })));
    assert!(matches!(new(&["10.0.0.0/31"]), Err(RangesError::TooSmall { .. })));
    assert!(new(&["10.0.0.0/8", "fd00::/64", "11.0.0.1/32"]).is_ok());
    for text in ["", "30000", "0-10", "5-4", "1-70000", "a-b"] {
        assert!(text.parse::<NodePorts>().is_err(), "{text}");
    }
    assert_eq!("30000-32767".parse(), Ok(NodePorts::default()));
}

#[derive(Clone, Debug)]
enum Event {
    Apply(u8, Box<ServiceSpec>),
    Delete(u8),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let spec = (0..4_usize, 0..4_u8, proptest::collection::vec((1..4_i32, 0..2_usize, 0..4_i32), 1..3))
        .prop_map(|(kind, address, ports)| {
            let kind = ["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"][kind];
            // Validation lets no two through.
            let mut seen = BTreeSet::new();
            let ports: Vec<_> = ports
                .into_iter()
                .filter(|(number, protocol, _)| seen.insert((*number, *protocol)))
                .map(|(number, protocol, node)| {
                    port(number, ["TCP", "UDP"][protocol], if node > 2 { 30_000 + number } else { 0 })
                })
                .collect();
            let address = if address == 3 { "10.0.0.3".to_owned() } else { String::new() };
            ServiceSpec {
                external_traffic_policy: "Local".into(),
                ..super::tests::spec(kind, &address, &ports)
            }
        });
    let event = prop_oneof![
        4 => (0..5_u8, spec).prop_map(|(number, spec)| Event::Apply(number, Box::new(spec))),
        1 => (0..5_u8).prop_map(Event::Delete),
    ];
    proptest::collection::vec(event, 0..40)
}

proptest! {
    #[test]
    fn nothing_is_ever_given_twice_and_applying_again_changes_nothing(events in events()) {
        let ranges = ranges(&["10.0.0.0/29"], "30000-30015");
        let (mut taken, mut stored) = (Taken::new(), BTreeMap::new());
        for event in events {
            match event {
                Event::Delete(number) => {
                    stored.remove(&number);
                    taken.retain(|_, owner| *owner != name(&number.to_string()));
                }
                Event::Apply(number, spec) => {
                    let service = number.to_string();
                    let before = stored.get(&number);
                    let wish = Wish { name: name(&service), wanted: &spec, before, as_said: false };
                    let Ok(got) = one(&ranges, &taken, wish) else { continue };
                    for claim in got.claims() {
                        prop_assert!(taken.get(&claim).is_none_or(|owner| *owner == name(&service)), "{claim}");
                    }
                    let kept = keep(&mut taken, &service, &spec, &got);
                    let again = Wish { name: name(&service), wanted: &spec, before: Some(&kept), as_said: false };
                    prop_assert_eq!(one(&ranges, &taken, again).unwrap(), got);
                    stored.insert(number, kept);
                }
            }
            let all: Vec<_> = stored.values().flat_map(|spec| asked(spec).claims()).collect();
            prop_assert_eq!(all.len(), all.iter().collect::<BTreeSet<_>>().len());
            prop_assert_eq!(all.len(), taken.len());
        }
    }
}

/// An API server may hand out one address twice for a moment; a person who types one that is taken is mistaken.
#[test]
fn what_an_api_server_gave_is_taken_as_said_and_what_people_typed_is_not() {
    let ranges = Ranges::default();
    let wanted = spec("ClusterIP", "10.96.0.10", &[port(80, "", 0)]);
    let taken = Taken::from([(Claim::ClusterIp("10.96.0.10".parse().unwrap()), name("web"))]);
    let wish = Wish { name: name("copy"), wanted: &wanted, before: None, as_said: true };
    let got = allot(&ranges, &taken, std::slice::from_ref(&wish)).unwrap();
    assert_eq!(got[0], asked(&wanted));
    let refused = allot(&ranges, &taken, &[Wish { as_said: false, ..wish }]).unwrap_err();
    assert!(refused.to_string().contains("is taken by Service default/web"), "{refused}");
}
