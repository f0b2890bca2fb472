//! Modules at the top of a crate that depend on each other in a circle.

use std::collections::{BTreeMap, BTreeSet};

use super::source::Source;

/// For each module, those it names.
pub type Uses = BTreeMap<String, BTreeSet<String>>;

/// What the modules at the top of a crate name: by `crate::`, by as many `super::` as lead there, and by names that the root
/// has from another module.
pub fn uses(sources: &[Source]) -> Uses {
    let modules = || sources.iter().filter(|source| !source.is_root());
    let names: BTreeSet<&str> = modules().map(Source::module).collect();
    let given: BTreeMap<String, String> =
        sources.iter().filter(|source| source.is_root()).flat_map(|root| given(&root.code)).collect();
    let mut uses: Uses = names.iter().map(|name| ((*name).to_owned(), BTreeSet::new())).collect();
    for source in modules() {
        let to_root = "super::".repeat(source.depth());
        let by_super = source.code.match_indices(&to_root).filter(|(at, _)| {
            !source.code[..*at].ends_with("super::")
                && !source.code[at + to_root.len()..].starts_with("super")
        });
        let by_super = by_super.map(|(at, _)| &source.code[at + to_root.len()..]);
        let by_crate = source.code.split("crate::").skip(1);
        for name in by_crate.chain(by_super).flat_map(first_names) {
            let module = given.get(&name).unwrap_or(&name);
            if names.contains(module.as_str()) && module != source.module() {
                uses.get_mut(source.module()).expect("all are there").insert(module.clone());
            }
        }
    }
    uses
}

/// Names that a root has from its modules, with the module: `pub use plan::{Op, Plan}`.
fn given(root: &str) -> Vec<(String, String)> {
    let mut given = Vec::new();
    for tree in root.split("use ").skip(1).filter_map(|rest| rest.split(';').next()) {
        let tree = tree.trim_start_matches("crate::").trim_start_matches("self::");
        let Some((module, names)) = tree.split_once("::") else { continue };
        let names = names.split(|char: char| !char.is_alphanumeric() && char != '_');
        let names = names.filter(|name| !name.is_empty() && *name != "as");
        given.extend(names.map(|name| (name.to_owned(), module.trim().to_owned())));
    }
    given
}

/// The names that follow a `crate::`: one, or those in its braces.
fn first_names(text: &str) -> Vec<String> {
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    let name = |text: &str| text.chars().take_while(|char| is_word(*char)).collect::<String>();
    let Some(list) = text.strip_prefix('{') else { return vec![name(text)] };
    let (mut depth, mut names, mut at_start) = (1, Vec::new(), true);
    for (at, char) in list.char_indices() {
        match char {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => at_start = true,
            _ if at_start && depth == 1 && is_word(char) => {
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

/// Modules each of which leads to all the others, if there are several such.
pub fn knots(uses: &Uses) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<String>> =
        uses.keys().map(|module| (module, reached(module, uses))).collect();
    let knot = |module: &String| -> BTreeSet<String> {
        reach[module].iter().filter(|other| reach[other].contains(module)).cloned().collect()
    };
    let knots: BTreeSet<_> = uses.keys().map(knot).filter(|knot| knot.len() > 1).collect();
    knots.into_iter().collect()
}

fn reached(from: &str, uses: &Uses) -> BTreeSet<String> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
    while let Some(module) = open.pop() {
        for next in &uses[module] {
            if reached.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    reached
}
