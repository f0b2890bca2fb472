//! The page's files, inside the binary.
//!
//! In, at build time: `web/dist`, which `make page` makes from `web/`. Out: its files by name. A binary built without
//! them has one file, which says how to build them. Not here: how they are served (`server`), what they do (`web/`).

/// One file of the page.
#[derive(Debug)]
pub struct File {
    pub name: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// Changes with its content: an `ETag`.
    pub tag: &'static str,
    pub bytes: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// The file of a name.
pub fn file(name: &str) -> Option<&'static File> {
    FILES.iter().find(|file| file.name == name)
}

/// The document that `/` answers with.
pub fn index() -> &'static File {
    file("index.html").expect("the build script sees to it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_a_document_and_it_fetches_nothing_from_elsewhere() {
        assert_eq!(index().kind, "text/html; charset=utf-8");
        for file in FILES {
            let text = String::from_utf8_lossy(file.bytes);
            let fetched = text.matches("src=\"http").count();
            assert_eq!(fetched, 0, "{} fetches from elsewhere", file.name);
            if file.name.starts_with("docs-") || file.name == "docs.html" {
                // Documents speak of other places, and lead there if somebody follows.
                continue;
            }
            // Namespaces of SVG are names, not addresses.
            let addresses = text.matches("://").count() - text.matches("http://www.w3.org/").count();
            let links = text.matches("href=\"http").count();
            assert_eq!(links, 0, "{} names a file elsewhere", file.name);
            assert!(addresses < 8, "{} names {addresses} addresses elsewhere", file.name);
        }
    }
}
