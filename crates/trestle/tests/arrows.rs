//! Which room may depend on which: arrows point towards `model`, and pure rooms stay pure.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// For each room of the workspace, the rooms it may depend on. A room that is not listed fails the test.
const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("wire", &["model"]),
    ("life", &[]),
    ("common", &[]),
    ("files", &[]),
    ("store", &["common", "files"]),
    ("tags", &["model"]),
    ("policy", &["model"]),
    ("transport", &["life"]),
    ("page", &[]),
    ("watch", &["model"]),
    ("node-nft", &[]),
    ("node-services", &["model", "node-nft"]),
    ("node-policy", &["model", "node-nft"]),
    ("node-kernel", &["common", "node-nft", "node-policy", "node-services"]),
    ("services", &["model", "node-nft", "node-services"]),
    ("cloud-api", &["model", "wire"]),
    ("cloud-linux", &["model", "common", "files", "cloud-api", "node-nft", "node-kernel"]),
    ("cloud-http", &["common", "cloud-api"]),
    ("cloud-aws", &["model", "cloud-api", "cloud-http"]),
    ("cloud-azure", &["model", "cloud-api", "cloud-http"]),
    ("cloud-gcp", &["model", "cloud-api", "cloud-http"]),
    ("cloud-ibm", &["model", "cloud-api", "cloud-http"]),
    // For tests and demonstrations; `only_the_demonstration_knows_the_simulators`.
    ("cloud-sim", &["model", "cloud-http"]),
    ("orchestrator", &["model", "common", "tags", "store", "cloud-api"]),
    ("storage-provider", &["model", "common"]),
    ("storage-backend", &["model", "common", "storage-provider"]),
    ("storage-nbd", &["model", "common", "files", "storage-provider", "storage-backend"]),
    ("storage-ceph", &["model", "storage-provider", "storage-backend"]),
    (
        "drivers",
        &[
            "model",
            "wire",
            "life",
            "common",
            "files",
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
            "cloud-api",
            "cloud-linux",
            "cloud-aws",
            "cloud-azure",
            "cloud-gcp",
            "cloud-ibm",
        ],
    ),
    (
        "server",
        &[
            "model",
            "wire",
            "life",
            "common",
            "files",
            "store",
            "drivers",
            // Whose words are told to callers.
            "tags",
            "policy",
            "services",
            "node-services",
            "storage-provider",
            "storage-backend",
            "storage-nbd",
            "watch",
            "transport",
            "orchestrator",
            "cloud-api",
        ],
    ),
    (
        "agent",
        &[
            "model",
            "common",
            "wire",
            "life",
            "files",
            "transport",
            "node-policy",
            "node-services",
            "node-kernel",
        ],
    ),
    (
        "trestle",
        &[
            "model",
            "wire",
            "life",
            "files",
            "store",
            "server",
            "agent",
            "page",
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
    ("common", &[]),
    ("model", &["ipnet", "serde", "serde_json", "sha1", "sha2", "strsim", "thiserror", "uuid"]),
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

/// Crates of many modules, in which a knot would come back unseen.
const WITHOUT_KNOTS: &[&str] = &["drivers", "server"];

#[test]
fn top_level_modules_form_no_cycle() {
    for room in WITHOUT_KNOTS {
        let uses = modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(room).join("src"));
        let mut done = BTreeSet::new();
        for module in uses.keys() {
            let mut path = Vec::new();
            if let Some(cycle) = cycle(module, &uses, &mut path, &mut done) {
                panic!("modules of {room} depend on each other: {}", cycle.join(" -> "));
            }
        }
    }
}

/// For each module at the top of a crate, those it names. Tests may name what they like.
fn modules(src: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut files = Vec::new();
    sources(src, &mut files);
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.ends_with("tests.rs") && !file.ends_with("lib.rs")) {
        let path = file.strip_prefix(src).unwrap();
        let module = path.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        let text = fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        texts.entry(module.to_owned()).or_default().push_str(code);
    }
    let names: BTreeSet<String> = texts.keys().cloned().collect();
    let uses = |module: &str, text: &str| {
        let named = text.split("crate::").skip(1).flat_map(first_names);
        named.filter(|name| names.contains(name) && name != module).collect()
    };
    texts.iter().map(|(module, text)| (module.clone(), uses(module, text))).collect()
}

/// The modules that the text after a `crate::` names: one, or those in its braces.
fn first_names(text: &str) -> Vec<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(list) = text.strip_prefix('{') else { return vec![name(text)] };
    let (mut depth, mut names, mut at_start) = (1, Vec::new(), true);
    for (at, char) in list.char_indices() {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => at_start = true,
            _ if at_start && depth == 1 && char.is_alphabetic() => {
                names.push(name(&list[at..]));
                at_start = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    names
}

/// The way from a module back to itself, if there is one. Modules in `done` are in none.
fn cycle(
    module: &str,
    uses: &BTreeMap<String, BTreeSet<String>>,
    path: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if done.contains(module) {
        return None;
    }
    path.push(module.to_owned());
    if let Some(start) = path[..path.len() - 1].iter().position(|before| before == module) {
        return Some(path[start..].to_vec());
    }
    for next in uses.get(module).into_iter().flatten() {
        if let Some(found) = cycle(next, uses, path, done) {
            return Some(found);
        }
    }
    path.pop();
    done.insert(module.to_owned());
    None
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
