// The map: places, what is in them, the links between sites, and who may talk to whom.

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { query, type Cloud, type Link, type Reachability, type ReachGroup } from "../api.ts";
import { useLive } from "../live.ts";
import { count } from "../parts/format.ts";
import { Command, Drawer, Empty, notify, Trouble } from "../parts/parts.tsx";
import { adjust, href } from "../route.ts";
import { curve, picture, road, type Chip, type Edge, type Picture } from "./layout.ts";

const LINGER = 900;
/** With more lines than this only those of the selected group say their ports. */
const LABELLED = 24;

export function Map({ values }: { values: Record<string, string> }) {
  const inside = values.in;
  const path = query("/reachability", inside ? { level: "group", source: inside, destination: inside } : {});
  const reach = useLive<Reachability>(path, ["objects", "resources", "tags"]);
  const links = useLive<Link[]>("/links", ["resources", "jobs"]).data.value ?? [];
  const clouds = (useLive<Cloud[]>("/clouds", ["resources"]).data.value ?? []).map((cloud) => cloud.name);
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(900);
  const data = reach.data.value;

  useLayoutEffect(() => {
    const element = frame.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);

  const drawn = useMemo(() => {
    if (!data) return undefined;
    const used = new Set(data.sources.filter((group) => group.place_kind === "site").map((group) => group.place.split(".")[1]));
    const unused = inside ? [] : clouds.filter((cloud) => !used.has(cloud)).map((cloud) => `default.${cloud}`);
    return picture(data, unused, inside ? [] : links, width);
  }, [data, links, clouds, width, inside]);
  const gone = useGone(drawn, data);
  const selected = values.open;
  const chip = drawn?.places.flatMap((place) => place.chips).find((one) => one.group.id === selected);

  return (
    <section class="view">
      <header>
        <h1>Map</h1>
        <p>{data?.level === "place" ? "Namespaces and sites, and who may talk to whom, over any protocol." : "What runs where, and who may talk to whom, over any protocol."}</p>
      </header>
      <Trouble problem={reach.problem.value} />
      {inside && <p class="crumbs"><a href={href("map")}>Everything</a> › <b>{inside.replace(/^\w+:/, "")}</b></p>}
      {data && data.left_out > 0 && <p class="hint">{count(data.left_out, "group")} more are not drawn; <a href={href("reachability")}>the matrix</a> can be searched.</p>}
      <div class="split">
        <div class="map" ref={frame}>
          {drawn && drawn.places.length === 0 && (
            <Empty title="Nothing here yet">
              <p>Apply the YAML of a cluster, or make resources in a cloud. This page follows along.</p>
              <Command label="Try" text="trestle apply -f docs/examples/shop.yaml" />
            </Empty>
          )}
          {drawn && drawn.places.length > 0 && <Drawing drawn={drawn} gone={gone} links={inside ? [] : links} selected={selected} level={data?.level ?? ""} />}
          {drawn && drawn.places.length > 0 && <Legend />}
        </div>
        {chip && data && <Details chip={chip} reach={data} />}
      </div>
    </section>
  );
}

/** Lines that are there no more, for the moment in which they fade; tells what changed. */
function useGone(drawn: Picture | undefined, data: Reachability | undefined): Edge[] {
  const before = useRef<{ edges: Edge[]; groups: Set<string> } | undefined>(undefined);
  const [gone, setGone] = useState<Edge[]>([]);
  useEffect(() => {
    if (!drawn || !data) return;
    const groups = new Set(data.sources.map((group) => group.id));
    const last = before.current;
    before.current = { edges: drawn.edges, groups };
    if (!last) return;
    const now = new Set(drawn.edges.map((edge) => edge.id + edge.kind));
    const then = new Set(last.edges.map((edge) => edge.id + edge.kind));
    const left = last.edges.filter((edge) => !now.has(edge.id + edge.kind) && groups.has(edge.from) && groups.has(edge.to));
    const came = drawn.edges.filter((edge) => !then.has(edge.id + edge.kind) && last.groups.has(edge.from) && last.groups.has(edge.to));
    const first = came[0];
    if (first) notify(came.length === 1 ? tell(first) : `${came.length} ways have changed`);
    if (left.length === 0) return;
    setGone(left);
    const timer = setTimeout(() => setGone([]), LINGER);
    return () => clearTimeout(timer);
  }, [drawn?.edges]);
  return gone;
}

const short = (id: string) => id.replace(/^\w+:/, "");

function tell(edge: Edge): string {
  const ports = edge.ports && edge.ports !== "all" ? ` on ${edge.ports}` : "";
  return edge.kind === "blocked" ? `${short(edge.from)} can no longer reach ${short(edge.to)}` : `${short(edge.from)} can now reach ${short(edge.to)}${ports}`;
}

interface DrawingProps {
  drawn: Picture;
  gone: Edge[];
  links: Link[];
  selected: string | undefined;
  level: string;
}

function Drawing({ drawn, gone, links, selected, level }: DrawingProps) {
  const chips = new globalThis.Map(drawn.places.flatMap((place) => place.chips.map((chip) => [chip.group.id, chip] as const)));
  const places = new globalThis.Map(drawn.places.map((place) => [place.name, place] as const));
  const line = (edge: Edge, isGone: boolean) => {
    const [a, b] = [chips.get(edge.from), chips.get(edge.to)];
    if (!a || !b) return null;
    const near = selected === edge.from || selected === edge.to;
    const { path, x, y } = curve(a, b);
    const labelled = !isGone && edge.kind === "some" && edge.ports !== "" && (selected ? near : drawn.edges.length <= LABELLED);
    return (
      <g key={`${edge.id}${edge.kind}${isGone}`}>
        <path d={path} pathLength={1} class={`edge ${edge.kind} ${isGone ? "gone" : ""} ${selected ? (near ? "near" : "far") : ""}`}
          marker-end={`url(#arrow-${edge.kind})`}>
          <title>{`${short(edge.from)} → ${short(edge.to)}${edge.ports ? `: ${edge.ports}` : ""}`}</title>
        </path>
        {labelled && <text class="port" x={x} y={y - 5}>{edge.ports.length > 14 ? `${edge.ports.slice(0, 13)}…` : edge.ports}</text>}
      </g>
    );
  };
  return (
    <svg viewBox={`0 0 ${drawn.width} ${drawn.height}`} width={drawn.width * drawn.zoom} height={drawn.height * drawn.zoom} role="group" aria-label="Map of places and who may talk to whom">
      <defs>
        {["all", "some", "blocked"].map((kind) => (
          <marker key={kind} id={`arrow-${kind}`} class={`arrow ${kind}`} viewBox="0 0 8 8" refX="6.5" refY="4" markerWidth="10" markerHeight="10" markerUnits="userSpaceOnUse" orient="auto-start-reverse">
            <path d="M0 1 7 4 0 7Z" />
          </marker>
        ))}
      </defs>
      {links.map((link) => {
        const [a, b] = link.ends.map((end) => places.get(end.site));
        if (!a || !b) return null;
        const at = road(a, b);
        const up = link.ends.every((end) => !end.status || end.status.tunnels_up > 0);
        const state = link.message ? "bad" : link.state === "ready" && up ? "up" : "busy";
        return (
          <g key={`${a.id}${b.id}`} class={`road ${state}`}>
            <path d={at.path} />
            <text x={at.x} y={at.y - 8}>{`VPN ${link.message ? "in trouble" : link.state}`}</text>
            <title>{link.message || `${a.name} ⇄ ${b.name}: ${link.state}`}</title>
          </g>
        );
      })}
      {drawn.places.map((place) => (
        <g key={place.id} class={`place ${place.kind}`}>
          <rect x={place.x} y={place.y} width={place.width} height={place.height} rx={10} />
          <a href={level === "place" && place.kind === "namespace" ? href("map", { in: place.id }) : place.kind === "site" ? href("resources", { site: place.name }) : href("reachability", { source: place.id, destination: place.id, level: "group" })}>
            <text x={place.x + 16} y={place.y + 23}>{place.name}</text>
          </a>
          <text class="kind" x={place.x + place.width - 14} y={place.y + 23}>{place.kind === "site" ? "cloud" : place.chips.length > 0 && place.width > 260 ? "namespace" : ""}</text>
          {place.chips.length === 0 && <text class="none" x={place.x + 16} y={place.y + 58}>nothing in it yet</text>}
        </g>
      ))}
      <g>{gone.map((edge) => line(edge, true))}{drawn.edges.map((edge) => line(edge, false))}</g>
      {[...chips.values()].map((chip) => <ChipView key={chip.group.id} chip={chip} selected={selected} edges={drawn.edges} />)}
    </svg>
  );
}

function ChipView({ chip, selected, edges }: { chip: Chip; selected: string | undefined; edges: Edge[] }) {
  const { group } = chip;
  const touched = selected === undefined || selected === group.id || edges.some((edge) => (edge.from === selected && edge.to === group.id) || (edge.to === selected && edge.from === group.id));
  const name = group.name.length > 17 ? `${group.name.slice(0, 16)}…` : group.name;
  const toggle = () => adjust({ open: selected === group.id ? undefined : group.id });
  return (
    <g class={`chip ${selected === group.id ? "selected" : ""} ${touched ? "" : "far"}`} role="button" tabIndex={0} aria-pressed={selected === group.id}
      aria-label={`${group.place} ${group.name}, ${count(group.ends, "endpoint")}${chip.open ? ", open to other workloads" : ""}`}
      onClick={toggle} onKeyDown={(event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); } }}>
      <rect x={chip.x} y={chip.y} width={chip.width} height={chip.height} rx={8} />
      <text x={chip.x + 12} y={chip.y + 24}>{name}</text>
      {group.ends > 1 && <text class="number" x={chip.x + chip.width - (chip.open ? 26 : 12)} y={chip.y + 24}>{group.ends}</text>}
      {chip.open && <circle cx={chip.x + chip.width - 14} cy={chip.y + 19} r={4}><title>Open: other workloads may connect</title></circle>}
      <title>{`${group.place}/${group.name}`}</title>
    </g>
  );
}

function Legend() {
  return (
    <ul class="legend" aria-label="Legend">
      <li><i class="all" /> may connect</li>
      <li><i class="some" /> some protocols or ports</li>
      <li><i class="blocked" /> is blocked</li>
      <li><i class="dot" /> open to other workloads</li>
    </ul>
  );
}

function Details({ chip, reach }: { chip: Chip; reach: Reachability }) {
  const { group } = chip;
  const column = reach.destinations.findIndex((one) => one.id === group.id);
  const row = reach.sources.findIndex((one) => one.id === group.id);
  type Way = { peer: ReachGroup; ports: string; all: boolean };
  const way = (peer: ReachGroup, cell: Reachability["cells"][number][number] | undefined): Way[] => {
    if (!cell || peer.id === group.id || cell.open + cell.partly === 0) return [];
    const all = cell.open === cell.pairs;
    return [{ peer, all, ports: all ? "everything" : cell.ports ?? `${cell.open + cell.partly} of ${cell.pairs} pairs, not alike` }];
  };
  const into = reach.sources.flatMap((peer, at) => way(peer, reach.cells[at]?.[column]));
  const out = reach.destinations.flatMap((peer, at) => way(peer, reach.cells[row]?.[at]));
  const side = (title: string, none: string, ways: Way[], link: (peer: ReachGroup) => string) => (
    <>
      <h3>{title}</h3>
      {ways.length === 0 && <p>{none}</p>}
      <ul class="ways">
        {ways.slice(0, 60).map(({ peer, ports, all }) => (
          <li key={peer.id}><a href={link(peer)}>{peer.place === group.place ? peer.name : `${peer.place} ${peer.name}`}</a><span class={all ? "all" : "some"}>{ports}</span></li>
        ))}
      </ul>
    </>
  );
  const ends = (source: string, destination: string) => href("reachability", { source, destination, level: "end" });
  return (
    <Drawer title={group.name} onClose={() => adjust({ open: undefined })}>
      <p><small>{group.place_kind === "site" ? "in cloud " : "in namespace "}{group.place} · {count(group.ends, "endpoint")}</small></p>
      {side("May be reached from", "Nobody.", into, (peer) => ends(peer.id, group.id))}
      {side("May connect to", "Nobody.", out, (peer) => ends(group.id, peer.id))}
      {group.place_kind === "site" && <div class="buttons"><a class="button" href={href("resources", { site: group.place })}>Resources and rules</a></div>}
    </Drawer>
  );
}
