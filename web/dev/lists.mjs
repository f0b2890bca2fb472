// Made-up lists: enough of everything to look at every view.

const now = Date.parse("2026-05-04T12:00:00Z");
const time = (secondsAgo) => new Date(Date.now() - secondsAgo * 1000).toISOString();

export function lists({ groups, places }, empty) {
  const some = (list) => (empty ? [] : list);
  const pods = groups.filter((group) => group.kind === "namespace").flatMap((group) => group.ends.map((id) => ({ id, group })));
  const workloads = pods.map(({ id, group }, at) => ({
    kind: "Pod", namespace: group.place, name: id.split("/")[2], labels: { app: group.name }, addresses: [`10.${40 + (at >> 16)}.${(at >> 8) & 255}.${at & 255}`], node: `node-${at % 12}`,
  }));
  const resources = groups.filter((group) => group.kind === "site").map((group, at) => ({
    name: group.ends[0], region: "west", state: "ready", uri: `fake://${group.name}`, ip: `10.${at}.0.1`, message: "", notes: [], permit_list: [],
  }));
  const status = {
    ready: true, problems: [], attention: some(["NetworkPolicy shop/legacy: spec.egres: no such field; it denies everything to all that it selects"]), revision: 4711,
    started_at: time(93_000), storage: true, storage_trouble: [], store: "embedded", version: "0.1.0",
  };
  const policy = (namespace, name, more = {}) => ({ kind: "NetworkPolicy", namespace, name, generation: 1, phase: "Realized", realized: 3, span: ["node-1", "node-2", "node-3"], failures: [], problems: [], ...more });
  const record = (at, operation, object, caller, result = "OK", more = {}) => ({
    id: `c${at}`, time: time(at * 97), phase: "outcome", operation, object, caller: { name: caller, role: "operator" }, peer: "10.0.0.9:4242", result, changes: [], note: "", ...more,
  });
  const answers = {
    "/whoami": { name: "ada", role: "admin", proof: "session" },
    "/status": status,
    "/clouds": some([{ name: "aws" }, { name: "gcp" }, { name: "lab" }, { name: "ibm" }]).map((cloud) => ({ ...cloud, state: "ready", capabilities: [], problems: [], message: "" })),
    "/links": some([{ ends: [{ site: "default.aws", status: { tunnels_up: 2 } }, { site: "default.gcp", status: { tunnels_up: 2 } }], state: "ready", message: "", pinned: false }]),
    "/workloads": workloads,
    "/resources": resources,
    "/jobs": some([
      { id: "j1", what: "add rules to default.gcp.db", state: "done", message: "", steps: 3, steps_left: 0, created_at: time(900), ended_at: time(880) },
      { id: "j2", what: "build the link default.aws – default.gcp", state: "running", message: "waiting for the gateway in gcp", steps: 9, steps_left: 4, created_at: time(160), ended_at: null },
      { id: "j3", what: "create default.ibm.vm", state: "failed", message: "the cloud refuses: quota of 5 machines is used up", steps: 2, steps_left: 2, created_at: time(5000), ended_at: time(4990) },
    ]),
    "/tags": some([{ name: "databases", children: ["db1", "db2", "192.0.2.0/24"], ip: "", uri: "", rules: [] }, { name: "db1", children: [], ip: "10.0.0.5", uri: "" }, { name: "db2", children: [], ip: "10.0.0.6", uri: "" }]),
    "/policies": some([policy("shop", "db"), policy("billing", "default-deny"), policy("media", "slow", { phase: "Realizing", realized: 2 }), policy("shop", "broken", { phase: "Failed", realized: 2, failures: [{ node: "node-3", message: "the kernel refuses set elements: no space left" }] })]),
    "/services": some([{ namespace: "shop", name: "web", type: "ClusterIP", cluster_ips: ["10.96.0.10"], external_ips: [], load_balancers: [], ports: [{ name: "http", port: 80, protocol: "TCP", node_port: 0 }], ready: 3, total: 3, from_pods: false, traits: [], endpoints: [] }]),
    "/hosts": some([{ name: "edge-1", addresses: ["192.0.2.7"], certificate_until: time(-9_000_000), fingerprint: "ab", joined_at: time(8000), joined_by: "a token", labels: {}, tag: "host.edge-1", tags: ["web"] }]),
    "/nodes": some(["node-1", "node-2", "node-3"].map((name, at) => ({
      name, connected: at !== 1, connected_at: Math.floor(now / 1000), disconnected_at: at === 1 ? Math.floor(Date.now() / 1000) - 900 : null, controller: "", errors: [], lag_seconds: 0, last_end: "", peer: `10.9.0.${at}:5000`, protocol: "node",
      revision: 4711, sent_revision: 4711, applied_revision: at === 1 ? 4600 : 4711, bytes_sent: 10_000, skipped: 0, version: "0.1.0",
    }))),
    "/permissions": some([]),
    "/tickets": some([{ id: "t1", created_at: 1, expires_at: 2, state: "open", limit: "10Gi" }]).slice(0, 0),
    "/consumers": [],
    "/namespaces": { default: {} },
    "/audit": some([
      record(1, "trestle.v1.Objects/ApplyObjects", "NetworkPolicy shop/db", "ada", "OK", { changes: [{ object: "NetworkPolicy shop/db", before: null, after: {} }] }),
      record(4, "trestle.v1.Permissions/Allow", "permission allow-f86ff06927ca40ff", "grace"),
      record(9, "POST /tags/{tag}/applyMembers", "tag databases", "ci", "PERMISSION_DENIED"),
      record(15, "trestle.v1.Orchestrator/CreateCloudResource", "default.gcp.db", "ada"),
      record(31, "trestle.v1.Access/CreateToken", "token laptop", "ada", "INVALID_ARGUMENT"),
    ]),
  };
  const document = { apiVersion: "networking.k8s.io/v1", kind: "NetworkPolicy", metadata: { name: "db", namespace: "shop", uid: "u", generation: 1 }, spec: { podSelector: { matchLabels: { app: "db" } }, policyTypes: ["Ingress"], ingress: [{ from: [{ podSelector: { matchLabels: { app: "web" } } }], ports: [{ protocol: "TCP", port: 5432 }] }] } };
  const cell = (open, partly, ports) => ({ pairs: 6, open, partly, ...(ports && { ports }) });
  /** What storing anything would do. */
  const tried = {
    applied: [{ object: { kind: "NetworkPolicy", namespace: "shop", name: "web-to-db" }, outcome: "created", difference: "" }], warnings: [],
    reach: { level: "group", left_out: 0, changes: [
      { from: "namespace:billing/web", to: "namespace:shop/db", before: cell(6, 0, "all"), after: cell(0, 0) },
      { from: "namespace:shop/cache", to: "namespace:shop/db", before: cell(6, 0, "all"), after: cell(0, 0) },
      { from: "namespace:shop/web", to: "namespace:shop/db", before: cell(6, 0, "all"), after: cell(0, 6, "tcp 5432") },
      { from: "namespace:shop/worker", to: "namespace:shop/queue", before: cell(0, 0), after: cell(0, 6, "tcp 5672") },
    ] },
  };
  return (method, url) => {
    if (url.pathname === "/objects") return method === "GET" ? some([document]) : method === "POST" && url.searchParams.has("dry_run") ? tried : undefined;
    return method === "GET" ? answers[url.pathname] : undefined;
  };
}
