import assert from "node:assert/strict";
import { test } from "node:test";
import { map, world } from "../dev/fixture.mjs";
import { at, CELL, endBox, picture, type Box } from "../src/map/layout.ts";
import { groupLines, placeLines } from "../src/map/lines.ts";
import { neighbourhood, part, plain, scene, short, type Told } from "../src/map/scene.ts";

const word = (share: string, ports?: string) => ({ share, ...(ports !== undefined && { ports }) });

/** Namespaces `a` … with one group each; ways as given. */
function told(names: string[], ways: number[][], usual: number[] = []): Told {
  const own = { usual: names.map((_, at) => [usual[at] ?? 0, 0]), within: names.map(() => null), ways, left_out: 0 };
  return {
    protocol: "all", words: [word("none"), word("all", "all"), word("some", "tcp 80"), word("some", "all")],
    places: names.map((name) => ({ id: `namespace:${name}`, name, kind: "namespace" })),
    groups: names.map((name, place) => ({ id: `namespace:${name}/web`, name: "web", place, ends: [`pod/${name}/web-0`, `pod/${name}/web-1`] })),
    place_ways: { ...own, ways: [] }, group_ways: own,
  } as unknown as Told;
}

test("what is usual becomes a mark, and what is not a line", () => {
  const made = scene(told(["a", "b", "c"], [[0, 1, 0], [2, 1, 2]], [0, 1, 0]));
  assert.equal(made.groups.nodes[1]?.open, "all");
  assert.deepEqual(made.groups.ways.map((way) => [way.from, way.to, way.kind, way.ports]), [[0, 1, "blocked", ""], [2, 1, "some", "tcp 80"]]);
  assert.equal(made.ends, 6);
  assert.equal(made.places.nodes[0]?.count, 2);
});

test("ports that are all of them, for some ends only, are not told as ports", () => {
  const [way] = scene(told(["a", "b"], [[0, 1, 3]])).groups.ways;
  assert.deepEqual([way?.kind, way?.ports], ["some", ""]);
});

test("a source that is blocked from most has one mark and not as many lines", () => {
  const names = Array.from({ length: 12 }, (_, n) => `n${n}`);
  const usual = names.map(() => 1);
  const made = scene(told(names, names.slice(1).map((_, n) => [0, n + 1, 0]), usual));
  assert.equal(made.groups.nodes[0]?.shut, true);
  assert.equal(made.groups.ways.length, 0);
  assert.equal(made.groups.marked, 11);
  // A few are lines still.
  const few = scene(told(names, [[0, 1, 0], [0, 2, 0]], usual));
  assert.equal(few.groups.nodes[0]?.shut, false);
  assert.equal(few.groups.ways.length, 2);
});

test("a source that reaches most of those who are closed has one mark", () => {
  const names = Array.from({ length: 12 }, (_, n) => `n${n}`);
  const made = scene(told(names, names.slice(1).map((_, n) => [0, n + 1, 2])));
  assert.deepEqual([made.groups.nodes[0]?.far, made.groups.nodes[0]?.farPorts, made.groups.ways.length], ["some", "tcp 80", 0]);
});

test("sites with nothing in them are there all the same, once", () => {
  const made = scene(told(["a"], []), ["default.x", "default.x"]);
  assert.deepEqual(made.places.nodes.map((node) => [node.name, node.kind, node.count]), [["a", "namespace", 2], ["default.x", "site", 0]]);
});

test("without ways between groups the map is coarse", () => {
  const { group_ways: _, ...rest } = told(["a", "b"], []);
  assert.equal(scene(rest as Told).fine, false);
});

test("a neighbourhood has whom one touches, both ways, and nobody else", () => {
  const whole = scene(told(["a", "b", "c", "d"], [[0, 1, 1], [2, 0, 2], [2, 3, 1]]));
  const kept = neighbourhood(whole, "namespace:a/web");
  assert.deepEqual([...(kept ?? [])].toSorted(), [0, 1, 2]);
  const own = part(whole, kept as Set<number>);
  assert.deepEqual(own.groups.nodes.map((node) => plain(node.id)), ["a/web", "b/web", "c/web"]);
  assert.deepEqual(own.places.nodes.map((node) => node.name), ["a", "b", "c"]);
  assert.deepEqual(own.groups.nodes.map((node) => node.place), [0, 1, 2]);
  assert.deepEqual(own.groups.ways.map((way) => [way.from, way.to]), [[0, 1], [2, 0]]);
  assert.deepEqual([...(neighbourhood(whole, "namespace:c") ?? [])].toSorted(), [0, 2, 3]);
  assert.equal(neighbourhood(whole, "namespace:nowhere"), undefined);
});

test("names are short on the map and whole in words", () => {
  assert.deepEqual(["pod/shop/web-1", "default.aws.vm", "namespace:shop/db"].map(short), ["web-1", "vm", "db"]);
  assert.deepEqual(["pod/shop/web-1", "site:default.aws/vm", "default.a.b"].map(plain), ["shop/web-1", "default.aws/vm", "default.a.b"]);
});

const apart = (a: Box, b: Box) => a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
const inside = (a: Box, b: Box) => a.x >= b.x && a.y >= b.y && a.x + a.width <= b.x + b.width && a.y + a.height <= b.y + b.height;

for (const workloads of [10, 300, 3000]) {
  for (const shape of [0.5, 1.7]) {
    test(`${workloads} workloads have each its own place, in the shape ${shape}`, () => {
      const made = scene(map(world(workloads)) as unknown as Told);
      const drawn = picture(made, { shape, widest: Infinity });
      drawn.places.forEach((a, n) => drawn.places.slice(n + 1).forEach((b) => assert.ok(apart(a, b), "places overlap")));
      drawn.within.forEach((groups, place) => {
        groups.forEach((group, n) => {
          const box = drawn.groups[group] as Box;
          assert.ok(inside(box, drawn.places[place] as Box), "a group leaves its place");
          groups.slice(n + 1).forEach((other) => assert.ok(apart(box, drawn.groups[other] as Box), "groups overlap"));
          const many = made.groups.nodes[group]?.count ?? 0;
          for (const end of [0, many - 1]) {
            const own = endBox(drawn, group, end) as Box;
            assert.ok(inside(own, box), `end ${end} of ${many} leaves its group`);
            const spot = at(drawn, made, own.x + 1, own.y + 1);
            assert.deepEqual([spot?.place, spot?.group, spot?.end], [place, group, many > 1 ? end : undefined]);
          }
        });
      });
      for (const line of [...groupLines(made.groups, drawn), ...placeLines(made.places, drawn)]) {
        assert.ok(line.points.flat().every(Number.isFinite) && Number.isFinite(line.angle));
      }
      if (workloads > 100) assert.ok(Math.abs(Math.log(drawn.width / drawn.height / shape)) < 0.4, `${drawn.width} × ${drawn.height}`);
    });
  }
}

test("on a phone nothing is wider than its window, if it can be", () => {
  const made = scene(map(world(2000)) as unknown as Told);
  const widest = Math.max(...picture(made, { shape: 1, widest: Infinity }).places.map((box) => box.width));
  assert.ok(picture(made, { shape: 0.5, widest: 1600 }).width <= Math.max(1600, widest));
});

test("nothing is at a point beside everything", () => {
  const made = scene(told(["a"], []));
  assert.equal(at(picture(made, { shape: 1, widest: Infinity }), made, -5, -5), undefined);
  assert.ok(CELL.width > CELL.gap);
});

test("one more workload moves nobody else's place in the order", () => {
  const few = picture(scene(told(["a", "b", "c"], [])), { shape: 1, widest: Infinity });
  const more = picture(scene(told(["a", "b", "c", "d"], [])), { shape: 1, widest: Infinity });
  const order = (boxes: Box[]) => boxes.map((box, index) => [box.y, box.x, index] as const).toSorted((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, , index]) => index);
  assert.deepEqual(order(more.places).filter((index) => index < 3), order(few.places));
});
