//! The fields of Trestle's own kinds.

use super::{
    Shape::{self, List},
    kubernetes::METADATA,
    object,
};

pub(super) static POLICY_TEST: Shape = object(
    &[
        ("metadata", METADATA),
        (
            "spec",
            object(&[("tests", List(&object(&[], &["from", "to", "protocol", "port", "expect"])))], &[]),
        ),
    ],
    &["apiVersion", "kind"],
);
