//! The documents: every link leads somewhere, every page is reached from the README, and every test they name is there.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn repository() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

/// The pages: Markdown at the top and below `docs`.
fn pages() -> Vec<PathBuf> {
    let mut dirs = vec![repository().join("docs")];
    let top = fs::read_dir(repository()).unwrap().map(|entry| entry.unwrap().path());
    let mut pages: Vec<_> = top.filter(|path| is_page(path)).collect();
    while let Some(dir) = dirs.pop() {
        for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                dirs.push(path);
            } else if is_page(&path) {
                pages.push(path);
            }
        }
    }
    pages
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// The text without blocks of code, in which brackets mean something else.
fn prose(page: &Path) -> String {
    let text = fs::read_to_string(page).unwrap();
    let mut inside = false;
    let kept = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    kept.collect::<Vec<_>>().join("\n")
}

/// Targets of `[text](target)`, `src="target"` and `srcset="target"`.
fn links(text: &str) -> Vec<String> {
    let markdown = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let html =
        ["src=\"", "srcset=\"", "href=\""].into_iter().flat_map(|attribute| text.split(attribute).skip(1));
    let html = html.filter_map(|rest| rest.split_once('"'));
    markdown.chain(html).map(|(target, _)| target.to_owned()).collect()
}

/// A heading's anchor, as GitHub makes it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || *c == ' ' || *c == '-' || *c == '_');
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_anchor(page: &Path, wanted: &str) -> bool {
    prose(page)
        .lines()
        .filter(|line| line.starts_with('#'))
        .any(|line| anchor(line.trim_start_matches('#')) == wanted)
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        for link in
            links(&prose(&page)).iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
        {
            let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            let found = target.exists() && (fragment.is_empty() || has_anchor(&target, fragment));
            if !found {
                broken.push(format!("{}: {link}", page.strip_prefix(repository()).unwrap().display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_is_reached_from_the_readme() {
    let mut reached = BTreeSet::new();
    let mut next = vec![repository().join("README.md")];
    while let Some(page) = next.pop() {
        if !reached.insert(page.clone()) {
            continue;
        }
        let targets = links(&prose(&page)).into_iter().map(|link| {
            let file = link.split_once('#').map_or(link.as_str(), |(file, _)| file).to_owned();
            page.parent().unwrap().join(file)
        });
        next.extend(
            targets.filter(|target| is_page(target)).filter_map(|target| fs::canonicalize(target).ok()),
        );
    }
    let lost: Vec<_> = pages().into_iter().filter(|page| !reached.contains(page)).collect();
    assert!(lost.is_empty(), "{lost:#?}");
}

/// Every source file below `crates`, as one text.
fn sources(dir: &Path) -> String {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| match path.extension() {
            _ if path.is_dir() => sources(&path),
            Some(extension) if extension == "rs" => fs::read_to_string(&path).unwrap(),
            Some(_) | None => String::new(),
        })
        .collect()
}

#[test]
fn the_tests_that_prove_storage_cases_exist() {
    let page = fs::read_to_string(repository().join("docs/storage.md")).unwrap();
    let (_, cases) = page.split_once("## Cases, and what proves each").unwrap();
    let (cases, _) = cases.split_once("\n## ").unwrap();
    // Of what stands between backticks, only names of tests have several underscores.
    let named: Vec<&str> =
        cases.split('`').skip(1).step_by(2).filter(|it| it.matches('_').count() > 2).collect();
    assert!(named.len() > 20, "{named:?}");
    let sources = sources(&repository().join("crates"));
    let missing: Vec<_> = named.iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}

/// Names may be cut, and then end in an ellipsis.
#[test]
fn every_point_of_parity_with_kube_proxy_is_shown_by_a_test() {
    let page = fs::read_to_string(repository().join("docs/services.md")).unwrap();
    let (_, section) = page.split_once("## Beside kube-proxy").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() > 18, "{rows:#?}");
    let sources = sources(&repository().join("crates"));
    for row in rows {
        let shown = row.trim_end_matches(['|', ' ']).rsplit('|').next().unwrap().trim();
        let named: Vec<&str> = shown.split('`').skip(1).step_by(2).filter(|it| it.contains('_')).collect();
        assert!(shown == "–" || !named.is_empty(), "no test shows it: {row}");
        for name in named {
            let whole =
                name.strip_suffix('…').map_or_else(|| format!("fn {name}("), |cut| format!("fn {cut}"));
            assert!(sources.contains(&whole), "there is no test {name}: {row}");
        }
    }
}

/// Files named in ARCHITECTURE.md, whole (`crates/…`) or from a room on (`server/listen.rs`, `access/gate.rs`).
#[test]
fn every_source_the_drawing_names_is_there() {
    let root = repository();
    let (mut dirs, mut files) = (vec![root.join("crates")], BTreeSet::new());
    while let Some(dir) = dirs.pop() {
        for path in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => dirs.push(path),
                false => drop(files.insert(path.strip_prefix(&root).unwrap().display().to_string())),
            }
        }
    }
    let short: Vec<String> = files.iter().map(|file| file.replace("/src/", "/")).collect();
    let is_there = |named: &str| match named.starts_with("crates/") {
        true => files.contains(named),
        false => short.iter().any(|file| file.ends_with(&format!("/{named}"))),
    };
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let words = text.split(|char: char| !char.is_alphanumeric() && !"_/.-".contains(char));
    let named: BTreeSet<&str> = words.filter(|word| word.ends_with(".rs")).collect();
    assert!(named.len() > 80, "there are walks: {named:?}");
    let missing: Vec<_> = named.into_iter().filter(|named| !is_there(named)).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names files that are not there: {missing:?}");
}
