use super::*;
use crate::{
    Slice, SliceEndpoint,
    testing::{endpoint, ip, node, slice},
};

const READY: (bool, bool, bool) = (true, true, false);
const DRAINING: (bool, bool, bool) = (false, true, true);
const GONE: (bool, bool, bool) = (false, false, true);
const NOT_READY: (bool, bool, bool) = (false, false, false);

fn known(slice: Slice) -> KnownSlice {
    KnownSlice::new(slice, Into::into, Into::into)
}

fn one(address: &str, on: &str, (ready, serving, terminating): (bool, bool, bool)) -> SliceEndpoint {
    SliceEndpoint {
        ready: Some(ready),
        serving: Some(serving),
        terminating: Some(terminating),
        ..endpoint(address, on)
    }
}

fn hinted(one: SliceEndpoint, zones: &[&str], nodes: &[&str]) -> SliceEndpoint {
    let owned = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
    SliceEndpoint { zone_hints: owned(zones), node_hints: owned(nodes), ..one }
}

/// Last bytes of the addresses in the cluster pool and in the local pool, and whether there is any endpoint.
fn pools(uses_cluster: bool, uses_local: bool, endpoints: &[SliceEndpoint]) -> (Vec<u8>, Vec<u8>, bool) {
    let wanted = Wanted { port_name: "http", protocol: Protocol::Tcp, ipv6: false, uses_cluster, uses_local };
    let selection = select(wanted, [&known(slice("web", endpoints.to_vec()))], &node());
    let last = |one: &&EndpointInfo| match one.address {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(_) => 0,
    };
    let pick = |of: fn(&&EndpointInfo) -> bool| {
        selection.endpoints.iter().filter(of).map(|one| last(&one)).collect()
    };
    (pick(|one| one.in_cluster_pool), pick(|one| one.in_local_pool), selection.has_endpoints)
}

#[test]
fn conditions_that_are_unknown_mean_ready_and_serving() {
    assert_eq!(pools(true, false, &[endpoint("10.0.0.1", "there")]), (vec![1], vec![], true));
}

#[test]
fn the_cluster_pool_is_what_is_ready_else_what_drains() {
    let ready = one("10.0.0.1", "there", READY);
    let draining = one("10.0.0.2", "there", DRAINING);
    let gone = one("10.0.0.3", "there", GONE);
    let not_ready = one("10.0.0.4", "there", NOT_READY);
    assert_eq!(pools(true, false, &[ready, draining.clone(), gone.clone(), not_ready.clone()]).0, [1]);
    assert_eq!(pools(true, false, &[draining, gone.clone(), not_ready.clone()]).0, [2]);
    assert_eq!(pools(true, false, &[gone, not_ready]), (vec![], vec![], false));
}

#[test]
fn the_local_pool_drains_by_itself() {
    let remote_ready = one("10.0.0.1", "there", READY);
    let local_draining = one("10.0.0.2", "here", DRAINING);
    let endpoints = [remote_ready, local_draining.clone()];
    assert_eq!(pools(true, true, &endpoints), (vec![1], vec![2], true));
    let local_ready = one("10.0.0.3", "here", READY);
    assert_eq!(
        pools(true, true, &[endpoints[0].clone(), local_draining, local_ready]),
        (vec![1, 3], vec![3], true)
    );
}

#[test]
fn an_endpoint_elsewhere_is_known_of_though_not_used() {
    let remote = [one("10.0.0.1", "there", READY)];
    assert_eq!(pools(false, true, &remote), (vec![], vec![], true), "dropped, not rejected");
    assert_eq!(pools(false, true, &[one("10.0.0.1", "there", NOT_READY)]), (vec![], vec![], false));
}

#[test]
fn hints_count_if_all_have_them_and_one_means_this_zone() {
    let a = hinted(one("10.0.0.1", "there", READY), &["a"], &[]);
    let b = hinted(one("10.0.0.2", "here", READY), &["b"], &[]);
    let none = one("10.0.0.3", "there", READY);
    let unready_without = one("10.0.0.4", "there", NOT_READY);
    assert_eq!(pools(true, false, &[a.clone(), b.clone()]).0, [1]);
    assert_eq!(
        pools(true, false, &[a.clone(), b.clone(), unready_without]).0,
        [1],
        "only ready ones need hints"
    );
    assert_eq!(pools(true, false, &[a.clone(), b.clone(), none]).0, [1, 2, 3], "one without: no hint counts");
    assert_eq!(pools(true, false, std::slice::from_ref(&b)).0, [2], "none for this zone: no hint counts");
    assert_eq!(pools(true, true, &[a, b]).1, [2], "hints do not apply to the local pool");
}

#[test]
fn node_hints_come_before_zone_hints() {
    let here = hinted(one("10.0.0.1", "here", READY), &["a"], &["here"]);
    let there = hinted(one("10.0.0.2", "there", READY), &["a"], &["there"]);
    assert_eq!(pools(true, false, &[here, there.clone()]).0, [1]);
    assert_eq!(
        pools(true, false, &[there.clone(), hinted(one("10.0.0.3", "x", READY), &["b"], &["x"])]).0,
        [2]
    );
    assert_eq!(pools(true, false, &[there]).0, [2]);
}

#[test]
fn the_same_address_and_port_twice_is_one_endpoint_and_what_does_not_terminate_wins() {
    let endpoints = [one("10.0.0.1", "there", DRAINING), one("10.0.0.1", "there", READY)];
    for order in [[0, 1], [1, 0]] {
        let list = order.map(|index: usize| endpoints[index].clone());
        assert_eq!(pools(true, false, &list), (vec![1], vec![], true));
    }
}

#[test]
fn ports_go_by_name_and_protocol_and_each_slice_has_its_own_numbers() {
    let first = slice("web", vec![endpoint("10.0.0.1", "there")]);
    let mut second = slice("web", vec![endpoint("10.0.0.2", "there"), endpoint("fd00::1", "there")]);
    second.ports[0].port = Some(9090);
    let mut other = slice("web", vec![endpoint("10.0.0.3", "there")]);
    other.ports[0].name = Some("metrics".into());
    let mut nameless = slice("web", vec![endpoint("10.0.0.4", "there")]);
    nameless.ports[0].name = None;
    let mut portless = slice("web", vec![endpoint("10.0.0.5", "there")]);
    portless.ports[0].port = None;
    let mut zero = slice("web", vec![endpoint("10.0.0.6", "there")]);
    zero.ports[0].port = Some(0);
    let mut headless = slice("web", vec![endpoint("10.0.0.7", "there")]);
    headless.labels.insert(model::service::HEADLESS_LABEL.into(), String::new());
    let wanted = Wanted {
        port_name: "http",
        protocol: Protocol::Tcp,
        ipv6: false,
        uses_cluster: true,
        uses_local: false,
    };
    let slices = [first, second, other, nameless, portless, zero, headless].map(known);
    let selection = select(wanted, &slices, &node());
    let found: Vec<_> = selection.endpoints.iter().map(EndpointInfo::socket).collect();
    assert_eq!(found, [(ip("10.0.0.1"), 8080), (ip("10.0.0.2"), 9090)]);
}
