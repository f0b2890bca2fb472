// Where things stand on the map, and which lines are worth drawing. Pure.

import type { Link, Reachability, ReachGroup } from "../api.ts";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Chip extends Box {
  group: ReachGroup;
  /** Most others may connect to it: only the exceptions are drawn. */
  open: boolean;
}

export interface Place extends Box {
  id: string;
  name: string;
  kind: string;
  chips: Chip[];
}

export interface Edge {
  id: string;
  from: string;
  to: string;
  /** `all` ports, `some` of them or of the pairs, or `blocked` where most others may. */
  kind: "all" | "some" | "blocked";
  ports: string;
}

export interface Picture {
  places: Place[];
  edges: Edge[];
  width: number;
  height: number;
  /** How much larger than life a small picture is shown. */
  zoom: number;
}

const LARGEST = 1.3;
const CHIP = { width: 152, height: 38, gap: 14, between: 60 };
/** Chips in one column of a place. */
const COLUMN = 7;
const PAD = 16;
const HEAD = 36;
const ROAD = 120;
const EDGE = 12;
/** Room beside the places for curves that go around. */
const SIDE = 46;
const FURTHEST = 56;

const placeId = (group: ReachGroup) => `${group.place_kind}:${group.place}`;

/** Which pairs to draw. Where most may connect a line says that one may not; where few may, that one may. */
export function edges(reach: Reachability): { edges: Edge[]; open: Set<string> } {
  const found: Edge[] = [];
  const open = new Set<string>();
  reach.destinations.forEach((to, column) => {
    const sources = reach.sources
      .map((from, row) => ({ from, cell: reach.cells[row]?.[column] }))
      .filter(({ from, cell }) => from.id !== to.id && cell !== undefined && cell.pairs > 0);
    const workloads = sources.filter(({ from }) => from.place_kind === "namespace");
    const free = workloads.filter(({ cell }) => cell?.open === cell?.pairs);
    const isOpen = to.place_kind === "namespace" && free.length * 2 > workloads.length;
    if (isOpen) open.add(to.id);
    for (const { from, cell } of sources) {
      if (!cell) continue;
      const id = `${from.id} → ${to.id}`;
      const reached = cell.open + cell.partly;
      const usual = isOpen && from.place_kind === "namespace";
      if (usual && reached === 0) found.push({ id, from: from.id, to: to.id, kind: "blocked", ports: "" });
      else if (reached > 0 && !(usual && cell.open === cell.pairs)) {
        found.push({ id, from: from.id, to: to.id, kind: cell.open === cell.pairs ? "all" : "some", ports: cell.ports ?? "" });
      }
    }
  });
  return { edges: found, open };
}

/** Places side by side in as many rows as the width asks for. */
export function picture(reach: Reachability, empty: string[], links: Link[], width: number): Picture {
  const drawn = edges(reach);
  const groups = new Map<string, ReachGroup[]>();
  for (const group of [...reach.sources, ...reach.destinations]) {
    const list = groups.get(placeId(group)) ?? [];
    if (!list.some((one) => one.id === group.id)) list.push(group);
    groups.set(placeId(group), list);
  }
  const sites = new Set([...empty, ...links.flatMap((link) => link.ends.map((end) => end.site))]);
  for (const site of sites) if (!groups.has(`site:${site}`)) groups.set(`site:${site}`, []);
  const order = [...groups.keys()].sort((a, b) => (a.startsWith("site") === b.startsWith("site") ? a.localeCompare(b) : a.startsWith("site") ? -1 : 1));

  const inner = Math.max(CHIP.width + 2 * PAD, width - 2 * SIDE);
  const most = Math.max(1, Math.floor((inner - 2 * PAD + CHIP.between) / (CHIP.width + CHIP.between)));
  const places: Place[] = [];
  let [x, y, deepest] = [SIDE, EDGE, 0];
  let kind = order[0]?.split(":")[0];
  for (const id of order) {
    const list = groups.get(id) ?? [];
    const columns = Math.min(most, Math.max(1, Math.ceil(list.length / COLUMN)));
    const rows = Math.max(1, Math.ceil(list.length / columns));
    const box = {
      width: columns * (CHIP.width + CHIP.between) - CHIP.between + 2 * PAD,
      height: HEAD + rows * (CHIP.height + CHIP.gap) - CHIP.gap + PAD,
    };
    const nextKind = id.split(":")[0];
    if (x > SIDE && (x + box.width > width - SIDE || nextKind !== kind)) {
      x = SIDE;
      y += deepest + ROAD / 2;
      deepest = 0;
    }
    kind = nextKind;
    const chips = list.map((group, at) => ({
      group,
      open: drawn.open.has(group.id),
      x: x + PAD + Math.floor(at / rows) * (CHIP.width + CHIP.between),
      y: y + HEAD + (at % rows) * (CHIP.height + CHIP.gap),
      width: CHIP.width,
      height: CHIP.height,
    }));
    places.push({ id, name: id.slice(id.indexOf(":") + 1), kind: nextKind ?? "", x, y, ...box, chips });
    x += box.width + ROAD;
    deepest = Math.max(deepest, box.height);
  }
  const height = places.reduce((end, place) => Math.max(end, place.y + place.height), 0) + EDGE;
  const right = places.reduce((end, place) => Math.max(end, place.x + place.width), 0) + SIDE;
  return { places, edges: drawn.edges, width: right, height, zoom: Math.max(1, Math.min(LARGEST, width / right)) };
}

const middle = (box: Box) => ({ x: box.x + box.width / 2, y: box.y + box.height / 2 });

interface Point {
  x: number;
  y: number;
}

export interface Curve extends Point {
  path: string;
}

/** A cubic curve, and a place on it for a label, nearer to its start than to where many may meet. */
function cubic(p: Point, c: Point, d: Point, q: Point): Curve {
  const at = (a: number, b: number, e: number, f: number) => 0.343 * a + 0.441 * b + 0.189 * e + 0.027 * f;
  return { path: `M${p.x} ${p.y}C${c.x} ${c.y} ${d.x} ${d.y} ${q.x} ${q.y}`, x: at(p.x, c.x, d.x, q.x), y: at(p.y, c.y, d.y, q.y) };
}

/** A curve from the side of one box to the facing side of another; there and back are two curves. */
export function curve(a: Box, b: Box): Curve {
  const [from, to] = [middle(a), middle(b)];
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  if (Math.abs(dx) < a.width / 2 && Math.abs(dy) < 8 * a.height) {
    // Above each other: out on the right and back in, further out the longer the way; up on the other side.
    const way = dy >= 0 ? 1 : -1;
    const [start, end] = [{ x: from.x + way * a.width / 2, y: from.y + way * 6 }, { x: to.x + way * (b.width / 2 + 3), y: to.y - way * 6 }];
    const out = way * Math.min(FURTHEST, 16 + Math.abs(dy) / 5);
    return cubic(start, { x: start.x + out, y: start.y }, { x: end.x + out, y: end.y }, end);
  }
  const sideways = Math.abs(dx) > Math.abs(dy) * 1.2 || Math.abs(dy) < a.height;
  const shift = 7;
  if (sideways) {
    const way = dx >= 0 ? 1 : -1;
    const start = { x: from.x + way * a.width / 2, y: from.y - way * shift };
    const end = { x: to.x - way * b.width / 2 - way * 3, y: to.y - way * shift };
    const bend = Math.max(18, Math.abs(end.x - start.x) / 2);
    return cubic(start, { x: start.x + way * bend, y: start.y }, { x: end.x - way * bend, y: end.y }, end);
  }
  const way = dy >= 0 ? 1 : -1;
  const start = { x: from.x + way * shift, y: from.y + way * a.height / 2 };
  const end = { x: to.x + way * shift, y: to.y - way * b.height / 2 - way * 3 };
  const bend = Math.max(14, Math.abs(end.y - start.y) / 2);
  return cubic(start, { x: start.x, y: start.y + way * bend }, { x: end.x, y: end.y - way * bend }, end);
}

/** A line between two places: from title to title if they stand side by side, else between their edges. */
export function road(a: Box, b: Box): Curve {
  const [from, to] = [middle(a), middle(b)];
  const cut = (box: Box, towards: Point) => {
    const at = middle(box);
    const [dx, dy] = [towards.x - at.x, towards.y - at.y];
    const share = Math.min(dx === 0 ? Infinity : box.width / 2 / Math.abs(dx), dy === 0 ? Infinity : box.height / 2 / Math.abs(dy));
    return { x: at.x + dx * share, y: at.y + dy * share };
  };
  if (a.y === b.y) {
    const [left, right] = a.x < b.x ? [a, b] : [b, a];
    const [x1, x2, y] = [left.x + left.width, right.x, a.y + 18];
    return { path: `M${x1} ${y}L${x2} ${y}`, x: (x1 + x2) / 2, y: y - 4 };
  }
  const [start, end] = [cut(a, to), cut(b, from)];
  return { path: `M${start.x} ${start.y}L${end.x} ${end.y}`, x: (start.x + end.x) / 2, y: (start.y + end.y) / 2 };
}
