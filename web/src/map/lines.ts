// The lines of ways: ways that go together run together. Pure.
//
//   group ──╮                  ╭── group      A way bends towards the middle of the places at its ends, so that all
//            ╞════════════════╡               between two places share most of their length (hierarchical edge
//   group ──╯                  ╰── group      bundling). There and back keep to their own side.

import { curveBundle, line } from "d3-shape";
import { middle, type Box, type Picture } from "./layout.ts";
import type { Tier, Way } from "./scene.ts";

type Point = [number, number];

export interface Line extends Box {
  way: Way;
  /** The points the curve is made of. */
  points: Point[];
  /** Where it ends, and from where it comes there: for its head. */
  end: Point;
  angle: number;
  /** Where a label may stand, best first. */
  labels: Point[];
}

const TIGHT = 0.82;
/** How far there and back are apart. */
const APART = 9;

const curve = line<Point>().curve(curveBundle.beta(TIGHT));

export function trace(points: Point[], onto: Path2D) {
  curve.context(onto as unknown as CanvasRenderingContext2D)(points);
}

/** Where the way from the middle of a box to a point leaves the box. */
function leave(box: Box, towards: Point, room = 0): Point {
  const { x, y } = middle(box);
  const [dx, dy] = [towards[0] - x, towards[1] - y];
  const share = Math.min(dx === 0 ? Infinity : (box.width / 2 + room) / Math.abs(dx), dy === 0 ? Infinity : (box.height / 2 + room) / Math.abs(dy));
  return share < 1 ? [x + dx * share, y + dy * share] : [x, y];
}

/** The point between, to the right of the way there. */
function beside(a: Point, b: Point, by: number, along = 0.5): Point {
  const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
  const long = Math.hypot(dx, dy) || 1;
  return [a[0] + dx * along - (dy / long) * by, a[1] + dy * along + (dx / long) * by];
}

const point = (box: Box): Point => [middle(box).x, middle(box).y];

function made(way: Way, from: Box, to: Box, through: Point[]): Line {
  const start = leave(from, through[0] as Point);
  const last = through[through.length - 1] as Point;
  const end = leave(to, last, 2);
  const points = [start, ...through, end];
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const [x, y] = [Math.min(...xs), Math.min(...ys)];
  // The bundled curve comes to its end from nearer than its last bend.
  const near: Point = [last[0] * TIGHT + start[0] * (1 - TIGHT), last[1] * TIGHT + start[1] * (1 - TIGHT)];
  return {
    way, points, end, angle: Math.atan2(end[1] - near[1], end[0] - near[0]),
    labels: [0.5, 0.36, 0.64, 0.22, 0.78].map((along) => spot(points, along)),
    x, y, width: Math.max(...xs) - x, height: Math.max(...ys) - y,
  };
}

/** A point of the curve, nearly. */
function spot(points: Point[], along: number): Point {
  const place = along * (points.length - 1);
  const [a, b] = [points[Math.floor(place)] as Point, points[Math.ceil(place)] as Point];
  const straight: Point = [(points[0] as Point)[0] * (1 - along) + (points.at(-1) as Point)[0] * along, (points[0] as Point)[1] * (1 - along) + (points.at(-1) as Point)[1] * along];
  const share = place - Math.floor(place);
  const mixed: Point = [a[0] * (1 - share) + b[0] * share, a[1] * (1 - share) + b[1] * share];
  const pull = points.length > 3 ? TIGHT : 0.45;
  return [mixed[0] * pull + straight[0] * (1 - pull), mixed[1] * pull + straight[1] * (1 - pull)];
}

/** Lines between groups. */
export function groupLines(tier: Tier, picture: Picture): Line[] {
  return tier.ways.flatMap((way) => {
    const [from, to] = [picture.groups[way.from], picture.groups[way.to]];
    const [home, there] = [tier.nodes[way.from]?.place, tier.nodes[way.to]?.place];
    if (!from || !to || home === undefined || there === undefined) return [];
    if (home === there) return [made(way, from, to, [beside(point(from), point(to), Math.min(60, bow(from, to)))])];
    const [a, b] = [picture.places[home], picture.places[there]];
    if (!a || !b) return [];
    const [p, q] = [point(a), point(b)];
    const [out, into] = [leave(a, q, 16), leave(b, p, 16)];
    return [made(way, from, to, [beside(out, into, APART, 0), beside(out, into, APART, 0.5), beside(out, into, APART, 1)])];
  });
}

/** Around what may stand between. */
const bow = (from: Box, to: Box) => 12 + Math.hypot(middle(from).x - middle(to).x, middle(from).y - middle(to).y) * 0.14;

/** Lines between places. */
export function placeLines(tier: Tier, picture: Picture): Line[] {
  return tier.ways.flatMap((way) => {
    const [from, to] = [picture.places[way.from], picture.places[way.to]];
    return from && to ? [made(way, from, to, [beside(point(from), point(to), APART + bow(from, to) * 0.7)])] : [];
  });
}
