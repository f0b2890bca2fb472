//! What a machine says of itself when it joins. Nobody without the issuer's key makes a statement that holds, and what rightly
//! signed claims come to is never more than the rule gives.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value, json};
use server::{
    access::join::identity::{Identities, IdentityConfig},
    fuzzing::{is_admitted, judged},
};
use tokio::runtime::Runtime;

const NOW: i64 = 1_800_000_000;
/// The public keys of RFC 7517, appendix A.1.
const KEYS: &str = r#"{"keys": [
    {"kty": "EC", "crv": "P-256", "kid": "1", "use": "sig",
     "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"},
    {"kty": "RSA", "kid": "2", "e": "AQAB",
     "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"}]}"#;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
static IDENTITIES: LazyLock<Identities> = LazyLock::new(|| Identities::new(CONFIGS.clone()));
static CONFIGS: LazyLock<Vec<IdentityConfig>> = LazyLock::new(|| {
    let keys = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory").into_temp_path();
    std::fs::write(&keys, KEYS).expect("it can be written");
    let keys = keys.keep().expect("it stays");
    let config = json!([{ "name": "cloud", "issuer": "us", "audience": "trestle", "keys": keys, "admit": [
        { "when": { "a.b": "shop", "zone": "eu-*" }, "name_from": "a.name", "tags": ["web"] },
        { "when": { "k.io.namespace": "shop*" }, "names": "k8s-*", "labels": { "from": "k8s" } }] }]);
    serde_json::from_value(config).expect("it is a configuration")
});

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = std::str::from_utf8(bytes) {
        let admitted = RUNTIME.block_on(is_admitted(&IDENTITIES, "cloud", text, NOW));
        assert!(!admitted, "a statement that nobody signed: {text}");
    }
    let Ok(claims) = serde_json::from_slice::<Map<String, Value>>(bytes) else { return };
    let Some(grant) = judged(&CONFIGS[0], &claims) else { return };
    let names = grant.names.as_str();
    match grant.tags.is_empty() {
        true => assert_eq!(names, "k8s-*"),
        false => assert!(!names.contains('*') && model::Host::parse_name(names).is_ok(), "{names}"),
    }
});
