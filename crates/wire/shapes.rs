//! Which messages are also what REST takes and answers and what `-o json` prints, and how their JSON is written where
//! it is not plain: one definition, the message in `proto/`, whose comments are the descriptions in OpenAPI.
//!
//! In: the builder that generates the messages. Out: the same, with attributes for serde and utoipa. The words that
//! numbers become are in `src/json.rs`. Not here: JSON that has no message of its own (`json::Link`, and in `server`).

use tonic_prost_build::Builder;

/// Attributes of fields, and of the message itself where the name is empty.
type Attributes = &'static [(&'static str, &'static str)];
/// A message, and its name among the schemas.
type Shape = (&'static str, &'static str, Attributes);

/// What is written by a function of `src/json.rs`, and of which type that is.
macro_rules! written {
    ($by:literal, $kind:literal) => {
        concat!("#[serde(serialize_with = \"crate::json::", $by, "\")] #[schema(value_type = ", $kind, ")]")
    };
}

/// What is there always, although a message might lack it.
macro_rules! always {
    ($kind:literal) => {
        concat!("#[schema(required = true, value_type = ", $kind, ")]")
    };
}

macro_rules! named {
    ($name:literal) => {
        concat!("#[serde(rename = \"", $name, "\")]")
    };
}

const DEFAULT: &str = "#[serde(default)]";
const STRICT: &str = "#[serde(deny_unknown_fields)]";
const ABSENT: &str = "#[serde(skip)]";
const UNLESS_EMPTY: &str = r#"#[serde(skip_serializing_if = "String::is_empty")]"#;
const UNLESS_NO_ITEM: &str = r#"#[serde(skip_serializing_if = "Vec::is_empty")]"#;
const UNLESS_FALSE: &str = r#"#[serde(skip_serializing_if = "std::ops::Not::not")]"#;
const UNLESS_NONE: &str = r#"#[serde(skip_serializing_if = "Option::is_none")]"#;
const UNLESS_NO_ENTRY: &str = r#"#[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]"#;
const UNLESS_ZERO: &str = r#"#[serde(skip_serializing_if = "crate::json::is_zero")]"#;
const ROLE: &str = written!("role", "String");
const TIME: &str = written!("time", "String");
const OBJECT_KIND: &str = written!("object_kind", "String");

/// What is answered and printed.
const ANSWERS: &[Shape] = &[
    ("trestle.v1.Status", "Status", &[("started_at", TIME)]),
    ("trestle.v1.Identity", "Identity", &[("role", ROLE)]),
    (
        "trestle.v1.TokenInfo",
        "Token",
        &[
            ("role", ROLE),
            ("created_at", named!("created")),
            ("created_at", TIME),
            ("expires_at", named!("expires")),
            ("expires_at", written!("time_or_none", "Option<String>")),
            ("kind", written!("token_kind", "String")),
            ("join", UNLESS_NONE),
            ("made_with", UNLESS_EMPTY),
        ],
    ),
    ("trestle.v1.JoinGrant", "JoinGrant", &[]),
    ("trestle.v1.CreateJoinTokenResponse", "MadeJoinToken", &[("info", always!("TokenInfo"))]),
    (
        "trestle.v1.CertificateInfo",
        "Certificate",
        &[("role", ROLE), ("not_before", TIME), ("not_after", TIME), ("made_with", UNLESS_EMPTY)],
    ),
    ("trestle.v1.HostInfo", "Host", &[("joined_at", TIME), ("certificate_until", TIME)]),
    ("trestle.v1.RemoveHostResponse", "RemovedHost", &[("notice", UNLESS_EMPTY)]),
    ("trestle.v1.Namespace", "Namespace", &[]),
    (
        "trestle.v1.NodeStatus",
        "Node",
        &[("last_end", UNLESS_EMPTY), ("controller", UNLESS_EMPTY), ("host", UNLESS_NONE)],
    ),
    ("trestle.v1.NodeHost", "NodeHost", &[("observed", UNLESS_NONE)]),
    ("trestle.v1.NodeInterface", "NodeInterface", &[]),
    ("trestle.v1.NodeObjectError", "ObjectError", &[("kind", OBJECT_KIND)]),
    ("trestle.v1.NodeObject", "Object", &[("kind", OBJECT_KIND), ("members", UNLESS_NONE)]),
    (
        "trestle.v1.GetNodeResponse",
        "WholeNode",
        &[("status", "#[serde(flatten)] #[schema(value_type = NodeStatus)]")],
    ),
    ("trestle.v1.ResourceInfo", "Resource", &[("notes", UNLESS_NO_ITEM)]),
    ("trestle.v1.CloudInfo", "Cloud", &[]),
    ("trestle.v1.ClusterInfo", "Cluster", &[("trouble", UNLESS_EMPTY)]),
    ("trestle.v1.ClusterKind", "ClusterKind", &[("since", TIME), ("message", UNLESS_EMPTY)]),
    ("trestle.v1.RuleInfo", "RuleInForce", &[("rule", always!("crate::invisinetspb::PermitListRule"))]),
    (
        "trestle.v1.TagInfo",
        "TagInUse",
        &[("uri", UNLESS_NONE), ("ip", UNLESS_NONE), ("child_tags", UNLESS_NO_ITEM)],
    ),
    ("trestle.v1.LinkEnd", "LinkEnd", &[("asn", written!("number_or_none", "Option<u32>"))]),
    ("trestle.v1.CloudEndStatus", "EndStatus", &[]),
    ("trestle.v1.JobInfo", "JobBody", &[("ended_at", written!("text_or_none", "Option<String>"))]),
    ("trestle.v1.PlanInfo", "PlanBody", &[]),
    ("trestle.v1.DriftInfo", "Drift", &[]),
    (
        "trestle.v1.PolicyState",
        "PolicyState",
        &[
            ("namespace", UNLESS_EMPTY),
            ("span", ABSENT),
            ("places", named!("span")),
            ("last_used", written!("millis_or_none", "Option<String>")),
            ("last_used", UNLESS_NONE),
            ("counted_since", written!("millis_or_none", "Option<String>")),
            ("counted_since", UNLESS_NONE),
        ],
    ),
    (
        "trestle.v1.RuleUse",
        "RuleUse",
        &[("last_used", written!("millis_or_none", "Option<String>")), ("last_used", UNLESS_NONE)],
    ),
    (
        "trestle.v1.PolicyDetail",
        "PolicyDetail",
        &[("policy", "#[serde(flatten)] #[schema(value_type = PolicyState)]"), ("rules", UNLESS_NO_ITEM)],
    ),
    (
        "trestle.v1.PolicyPlace",
        "PolicyPlace",
        &[
            ("since", written!("millis_or_none", "Option<String>")),
            ("since", UNLESS_NONE),
            ("at_latest", UNLESS_FALSE),
            ("message", UNLESS_EMPTY),
        ],
    ),
    ("trestle.v1.EnforcementState", "Enforcement", &[("waiting", UNLESS_NO_ITEM)]),
    ("trestle.v1.WaitingPlace", "WaitingPlace", &[("failed", UNLESS_FALSE)]),
    ("trestle.v1.FlowList", "FlowList", &[]),
    (
        "trestle.v1.Flow",
        "Flow",
        &[
            ("from", always!("FlowEnd")),
            ("to", always!("FlowEnd")),
            ("port", UNLESS_NONE),
            ("service", UNLESS_EMPTY),
            ("rule", UNLESS_EMPTY),
            ("bytes", UNLESS_NONE),
        ],
    ),
    (
        "trestle.v1.FlowEnd",
        "FlowEnd",
        &[
            ("address", UNLESS_EMPTY),
            ("workload", UNLESS_EMPTY),
            ("labels", UNLESS_NO_ENTRY),
            ("tags", UNLESS_NO_ITEM),
        ],
    ),
    ("trestle.v1.SlowNode", "SlowNode", &[]),
    ("trestle.v1.PolicyProblem", "FieldProblem", &[]),
    ("trestle.v1.NodeFailure", "NodeFailure", &[]),
    (
        "trestle.v1.ExplainResponse",
        "Explanation",
        &[
            ("source", always!("ExplainedEnd")),
            ("destination", always!("ExplainedEnd")),
            ("egress", always!("ExplainedSide")),
            ("ingress", always!("ExplainedSide")),
        ],
    ),
    (
        "trestle.v1.Applied",
        "AppliedObject",
        &[("object", always!("ObjectRef")), ("outcome", written!("outcome", "String"))],
    ),
    ("trestle.v1.ObjectRef", "ObjectRef", &[("namespace", UNLESS_EMPTY)]),
    (
        "trestle.v1.ListStagedResponse",
        "StagedChanges",
        &[("together", UNLESS_NONE), ("together_seen", UNLESS_NONE), ("notes", UNLESS_NO_ITEM)],
    ),
    (
        "trestle.v1.StagedChange",
        "StagedChange",
        &[
            ("object", always!("ObjectRef")),
            ("outcome", written!("outcome", "String")),
            ("staged_at", TIME),
            ("reach", UNLESS_NONE),
            ("breaks", UNLESS_NO_ITEM),
            ("seen", UNLESS_NONE),
        ],
    ),
    ("trestle.v1.StagedReach", "StagedReach", &[]),
    ("trestle.v1.StagedPair", "StagedPair", &[]),
    ("trestle.v1.RunPolicyTestsResponse", "PolicyTestResults", &[]),
    ("trestle.v1.PolicyTestResult", "PolicyTestResult", &[("because", UNLESS_EMPTY)]),
    ("trestle.v1.LintFinding", "LintFinding", &[("namespace", UNLESS_EMPTY), ("path", UNLESS_EMPTY)]),
    ("trestle.v1.ReplayResponse", "Replayed", &[("notes", UNLESS_NO_ITEM)]),
    ("trestle.v1.ReplayedFlow", "ReplayedFlow", &[("last", UNLESS_EMPTY)]),
    ("trestle.v1.SuggestResponse", "Suggestion", &[]),
    ("trestle.v1.SuggestedPolicy", "SuggestedPolicy", &[]),
    ("trestle.v1.PermissionInfo", "Permission", &[]),
    ("trestle.v1.GivenRule", "GivenRule", &[]),
    (
        "trestle.v1.AllowOutcome",
        "AllowOutcome",
        &[("job", UNLESS_NONE), ("planned", UNLESS_NONE), ("build", UNLESS_NONE)],
    ),
    ("trestle.v1.BuildInfo", "Build", &[]),
    ("trestle.v1.Proof", "Proof", &[]),
    ("trestle.v1.ProvenPair", "ProvenPair", &[("explanation", always!("ExplainResponse"))]),
    ("trestle.v1.Opening", "Opening", &[]),
    ("trestle.v1.ExplainedEnd", "End", &[]),
    ("trestle.v1.ExplainedSide", "Side", &[]),
    ("trestle.v1.ExplainedStep", "Step", &[]),
    ("trestle.v1.ServiceState", "ServiceState", &[]),
    ("trestle.v1.ServicePortState", "ServicePort", &[]),
    ("trestle.v1.ServiceEndpointState", "ServiceEndpoint", &[]),
    ("trestle.v1.ExplainServiceResponse", "ServiceExplanation", &[("outcome", written!("fate", "String"))]),
    ("trestle.v1.ExplainedEndpoint", "JudgedEndpoint", &[]),
    (
        "trestle.v1.Ticket",
        "Ticket",
        &[
            ("issued_at", UNLESS_NONE),
            ("consumer", UNLESS_EMPTY),
            ("sources", UNLESS_NO_ITEM),
            ("rates", UNLESS_NONE),
            ("encrypted", UNLESS_FALSE),
        ],
    ),
    ("trestle.v1.CreateTicketResponse", "MadeTicket", &[("ticket", always!("Ticket"))]),
    (
        "trestle.v1.Consumer",
        "Consumer",
        &[
            ("reason", UNLESS_EMPTY),
            ("notice", UNLESS_EMPTY),
            ("sources", UNLESS_NO_ITEM),
            ("name", UNLESS_EMPTY),
            ("kept_until", UNLESS_NONE),
            ("client", UNLESS_NONE),
            ("labels", UNLESS_NO_ENTRY),
            ("last_seen", UNLESS_NONE),
            ("rates", UNLESS_NONE),
            ("encrypted", UNLESS_FALSE),
        ],
    ),
    (
        "trestle.v1.Volume",
        "Volume",
        &[
            ("origin", UNLESS_EMPTY),
            ("created_at", UNLESS_NONE),
            ("kept_until", UNLESS_NONE),
            ("last_used", UNLESS_NONE),
            ("importing", UNLESS_FALSE),
            ("trouble", UNLESS_EMPTY),
            ("writer", UNLESS_EMPTY),
            ("encrypted", UNLESS_FALSE),
        ],
    ),
    ("trestle.v1.ConsumerClient", "ConsumerClient", &[("reported_at", UNLESS_NONE), ("used", UNLESS_NONE)]),
    ("trestle.v1.TagDifference", "TagDifference", &[("tag_name", named!("tag"))]),
    (
        "trestle.v1.ResolvedMember",
        "ResolvedMember",
        &[
            ("tag_name", named!("name")),
            ("tag_name", UNLESS_EMPTY),
            ("uri", UNLESS_NONE),
            ("ip", UNLESS_NONE),
        ],
    ),
];

/// Bodies of requests. What the path names is not in them.
const BODIES: &[Shape] = &[
    (
        "trestle.v1.AllowRequest",
        "NewPermission",
        &[
            ("", STRICT),
            ("namespace", DEFAULT),
            ("dry_run", ABSENT),
            ("build", DEFAULT),
            ("despite_tests", DEFAULT),
        ],
    ),
    (
        "trestle.v1.CreateTicketRequest",
        "NewTicket",
        &[
            ("", STRICT),
            ("lifetime_seconds", DEFAULT),
            ("limit", DEFAULT),
            ("sources", DEFAULT),
            ("rates", DEFAULT),
            ("encrypted", DEFAULT),
        ],
    ),
    (
        "trestle.v1.CreateJoinTokenRequest",
        "NewJoinToken",
        &[("", STRICT), ("uses", DEFAULT), ("names", DEFAULT), ("tags", DEFAULT), ("labels", DEFAULT)],
    ),
    (
        "trestle.v1.SeenFlow",
        "SeenFlow",
        &[
            ("", STRICT),
            ("from", always!("SeenEnd")),
            ("to", always!("SeenEnd")),
            ("protocol", DEFAULT),
            ("port", DEFAULT),
            ("count", DEFAULT),
            ("last", DEFAULT),
        ],
    ),
    (
        "trestle.v1.SeenEnd",
        "SeenEnd",
        &[("", STRICT), ("namespace", DEFAULT), ("labels", DEFAULT), ("address", DEFAULT)],
    ),
    ("trestle.v1.ResizeConsumerRequest", "NewCapacity", &[("", STRICT), ("id", ABSENT), ("force", DEFAULT)]),
    ("trestle.v1.NameConsumerRequest", "NewName", &[("", STRICT), ("id", ABSENT)]),
    ("trestle.v1.RecreateVolumeRequest", "LostData", &[("", STRICT), ("consumer", ABSENT)]),
    ("trestle.v1.PermitConsumerRequest", "NewSources", &[("", STRICT), ("id", ABSENT)]),
    ("trestle.v1.LimitConsumerRequest", "NewRates", &[("", STRICT), ("id", ABSENT), ("rates", DEFAULT)]),
    ("trestle.v1.LabelConsumerRequest", "NewLabels", &[("", STRICT), ("id", ABSENT)]),
    (
        "trestle.v1.CreateVolumeRequest",
        "NewVolume",
        &[
            ("", STRICT),
            ("consumer", ABSENT),
            ("size", DEFAULT),
            ("from", DEFAULT),
            ("importing", DEFAULT),
            ("encrypted", DEFAULT),
        ],
    ),
    (
        "trestle.v1.ResizeVolumeRequest",
        "NewVolumeSize",
        &[("", STRICT), ("consumer", ABSENT), ("name", ABSENT)],
    ),
    (
        "trestle.v1.PublishVolumeRequest",
        "VolumeWriter",
        &[("", STRICT), ("consumer", ABSENT), ("name", ABSENT), ("take_over", DEFAULT)],
    ),
    (
        "trestle.v1.RestoreVolumeRequest",
        "VolumeRestoration",
        &[("", STRICT), ("consumer", ABSENT), ("name", ABSENT)],
    ),
];

/// What is both.
const BOTH: &[Shape] = &[
    ("trestle.v1.Rates", "Rates", &[("", STRICT), ("operations", UNLESS_NONE), ("bytes", UNLESS_NONE)]),
    (
        "tagservicepb.TagMapping",
        "Tag",
        &[
            ("", STRICT),
            ("tag_name", named!("name")),
            ("tag_name", DEFAULT),
            ("tag_name", UNLESS_EMPTY),
            ("child_tags", DEFAULT),
            ("child_tags", UNLESS_NO_ITEM),
            ("uri", UNLESS_NONE),
            ("ip", UNLESS_NONE),
        ],
    ),
    (
        "invisinetspb.PermitListRule",
        "RuleBody",
        &[
            ("", DEFAULT),
            ("id", named!("name")),
            ("src_port_last", UNLESS_ZERO),
            ("dst_port_last", UNLESS_ZERO),
        ],
    ),
    // Keys are capitalised, as clients of Paraglider expect them.
    (
        "trestle.v1.Deployment",
        "CloudDeployment",
        &[
            ("", STRICT),
            ("cloud", r#"#[serde(rename = "Name", alias = "name")]"#),
            ("id", r#"#[serde(rename = "Deployment", alias = "deployment")]"#),
        ],
    ),
];

/// A list in a query.
const COMMAS: &str =
    r#"#[serde(default, deserialize_with = "crate::json::between_commas")] #[param(value_type = String)]"#;

/// What is asked after a question mark.
const QUERIES: &[(&str, Attributes)] = &[
    ("trestle.v1.ExplainRequest", &[("", STRICT), ("protocol", DEFAULT)]),
    ("trestle.v1.FlowsRequest", &[("", STRICT), ("", DEFAULT)]),
    ("trestle.v1.ListServicesRequest", &[("", STRICT), ("namespace", DEFAULT)]),
    (
        "trestle.v1.ExplainServiceRequest",
        &[
            ("", STRICT),
            ("protocol", DEFAULT),
            ("node", DEFAULT),
            ("from", DEFAULT),
            ("plane", DEFAULT),
            ("pod_prefixes", COMMAS),
            ("service_prefixes", COMMAS),
            ("exclude", COMMAS),
            ("masquerade_all", DEFAULT),
            ("refuse_external_ips", DEFAULT),
        ],
    ),
];

pub fn shaped(mut builder: Builder) -> Builder {
    let (write, read) = ("serde::Serialize", "serde::Deserialize");
    for (shapes, derives) in
        [(ANSWERS, write), (BODIES, read), (BOTH, "serde::Serialize, serde::Deserialize")]
    {
        for (message, name, attributes) in shapes {
            let derived = format!("#[derive({derives}, utoipa::ToSchema)] #[schema(as = {name})]");
            builder = with(builder, message, &derived, attributes);
        }
    }
    for (message, attributes) in QUERIES {
        let derived = format!("#[derive({read}, utoipa::IntoParams)]");
        builder = with(builder, message, &derived, attributes);
    }
    builder
}

/// What is derived stands before what belongs to it.
fn with(builder: Builder, message: &str, derived: &str, attributes: Attributes) -> Builder {
    let path = format!(".{message}");
    attributes.iter().fold(builder.message_attribute(&path, derived), |builder, (field, attribute)| {
        match *field {
            "" => builder.message_attribute(&path, attribute),
            field => builder.field_attribute(format!("{path}.{field}"), attribute),
        }
    })
}
