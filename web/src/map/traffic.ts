// What nodes have seen, as lines of the map: from group to group and from place to place, what was let through and what was refused. Pure.
//
// In: flows added up (`/flows/top`), and the scene. Out: for each pair and verdict how much, and the most frequent of it. Not here: how it
// looks (`paint.ts`). An end that is not on the map, as somebody outside, has no line; the list of flows has it.

import type { Schemas } from "../api.ts";
import type { Scene, Tier, Way } from "./scene.ts";

export type Flow = Schemas["Flow"];

/** What was seen between two. */
export interface Seen extends Way {
  verdict: "allowed" | "denied";
  count: number;
  /** The most frequent of it. */
  most: Flow;
}

export type Traffic = Record<"place" | "group", Seen[]>;

/** With more lines the map would be hidden behind them; what was refused is kept first. */
const MOST = 400;

/** The names that the map may have for an end. */
function namesOf({ workload }: Schemas["FlowEnd"]): string[] {
  const [kind = "", name = ""] = (workload ?? "").split(" ");
  if (kind === "Pod") return [`pod/${name}`];
  if (kind === "ExternalEntity") return [`entity/${name}`, name.replace("/", ".")];
  return [];
}

/** Both ends tell a connection between two workloads: the larger of both counts. */
interface Sums {
  way: Omit<Seen, "count">;
  in: number;
  out: number;
}

function seen(sums: Map<string, Sums>): Seen[] {
  const all = [...sums.values()].map(({ way, in: into, out }) => ({ ...way, count: Math.max(into, out) }));
  return all.toSorted((a, b) => Number(b.verdict === "denied") - Number(a.verdict === "denied") || b.count - a.count).slice(0, MOST);
}

export function traffic(scene: Scene, flows: Flow[]): Traffic {
  const groups = new Map(scene.groups.nodes.flatMap((group, at) => group.ends.map((end) => [end, at] as const)));
  const groupOf = (end: Schemas["FlowEnd"]) => namesOf(end).map((name) => groups.get(name)).find((at) => at !== undefined);
  const sums = { place: new Map<string, Sums>(), group: new Map<string, Sums>() };
  for (const flow of flows) {
    const [from, to] = [groupOf(flow.from), groupOf(flow.to)];
    if (from === undefined || to === undefined) continue;
    // What an agent that only observes would refuse stands out as well.
    const verdict = flow.verdict === "allowed" ? "allowed" : "denied";
    const pairs = { group: [from, to], place: [scene.groups.nodes[from]?.place, scene.groups.nodes[to]?.place] } as const;
    for (const level of ["place", "group"] as const) {
      const [a, b] = pairs[level];
      if (a === undefined || b === undefined || a === b) continue;
      const key = `${a} ${b} ${verdict}`;
      const known = sums[level].get(key);
      const sum = known ?? { way: { from: a, to: b, kind: verdict === "denied" ? "blocked" : "all", ports: "", verdict, most: flow }, in: 0, out: 0 };
      if (!known) sums[level].set(key, sum);
      if (flow.direction === "in") sum.in += flow.count;
      else sum.out += flow.count;
      if (flow.count > sum.way.most.count) sum.way.most = flow;
    }
  }
  return { place: seen(sums.place), group: seen(sums.group) };
}

/** What touches one of them, refused first. */
export function touching(tier: Tier, seen: Seen[], id: string): Seen[] {
  const at = tier.index.get(id);
  return at === undefined ? [] : seen.filter(({ from, to }) => from === at || to === at);
}
