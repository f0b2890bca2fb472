//! An endpoint of a sticky service goes while two hundred thousand clients are bound: what that costs other services.

use std::{
    io,
    net::{IpAddr, Ipv4Addr},
    thread,
    time::{Duration, Instant},
};

use benches::report;
use node_kernel::nft::{Nft, TableId};
use node_nft::{Data, Element, Family, Key, Op, Transaction};
use node_services::{
    Node, Service, Store,
    nftables::{AFFINITY, Bond, Config, Plane, TABLE},
};

use super::{cluster_ip, endpoint_ip, key, millis, service, slice, start};

const CLIENTS: u32 = 200_000;
const OTHERS: u32 = 50;

pub fn measure() -> io::Result<()> {
    let mut store = Store::new(Node { name: "here".into(), ..Node::default() });
    let (name, plain) = service(0);
    store.replace(
        [(name, Service { affinity: Some(10_800), ..plain }), service(1)],
        [slice(0, 4, 0), slice(1, 2, 0)],
    );
    store.patches();
    let (mut proxy, _) = start(&store);
    let table = TableId::new(Family::Ip, TABLE);
    let mut nft = Nft::open().map_err(io::Error::other)?;
    let (_, schema) = Plane::new(false, Config::default()).affinity(Bond::Anywhere);
    for chunk in (0..CLIENTS).collect::<Vec<_>>().chunks(8_192) {
        let elements = chunk.iter().map(|number| client(*number)).collect();
        let ops = vec![Op::AddElements { set: AFFINITY.into(), schema: schema.clone(), elements }];
        nft.commit(&table, &Transaction { ops }).map_err(io::Error::other)?;
    }
    // The first endpoint goes; a quarter of the clients was bound to it.
    store.set_slice(&key(0), slice(0, 4, 1).1);
    let (patches, started) = (store.patches(), Instant::now());
    proxy.update(&store, &patches).expect("the kernel takes the patch");
    report("services.sticky", "removal_ms", millis(started.elapsed()), "ms");
    let mut longest = Duration::ZERO;
    for round in 0..OTHERS {
        store.set_slice(&key(1), slice(1, 2, 1 + round % 2).1);
        let (patches, started) = (store.patches(), Instant::now());
        proxy.update(&store, &patches).expect("the kernel takes the patch");
        longest = longest.max(started.elapsed());
        thread::sleep(Duration::from_millis(20));
    }
    report("services.sticky", "others_longest_ms", millis(longest), "ms");
    let gone = client(0).1.data;
    let left = |nft: &mut Nft| -> io::Result<usize> {
        let mut left = 0;
        nft.scan_set(&table, AFFINITY, |_, element| left += usize::from(element.data == gone))
            .map_err(io::Error::other)?;
        Ok(left)
    };
    while left(&mut nft)? > 0 && started.elapsed() < Duration::from_secs(300) {
        // Looking slows down who is looked at.
        thread::sleep(Duration::from_secs(2));
    }
    report("services.sticky", "forgotten_seconds", started.elapsed().as_secs_f64(), "s");
    proxy.stop().expect("the table can go");
    Ok(())
}

fn client(number: u32) -> (Box<[u8]>, Element) {
    let address = IpAddr::V4(Ipv4Addr::from(0x0b00_0000 + number));
    let frontend = IpAddr::V4(cluster_ip(0));
    let endpoint = IpAddr::V4(endpoint_ip(number % 4));
    let key = Key::new().address(address).address(frontend).proto(6).port(80);
    let value = Key::new().address(endpoint).port(8080).into_boxed();
    (key.into_boxed(), Element { end: None, data: Data::Value(value) })
}
