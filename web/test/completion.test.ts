import assert from "node:assert/strict";
import { test } from "node:test";
import { indentAfter, offers } from "../src/completion.ts";

/** The cursor is where the bar is. */
const words = (text: string) => offers(text.replace("|", ""), text.indexOf("|"))?.offers.map((one) => one.word) ?? [];
const first = (text: string) => {
  const found = offers(text.replace("|", ""), text.indexOf("|"));
  return found && text.slice(0, found.from) + found.offers[0]?.text;
};
const POLICY = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n";

test("a document begins with its kind, and a kind has versions", () => {
  assert.deepEqual(words("|"), ["apiVersion", "kind"]);
  assert.deepEqual(words("apiVersion: v1\nk|"), ["kind"]);
  assert.deepEqual(words("apiVersion: v1\nkind: |"), ["Namespace", "Node", "Pod", "Service"]);
  assert.deepEqual(words("kind: ClusterGroup\napiVersion: |"), ["crd.antrea.io/v1beta1", "crd.antrea.io/v1alpha3", "crd.antrea.io/v1alpha2"]);
  assert.deepEqual(words("apiVersion: crd.antrea.io/v1beta1\nkind: ClusterN|"), ["ClusterNetworkPolicy"]);
});

test("fields are those of the place, without those that stand there already", () => {
  assert.deepEqual(words(`${POLICY}spec:\n  |`), ["egress", "ingress", "podSelector", "policyTypes"]);
  assert.deepEqual(words(`${POLICY}spec:\n  podSelector: {}\n  ingress:\n  - from:\n    - ipBlock:\n        cidr: 10.0.0.0/8\n  |`), ["egress", "policyTypes"]);
  assert.deepEqual(words(`${POLICY}spec:\n  ingress:\n  - from:\n    - |`), ["ipBlock", "namespaceSelector", "podSelector"]);
  assert.deepEqual(words(`${POLICY}spec:\n  ingress:\n  - from: []\n    po|`), ["ports"]);
  // A new entry has all of them again, in either way of indenting lists.
  assert.ok(words(`${POLICY}spec:\n  ingress:\n  - from: []\n  - |`).includes("from"));
  assert.ok(words(`${POLICY}spec:\n  ingress:\n    - from: []\n    - |`).includes("from"));
  assert.deepEqual(words(`${POLICY}spec:\n  ingress:\n    - ports:\n        - protocol: TCP\n          e|`), ["endPort"]);
});

test("what is taken is as it is written: a value, fields below, or a list", () => {
  assert.equal(first(`${POLICY}spec:\n  pod|`), `${POLICY}spec:\n  podSelector:\n    `);
  assert.equal(first(`${POLICY}spec:\n  ing|`), `${POLICY}spec:\n  ingress:\n    - `);
  assert.equal(first(`${POLICY}metadata:\n  names|`), `${POLICY}metadata:\n  namespace: `);
  // Below a list without a dash, one is made.
  assert.equal(first(`${POLICY}spec:\n  ingress:\n    fr|`), `${POLICY}spec:\n  ingress:\n    - from:\n        - `);
});

test("values are those of the field and its API", () => {
  assert.deepEqual(words(`${POLICY}spec:\n  policyTypes:\n  - |`), ["Ingress", "Egress"]);
  assert.deepEqual(words(`${POLICY}spec:\n  ingress:\n  - ports:\n    - protocol: U|`), ["UDP"]);
  assert.deepEqual(words("apiVersion: crd.antrea.io/v1beta1\nkind: NetworkPolicy\nspec:\n  ingress:\n  - action: |"), ["Allow", "Drop", "Reject", "Pass"]);
  assert.deepEqual(words("apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nspec:\n  tier: |"), ["Admin", "Baseline"]);
});

test("of several documents it is the one with the cursor, and what cannot be told is not guessed", () => {
  assert.deepEqual(words(`${POLICY}---\napiVersion: v1\nkind: |\n---\n${POLICY}`), ["Namespace", "Node", "Pod", "Service"]);
  assert.deepEqual(words(`${POLICY}---\n|`), ["apiVersion", "kind"]);
  for (const text of [`${POLICY}spec: {|`, `${POLICY}spec:\n  ingress: [{ fr|`, `${POLICY}no:\n  such|`, `${POLICY}metadata:\n  labels:\n    |`, "kind: Nothing\nspec:\n  |", `${POLICY}# x|`, "- - -\n    |"]) assert.deepEqual(words(text), [], text);
});

test("the next line begins as this one, and deeper below a field", () => {
  assert.equal(indentAfter("spec:", 5), "  ");
  assert.equal(indentAfter("  - from:", 9), "      ");
  assert.equal(indentAfter("    cidr: x", 11), "    ");
  assert.equal(indentAfter("", 0), "");
});

test("nothing that is written makes it fall", () => {
  const text = `${POLICY}spec:\n  ingress:\n  - from:\n    - - ipBlock: {cidr: "a"}\n\t- x: :\n---\n:\n-\n - kind: [\n`;
  for (let length = 0; length <= text.length; length += 1) {
    for (let cursor = 0; cursor <= length; cursor += 1) offers(text.slice(0, length), cursor);
  }
});
