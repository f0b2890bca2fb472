//! A signed document about an instance, as a stranger sends it. The corpus has some that the owner of a key made; nobody has that key
//! any more, so whatever is believed says what those say.
#![no_main]

use std::sync::LazyLock;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use libfuzzer_sys::fuzz_target;
use server::fuzzing::signed_content;

/// PKCS #1.
const KEY: &str = "MIIBCgKCAQEAqPjLmaQFeUVfCVv67ymbHNmlCl/l4cE+D5kmtRR8LBbab+pyCeoK3/tTFHxvCoesMXZDoef9f42oA3PlXJp2/Q7qT0nJADehkI\
    Z4QurBamM+kuVvNMYfZJmb+zTyFoW+pPVbzHZ+I+TdR5C1c1LTFRQhs7DyFFx/lAQZyHD60H9N9ifXQ2htCPOdF+2Wt01AME9Gavi0szvnM3Fg\
    Ir6XBG/02xvRNcOP+t02f6uRxlWmcTajutLMqslt+MSvLkoTEOF2mP7Mq8ybYJwZ8dHRREnQ5s9eqUI6RRHqzWwzOasGluGqx7HqZnzn18vCC6\
    2E4EjuSzsdRBBVC2dYLSbFOwIDAQAB";
static DER: LazyLock<Vec<u8>> = LazyLock::new(|| STANDARD.decode(KEY).expect("it is base64"));

fuzz_target!(|document: &[u8]| {
    if let Some(content) = signed_content(document, &DER) {
        assert_eq!(content, br#"{"instanceId": "i-1"}"#);
    }
});
