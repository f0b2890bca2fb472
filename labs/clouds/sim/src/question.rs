//! What no cloud answers, for people and scripts.
//!
//! ```text
//!   GET /wire?from=10.0.0.4&to=10.1.0.4&protocol=tcp&port=443   would a packet get there? (ICMP unless said otherwise)
//!                                                               one line, `reached` or `blocked` and by what
//!   GET /meter                                                  {"seconds": …, "requests": …} since the clouds are there
//!   GET /left?cloud=aws                                         [id, …] of what somebody has to pay for there
//! ```

use axum::{
    Json,
    extract::{Query, State},
};
use cloud_http::Clock as _;
use http::StatusCode;
use model::Packet;
use serde_json::{Value, json};

use crate::server::Shared;

pub(crate) type Words = Query<std::collections::BTreeMap<String, String>>;

pub(crate) async fn wire(State(shared): State<Shared>, Query(words): Words) -> (StatusCode, String) {
    let word = |name: &str| words.get(name).map(String::as_str);
    let address = |name: &str| word(name).and_then(|text| text.parse().ok());
    let packet = packet(word("protocol").unwrap_or("icmp"), word("port").unwrap_or("0"));
    let (Some(from), Some(to), Some(packet)) = (address("from"), address("to"), packet) else {
        let usage = "ask as /wire?from=ADDRESS&to=ADDRESS[&protocol=icmp|tcp|udp][&port=NUMBER]\n";
        return (StatusCode::BAD_REQUEST, usage.to_owned());
    };
    let mut world = shared.world.lock();
    world.settle(shared.clock.now().as_secs());
    match world.wire().trip(from, to, &packet) {
        Some(trip) => (StatusCode::OK, format!("{trip}\n")),
        None => (StatusCode::NOT_FOUND, "one of the two is nobody's address\n".to_owned()),
    }
}

pub(crate) async fn meter(State(shared): State<Shared>) -> Json<Value> {
    let requests = shared.world.lock().calls.len();
    Json(json!({ "seconds": shared.clock.elapsed().as_secs_f64(), "requests": requests }))
}

/// Once everything that is under way has come to its end.
pub(crate) async fn left(State(shared): State<Shared>, Query(words): Words) -> Json<Vec<String>> {
    let cloud = words.get("cloud").map_or("", String::as_str);
    Json(shared.left_in(cloud))
}

fn packet(protocol: &str, port: &str) -> Option<Packet> {
    let protocol = match protocol {
        "icmp" => 1,
        "tcp" => 6,
        "udp" => 17,
        _ => return None,
    };
    // Any port a client could have.
    Some(Packet { protocol, src_port: if protocol == 1 { 0 } else { 40_000 }, dst_port: port.parse().ok()? })
}
