//! The house as it should be: which room may use which, which are pure, and what is left as it is.

/// For each room of the workspace, the rooms it may depend on. A room that is not listed fails the test.
pub const ARROWS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("wire", &["model"]),
    // Without code: see its manifest.
    ("unified", &[]),
    ("life", &[]),
    ("common", &[]),
    ("files", &[]),
    ("flows", &["files"]),
    ("store", &["common", "files"]),
    ("kubernetes", &["model", "common", "life"]),
    ("tags", &["model"]),
    ("policy", &["model"]),
    ("transport", &["life"]),
    ("page", &[]),
    ("watch", &["model"]),
    ("node-nft", &[]),
    ("node-flows", &[]),
    ("node-services", &["model", "node-nft"]),
    ("node-policy", &["model", "node-nft"]),
    ("node-kernel", &["common", "node-nft", "node-policy", "node-services"]),
    ("services", &["model", "node-nft", "node-services"]),
    ("cloud-api", &["model", "wire"]),
    ("cloud-linux", &["model", "common", "files", "cloud-api", "node-nft", "node-kernel"]),
    ("cloud-http", &["common", "cloud-api"]),
    ("cloud-aws", &["model", "common", "cloud-api", "cloud-http"]),
    ("cloud-azure", &["model", "cloud-api", "cloud-http"]),
    ("cloud-gcp", &["model", "cloud-api", "cloud-http"]),
    ("cloud-ibm", &["model", "cloud-api", "cloud-http"]),
    // For tests and the lab; `the_product_does_not_know_the_simulators`.
    ("cloud-sim", &["model", "cloud-http"]),
    ("orchestrator", &["model", "common", "tags", "store", "cloud-api"]),
    ("storage-provider", &["model", "common"]),
    ("storage-backend", &["model", "common", "storage-provider"]),
    ("storage-nbd", &["model", "common", "files", "storage-provider", "storage-backend"]),
    ("storage-ceph", &["model", "storage-provider", "storage-backend"]),
    // A client of the storage and of the kernel: it knows its words, and nothing of how it is made.
    ("storage-csi", &["common", "files", "wire", "storage-provider", "node-kernel"]),
    (
        "drivers",
        &[
            "model",
            "wire",
            "life",
            "common",
            "files",
            "flows",
            "store",
            "tags",
            "policy",
            "kubernetes",
            "services",
            "node-services",
            "storage-provider",
            "storage-backend",
            "storage-nbd",
            "storage-ceph",
            "watch",
            "transport",
            "orchestrator",
            "cloud-api",
            "cloud-linux",
            "cloud-aws",
            "cloud-azure",
            "cloud-gcp",
            "cloud-ibm",
        ],
    ),
    (
        "server",
        &[
            "model",
            "wire",
            "life",
            "common",
            "files",
            "store",
            "drivers",
            // Whose words are told to callers.
            "flows",
            "tags",
            "policy",
            "kubernetes",
            "services",
            "node-services",
            "storage-provider",
            "storage-backend",
            "storage-nbd",
            "watch",
            "transport",
            "orchestrator",
            "cloud-api",
            // Issuers of machines' identities are asked over it.
            "cloud-http",
        ],
    ),
    (
        "agent",
        &[
            "model",
            "common",
            "wire",
            "life",
            "files",
            "transport",
            "node-flows",
            "node-policy",
            "node-services",
            "node-kernel",
        ],
    ),
    (
        "trestle",
        &[
            "model",
            "wire",
            "life",
            "files",
            "store",
            "kubernetes",
            "server",
            "agent",
            "page",
            "storage-csi",
            "node-kernel",
            "node-services",
            "cloud-api",
            // Metadata services of clouds are asked over it.
            "cloud-http",
            "cloud-linux",
            "cloud-aws",
            "cloud-azure",
            "cloud-gcp",
            "cloud-ibm",
        ],
    ),
    (
        "trestle-clouds",
        &[
            "model",
            "wire",
            "cloud-api",
            "cloud-http",
            "cloud-aws",
            "cloud-azure",
            "cloud-gcp",
            "cloud-ibm",
            "cloud-sim",
        ],
    ),
    // Dev dependencies alone: nobody above has them.
    ("testkit", &["model", "policy", "node-policy", "cloud-api", "cloud-sim"]),
    ("testkit-controllers", &["wire", "transport", "server", "agent"]),
    ("benches", &[]),
];

/// Features that are for the tests of other rooms.
pub const FOR_TESTS: &[&str] = &["cases", "testing"];

/// Rooms without I/O, clock and randomness, and what they may use beside other rooms. Those with ● in ARCHITECTURE.md.
pub const PURE: &[(&str, &[&str])] = &[
    ("common", &[]),
    ("model", &["ipnet", "serde", "serde_json", "sha1", "sha2", "strsim", "thiserror", "uuid"]),
    ("tags", &["imbl", "thiserror"]),
    ("policy", &["hashbrown", "ipnet", "rustc-hash", "serde_json", "sha1", "smallvec", "thiserror", "uuid"]),
    (
        "watch",
        &[
            "base64",
            "bytes",
            "futures",
            "imbl",
            "ipnet",
            // Only to write a time that is given.
            "jiff",
            "parking_lot",
            "prost",
            "rustc-hash",
            "serde",
            "serde_json",
            "thiserror",
        ],
    ),
    // Seals and compares in constant time; whoever calls gives it the random bytes.
    ("storage-provider", &["aws-lc-rs", "base64", "serde", "serde_json", "thiserror", "uuid", "zeroize"]),
    ("node-nft", &["ipnet"]),
    ("node-policy", &["ipnet", "rustc-hash"]),
    ("node-flows", &["rustc-hash"]),
    ("node-services", &["ipnet", "thiserror"]),
    ("services", &["ipnet", "thiserror"]),
];

/// Modules that are pure in rooms that are not.
pub const PURE_MODULES: &[(&str, &str)] =
    &[("orchestrator", "plan"), ("transport", "core"), ("agent", "held"), ("storage-csi", "plan")];

/// Files of pure rooms with maps that are seeded by chance: they are looked up by key, and what is walked of them is sorted
/// or put into an ordered map before anybody sees it.
pub const LOOKED_UP: &[(&str, &[&str])] = &[
    (
        "node-services",
        &[
            "conntrack.rs",
            "nftables.rs",
            "nftables/pool.rs",
            "nftables/refused.rs",
            "nftables/steps.rs",
            "refs.rs",
            "store.rs",
            "store/claims.rs",
            "store/interner.rs",
        ],
    ),
    ("services", &["catalog.rs", "catalog/derived.rs", "catalog/pods.rs"]),
    ("transport", &["core.rs", "core/nodes.rs", "core/plan.rs"]),
];

/// Modules that depend on each other and are left so, with the reason. One that is mended must go from here.
pub const KNOTS: &[(&str, &[&str], &str)] = &[
    (
        "cloud-aws",
        &[
            "adopt",
            "attach",
            "attachments",
            "connections",
            "groups",
            "lists",
            "peerings",
            "resources",
            "routes",
            "subnets",
            "transit",
        ],
        "one plugin: its calls are told apart by what they are about, and read each other's objects",
    ),
    (
        "cloud-aws",
        &["ec2", "kinds", "marks", "shapes"],
        "EC2's protocol is read by kind, and kinds are of its shapes",
    ),
    (
        "cloud-gcp",
        &["adopt", "advertise", "attach", "clusters", "endpoints", "gateway", "networks", "peerings"],
        "one site: its networks are made, adopted, closed, joined and told of in view of each other",
    ),
    (
        "cloud-linux",
        &[
            "attach",
            "cloud",
            "command",
            "network",
            "permit",
            "state",
            "supervise",
            "tables",
            "underlay",
            "vpn",
        ],
        "one plugin over one machine: every part runs commands in the namespaces of the others",
    ),
    ("cloud-linux", &["namespace", "shell"], "commands run in namespaces, which commands make"),
    (
        "cloud-sim",
        &["aws", "azure", "gcp", "ibm", "metadata", "question", "record", "server", "world"],
        "four clouds on one wire, of which each sees what the others made",
    ),
    (
        "storage-csi",
        &["attach", "bridge"],
        "two ends of one attachment: the record that the driver writes is what the bridge serves",
    ),
    (
        "tags",
        &["change", "graph", "node", "view", "walk"],
        "one persistent structure, and the ways to read it",
    ),
    ("trestle", &["args", "commands", "demo"], "the grammar of the command line names what its words do"),
    ("watch", &["objects", "spans", "watcher"], "rows know who watches them, watchers which rows they have"),
];
