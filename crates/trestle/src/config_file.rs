//! The configuration file of `trestle serve`: YAML, checked key by key.

use std::{fs, path::Path};

use anyhow::Context as _;
use server::Config;

/// Reads and checks a file. Errors name the line, the column and the key.
pub fn load(path: &Path) -> anyhow::Result<Config> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    parse(&text).with_context(|| format!("the configuration {} is not valid", path.display()))
}

fn parse(text: &str) -> anyhow::Result<Config> {
    let config: Config = serde_saphyr::from_str(text)?;
    config.check()?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        format!("{:#}", parse(text).unwrap_err())
    }

    #[test]
    fn a_full_file_is_read() {
        let config = parse(include_str!("../../../docs/examples/trestle.yaml")).unwrap();
        assert_eq!(config.listen.grpc.port(), 8081);
        assert!(matches!(config.store, server::StoreKind::Etcd(_)));
    }

    #[test]
    fn a_short_file_is_enough() {
        let config = parse("data_dir: /var/lib/trestle\n").unwrap();
        assert_eq!(config.limits.max_in_flight, 1024);
    }

    #[test]
    fn unknown_keys_are_named_with_their_line() {
        let text = error("data_dir: /x\nlisten:\n  htttp: 127.0.0.1:1\n");
        assert!(text.contains("htttp") && text.contains("line 3"), "{text}");
    }

    #[test]
    fn wrong_values_are_named_with_their_line() {
        let text = error("data_dir: /x\nlimits:\n  max_in_flight: many\n");
        assert!(text.contains("line 3"), "{text}");
    }

    #[test]
    fn unsafe_settings_are_refused() {
        assert!(error("data_dir: /x\nanonymous_role: admin\n").contains("plaintext_loopback"));
    }
}
