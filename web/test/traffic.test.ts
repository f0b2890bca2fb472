import assert from "node:assert/strict";
import { test } from "node:test";
import { scene, type Told } from "../src/map/scene.ts";
import { touching, traffic, type Flow } from "../src/map/traffic.ts";

const names = ["a", "b"];
const own = { usual: names.map(() => [0, 0]), within: names.map(() => null), ways: [], left_out: 0 };
const told = {
  protocol: "all", words: [{ share: "none" }],
  places: names.map((name) => ({ id: `namespace:${name}`, name, kind: "namespace" })),
  groups: names.flatMap((name, place) => ["web", "db"].map((app) => ({ id: `namespace:${name}/${app}`, name: app, place, ends: [`pod/${name}/${app}-0`, `pod/${name}/${app}-1`] }))),
  place_ways: own, group_ways: { ...own, usual: [0, 1, 2, 3].map(() => [0, 0]), within: [0, 1, 2, 3].map(() => null) },
} as unknown as Told;

function flow(verdict: string, direction: string, from: string, to: string, count: number): Flow {
  const end = (workload: string) => ({ address: "10.0.0.1", workload, labels: {}, tags: [] });
  return { first: "", last: "", node: "n", verdict, direction, from: end(from), to: end(to), protocol: "tcp", port: 80, count } as unknown as Flow;
}

test("what was refused comes first, and what both ends tell counts once", () => {
  const made = scene(told);
  const seen = traffic(made, [
    flow("allowed", "in", "Pod a/web-0", "Pod b/db-0", 5),
    flow("allowed", "out", "Pod a/web-0", "Pod b/db-0", 5),
    flow("allowed", "in", "Pod a/web-1", "Pod b/db-1", 7),
    flow("denied", "in", "Pod a/web-0", "Pod b/web-0", 2),
    flow("observed", "in", "Pod a/web-0", "Pod b/web-1", 1),
    flow("allowed", "in", "Pod a/web-0", "Pod a/db-0", 4),
    flow("denied", "in", "", "Pod a/web-0", 9),
    flow("allowed", "in", "Pod gone/x", "Pod a/web-0", 9),
  ]);
  const name = (at: number) => made.groups.nodes[at]?.id.slice("namespace:".length);
  assert.deepEqual(seen.group.map((one) => [one.verdict, name(one.from), name(one.to), one.count, one.most.count]), [
    ["denied", "a/web", "b/web", 3, 2],
    ["allowed", "a/web", "b/db", 12, 7],
    ["allowed", "a/web", "a/db", 4, 4],
  ]);
  // Within a place there is no line between places.
  assert.deepEqual(seen.place.map((one) => [one.verdict, one.count]), [["denied", 3], ["allowed", 12]]);
  assert.deepEqual(touching(made.groups, seen.group, "namespace:b/db").map((one) => one.count), [12]);
  assert.deepEqual(touching(made.groups, seen.group, "namespace:none"), []);
});
