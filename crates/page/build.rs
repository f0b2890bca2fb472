//! Takes the files of `web/dist` into the binary; a page that says how to build them, if they are not there.
//!
//! Nothing is built or fetched from here: `make page` does that, where Node.js is.

use std::{
    collections::BTreeMap,
    env, fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
};

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let dist = manifest.join("../../web/dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    println!("cargo::rerun-if-changed=src/missing.html");
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(&dist).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_file() && kind(&name).is_some() {
            files.insert(name, path);
        }
    }
    let built = files.contains_key("index.html");
    if !built {
        files = BTreeMap::from([("index.html".to_owned(), manifest.join("src/missing.html"))]);
    }
    let lines: String = files.iter().map(|(name, path)| line(name, path)).collect();
    let code = format!("pub const BUILT: bool = {built};\npub const FILES: &[File] = &[\n{lines}];\n");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("files.rs");
    fs::write(out, code).expect("cargo's own directory can be written to");
}

fn line(name: &str, path: &Path) -> String {
    let path = path.canonicalize().expect("the file was just listed");
    let bytes = fs::read(&path).expect("the file was just listed");
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let (kind, tag) = (kind(name).unwrap_or_default(), hasher.finish());
    format!(
        "    File {{ name: {name:?}, kind: {kind:?}, tag: \"\\\"{tag:016x}\\\"\", bytes: include_bytes!({path:?}) }},\n"
    )
}

/// The media type of a file; none for files that are not part of the page.
fn kind(name: &str) -> Option<&'static str> {
    Some(match name.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "json" => "application/json",
        "woff2" => "font/woff2",
        // Licences of what is shipped with it.
        "txt" => "text/plain; charset=utf-8",
        _ => return None,
    })
}
