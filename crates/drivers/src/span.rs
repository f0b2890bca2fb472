//! Span keys of clouds: under which the engine has what each of them must enforce.

use model::Segment;

/// The key under which the engine has what a cloud must enforce. Names of nodes hold no slash.
pub fn span_key(cloud: &Segment) -> String {
    format!("cloud/{cloud}")
}

/// The cloud whose span key this is, if it is a cloud's.
pub fn cloud_of(key: &str) -> Option<&str> {
    key.strip_prefix("cloud/")
}

/// Whether a span key is a cloud's.
pub fn is_cloud(key: &str) -> bool {
    key.starts_with("cloud/")
}
