//! Which room may depend on which: arrows point towards `model`, and pure rooms stay pure.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// For each room of the workspace, the rooms it may depend on. A room that is not listed fails the test.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("wire", &["model"]),
    ("life", &[]),
    ("store", &[]),
    ("tags", &["model"]),
    ("policy", &["model"]),
    ("transport", &[]),
    ("page", &[]),
    ("watch", &["model"]),
    ("node-nft", &[]),
    ("node-services", &["model", "node-nft"]),
    ("node-policy", &["model", "node-nft"]),
    ("node-kernel", &["node-nft", "node-policy", "node-services"]),
    ("services", &["model", "node-nft", "node-services"]),
    ("cloud-api", &["model", "wire"]),
    ("cloud-linux", &["model", "cloud-api", "node-nft", "node-kernel"]),
    ("cloud-http", &["cloud-api"]),
    ("cloud-aws", &["model", "cloud-api", "cloud-http"]),
    ("cloud-azure", &["model", "cloud-api", "cloud-http"]),
    ("cloud-gcp", &["model", "cloud-api", "cloud-http"]),
    ("cloud-ibm", &["model", "cloud-api", "cloud-http"]),
    // For tests and demonstrations; `only_the_demonstration_knows_the_simulators`.
    ("cloud-sim", &["model", "cloud-http"]),
    ("orchestrator", &["model", "tags", "store", "cloud-api"]),
    ("storage-provider", &["model"]),
    ("storage-backend", &["model", "storage-provider"]),
    ("storage-nbd", &["model", "storage-provider", "storage-backend"]),
    ("storage-ceph", &["model", "storage-provider", "storage-backend"]),
    (
        "server",
        &[
            "model",
            "wire",
            "store",
            "tags",
            "policy",
            "services",
            "node-services",
            "storage-provider",
            "storage-backend",
            "storage-nbd",
            "storage-ceph",
            "watch",
            "transport",
            "orchestrator",
            "page",
            "cloud-api",
            "cloud-linux",
            "cloud-aws",
            "cloud-azure",
            "cloud-gcp",
            "cloud-ibm",
        ],
    ),
    ("agent", &["model", "wire", "life", "transport", "node-policy", "node-services", "node-kernel"]),
    (
        "trestle",
        &[
            "model",
            "wire",
            "store",
            "server",
            "agent",
            "node-kernel",
            "node-services",
            "cloud-api",
            "cloud-linux",
            "cloud-aws",
            "cloud-azure",
            "cloud-gcp",
            "cloud-ibm",
            // The demonstration's.
            "cloud-http",
            "cloud-sim",
        ],
    ),
    ("benches", &[]),
];

/// Rooms without I/O, clock and randomness, and what they may use beside other rooms.
const PURE: &[(&str, &[&str])] = &[
    ("model", &["ipnet", "serde", "serde_json", "sha1", "sha2", "thiserror", "uuid"]),
    ("tags", &["imbl", "thiserror"]),
    ("policy", &["hashbrown", "ipnet", "rustc-hash", "serde_json", "sha1", "smallvec", "thiserror", "uuid"]),
    ("node-nft", &["ipnet"]),
    ("node-policy", &["ipnet", "rustc-hash"]),
    ("node-services", &["ipnet"]),
    ("services", &["ipnet", "thiserror"]),
];

fn dependencies() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            // Tests may use what they like.
            let normal = dependencies.filter(|dependency| dependency["kind"].is_null());
            let names = normal.map(|dependency| dependency["name"].as_str().unwrap().to_owned());
            (package["name"].as_str().unwrap().to_owned(), names.collect())
        })
        .collect()
}

fn lookup<'a>(table: &'a [(&str, &'a [&str])], room: &str) -> Option<&'a [&'a str]> {
    table.iter().find(|(name, _)| *name == room).map(|(_, allowed)| *allowed)
}

#[test]
fn arrows_point_towards_model() {
    let rooms = dependencies();
    for (room, dependencies) in &rooms {
        let allowed =
            lookup(ARROWS, room).unwrap_or_else(|| panic!("{room} is a new room: give it its arrows"));
        for dependency in dependencies.iter().filter(|dependency| rooms.contains_key(*dependency)) {
            assert!(allowed.contains(&dependency.as_str()), "{room} must not depend on {dependency}");
        }
    }
}

#[test]
fn pure_rooms_stay_pure() {
    let rooms = dependencies();
    for (room, allowed) in PURE {
        for dependency in rooms[*room].iter().filter(|dependency| !rooms.contains_key(*dependency)) {
            assert!(allowed.contains(&dependency.as_str()), "{room} is pure and must not use {dependency}");
        }
    }
}

/// They are in the binary for `trestle up --demo --clouds sim`, and out of reach of everything else in it.
#[test]
fn only_the_demonstration_knows_the_simulators() {
    let rooms = dependencies();
    let users: Vec<_> = rooms
        .iter()
        .filter(|(_, names)| names.iter().any(|name| name == "cloud-sim"))
        .map(|(room, _)| room)
        .collect();
    assert_eq!(users, ["trestle"]);
    let mut files = Vec::new();
    sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut files);
    let naming = files.iter().filter(|path| fs::read_to_string(path).unwrap().contains("cloud_sim"));
    let names: Vec<_> = naming.map(|path| path.file_name().unwrap()).collect();
    assert_eq!(names, ["simulated.rs"]);
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.push(path),
        }
    }
}
