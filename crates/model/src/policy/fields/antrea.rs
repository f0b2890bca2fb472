//! The fields of crd.antrea.io, as of Antrea 2.4.

use super::{
    Shape::{self, Any, List, Unsupported},
    kubernetes::{IP_BLOCK, LABEL_SELECTOR, METADATA},
    object,
};

const TOP: &[&str] = &["apiVersion", "kind"];

const NAMESPACED_NAME: Shape = object(&[], &["namespace", "name"]);

/// Antrea's multi-cluster scope.
const SCOPE: Shape =
    Unsupported("is not supported: Trestle has no cluster sets; leave it out to mean this cluster");

pub(super) static POLICY: Shape =
    object(&[("metadata", METADATA), ("spec", POLICY_SPEC), ("status", Any)], TOP);

const POLICY_SPEC: Shape = object(
    &[("appliedTo", List(&APPLIED_TO)), ("ingress", List(&RULE)), ("egress", List(&RULE))],
    &["tier", "priority"],
);

const APPLIED_TO: Shape = object(
    &[
        ("podSelector", LABEL_SELECTOR),
        ("namespaceSelector", LABEL_SELECTOR),
        ("externalEntitySelector", LABEL_SELECTOR),
        ("nodeSelector", LABEL_SELECTOR),
        ("serviceAccount", NAMESPACED_NAME),
        ("service", NAMESPACED_NAME),
    ],
    &["group"],
);

const RULE: Shape = object(
    &[
        ("ports", List(&object(&[], &["protocol", "port", "endPort", "sourcePort", "sourceEndPort"]))),
        ("protocols", List(&PROTOCOL)),
        ("l7Protocols", List(&L7_PROTOCOL)),
        ("from", List(&PEER)),
        ("to", List(&PEER)),
        ("toServices", List(&object(&[("scope", SCOPE)], &["namespace", "name"]))),
        ("appliedTo", List(&APPLIED_TO)),
    ],
    &["name", "action", "enableLogging", "logLabel"],
);

const PROTOCOL: Shape = object(
    &[("icmp", object(&[], &["icmpType", "icmpCode"])), ("igmp", object(&[], &["igmpType", "groupAddress"]))],
    &[],
);

const L7_PROTOCOL: Shape =
    object(&[("http", object(&[], &["host", "method", "path"])), ("tls", object(&[], &["sni"]))], &[]);

const PEER: Shape = object(
    &[
        ("podSelector", LABEL_SELECTOR),
        ("namespaceSelector", LABEL_SELECTOR),
        ("namespaces", object(&[], &["match", "sameLabels"])),
        ("externalEntitySelector", LABEL_SELECTOR),
        ("nodeSelector", LABEL_SELECTOR),
        ("ipBlock", IP_BLOCK),
        ("serviceAccount", NAMESPACED_NAME),
        ("scope", SCOPE),
    ],
    &["group", "fqdn"],
);

pub(super) static TIER: Shape = object(
    &[("metadata", METADATA), ("spec", object(&[], &["priority", "description"])), ("status", Any)],
    TOP,
);

pub(super) static GROUP: Shape =
    object(&[("metadata", METADATA), ("spec", GROUP_SPEC), ("status", Any)], TOP);

const GROUP_SPEC: Shape = object(
    &[
        ("podSelector", LABEL_SELECTOR),
        ("namespaceSelector", LABEL_SELECTOR),
        ("externalEntitySelector", LABEL_SELECTOR),
        ("nodeSelector", LABEL_SELECTOR),
        ("serviceReference", NAMESPACED_NAME),
        ("ipBlocks", List(&IP_BLOCK)),
    ],
    &["childGroups"],
);

pub(super) static EXTERNAL_ENTITY: Shape = object(
    &[
        ("metadata", METADATA),
        (
            "spec",
            object(
                &[
                    ("endpoints", List(&object(&[], &["ip", "name"]))),
                    ("ports", List(&object(&[], &["protocol", "port", "name"]))),
                ],
                &["externalNode"],
            ),
        ),
        ("status", Any),
    ],
    TOP,
);

pub(super) static EXTERNAL_NODE: Shape = object(
    &[
        ("metadata", METADATA),
        ("spec", object(&[("interfaces", List(&object(&[], &["name", "ips"])))], &[])),
        ("status", Any),
    ],
    TOP,
);
