// Where things stand, in units of the map. Pure.
//
//   place ┌ name ─────────────┐   Places flow like words into lines, sites before namespaces; so do the groups of a
//         │ ┌ group ┐ ┌─────┐ │   place. Everything stays in the order of its name, so that one more moves few others.
//         │ │ ▪▪▪▪▪ │ │ ▪▪  │ │   A group has a cell for each of its ends.
//         │ └───────┘ └─────┘ │
//         └───────────────────┘

import type { Scene } from "./scene.ts";

export interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Cells {
  columns: number;
  /** The upper left corner of the first. */
  x: number;
  y: number;
}

export interface Picture {
  places: Box[];
  groups: Box[];
  /** Of groups that have more than one end. */
  cells: (Cells | undefined)[];
  /** Groups of each place. */
  within: number[][];
  width: number;
  height: number;
}

/** One end: its cell, and what of it is filled. */
export const CELL = { width: 30, height: 13, gap: 4 };
const GROUP = { width: 156, height: 38, pad: 13, head: 34, foot: 9 };
const PLACE = { pad: 18, head: 40, least: 210, leastOfMany: 330 };
const GAP = { group: 34, groupOfFew: 50, place: 90 };
/** So few groups that there is room for what their lines say. */
const FEW_GROUPS = 40;
/** So few that sites and namespaces get lines of their own, and lines between them room. */
const FEW_PLACES = 12;

function columnsOf(ends: number): number {
  // About twice as wide as it is high.
  return Math.max(4, Math.ceil(Math.sqrt((ends * 2 * CELL.height) / CELL.width)));
}

function groupSize(ends: number) {
  if (ends <= 1) return { width: GROUP.width, height: GROUP.height };
  const columns = columnsOf(ends);
  return {
    width: Math.max(GROUP.width, 2 * GROUP.pad + columns * CELL.width),
    height: GROUP.head + Math.ceil(ends / columns) * CELL.height + GROUP.foot,
  };
}

interface Size {
  width: number;
  height: number;
}

interface Point {
  x: number;
  y: number;
}

interface Flow {
  at: Point[];
  size: Size;
}

/** Boxes one after another in lines that are about this wide; where each stands, and how large it all is. */
function flow(sizes: readonly Size[], wide: number, gap: number, breaks: (at: number) => boolean = () => false): Flow {
  const at: Point[] = [];
  let [x, y, line, width] = [0, 0, 0, 0];
  sizes.forEach((size, index) => {
    if (x > 0 && (x + size.width > wide || breaks(index))) {
      x = 0;
      y += line + gap;
      line = 0;
    }
    at.push({ x, y });
    x += size.width + gap;
    line = Math.max(line, size.height);
    width = Math.max(width, x - gap);
  });
  return { at, size: { width, height: y + line } };
}

/** How wide lines are, so that all of it comes nearest to this shape. */
function lineWidth(sizes: readonly Size[], gap: number, shape: number, breaks?: (at: number) => boolean): number {
  const area = sizes.reduce((sum, size) => sum + (size.width + gap) * (size.height + gap), 0);
  const widest = sizes.reduce((most, size) => Math.max(most, size.width), 0);
  let best = { wide: widest, off: Infinity };
  for (let step = 0.7; step <= 2; step += 0.1) {
    const wide = Math.max(widest, Math.sqrt(area * shape) * step);
    const { size } = flow(sizes, wide, gap, breaks);
    const off = Math.abs(Math.log(size.width / Math.max(1, size.height) / shape));
    if (off < best.off - 1e-9) best = { wide, off };
  }
  return best.wide;
}

/** How much wider than high the whole is to be, and how wide at most: on a phone one moves up and down only. */
export interface Frame {
  shape: number;
  widest: number;
}

export function picture(scene: Scene, { shape, widest }: Frame): Picture {
  const within: number[][] = scene.places.nodes.map(() => []);
  scene.groups.nodes.forEach((group, at) => within[group.place]?.push(at));
  const sizes = scene.groups.nodes.map((group) => groupSize(group.count));
  const between = sizes.length <= FEW_GROUPS ? GAP.groupOfFew : GAP.group;
  const inside = within.map((groups) => {
    const own = groups.map((at) => sizes[at] as Size);
    // A few stand above each other: ways between places then start at the side.
    const few = own.length <= 3 && within.length <= FEW_PLACES;
    const wide = few && shape > 0.8 ? 1 : lineWidth(own, between, few ? 0.8 : 1.5);
    return flow(own, wide, between);
  });
  const outer = inside.map(({ size }) => ({
    width: Math.max(within.length > FEW_PLACES ? PLACE.leastOfMany : PLACE.least, size.width + 2 * PLACE.pad),
    height: PLACE.head + Math.max(24, size.height) + PLACE.pad,
  }));
  const order = scene.places.nodes.map((_, at) => at);
  const rank = (at: number) => (scene.places.nodes[at]?.kind === "site" ? 0 : 1);
  order.sort((a, b) => rank(a) - rank(b) || (scene.places.nodes[a]?.name ?? "").localeCompare(scene.places.nodes[b]?.name ?? "", "en", { numeric: true }));
  const ordered = order.map((at) => outer[at] as Size);
  const gap = order.length > FEW_PLACES ? GAP.place * 0.7 : GAP.place * 1.4;
  const breaks = (at: number) => order.length <= FEW_PLACES && rank(order[at] as number) !== rank(order[at - 1] as number);
  const placed = flow(ordered, Math.min(widest, lineWidth(ordered, gap, shape, breaks)), gap, breaks);

  const places: Box[] = [];
  order.forEach((place, at) => { places[place] = { ...(placed.at[at] as Point), ...(outer[place] as Size) }; });
  const groups: Box[] = [];
  const cells: (Cells | undefined)[] = [];
  within.forEach((list, place) => {
    const box = places[place] as Box;
    list.forEach((group, at) => {
      const { x, y } = (inside[place] as Flow).at[at] as Point;
      const own = { x: box.x + PLACE.pad + x, y: box.y + PLACE.head + y, ...(sizes[group] as Size) };
      groups[group] = own;
      const ends = scene.groups.nodes[group]?.count ?? 0;
      cells[group] = ends > 1 ? { columns: columnsOf(ends), x: own.x + GROUP.pad, y: own.y + GROUP.head } : undefined;
    });
  });
  return { places, groups, cells, within, ...placed.size };
}

export const middle = (box: Box) => ({ x: box.x + box.width / 2, y: box.y + box.height / 2 });

/** The box of one end; that of its group if it is alone. */
export function endBox(picture: Picture, group: number, end: number): Box | undefined {
  const cells = picture.cells[group];
  if (!cells) return picture.groups[group];
  return {
    x: cells.x + (end % cells.columns) * CELL.width,
    y: cells.y + Math.floor(end / cells.columns) * CELL.height,
    width: CELL.width - CELL.gap,
    height: CELL.height - CELL.gap,
  };
}

export interface Spot {
  place: number;
  group?: number;
  end?: number;
}

const has = (box: Box | undefined, x: number, y: number) =>
  box !== undefined && x >= box.x && y >= box.y && x <= box.x + box.width && y <= box.y + box.height;

/** What is at a point. */
export function at(picture: Picture, scene: Scene, x: number, y: number): Spot | undefined {
  const place = picture.places.findIndex((box) => has(box, x, y));
  if (place < 0) return undefined;
  const group = picture.within[place]?.find((one) => has(picture.groups[one], x, y));
  if (group === undefined) return { place };
  const cells = picture.cells[group];
  if (!cells) return { place, group };
  const [column, row] = [Math.floor((x - cells.x) / CELL.width), Math.floor((y - cells.y) / CELL.height)];
  const end = row * cells.columns + column;
  const isOne = column >= 0 && row >= 0 && column < cells.columns && end < (scene.groups.nodes[group]?.count ?? 0);
  return isOne ? { place, group, end } : { place, group };
}
