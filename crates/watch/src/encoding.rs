//! The encodings that readers ask for.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    Protobuf,
    Json,
    /// `meta.k8s.io/v1` `Table`, which `kubectl get` asks for.
    Table,
}

impl Encoding {
    pub const COUNT: usize = 3;

    /// What to answer with in a reply that is not a watch, and in a watch.
    pub fn content_type(self, is_watch: bool) -> &'static str {
        match (self, is_watch) {
            (Encoding::Protobuf, true) => "application/vnd.kubernetes.protobuf;stream=watch",
            (Encoding::Protobuf, false) => "application/vnd.kubernetes.protobuf",
            (Encoding::Json | Encoding::Table, _) => "application/json",
        }
    }
}
