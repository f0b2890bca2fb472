//! The walls of the house: arrows point towards `model`, pure rooms are pure, modules do not depend on each other in circles, and
//! tests do not reach into other crates. `checks` holds made-up sources against the checkers, so that they cannot pass
//! by seeing nothing.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod checks;
mod knots;
mod purity;
mod rooms;
mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use rooms::{ARROWS, FOR_TESTS, KNOTS, LOOKED_UP, PURE, PURE_MODULES};
use source::{Source, files, sources};

struct Room {
    /// Its folder.
    dir: PathBuf,
    /// Its dependencies with their features; those of tests are not among them.
    uses: Vec<(String, Vec<String>)>,
}

impl Room {
    fn sources(&self) -> Vec<Source> {
        sources(&self.dir.join("src"))
    }
}

/// What cargo knows of the workspace.
fn packages() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .unwrap();
    let mut metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    serde_json::from_value(metadata["packages"].take()).unwrap()
}

fn rooms() -> BTreeMap<String, Room> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let room = |package: &Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let normal = dependencies.filter(|dependency| dependency["kind"].is_null());
        let uses = normal
            .map(|one| (text(&one["name"]), one["features"].as_array().unwrap().iter().map(text).collect()));
        let dir = Path::new(package["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned();
        (text(&package["name"]), Room { dir, uses: uses.collect() })
    };
    packages().iter().map(room).collect()
}

/// `unified` asks for every feature that a room asks for of what is not ours, so that a room that is built beside it is built with
/// what the workspace has built.
#[test]
fn one_room_is_built_like_all_of_them() {
    let packages = packages();
    let ours: BTreeSet<&str> = packages.iter().map(|package| package["name"].as_str().unwrap()).collect();
    let mut asked: BTreeMap<&str, BTreeSet<[String; 3]>> = BTreeMap::new();
    for package in &packages {
        let others = package["dependencies"].as_array().unwrap().iter();
        for other in others.filter(|other| !ours.contains(other["name"].as_str().unwrap())) {
            let kind = if other["kind"] == "build" { "build script" } else { "code" };
            let features = other["features"].as_array().unwrap().iter().map(|name| name.as_str().unwrap());
            let rows = features.chain([""]).map(|feature| {
                [kind.to_owned(), other["name"].as_str().unwrap().to_owned(), feature.to_owned()]
            });
            asked.entry(package["name"].as_str().unwrap()).or_default().extend(rows);
        }
    }
    let unified = asked.remove("unified").unwrap();
    let all: BTreeSet<[String; 3]> = asked.into_values().flatten().collect();
    let missing: Vec<_> = all.difference(&unified).collect();
    assert!(missing.is_empty(), "crates/unified/Cargo.toml lacks: {missing:#?}");
}

fn lookup<'a>(table: &'a [(&str, &'a [&str])], room: &str) -> Option<&'a [&'a str]> {
    table.iter().find(|(name, _)| *name == room).map(|(_, allowed)| *allowed)
}

#[test]
fn arrows_point_towards_model() {
    let rooms = rooms();
    for (room, Room { uses, .. }) in &rooms {
        let allowed =
            lookup(ARROWS, room).unwrap_or_else(|| panic!("{room} is a new room: give it its arrows"));
        for (other, features) in uses.iter().filter(|(other, _)| rooms.contains_key(other)) {
            assert!(allowed.contains(&other.as_str()), "{room} must not depend on {other}");
            let for_tests = features.iter().find(|feature| FOR_TESTS.contains(&feature.as_str()));
            assert_eq!(for_tests, None, "{room} has of {other} what is for tests");
        }
    }
}

#[test]
fn pure_rooms_stay_pure() {
    let rooms = rooms();
    for (room, allowed) in PURE {
        for (other, _) in rooms[*room].uses.iter().filter(|(other, _)| !rooms.contains_key(other)) {
            assert!(allowed.contains(&other.as_str()), "{room} is pure and must not use {other}");
        }
        let found = faults(room, &rooms[*room].sources());
        assert!(found.is_empty(), "{room} is pure:\n{}", found.join("\n"));
    }
    for (room, module) in PURE_MODULES {
        let sources = rooms[*room].sources();
        let sources: Vec<Source> = sources.into_iter().filter(|source| source.module() == *module).collect();
        assert!(!sources.is_empty(), "{room} has no {module}");
        let found = faults(room, &sources);
        assert!(found.is_empty(), "{module} of {room} is pure:\n{}", found.join("\n"));
    }
}

fn faults(room: &str, sources: &[Source]) -> Vec<String> {
    let looked_up = lookup(LOOKED_UP, room).unwrap_or_default();
    let allowed = |source: &Source, fault: &String| {
        fault.contains("by chance") && looked_up.iter().any(|path| source.path == Path::new(path))
    };
    let found = sources.iter().map(|source| (source, purity::faults(source)));
    found.flat_map(|(source, found)| found.into_iter().filter(move |fault| !allowed(source, fault))).collect()
}

/// ARCHITECTURE.md marks the rooms that are checked, and no others.
#[test]
fn the_drawing_marks_the_pure_rooms() {
    let drawing = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let first = |line: &str| line.split('|').nth(1).map(str::to_owned);
    let marked: BTreeSet<String> = drawing
        .lines()
        .filter_map(first)
        .filter(|cell| cell.contains('●'))
        .map(|cell| cell.replace(['`', '●', ' '], ""))
        .collect();
    assert_eq!(marked, PURE.iter().map(|(room, _)| (*room).to_owned()).collect());
}

/// The plan of the orchestrator is a function of its arguments: it knows nothing of what carries it out.
#[test]
fn the_plan_does_not_know_who_carries_it_out() {
    let uses = knots::uses(&rooms()["orchestrator"].sources());
    assert_eq!(uses["plan"], BTreeSet::new());
    assert!(uses["execute"].contains("plan"));
}

/// They are a lab program's, which `trestle up --demo --clouds sim` starts where it is installed.
#[test]
fn the_product_does_not_know_the_simulators() {
    let rooms = rooms();
    let users = |used: &str| -> Vec<&String> {
        let shipped = rooms.iter().filter(|(room, _)| !room.starts_with("testkit"));
        let users = shipped.filter(|(_, room)| room.uses.iter().any(|(name, _)| name == used));
        users.map(|(room, _)| room).collect()
    };
    assert_eq!(users("cloud-sim"), ["trestle-clouds"]);
    assert!(users("trestle-clouds").is_empty());
}

#[test]
fn top_level_modules_form_no_cycle() {
    let (mut new, mut mended): (Vec<String>, Vec<&(_, _, _)>) = (Vec::new(), Vec::new());
    for (room, Room { dir, .. }) in &rooms() {
        if !dir.join("src").exists() {
            continue;
        }
        let found = knots::knots(&knots::uses(&sources(&dir.join("src"))));
        let known = || KNOTS.iter().filter(|(of, ..)| of == room);
        let within = |knot: &BTreeSet<String>, modules: &[&str]| {
            knot.iter().all(|module| modules.contains(&module.as_str()))
        };
        new.extend(
            found
                .iter()
                .filter(|knot| !known().any(|(_, modules, _)| within(knot, modules)))
                .map(|knot| format!("{room}: {knot:?}")),
        );
        mended.extend(known().filter(|(_, modules, _)| !found.iter().any(|knot| within(knot, modules))));
    }
    assert!(new.is_empty(), "modules depend on each other:\n{}", new.join("\n"));
    assert!(mended.is_empty(), "no knots any more, take them from the list: {mended:?}");
}

#[test]
fn no_path_leaves_its_crate() {
    let found: Vec<String> = rooms().values().flat_map(|room| leaving(&room.dir)).collect();
    assert!(found.is_empty(), "reaches into another crate, use testkit:\n{}", found.join("\n"));
}

/// `#[path]` attributes below a crate that name a file outside of it.
fn leaving(dir: &Path) -> Vec<String> {
    let folders = ["src", "tests", "benches"].map(|folder| dir.join(folder));
    let files = folders.iter().filter(|folder| folder.exists()).flat_map(|folder| files(folder));
    let mut found = Vec::new();
    for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
        for line in fs::read_to_string(&file).unwrap().lines() {
            let path = line.trim().strip_prefix("#[path = \"").and_then(|rest| rest.split('"').next());
            let leaves = |path: &str| !resolved(&file.with_file_name(path)).starts_with(dir);
            found.extend(path.filter(|path| leaves(path)).map(|path| format!("{}: {path}", file.display())));
        }
    }
    found
}

/// Without `..`.
fn resolved(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, part| {
        match part {
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
        path
    })
}

fn root() -> PathBuf {
    resolved(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}
