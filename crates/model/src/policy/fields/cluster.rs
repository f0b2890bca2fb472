//! The fields of policy.networking.k8s.io, as of v1alpha2 and v1alpha1.

use super::{
    Shape::{self, Any, List},
    kubernetes::{LABEL_SELECTOR, METADATA},
    object, open,
};

pub(super) static POLICY: Shape =
    object(&[("metadata", METADATA), ("spec", SPEC), ("status", Any)], &["apiVersion", "kind"]);

const SPEC: Shape = object(
    &[
        ("subject", object(&[("namespaces", LABEL_SELECTOR), ("pods", PODS)], &[])),
        ("ingress", List(&RULE)),
        ("egress", List(&RULE)),
    ],
    &["tier", "priority"],
);

const PODS: Shape = object(&[("namespaceSelector", LABEL_SELECTOR), ("podSelector", LABEL_SELECTOR)], &[]);

const RULE: Shape = open(&[("from", List(&PEER)), ("to", List(&PEER))]);

const PEER: Shape = open(&[("namespaces", LABEL_SELECTOR), ("pods", PODS), ("nodes", LABEL_SELECTOR)]);
