import assert from "node:assert/strict";
import { test } from "node:test";
import { applyCommand, emptyPeer, labels, policyOf, yaml, type PolicyForm } from "../src/policy.ts";

const form = (more: Partial<PolicyForm>): PolicyForm => ({ name: "p", namespace: "shop", pods: "", direction: "in", peers: [], ports: "", ...more });

test("a form becomes the policy that people would write", () => {
  const made = policyOf(form({ pods: "app=db", peers: [{ ...emptyPeer, pods: "app=web, tier=front" }], ports: "tcp 5432, udp 53, 8000-8010, http, sctp" })) as { spec: unknown };
  assert.deepEqual(made.spec, {
    podSelector: { matchLabels: { app: "db" } }, policyTypes: ["Ingress"],
    ingress: [{
      from: [{ podSelector: { matchLabels: { app: "web", tier: "front" } } }],
      ports: [{ protocol: "TCP", port: 5432 }, { protocol: "UDP", port: 53 }, { protocol: "TCP", port: 8000, endPort: 8010 }, { protocol: "TCP", port: "http" }, { protocol: "SCTP" }],
    }],
  });
});

test("peers are Pods here, Pods elsewhere, or addresses", () => {
  const peers = [{ ...emptyPeer }, { ...emptyPeer, kind: "namespace" as const, namespace: "billing", pods: "app=web" }, { ...emptyPeer, kind: "namespace" as const, namespace: "team=a" }, { ...emptyPeer, kind: "block" as const, block: " 10.0.0.0/8 " }];
  const { spec } = policyOf(form({ direction: "out", peers })) as { spec: { egress: { to: unknown[] }[]; policyTypes: string[] } };
  assert.deepEqual(spec.policyTypes, ["Egress"]);
  assert.deepEqual(spec.egress[0]?.to, [
    { podSelector: {} },
    { namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "billing" } }, podSelector: { matchLabels: { app: "web" } } },
    { namespaceSelector: { matchLabels: { team: "a" } } },
    { ipBlock: { cidr: "10.0.0.0/8" } },
  ]);
});

test("without peers and ports it closes, and with ports alone it opens them for everybody", () => {
  assert.equal("ingress" in (policyOf(form({})) as { spec: object }).spec, false);
  const { spec } = policyOf(form({ ports: "443" })) as { spec: { ingress: object[] } };
  assert.deepEqual(spec.ingress, [{ ports: [{ protocol: "TCP", port: 443 }] }]);
});

test("what is no pair is a label all the same", () => {
  assert.deepEqual(labels("a=b, c , d=e=f"), { a: "b", c: "", d: "e=f" });
});

test("what is shown has nothing that the store filled in, and can be typed", () => {
  const stored = { kind: "NetworkPolicy", metadata: { name: "p", uid: "u", generation: 3 }, spec: {} };
  assert.equal(yaml(stored), "kind: NetworkPolicy\nmetadata:\n  name: p\nspec: {}\n");
  assert.equal(stored.metadata.uid, "u");
  assert.equal(applyCommand("a: 1\n"), "trestle apply -f - <<'EOF'\na: 1\nEOF");
});
