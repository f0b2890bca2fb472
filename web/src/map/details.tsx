// What one part of the map can reach, and who can reach it: exact, as the controller works it out for just this.

import { query, type ReachCell, type ReachGroup, type Schemas } from "../api.ts";
import { useLive } from "../live.ts";
import { count } from "../parts/format.ts";
import { Drawer, Trouble } from "../parts/parts.tsx";
import { adjust, href } from "../route.ts";
import { askedAs, nameOf, portOf } from "../views/flows.tsx";
import { plain, short } from "./scene.ts";
import type { Seen } from "./traffic.ts";

type Around = Schemas["Around"];
type Side = Schemas["AroundWay"];

/** So many alike are told in one line. */
const ALIKE = 10;
const MOST = 200;

const shareOf = (cell: ReachCell) => (cell.open === cell.pairs ? "everything" : (cell.ports ?? (cell.partly + cell.open < cell.pairs ? `${(cell.open + cell.partly).toLocaleString("en")} of ${count(cell.pairs, "pair")}` : "in part, not alike")));

/** What was seen between this one and a peer. */
export interface Touched extends Seen {
  into: boolean;
  peer: string;
}

interface Props {
  id: string;
  ends: readonly string[];
  traffic: { protocol: string | undefined; port: string | undefined };
  alone: boolean;
  /** Undefined: it is not asked for. */
  seen: Touched[] | undefined;
}

export function Details({ id, ends, traffic, alone, seen }: Props) {
  const live = useLive<Around>(query("/map/around", { id, ...traffic }), ["objects", "resources", "tags"]);
  const around = live.data.value;
  const name = around?.this.name ?? short(id);
  const where = around && around.level !== "place" ? `in ${around.this.place_kind === "site" ? "cloud" : "namespace"} ${around.this.place} · ` : "";
  const close = () => adjust({ open: undefined, only: undefined });
  return (
    <Drawer title={name} onClose={close}>
      {around && <p><small>{where}{around.level === "end" ? "one workload" : count(around.this.ends, "workload")}</small></p>}
      <Trouble problem={live.problem.value} />
      <div class="buttons">
        <button type="button" class="small" aria-pressed={alone} onClick={() => adjust({ only: alone ? undefined : "1" })}>{alone ? "Show everything" : "Only what it touches"}</button>
        {around?.level === "end" && <a class="button small" href={href("explain", { source: id })}>Explain from here</a>}
        {around?.this.place_kind === "site" && <a class="button small" href={href("resources", { site: around.this.place })}>Resources and rules</a>}
        {around && around.level !== "end" && <a class="button small" href={href("reachability", { source: id, destination: id, level: around.level === "place" ? "group" : "end" })}>Matrix</a>}
      </div>
      {seen && (
        <>
          <h3>Seen in the last ten minutes</h3>
          {seen.length === 0 && <p>Nothing.</p>}
          <ul class="ways">{seen.slice(0, MOST).map((one) => <Touch key={`${one.peer} ${one.into} ${one.verdict}`} one={one} />)}</ul>
        </>
      )}
      {!around && !live.problem.value && <p class="hint" role="status">Working it out…</p>}
      {around && (
        <>
          <Ways title="May be reached from" ways={around.into} others={around.others} link={(peer) => reason(around, peer, true)} />
          <Ways title="May connect to" ways={around.out} others={around.others} link={(peer) => reason(around, peer, false)} />
        </>
      )}
      {ends.length > 1 && (
        <>
          <h3>In it</h3>
          <ul class="members">
            {ends.slice(0, MOST).map((end) => <li key={end}><button type="button" class="link" onClick={() => adjust({ open: end })}>{short(end)}</button></li>)}
            {ends.length > MOST && <li><small>and {(ends.length - MOST).toLocaleString("en")} more</small></li>}
          </ul>
        </>
      )}
    </Drawer>
  );
}

/** Of what was refused, one click to why, and to what would permit it; of the rest to what was seen. */
function Touch({ one }: { one: Touched }) {
  const { most } = one;
  const [source, destination] = [askedAs(most.from), askedAs(most.to)];
  const port = most.protocol.startsWith("icmp") ? undefined : most.port?.toString();
  const why = source && destination && one.verdict === "denied" ? href("explain", { source, destination, protocol: most.protocol.replace("icmpv6", "icmp"), port }) : undefined;
  const list = href("flows", { end: nameOf(most.from), verdict: one.verdict === "denied" ? most.verdict : "allowed" });
  return (
    <li>
      <a href={why ?? list} title={why ? "Why, and what would permit it" : "What was seen"}>{one.into ? "from" : "to"} {plain(one.peer)}</a>
      <span class={one.verdict === "denied" ? "refused" : "all"}>{one.verdict === "denied" ? "refused" : "let through"} {one.count.toLocaleString("en")}, most of it {portOf(most)}</span>
    </li>
  );
}

/** Where the reason is: between two ends it is explained, else the matrix goes deeper. */
function reason(around: Around, peer: ReachGroup, into: boolean): string {
  const [source, destination] = into ? [peer.id, around.this.id] : [around.this.id, peer.id];
  return href("reachability", { source, destination, level: around.level === "place" ? "group" : "end" });
}

function Ways({ title, ways, others, link }: { title: string; ways: Side[]; others: number; link: (peer: ReachGroup) => string }) {
  const alike = new Map<string, Side[]>();
  for (const way of ways) {
    const share = shareOf(way.cell);
    alike.set(share, [...(alike.get(share) ?? []), way]);
  }
  const one = (way: Side) => (
    <li key={way.peer.id}>
      <a href={link(way.peer)}>{plain(way.peer.id)}</a>
      <span class={way.cell.open === way.cell.pairs ? "all" : "some"}>{shareOf(way.cell)}</span>
    </li>
  );
  return (
    <>
      <h3>{title}{ways.length > 0 && <small> {ways.length === others && others > 1 ? "everybody" : `${ways.length.toLocaleString("en")} of ${others.toLocaleString("en")}`}</small>}</h3>
      {ways.length === 0 && <p>Nobody.</p>}
      {[...alike].toSorted(([, a], [, b]) => a.length - b.length).map(([share, list]) =>
        list.length <= ALIKE
          ? <ul class="ways" key={share}>{list.map(one)}</ul>
          : (
            <details class="alike" key={share}>
              <summary>{count(list.length, "other")}: {share}</summary>
              <ul class="ways">{list.slice(0, MOST).map(one)}</ul>
              {list.length > MOST && <p><small>and {(list.length - MOST).toLocaleString("en")} more</small></p>}
            </details>
          ))}
    </>
  );
}
