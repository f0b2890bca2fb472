import assert from "node:assert/strict";
import { test } from "node:test";
import type { Job, Link, Node, Policy, Resource, Status } from "../src/api.ts";
import { allowCommand, explainCommand, flowsCommand, quote, ruleBody, ruleCommand, tagCommand, trafficOf } from "../src/cli.ts";
import { best } from "../src/parts/find.tsx";
import { bytes, count, duration } from "../src/parts/format.ts";
import { attention } from "../src/views/attention.ts";

test("what a shell would read otherwise is quoted", () => {
  assert.equal(quote("a.web"), "a.web");
  assert.equal(quote("it's; rm -rf /"), `'it'\\''s; rm -rf /'`);
  assert.equal(quote(""), "''");
});

test("a rule's command and its body say the same", () => {
  const form = { on: "default.a.web", onTag: false, direction: "in" as const, protocol: "tcp", port: "80-90", peers: "tag1, 9.9.9.0/24", name: "" };
  assert.equal(ruleCommand(form), "trestle rule add default.a.web --in --protocol tcp --port 80-90 --peer tag1,9.9.9.0/24");
  assert.deepEqual(ruleBody(form), { name: "", targets: [], direction: 0, src_port: -1, dst_port: 80, src_port_last: 0, dst_port_last: 90, protocol: 6, tags: ["tag1", "9.9.9.0/24"] });
});

test("traffic is read as people write it", () => {
  assert.deepEqual(trafficOf("tcp  5432, icmp,,"), ["tcp 5432", "icmp"]);
  assert.equal(allowCommand({ from: "a.web", to: "tag:db", traffic: "tcp 5432, udp 53, icmp, sctp" }), "trestle allow a.web tag:db --port 5432 --port 53/udp --ping --proto sctp");
  assert.equal(tagCommand({ name: "db", kind: "group", ip: "", members: "a b" }), "trestle tag set db --children a,b");
  assert.equal(explainCommand("a", "b", "udp", "53"), "trestle explain a b --protocol udp --port 53");
  assert.equal(flowsCommand("shop/web-1", "many", "denied"), "trestle flows --from shop/web-1 --verdict denied");
});

test("numbers are for people", () => {
  assert.deepEqual([bytes(0), bytes(1536), bytes(undefined)], ["0 B", "1.5 KiB", "–"]);
  assert.deepEqual([duration(0.02), duration(90), duration(7200)], ["20 ms", "90 s", "2 h"]);
  assert.deepEqual([count(1, "policy"), count(3, "policy"), count(2000, "Pod")], ["1 policy", "3 policies", "2,000 Pods"]);
});

test("the best match comes first, and every word must be found", () => {
  const names = ["shop/web-db", "shop/db", "db", "adb", "billing/web"];
  assert.deepEqual(best(names, (one) => one, "db", 10), ["db", "shop/db", "shop/web-db", "adb"]);
  assert.deepEqual(best(names, (one) => one, "shop web", 10), ["shop/web-db"]);
  assert.deepEqual(best(names, (one) => one, "  ", 10), []);
  assert.deepEqual(best(names, (one) => one, "DB", 1), ["db"]);
});

const node = (name: string, more = {}) => ({ name, connected: true, errors: [], lag_seconds: 0, disconnected_at: null, ...more }) as unknown as Node;

test("what is well needs no attention", () => {
  const policy = { name: "p", kind: "NetworkPolicy", problems: [], failures: [] } as unknown as Policy;
  const old = { id: "1", state: "failed", ended_at: "2020-01-01T00:00:00Z", what: "", message: "" } as unknown as Job;
  const status = { problems: [], attention: [], storage_trouble: [] } as unknown as Status;
  assert.deepEqual(attention({ status, nodes: [node("a")], policies: [policy], jobs: [old], resources: [], links: [], consumers: [] }), []);
});

test("nodes without an agent are told once, however many there are", () => {
  const nodes = Array.from({ length: 40 }, (_, n) => node(`n${n}`, { connected: false }));
  const troubles = attention({ nodes });
  assert.deepEqual(troubles.map(({ what }) => what), ["No agent has ever connected as n0, n1, n2, n3 and 36 more: nothing is enforced there"]);
});

test("every kind of trouble is told with where to look and what to type", () => {
  const now = Date.parse("2026-01-01T00:10:00Z");
  const troubles = attention({
    status: { problems: ["the store is away"], attention: ["x"], storage_trouble: ["y"] } as unknown as Status,
    nodes: [node("away", { connected: false, disconnected_at: now / 1000 - 300 }), node("bad", { errors: [{ kind: "Policy", name: "p", message: "no table" }] }), node("slow", { lag_seconds: 60 })],
    policies: [{ kind: "NetworkPolicy", namespace: "shop", name: "db", problems: [{ path: "spec.x", message: "unknown" }], failures: [] } as unknown as Policy],
    resources: [{ name: "n.c.r", state: "making", message: "quota" } as Resource],
    links: [{ state: "ready", message: "", ends: [{ site: "a", status: { tunnels: 2, tunnels_up: 0 } }, { site: "b" }] } as unknown as Link],
    jobs: [{ id: "7", state: "failed", ended_at: "2026-01-01T00:00:00Z", what: "make", message: "no" } as Job],
    consumers: [],
  }, now);
  assert.equal(troubles.length, 10);
  assert.match(troubles[0]?.what ?? "", /not ready: the store is away/);
  assert.ok(troubles.some(({ what }) => what.startsWith("Node away is away for 5 min")));
  assert.ok(troubles.some(({ what }) => what.includes("no tunnel is up")));
  for (const { href, command } of troubles) assert.ok(href.startsWith("#/") && command.startsWith("trestle "));
});
