// The scene on a canvas, with as much detail as there is room for. What it is drawn on is told; nothing is held but texts
// that were cut to fit.
//
//   far    places by name, groups as blocks, ways between places
//   mid    groups by name, ways between groups
//   near   ends by name

import { CELL, endBox, middle, type Box, type Picture } from "./layout.ts";
import { trace, type Line } from "./lines.ts";
import { short, type Kind, type Node, type Scene } from "./scene.ts";

export interface Camera {
  k: number;
  x: number;
  y: number;
}

export interface Road {
  from: number;
  to: number;
  state: "up" | "busy" | "bad";
  text: string;
}

/** Colours, by what they mean. */
export type Palette = Record<
  "ground" | "surface" | "raised" | "line" | "strong" | "text" | "muted" | "accent" | "accent-soft" | "good" | "part" | "bad" | "site" | "site-line" | "cell", string
> & { font: string };

export interface Shown {
  scene: Scene;
  picture: Picture;
  placeLines: Line[];
  groupLines: Line[];
  /** All lines of a level and kind in one. */
  merged: Record<"place" | "group", Record<Kind, Path2D>>;
  roads: Road[];
}

export interface State {
  /** Group or place that is looked at: everything it does not touch steps back. */
  place?: number | undefined;
  group?: number | undefined;
  end?: number | undefined;
  /** Where the pointer or the keyboard is. */
  cursor?: { place: number; group?: number | undefined; end?: number | undefined } | undefined;
  cursorIsKey?: boolean;
  /** Ways that have just come, or gone, and how far that is told: 0 to 1. */
  fresh: Map<string, number>;
  gone: { line: Line; age: number }[];
  /** What nodes have seen, if that is asked for. */
  traffic?: Record<"place" | "group", Line[]> | undefined;
}

export type Detail = "far" | "mid" | "near";

const NEAR = 2.3;
const MID = 0.36;
/** Dashes take long to draw; with more lines their heads alone tell them apart. */
const DASHED = 500;
/** So do the dashes of lines that are longer than this many pixels, also those beyond the window. */
const LONG = 3000;
const LABELLED = 30;
const DASH: Record<Kind, number[]> = { all: [], some: [9, 5], blocked: [2, 4] };
const KINDS: Kind[] = ["all", "some", "blocked"];
export const COLOUR = { all: "good", some: "part", blocked: "bad" } as const;

export function detail(camera: Camera, scene: Scene): Detail {
  if (camera.k >= NEAR) return "near";
  return camera.k >= MID || scene.places.nodes.length <= 1 ? "mid" : "far";
}

/** All lines of a level in three paths, one of each kind. */
export function merge(lines: Line[]): Record<Kind, Path2D> {
  const merged = { all: new Path2D(), some: new Path2D(), blocked: new Path2D() };
  for (const one of lines) trace(one.points, merged[one.way.kind]);
  return merged;
}

export const wayId = (scene: Scene, level: "place" | "group", line: Line) => {
  const nodes = level === "place" ? scene.places.nodes : scene.groups.nodes;
  return `${nodes[line.way.from]?.id} → ${nodes[line.way.to]?.id} ${line.way.kind}`;
};

const texts = new Map<string, string>();

/** As much of a text as fits. */
function cut(context: CanvasRenderingContext2D, text: string, width: number): string {
  const room = Math.floor(width / 4) * 4;
  if (room < 14) return "";
  const key = `${context.font}|${room}|${text}`;
  const known = texts.get(key);
  if (known !== undefined) return known;
  let kept = text;
  if (context.measureText(text).width > room) {
    let [low, high] = [0, text.length];
    while (low < high) {
      const half = Math.ceil((low + high) / 2);
      if (context.measureText(`${text.slice(0, half)}…`).width <= room) low = half;
      else high = half - 1;
    }
    kept = low < 2 ? "" : `${text.slice(0, low)}…`;
  }
  if (texts.size > 20_000) texts.clear();
  texts.set(key, kept);
  return kept;
}

/** A name in lines that fit, broken where it has joints. */
function wrapped(context: CanvasRenderingContext2D, name: string, width: number): string[] {
  const lines: string[] = [];
  for (const part of name.split(/(?<=[-._])/)) {
    const last = lines.at(-1);
    if (last !== undefined && context.measureText(last + part).width <= width) lines[lines.length - 1] = last + part;
    else lines.push(part);
  }
  return lines.map((line) => cut(context, line, Math.max(16, width)));
}

class Painter {
  readonly left: number;
  readonly top: number;
  readonly right: number;
  readonly bottom: number;
  readonly detail: Detail;
  /** Where no further label may stand, on the screen; and where labels do. */
  private readonly taken: Box[] = [];
  private readonly labels: Box[] = [];

  constructor(
    readonly context: CanvasRenderingContext2D,
    readonly shown: Shown,
    readonly camera: Camera,
    readonly state: State,
    readonly palette: Palette,
    readonly ratio: number,
    width: number,
    height: number,
  ) {
    this.left = -camera.x / camera.k;
    this.top = -camera.y / camera.k;
    this.right = this.left + width / camera.k;
    this.bottom = this.top + height / camera.k;
    this.detail = detail(camera, shown.scene);
  }

  get focused() {
    return this.state.group !== undefined || this.state.place !== undefined;
  }

  private seen(box: Box | undefined): box is Box {
    return box !== undefined && box.x < this.right && box.x + box.width > this.left && box.y < this.bottom && box.y + box.height > this.top;
  }

  /** Draws in units of the map. */
  private inMap() {
    const { k, x, y } = this.camera;
    this.context.setTransform(k * this.ratio, 0, 0, k * this.ratio, x * this.ratio, y * this.ratio);
  }

  /** Draws in pixels: what keeps its size. */
  private onScreen() {
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
  }

  private toScreen(x: number, y: number): [number, number] {
    return [x * this.camera.k + this.camera.x, y * this.camera.k + this.camera.y];
  }

  private box(box: Box, radius: number) {
    this.context.roundRect(box.x, box.y, box.width, box.height, Math.min(radius, box.height / 2));
  }

  draw(width: number, height: number) {
    const { context, palette } = this;
    this.onScreen();
    context.fillStyle = palette.ground;
    context.fillRect(0, 0, width, height);
    context.lineJoin = context.lineCap = "round";
    this.inMap();
    this.roads();
    this.places();
    this.groups();
    this.lines();
    this.onScreen();
    context.textBaseline = "middle";
    this.placeTexts();
    if (this.detail !== "far") this.groupTexts();
    this.roadTexts();
    this.lineTexts();
  }

  /** Whether a node has to do with what is looked at. */
  private touched(level: "place" | "group", at: number): boolean {
    const { scene } = this.shown;
    const { place, group } = this.state;
    if (!this.focused) return true;
    if (level === "place") return place === at || scene.groups.nodes[group ?? -1]?.place === at || this.nearPlaces().has(at);
    return group === at || scene.groups.nodes[at]?.place === place || this.nearGroups().has(at);
  }

  private groupsNear: Set<number> | undefined;
  private placesNear: Set<number> | undefined;

  private nearGroups(): Set<number> {
    if (this.groupsNear) return this.groupsNear;
    const near = (this.groupsNear = new Set<number>());
    for (const { way } of this.shown.groupLines) {
      if (!this.isNear("group", way.from, way.to)) continue;
      near.add(way.from);
      near.add(way.to);
    }
    return near;
  }

  private nearPlaces(): Set<number> {
    if (this.placesNear) return this.placesNear;
    const near = (this.placesNear = new Set<number>());
    for (const at of this.nearGroups()) near.add(this.shown.scene.groups.nodes[at]?.place ?? -1);
    for (const { way } of this.shown.placeLines) {
      if (!this.isNear("place", way.from, way.to)) continue;
      near.add(way.from);
      near.add(way.to);
    }
    return near;
  }

  /** Whether a way begins or ends where is looked at. */
  private isNear(level: "place" | "group", from: number, to: number): boolean {
    const { place, group } = this.state;
    const nodes = this.shown.scene.groups.nodes;
    if (level === "group") {
      if (group !== undefined) return from === group || to === group;
      return place !== undefined && (nodes[from]?.place === place || nodes[to]?.place === place);
    }
    const own = place ?? nodes[group ?? -1]?.place;
    return from === own || to === own;
  }

  private places() {
    const { context, palette, shown, camera } = this;
    context.lineWidth = 1 / camera.k;
    shown.scene.places.nodes.forEach((node, at) => {
      const box = shown.picture.places[at];
      if (!this.seen(box)) return;
      context.beginPath();
      this.box(box, 14);
      // What steps back does not let through what lies below it.
      context.globalAlpha = 1;
      context.fillStyle = palette.ground;
      context.fill();
      context.globalAlpha = this.touched("place", at) ? 1 : 0.4;
      context.fillStyle = node.kind === "site" ? palette.site : palette.surface;
      context.strokeStyle = node.kind === "site" ? palette["site-line"] : palette.line;
      const isCursor = this.state.cursor?.place === at && this.state.cursor.group === undefined;
      const isChosen = this.state.place === at && this.state.group === undefined;
      if (isCursor || isChosen) context.strokeStyle = palette.accent;
      context.lineWidth = (isChosen || (isCursor && this.state.cursorIsKey) ? 2.5 : isCursor ? 1.5 : 1) / camera.k;
      context.fill();
      context.stroke();
    });
    context.globalAlpha = 1;
  }

  private groups() {
    const { context, palette, shown, camera } = this;
    const { scene, picture } = shown;
    const far = this.detail === "far";
    const cells = !far && CELL.height * camera.k >= 2.2;
    scene.places.nodes.forEach((_, place) => {
      if (!this.seen(picture.places[place])) return;
      for (const at of picture.within[place] ?? []) {
        const box = picture.groups[at];
        if (!this.seen(box)) continue;
        const node = scene.groups.nodes[at] as Node;
        const chosen = this.state.group === at;
        const cursor = this.state.cursor?.group === at;
        context.globalAlpha = this.touched("group", at) ? 1 : 0.35;
        context.beginPath();
        if (far) {
          // Too small for more than how much there is.
          context.rect(box.x, box.y, box.width, box.height);
          context.globalAlpha *= chosen ? 1 : 0.45;
          context.fillStyle = chosen ? palette.accent : palette.cell;
          context.fill();
          continue;
        }
        this.box(box, 9);
        context.fillStyle = chosen ? palette["accent-soft"] : palette.raised;
        context.strokeStyle = chosen || cursor ? palette.accent : palette.strong;
        context.lineWidth = (chosen || (cursor && this.state.cursorIsKey) ? 2.4 : cursor ? 1.6 : 1) / camera.k;
        context.fill();
        context.stroke();
        if (cells && picture.cells[at]) this.cells(node, at);
      }
    });
    context.globalAlpha = 1;
  }

  private cells(node: Node, group: number) {
    const { context, palette, camera, state, shown } = this;
    context.beginPath();
    for (let end = 0; end < node.count; end += 1) {
      const box = endBox(shown.picture, group, end) as Box;
      if (camera.k > 1 && !this.seen(box)) continue;
      if (camera.k > 0.8) context.roundRect(box.x, box.y, box.width, box.height, 3);
      else context.rect(box.x, box.y, box.width, box.height);
    }
    context.fillStyle = palette.cell;
    context.fill();
    const marked = [state.group === group ? state.end : undefined, state.cursor?.group === group ? state.cursor.end : undefined];
    for (const end of marked) {
      const box = end === undefined ? undefined : endBox(shown.picture, group, end);
      if (!box) continue;
      context.beginPath();
      this.box(box, 3);
      context.fillStyle = palette.accent;
      context.fill();
    }
  }

  private roads() {
    const { context, palette, shown, camera } = this;
    for (const road of shown.roads) {
      const [a, b] = [shown.picture.places[road.from], shown.picture.places[road.to]];
      if (!a || !b) continue;
      const [from, to] = [middle(a), middle(b)];
      context.beginPath();
      context.moveTo(from.x, a.y + 20);
      context.lineTo(to.x, b.y + 20);
      context.lineWidth = Math.max(8, 5 / camera.k);
      context.globalAlpha = 0.35;
      context.strokeStyle = road.state === "up" ? palette.good : road.state === "bad" ? palette.bad : palette.accent;
      context.setLineDash(road.state === "busy" ? [4, 16] : []);
      context.stroke();
    }
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  private level(): "place" | "group" {
    return this.detail === "far" || !this.shown.scene.fine ? "place" : "group";
  }

  private lines() {
    const { context, shown, state } = this;
    // What is looked at shows its own ways, however far away.
    const level = state.group !== undefined && (shown.scene.fine || shown.groupLines.length > 0) ? "group" : this.level();
    const lines = level === "place" ? shown.placeLines : shown.groupLines;
    const dashed = lines.length <= DASHED;
    const many = lines.length > DASHED;
    const near = this.focused ? lines.filter((line) => this.isNear(level, line.way.from, line.way.to)) : lines;
    const alpha = this.focused ? 0.07 : many ? 0.4 : lines.length > 60 ? 0.65 : 0.85;
    if (Math.max(shown.picture.width, shown.picture.height) * this.camera.k > LONG) {
      // Close up: only what is in sight, as what reaches far beyond it costs most.
      for (const line of lines) if (this.seen(line)) this.line(line, 1.5, alpha);
    } else {
      for (const kind of KINDS) {
        this.pen(kind, dashed && !this.focused, lines.length > 60 ? 1.1 : 1.5);
        context.globalAlpha = alpha;
        context.stroke(shown.merged[level][kind]);
      }
    }
    if (this.focused) {
      for (const line of near) this.line(line, 2.2, 1);
    }
    if (near.length <= 4000) for (const line of near) this.head(line);
    for (const line of lines) {
      const age = state.fresh.size > 0 ? state.fresh.get(wayId(shown.scene, level, line)) : undefined;
      if (age !== undefined) this.line(line, 2 + 5 * (1 - age), 1 - age * 0.5);
    }
    for (const { line, age } of state.gone) this.line(line, 2.5, 1 - age, "blocked");
    if (state.traffic) this.traffic(state.traffic[this.detail === "far" ? "place" : "group"], this.detail === "far" ? "place" : "group");
    context.globalAlpha = 1;
    context.setLineDash([]);
  }

  /** What was seen, over what may be: what was refused stands out, and ends in a cross. */
  private traffic(lines: Line[], level: "place" | "group") {
    const { context, camera, palette } = this;
    for (const line of lines.toReversed()) {
      const path = new Path2D();
      trace(line.points, path);
      const isDenied = line.way.kind === "blocked";
      context.globalAlpha = this.focused && !this.isNear(level, line.way.from, line.way.to) ? 0.12 : 0.95;
      context.setLineDash([]);
      context.lineWidth = (isDenied ? 3.4 : 2.6) / camera.k;
      context.strokeStyle = isDenied ? palette.bad : palette.accent;
      context.stroke(path);
      if (isDenied) this.cross(line);
    }
  }

  private cross({ end: [x, y] }: Line) {
    const { context, camera } = this;
    const size = 6 / camera.k;
    context.beginPath();
    context.moveTo(x - size, y - size);
    context.lineTo(x + size, y + size);
    context.moveTo(x - size, y + size);
    context.lineTo(x + size, y - size);
    context.stroke();
  }

  private pen(kind: Kind, dashed: boolean, width = 1.5) {
    const { context, camera, palette } = this;
    context.strokeStyle = palette[COLOUR[kind]];
    context.lineWidth = width / camera.k;
    context.setLineDash(dashed ? DASH[kind].map((part) => part / camera.k) : []);
  }

  private line(line: Line, width: number, alpha: number, kind: Kind = line.way.kind) {
    const path = new Path2D();
    trace(line.points, path);
    this.pen(kind, Math.hypot(line.width, line.height) * this.camera.k < LONG, width);
    this.context.globalAlpha = alpha;
    this.context.stroke(path);
  }

  /** An arrow where something passes, a bar with a gap before it where nothing does. */
  private head(line: Line) {
    const [x, y] = line.end;
    if (x < this.left || x > this.right || y < this.top || y > this.bottom) return;
    const { context, camera, palette } = this;
    const size = (this.detail === "far" ? 5 : 7) / camera.k;
    context.globalAlpha = 1;
    context.setLineDash([]);
    context.beginPath();
    const [cos, sin] = [Math.cos(line.angle), Math.sin(line.angle)];
    const to = (along: number, aside: number): [number, number] => [x + cos * along - sin * aside, y + sin * along + cos * aside];
    if (line.way.kind === "blocked") {
      context.strokeStyle = palette.bad;
      context.lineWidth = 2.4 / camera.k;
      context.moveTo(...to(-size * 0.4, -size * 0.9));
      context.lineTo(...to(-size * 0.4, size * 0.9));
      context.stroke();
      return;
    }
    context.fillStyle = context.strokeStyle = palette[COLOUR[line.way.kind]];
    context.moveTo(...to(0, 0));
    context.lineTo(...to(-size * 1.25, -size * 0.6));
    context.lineTo(...to(-size * 1.25, size * 0.6));
    context.closePath();
    // Of a part only the outline: told apart without colour too.
    if (line.way.kind === "all") return context.fill();
    context.fillStyle = palette.surface;
    context.fill();
    context.lineWidth = 1.5 / camera.k;
    context.stroke();
  }

  private font(size: number, weight = 450) {
    this.context.font = `${weight} ${size}px ${this.palette.font}`;
  }

  private placeTexts() {
    const { shown, context } = this;
    shown.scene.places.nodes.forEach((node, at) => {
      const box = shown.picture.places[at];
      if (!this.seen(box)) return;
      context.globalAlpha = this.touched("place", at) ? 1 : 0.45;
      if (this.detail === "far") this.farName(node, box);
      else this.placeName(node, box);
    });
    context.globalAlpha = 1;
  }

  /** In the middle, in as many lines as it takes and there is room for. */
  private farName(node: Node, box: Box) {
    const { context, palette, camera } = this;
    const [wide, high] = [box.width * camera.k - 4, box.height * camera.k - 4];
    if (wide < 34) return;
    const size = Math.max(9.5, Math.min(14, 45 * camera.k));
    this.font(size, 600);
    const lines = wrapped(context, node.name, wide).slice(0, Math.max(1, Math.floor(high / (size * 1.15))));
    const { x, y } = middle(box);
    const [left, top] = this.toScreen(x, y);
    context.textAlign = "center";
    context.lineWidth = 3.5;
    context.strokeStyle = node.kind === "site" ? palette.site : palette.surface;
    context.fillStyle = palette.text;
    lines.forEach((line, index) => {
      const at = top + (index - (lines.length - 1) / 2) * size * 1.15;
      context.strokeText(line, left, at);
      context.fillText(line, left, at);
    });
    // Some part of most places is open: only what is wholly so is worth a mark.
    if (node.open === "all" || node.shut) this.marks(node, ...this.toScreen(box.x + box.width - 12, box.y + 22));
  }

  private placeName(node: Node, box: Box) {
    const { context, palette, camera } = this;
    const wide = box.width * camera.k;
    const pad = Math.min(16, 16 * camera.k + 2);
    const [x, top] = this.toScreen(box.x, box.y);
    const y = top + 22 * camera.k;
    this.font(Math.min(12, 12 * camera.k + 1));
    const kind = node.kind === "site" ? "cloud" : "namespace";
    const note = wide < 150 ? "" : node.count > 0 ? `${kind} · ${node.count.toLocaleString("en")}` : kind;
    const room = note === "" ? 0 : context.measureText(note).width + 12;
    context.fillStyle = palette.muted;
    context.textAlign = "right";
    context.fillText(note, x + wide - pad, y);
    // The name of a place that reaches beyond the window stays in sight.
    const left = Math.max(x, Math.min(0, x + wide - 160)) + pad;
    context.textAlign = "left";
    if (node.count === 0) context.fillText("nothing in it yet", left, top + 52 * camera.k);
    this.font(Math.max(10.5, Math.min(15, 14 * camera.k)), 620);
    context.fillStyle = palette.text;
    context.fillText(cut(context, node.name, x + wide - left - pad - room), left, y);
  }

  private groupTexts() {
    const { context, palette, shown, camera } = this;
    const { scene, picture } = shown;
    const size = Math.max(10, Math.min(16, 13 * camera.k));
    scene.groups.nodes.forEach((node, at) => {
      const box = picture.groups[at];
      if (!this.seen(box)) return;
      const [x, y] = this.toScreen(box.x, box.y);
      const wide = box.width * camera.k;
      const pad = Math.min(13, 12 * camera.k);
      const line = y + 19 * camera.k;
      let right = x + wide - pad;
      context.globalAlpha = this.touched("group", at) ? 1 : 0.45;
      right = this.marks(node, right, line);
      if (node.count > 1 && wide > 90) {
        this.font(size * 0.92);
        context.textAlign = "right";
        context.fillStyle = palette.muted;
        const many = node.count.toLocaleString("en");
        context.fillText(many, right, line);
        right -= context.measureText(many).width + 6;
      }
      this.font(size, 500);
      context.textAlign = "left";
      context.fillStyle = palette.text;
      context.fillText(cut(context, node.name, right - x - pad), x + pad, line);
      if (this.detail === "near") this.endTexts(node, at);
    });
    context.globalAlpha = 1;
  }

  /** Open for others: a dot, or a ring where it is for a part. Shut itself: a bar. */
  private marks(node: Node, right: number, y: number): number {
    const { context, palette, camera } = this;
    const size = Math.max(2.6, Math.min(5, 4 * camera.k));
    if (node.open) {
      context.beginPath();
      context.arc(right - size, y, size * 0.9, 0, 7);
      context.fillStyle = context.strokeStyle = palette[COLOUR[node.open]];
      context.lineWidth = 1.6;
      if (node.open === "all") context.fill();
      else context.stroke();
      right -= size * 2 + 5;
    }
    if (node.far) {
      // An arrow outwards.
      const [x, to] = [right - size * 2, right];
      context.beginPath();
      context.moveTo(x, y + size * 0.9);
      context.lineTo(to, y - size * 0.9);
      context.moveTo(to - size * 1.2, y - size * 0.9);
      context.lineTo(to, y - size * 0.9);
      context.lineTo(to, y + size * 0.3);
      context.strokeStyle = palette[COLOUR[node.far]];
      context.lineWidth = 1.7;
      context.stroke();
      right -= size * 2 + 5;
    }
    if (node.shut) {
      context.fillStyle = palette.bad;
      context.fillRect(right - size * 2, y - 1.3, size * 2, 2.6);
      right -= size * 2 + 5;
    }
    return right;
  }

  private endTexts(node: Node, group: number) {
    const { context, palette, camera, state, shown } = this;
    if (node.count < 2) return;
    this.font(Math.max(9.5, Math.min(13, 3.6 * camera.k)));
    for (let end = 0; end < node.count; end += 1) {
      const box = endBox(shown.picture, group, end);
      if (!this.seen(box)) continue;
      const [x, y] = this.toScreen(box.x, box.y + box.height / 2);
      const marked = (state.group === group && state.end === end) || (state.cursor?.group === group && state.cursor.end === end);
      context.fillStyle = marked ? palette.surface : palette.text;
      context.fillText(cut(context, short(node.ends[end] ?? ""), box.width * camera.k - 6), x + 4, y);
    }
  }

  private roadTexts() {
    const { context, palette, shown } = this;
    this.font(11.5);
    context.textAlign = "center";
    context.fillStyle = palette.muted;
    for (const road of shown.roads) {
      const [a, b] = [shown.picture.places[road.from], shown.picture.places[road.to]];
      if (!a || !b) continue;
      const [left, right] = a.x < b.x ? [a, b] : [b, a];
      const gap = left.x + left.width < right.x;
      const [x, y] = gap ? this.toScreen((left.x + left.width + right.x) / 2, (left.y + right.y) / 2 + 20) : this.toScreen((middle(a).x + middle(b).x) / 2, (middle(a).y + middle(b).y) / 2);
      this.label(road.text, x, y - 14, palette.muted);
    }
  }

  private lineTexts() {
    const { palette, shown, state } = this;
    const level = state.group !== undefined && (shown.scene.fine || shown.groupLines.length > 0) ? "group" : this.level();
    const lines = (level === "place" ? shown.placeLines : shown.groupLines).filter(
      (line) => line.way.kind === "some" && line.way.ports !== "" && this.seen(line) && (!this.focused || this.isNear(level, line.way.from, line.way.to)),
    );
    if (lines.length > LABELLED && !this.focused) return;
    this.font(11);
    this.context.textAlign = "center";
    this.keepNodesClear();
    for (const line of lines.slice(0, 4 * LABELLED)) {
      const text = cut(this.context, line.way.ports, 120);
      if (line.labels.some((spot) => this.label(text, ...this.toScreen(...spot), palette.part))) continue;
      // Better over a node than not at all, but not over another label.
      this.label(text, ...this.toScreen(...(line.labels[0] as [number, number])), palette.part, this.labels);
    }
  }

  /** Labels stand beside what is named, not on it. */
  private keepNodesClear() {
    const { shown, camera } = this;
    for (const box of this.detail === "far" ? shown.picture.places : shown.picture.groups) {
      if (!this.seen(box)) continue;
      const [x, y] = this.toScreen(box.x, box.y);
      this.taken.push({ x, y, width: box.width * camera.k, height: Math.min(box.height, 38) * camera.k });
    }
  }

  /** A text on its own ground, where no other stands. */
  private label(text: string, x: number, y: number, colour: string, taken = this.taken): boolean {
    const { context, palette } = this;
    const width = context.measureText(text).width + 8;
    const box = { x: x - width / 2, y: y - 8, width, height: 16 };
    const meets = (other: Box) => box.x < other.x + other.width && box.x + box.width > other.x && box.y < other.y + other.height && box.y + box.height > other.y;
    if (text === "" || taken.some(meets)) return false;
    this.taken.push(box);
    this.labels.push(box);
    context.globalAlpha = 0.88;
    context.fillStyle = palette.ground;
    context.beginPath();
    context.roundRect(box.x, box.y, box.width, box.height, 5);
    context.fill();
    context.globalAlpha = 1;
    context.fillStyle = colour;
    context.fillText(text, x, y);
    return true;
  }
}

export function paint(context: CanvasRenderingContext2D, shown: Shown, camera: Camera, state: State, palette: Palette, size: { width: number; height: number; ratio: number }) {
  new Painter(context, shown, camera, state, palette, size.ratio, size.width, size.height).draw(size.width, size.height);
}
