// What is drawn, from what the controller tells: places with their groups and ends, and the ways worth a line. Pure.
//
// In: `/map`. Out: a scene, at both levels. Not here: where things stand (`layout.ts`), how they look (`paint.ts`).

import type { Schemas } from "../api.ts";

export type Told = Schemas["Map"];
export type Word = Schemas["MapWord"];

/** `all`: everything that is asked about; `some`: a part of it, or only for some; `blocked`: nothing, where most others may. */
export type Kind = "all" | "some" | "blocked";

export interface Node {
  id: string;
  name: string;
  /** Of a namespace or of a site. */
  kind: "namespace" | "site";
  /** Its place; a place has itself. */
  place: number;
  /** Names of its ends; of a place how many all its groups have. */
  ends: readonly string[];
  count: number;
  /** What most others may: nothing is drawn for them. */
  open: "all" | "some" | undefined;
  openPorts: string;
  /** It may not reach most of those whom others reach: a mark tells that, and not as many lines. */
  shut: boolean;
  /** It may reach most, who are closed for others; a mark again. */
  far: "all" | "some" | undefined;
  farPorts: string;
  /** What its own ends may do with each other. */
  within: Word | undefined;
}

export interface Way {
  from: number;
  to: number;
  kind: Kind;
  ports: string;
}

/** Places or groups, and the ways between them. */
export interface Tier {
  nodes: Node[];
  ways: Way[];
  /** Ways that marks of their source stand for. */
  marked: number;
  /** Ways the controller did not tell. */
  leftOut: number;
  index: Map<string, number>;
}

export interface Scene {
  places: Tier;
  /** Its ways are undefined where there are too many groups for them. */
  groups: Tier;
  /** Whether ways between groups are known. */
  fine: boolean;
  ends: number;
}

/** With at least so many ways alike, to more than half of all that could have them, a mark says it. */
const FEW = 8;

const KINDS: Record<string, Kind> = { all: "all", some: "some", none: "blocked" };

interface Ways {
  usual: [number, number][] | number[][];
  within: (number | null | undefined)[];
  ways: number[][];
  left_out: number;
}

/** Of what is open for some ends only, but for them wholly, there are no ports to tell. */
function portsOf(word: Word | undefined): string {
  return word?.share === "some" && word.ports && word.ports !== "all" ? word.ports : "";
}

function tier(nodes: Node[], told: Ways | undefined, words: Word[]): Tier {
  const index = new Map(nodes.map((node, at) => [node.id, at] as const));
  if (!told) return { nodes, ways: [], marked: 0, leftOut: 0, index };
  nodes.forEach((node, at) => {
    const usual = words[told.usual[at]?.[0] ?? 0];
    if (usual && usual.share !== "none") {
      node.open = usual.share === "all" ? "all" : "some";
      node.openPorts = portsOf(usual);
    }
    const within = told.within[at];
    node.within = within === null || within === undefined ? undefined : words[within];
  });
  const ways = told.ways.map(([from = 0, to = 0, word = 0]): Way => ({
    from, to, kind: KINDS[words[word]?.share ?? "none"] ?? "blocked", ports: portsOf(words[word]),
  }));
  const drawn = marked(nodes, ways);
  return { nodes, ways: drawn, marked: ways.length - drawn.length, leftOut: told.left_out, index };
}

/** The ways that are left when sources that treat most others alike have a mark for that. */
function marked(nodes: Node[], ways: Way[]): Way[] {
  const alike = new Map<string, Way[]>();
  for (const way of ways) {
    const key = `${way.from} ${way.kind} ${way.ports}`;
    const list = alike.get(key);
    if (list) list.push(way);
    else alike.set(key, [way]);
  }
  const open = nodes.filter((node) => node.open !== undefined).length;
  const gone = new Set<Way>();
  for (const list of alike.values()) {
    const [{ from, kind, ports }] = list as [Way];
    const node = nodes[from];
    const most = kind === "blocked" ? open : nodes.length - open;
    if (!node || list.length < FEW || list.length * 2 <= most) continue;
    if (kind === "blocked") node.shut = true;
    else [node.far, node.farPorts] = [kind, ports];
    for (const way of list) gone.add(way);
  }
  return gone.size === 0 ? ways : ways.filter((way) => !gone.has(way));
}

/** Puts together what is told, with sites and namespaces that have nothing in them yet. */
export function scene(told: Told, empty: readonly string[] = []): Scene {
  const blank = { open: undefined, openPorts: "", shut: false, far: undefined, farPorts: "", within: undefined };
  const places: Node[] = told.places.map((place, at) => ({
    id: place.id, name: place.name, kind: place.kind === "site" ? "site" : "namespace", place: at, ends: [], count: 0, ...blank,
  }));
  const groups: Node[] = told.groups.map((group) => {
    const place = places[group.place];
    if (place) place.count += group.ends.length;
    return { id: group.id, name: group.name, kind: place?.kind ?? "namespace", place: group.place, ends: group.ends, count: group.ends.length, ...blank };
  });
  const ends = groups.reduce((sum, group) => sum + group.count, 0);
  const coarse = tier(places, told.place_ways, told.words);
  for (const site of empty) {
    if (coarse.index.has(`site:${site}`)) continue;
    coarse.index.set(`site:${site}`, places.length);
    places.push({ id: `site:${site}`, name: site, kind: "site", place: places.length, ends: [], count: 0, ...blank });
  }
  return { places: coarse, groups: tier(groups, told.group_ways ?? undefined, told.words), fine: Boolean(told.group_ways), ends };
}

/** What is told of one group, as ways: where those of all groups are too many to be told. Of a direction with too many, none. */
export function own(whole: Scene, around: Schemas["Around"], most: number): Way[] {
  const index = whole.groups.index;
  const self = index.get(around.level === "end" ? (whole.groups.nodes.find((node) => node.ends.includes(around.this.id))?.id ?? "") : around.this.id);
  if (self === undefined || around.level === "place") return [];
  const way = (from: number | undefined, to: number | undefined, cell: Schemas["ReachCell"]): Way[] =>
    from === undefined || to === undefined ? [] : [{ from, to, kind: cell.open === cell.pairs ? "all" : "some", ports: cell.ports && cell.ports !== "all" ? cell.ports : "" }];
  const into = around.into.length > most ? [] : around.into.flatMap(({ peer, cell }) => way(index.get(peer.id), self, cell));
  const out = around.out.length > most ? [] : around.out.flatMap(({ peer, cell }) => way(self, index.get(peer.id), cell));
  return [...into, ...out];
}

/** The part of a scene that one node touches: its peers of both directions, and itself. */
export function neighbourhood(whole: Scene, id: string): Set<number> | undefined {
  const group = whole.groups.index.get(id);
  const place = whole.places.index.get(id);
  const kept = new Set<number>();
  if (group !== undefined) kept.add(group);
  else if (place !== undefined) whole.groups.nodes.forEach((node, at) => node.place === place && kept.add(at));
  else return undefined;
  const own = new Set(kept);
  for (const way of whole.groups.ways) {
    if (own.has(way.from)) kept.add(way.to);
    if (own.has(way.to)) kept.add(way.from);
  }
  return kept;
}

/** Only some of the groups, with the places they are in and the ways among them. */
export function part(whole: Scene, kept: Set<number>): Scene {
  const cut = (tier: Tier, stays: (node: Node, at: number) => boolean, own: (node: Node, at: number) => Partial<Node>): [Tier, Map<number, number>] => {
    const moved = new Map<number, number>();
    tier.nodes.forEach((node, at) => stays(node, at) && moved.set(at, moved.size));
    const nodes = [...moved.keys()].map((at) => ({ ...(tier.nodes[at] as Node), ...own(tier.nodes[at] as Node, at) }));
    const ways = tier.ways.flatMap((way) => {
      const [from, to] = [moved.get(way.from), moved.get(way.to)];
      return from === undefined || to === undefined ? [] : [{ ...way, from, to }];
    });
    return [{ nodes, ways, marked: 0, leftOut: tier.leftOut, index: new Map(nodes.map((node, at) => [node.id, at] as const)) }, moved];
  };
  const used = new Set([...kept].map((at) => whole.groups.nodes[at]?.place));
  const [places, moved] = cut(whole.places, (_, at) => used.has(at), (_, at) => ({ place: at }));
  places.nodes.forEach((node, at) => { node.place = at; });
  const [groups] = cut(whole.groups, (_, at) => kept.has(at), (node) => ({ place: moved.get(node.place) ?? 0 }));
  return { places, groups, fine: whole.fine, ends: groups.nodes.reduce((sum, node) => sum + node.count, 0) };
}

/** The name of an end as it stands on the map. */
export function short(id: string): string {
  return id.slice(Math.max(id.lastIndexOf("/"), id.lastIndexOf("."), id.lastIndexOf(":")) + 1);
}

/** `shop/web`, of `namespace:shop/web`. */
export function plain(id: string): string {
  return id.replace(/^(namespace|site|pod|entity)[:/]/, "");
}
