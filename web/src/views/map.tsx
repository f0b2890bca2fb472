// The map: places, what is in them, the links between sites, and who may talk to whom.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { query, type Cloud, type Link, type Schemas } from "../api.ts";
import { useLive } from "../live.ts";
import { boxOf, Chart, closeness, LEGIBLE } from "../map/chart.tsx";
import { Details, type Touched } from "../map/details.tsx";
import { picture, type Frame, type Spot } from "../map/layout.ts";
import { groupLines, placeLines, type Line } from "../map/lines.ts";
import { Outline } from "../map/outline.tsx";
import { merge, wayId, type Road, type Shown, type State } from "../map/paint.ts";
import { neighbourhood, own, part, plain, scene, short, type Scene, type Told } from "../map/scene.ts";
import { touching, traffic as trafficOf, type Seen } from "../map/traffic.ts";
import { best, Find, type Hit } from "../parts/find.tsx";
import { count } from "../parts/format.ts";
import { Command, Empty, notify, Trouble } from "../parts/parts.tsx";
import { hasPorts, PROTOCOLS } from "../parts/protocols.ts";
import { adjust, href } from "../route.ts";

const LINGER = 1400;
const HITS = 40;
/** With more ways of its own, one that is open has none drawn; they are told beside the map. */
const MOST_OWN = 400;
/** On narrower screens what is opened covers the lower part of the map. */
const NARROW = 980;
const PHONE = 640;
/** Of what nodes have seen: how far back, and how many rows of it. */
const SEEN = "10m";
const ROWS = 2000;

export function Map({ values }: { values: Record<string, string> }) {
  const { open, protocol, port } = values;
  const traffic = { protocol, port: port && /^[0-9]+$/.test(port) && hasPorts(protocol ?? "tcp") ? port : undefined };
  const path = query("/map", traffic);
  const live = useLive<Told>(path, ["objects", "resources", "tags"]);
  const links = useLive<Link[]>("/links", ["resources", "jobs"]).data.value;
  const clouds = useLive<Cloud[]>("/clouds", ["resources"]).data.value;
  // The last map stays until the next one is there.
  const [held, setHeld] = useState<{ told: Told; path: string } | undefined>();
  useEffect(() => {
    if (live.data.value) setHeld({ told: live.data.value, path });
  }, [live.data.value]);
  const frame = useFrame();

  const whole = useMemo(() => {
    if (!held || !clouds) return undefined;
    const used = new Set(held.told.places.filter((place) => place.kind === "site").map((place) => place.name.split(".")[1]));
    const linked = (links ?? []).flatMap((link) => link.ends.map((end) => end.site));
    return scene(held.told, [...clouds.filter((cloud) => !used.has(cloud.name)).map((cloud) => `default.${cloud.name}`), ...linked]);
  }, [held, clouds, links]);
  const ends = useMemo(() => new globalThis.Map(whole?.groups.nodes.flatMap((group) => group.ends.map((end, at) => [end, { group: group.id, at }] as const)) ?? []), [whole]);
  const groupId = open === undefined ? undefined : (ends.get(open)?.group ?? open);
  const alone = values.only === "1" && groupId !== undefined;
  // Of too many groups the ways are told for one at a time.
  const asked = whole && !whole.fine && open !== undefined ? query("/map/around", { id: open, ...traffic }) : undefined;
  const around = useLive<Schemas["Around"]>(asked, ["objects", "resources", "tags"]).data.value;
  const shown = useMemo<Shown | undefined>(() => {
    if (!whole) return undefined;
    if (around && !alone) return drawn({ ...whole, groups: { ...whole.groups, ways: own(whole, around, MOST_OWN) } }, frame, links ?? []);
    const kept = alone && groupId ? neighbourhood(whole, groupId) : undefined;
    return drawn(kept ? part(whole, kept) : whole, frame, links ?? []);
  }, [whole, frame, alone ? groupId : undefined, links, around]);
  const changes = useChanges(shown, held?.path, alone);

  // What was seen, while somebody wants to see it.
  const flows = useLive<Schemas["FlowList"]>(values.flows === "1" ? query("/flows/top", { since: SEEN, limit: ROWS }) : undefined, ["flows"]);
  const seen = useMemo(() => (shown && flows.data.value ? trafficOf(shown.scene, flows.data.value.flows) : undefined), [shown, flows.data.value]);
  const seenLines = useMemo(() => {
    if (!shown || !seen) return undefined;
    const { groups, places } = shown.scene;
    return { group: groupLines({ ...groups, ways: seen.group }, shown.picture), place: placeLines({ ...places, ways: seen.place }, shown.picture) };
  }, [shown, seen]);

  const state: Omit<State, "cursor"> = { ...changes, traffic: seenLines };
  if (shown && open !== undefined) {
    const group = groupId === undefined ? undefined : shown.scene.groups.index.get(groupId);
    if (group !== undefined) {
      state.group = group;
      state.end = ends.get(open)?.at;
    } else state.place = shown.scene.places.index.get(open);
  }
  const known = state.group !== undefined || state.place !== undefined;
  const [flight, setFlight] = useState<{ to: ReturnType<typeof boxOf>; closest: number; number: number } | undefined>();
  const flights = useRef(0);
  const fly = (id: string | undefined) => {
    if (!shown) return;
    const end = id === undefined ? undefined : ends.get(id);
    const group = shown.scene.groups.index.get(end?.group ?? id ?? "");
    const place = shown.scene.places.index.get(id ?? "");
    const spot: Spot | undefined = group !== undefined ? { place: shown.scene.groups.nodes[group]?.place ?? 0, group, ...(end && { end: end.at }) } : place !== undefined ? { place } : undefined;
    setFlight({ to: spot && boxOf(shown, spot), closest: end ? closeness.end : closeness.group, number: ++flights.current });
  };
  const visit = (id: string) => {
    adjust({ open: id, only: undefined });
    fly(id);
  };
  // A link that names something leads there; so does what is shown alone.
  const ready = shown !== undefined;
  useEffect(() => {
    if (ready && open !== undefined && known) fly(open);
  }, [ready]);
  useEffect(() => {
    if (ready) fly(alone ? undefined : open);
  }, [alone]);

  const find = (text: string): Hit[] => {
    if (!whole) return [];
    const all = function* () {
      for (const node of whole.places.nodes) yield { id: node.id, kind: node.kind === "site" ? "cloud" : "namespace" };
      for (const node of whole.groups.nodes) yield { id: node.id, kind: "group" };
      for (const node of whole.groups.nodes) if (node.count > 1) for (const id of node.ends) yield { id, kind: "workload" };
    };
    return best(all(), ({ id }) => plain(id), text, HITS).map(({ id, kind }) => ({ key: id, title: short(id), note: plain(id), kind, go: () => visit(id) }));
  };
  const empty = shown && shown.scene.places.nodes.length === 0;
  const left = whole ? (whole.fine ? whole.groups : whole.places).leftOut : 0;
  return (
    <section class="view map-view">
      <header>
        <h1>Map</h1>
        <p class="sum" aria-live="polite" data-groups={whole?.groups.nodes.length} data-ways={whole ? (whole.fine ? whole.groups : whole.places).ways.length : undefined}>
          {whole ? `${count(whole.ends, "workload")} in ${count(whole.groups.nodes.length, "group")} and ${count(whole.places.nodes.length, "place")}` : "\u00a0"}
        </p>
      </header>
      <div class="bar">
        <Find label="Find on the map" placeholder="Find a place, group or workload" find={find} />
        <label class="inline">Protocol
          <select value={protocol ?? ""} onChange={(event) => adjust({ protocol: event.currentTarget.value || undefined, port: undefined })}>
            <option value="">all</option>
            {PROTOCOLS.map((name) => <option key={name}>{name}</option>)}
          </select>
        </label>
        <label class="inline">Port
          <input class="port" inputMode="numeric" placeholder="all" pattern="[0-9]*" value={port ?? ""} disabled={protocol !== undefined && !hasPorts(protocol)} onInput={(event) => adjust({ port: event.currentTarget.value || undefined })} />
        </label>
        <button type="button" class="toggle" aria-pressed={values.list === "1"} onClick={() => adjust({ list: values.list === "1" ? undefined : "1" })}>List</button>
        <button type="button" class="toggle" aria-pressed={values.flows === "1"} title="What nodes have seen in the last ten minutes" onClick={() => adjust({ flows: values.flows === "1" ? undefined : "1" })}>Flows</button>
      </div>
      <Trouble problem={live.problem.value} />
      <Trouble problem={flows.problem.value} />
      {seen && <p class="hint" role="status">{told(seen.group)}</p>}
      {whole && !whole.fine && <p class="hint">There are too many groups to draw the ways of each: lines are between places. Open one to see its own.</p>}
      {left > 0 && <p class="hint">{count(left, "way")} more are not drawn. Narrow it to a protocol or port, or look at one group.</p>}
      <div class="split">
        {whole && values.list === "1" && <Outline scene={whole} chosen={open} onChoose={visit} />}
        <div class={`map ${live.data.value === undefined && held ? "stale" : ""}`}>
          {empty && (
            <Empty title="Nothing here yet">
              <p>Apply the YAML of a cluster, make resources in a cloud, or let a host join. This page follows along.</p>
              <Command label="Try" text="trestle apply -f docs/examples/shop.yaml" />
              <p><a href={href("hosts")}>Add a host</a></p>
            </Empty>
          )}
          {shown && !empty && (
            <Chart shown={shown} state={state} flight={flight} covered={known && innerWidth < NARROW ? innerHeight * 0.4 : 0}
              label={`Map of ${count(shown.scene.ends, "workload")} and who may talk to whom`}
              onChoose={(spot) => adjust({ open: spot && idOf(shown.scene, spot), ...(spot ? {} : { only: undefined }) })} />
          )}
          {!shown && !live.problem.value && <p class="loading" role="status">Drawing the map…</p>}
          {shown && !empty && <Legend shown={shown} seen={seen !== undefined} />}
        </div>
        {open !== undefined && shown && <Details id={open} ends={state.end === undefined && state.group !== undefined ? (shown.scene.groups.nodes[state.group]?.ends ?? []) : []} traffic={traffic} alone={alone} seen={seen && shown && groupId !== undefined ? seenOf(shown.scene, seen, groupId) : undefined} />}
      </div>
    </section>
  );
}

/** What was seen, in a sentence. */
function told(seen: Seen[]): string {
  const denied = seen.filter(({ verdict }) => verdict === "denied").length;
  if (seen.length === 0) return "Nodes have seen no connection between what is on the map in the last ten minutes.";
  return `In the last ten minutes nodes have seen connections between ${count(seen.length - denied, "pair")} of groups, and refused some between ${denied.toLocaleString("en")}.`;
}

/** Of a group or a place: who it had to do with. */
function seenOf(scene: Scene, seen: Record<"place" | "group", Seen[]>, id: string): Touched[] {
  const level = scene.groups.index.has(id) ? "group" : "place";
  const tier = level === "group" ? scene.groups : scene.places;
  const at = tier.index.get(id);
  return touching(tier, seen[level], id).map((one) => ({ ...one, into: one.to === at, peer: tier.nodes[one.to === at ? one.from : one.to]?.id ?? "" }));
}

function idOf(scene: Scene, { place, group, end }: Spot): string | undefined {
  if (group === undefined) return scene.places.nodes[place]?.id;
  const node = scene.groups.nodes[group];
  return end === undefined || node?.count === 1 ? node?.id : node?.ends[end];
}

/** The room for the map, roughly: small changes move nothing. */
function useFrame(): Frame {
  const now = () => {
    const room = (innerWidth - (innerWidth >= NARROW ? 220 : 0)) / Math.max(200, innerHeight - 170);
    const shape = [0.5, 0.8, 1.2, 1.7, 2.4].reduce((best, one) => (Math.abs(one - room) < Math.abs(best - room) ? one : best));
    return `${shape} ${innerWidth < PHONE ? Math.round((innerWidth - 80) / LEGIBLE) : Infinity}`;
  };
  const [frame, setFrame] = useState(now);
  useEffect(() => {
    const change = () => setFrame(now());
    addEventListener("resize", change);
    return () => removeEventListener("resize", change);
  }, []);
  return useMemo(() => {
    const [shape = 1, widest = Infinity] = frame.split(" ").map(Number);
    return { shape, widest };
  }, [frame]);
}

function drawn(scene: Scene, frame: Frame, links: Link[]): Shown {
  const made = picture(scene, frame);
  const [places, groups] = [placeLines(scene.places, made), groupLines(scene.groups, made)];
  const roads = links.flatMap((link): Road[] => {
    const [from, to] = link.ends.map((end) => scene.places.index.get(`site:${end.site}`));
    if (from === undefined || to === undefined) return [];
    const up = link.ends.every((end) => !end.status || end.status.tunnels_up > 0);
    return [{ from, to, state: link.message ? "bad" : link.state === "ready" && up ? "up" : "busy", text: `VPN ${link.message ? "in trouble" : link.state}` }];
  });
  return { scene, picture: made, placeLines: places, groupLines: groups, merged: { place: merge(places), group: merge(groups) }, roads };
}

/** Ways that have just come or gone, for the moment in which that is seen; tells what changed. */
function useChanges(shown: Shown | undefined, path: string | undefined, alone: boolean): Pick<State, "fresh" | "gone"> {
  const before = useRef<{ lines: globalThis.Map<string, Line>; nodes: globalThis.Map<string, number>; path: string | undefined; alone: boolean } | undefined>(undefined);
  const [told, setTold] = useState<{ fresh: string[]; gone: Line[]; since: number } | undefined>();
  const [, setFrame] = useState(0);
  useEffect(() => {
    if (!shown) return;
    const fine = shown.scene.fine;
    const nodes = fine ? shown.scene.groups.index : shown.scene.places.index;
    const lines = new globalThis.Map((fine ? shown.groupLines : shown.placeLines).map((line) => [wayId(shown.scene, fine ? "group" : "place", line), line] as const));
    const last = before.current;
    before.current = { lines, nodes, path, alone };
    // Another question has other answers; nothing has changed.
    if (!last || last.path !== path || last.alone !== alone) return;
    const ends = (id: string) => id.replace(/ \w+$/, "").split(" → ");
    const both = (id: string, among: globalThis.Map<string, number>) => ends(id).every((end) => among.has(end));
    const fresh = [...lines.keys()].filter((id) => !last.lines.has(id) && both(id, last.nodes));
    const gone = [...last.lines].filter(([id]) => !lines.has(id) && both(id, nodes));
    const [first] = fresh;
    if (first) notify(fresh.length === 1 ? tell(lines.get(first) as Line, ends(first)) : `${fresh.length.toLocaleString("en")} ways have changed`);
    else if (gone[0]) notify(gone.length === 1 ? `${ends(gone[0][0]).map(plain).join(" → ")} is as for most others again` : `${gone.length.toLocaleString("en")} ways have changed`);
    if (fresh.length + gone.length > 0) setTold({ fresh, gone: gone.map(([, line]) => line), since: performance.now() });
  }, [shown]);
  useEffect(() => {
    if (!told) return;
    let asked = 0;
    const frame = () => {
      if (performance.now() - told.since > LINGER) return setTold(undefined);
      setFrame((at) => at + 1);
      asked = requestAnimationFrame(frame);
    };
    asked = requestAnimationFrame(frame);
    return () => cancelAnimationFrame(asked);
  }, [told]);
  const age = told ? Math.min(1, (performance.now() - told.since) / LINGER) : 1;
  return { fresh: new globalThis.Map(told?.fresh.map((id) => [id, age])), gone: told?.gone.map((line) => ({ line, age })) ?? [] };
}

function tell({ way }: Line, [from = "", to = ""]: string[]): string {
  const ports = way.kind === "some" && way.ports ? ` on ${way.ports}` : "";
  return `${plain(from)} can ${way.kind === "blocked" ? "no longer" : "now"} reach ${plain(to)}${ports}`;
}

function Legend({ shown, seen }: { shown: Shown; seen: boolean }) {
  const { groups, places, fine } = shown.scene;
  const tier = fine ? groups : places;
  const has = (kind: string) => tier.ways.some((way) => way.kind === kind);
  const sample = (kind: "all" | "some" | "blocked") => (
    <svg class={`sample ${kind}`} viewBox="0 0 34 12" aria-hidden="true">
      <path d="M1 6H24" />
      {kind === "blocked" ? <path class="head" d="M27 1V11" /> : <path class="head" d="M24 2 33 6 24 10Z" />}
    </svg>
  );
  return (
    <ul class="legend" aria-label="Legend">
      {seen && <li><svg class="sample seen" viewBox="0 0 34 12" aria-hidden="true"><path d="M1 6H33" /></svg> was seen</li>}
      {seen && <li><svg class="sample refused" viewBox="0 0 34 12" aria-hidden="true"><path d="M1 6H28M24 2 32 10M32 2 24 10" /></svg> was refused</li>}
      {has("all") && <li>{sample("all")} may connect</li>}
      {has("some") && <li>{sample("some")} only some protocols, ports or workloads</li>}
      {has("blocked") && <li>{sample("blocked")} is blocked, where most are not</li>}
      {tier.nodes.some((node) => node.open === "all") && <li><i class="dot" /> open to most others</li>}
      {tier.nodes.some((node) => node.open === "some") && <li><i class="ring" /> open to most others in part</li>}
      {tier.nodes.some((node) => node.far) && <li><i class="far">↗</i> may reach most others</li>}
      {tier.nodes.some((node) => node.shut) && <li><i class="shut" /> may not reach most others</li>}
      <li class="rest">What no line or dot tells of is closed.</li>
    </ul>
  );
}
