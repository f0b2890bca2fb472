// The overview: what there is, what needs attention, what changed, who was refused. Every figure leads to its list.

import type { ComponentChildren } from "preact";
import { query, type AuditRecord, type Cloud, type Consumer, type Host, type Job, type Link, type Node, type Policy, type Resource, type Schemas, type Status } from "../api.ts";
import { identity, useLive } from "../live.ts";
import { scene, type Told } from "../map/scene.ts";
import { ago, clock, count, duration } from "../parts/format.ts";
import { Badge, Command, Empty, Trouble } from "../parts/parts.tsx";
import { href } from "../route.ts";
import { attention } from "./attention.ts";
import { isMade, who } from "./audit.tsx";

const HOUR = 3600_000;
const SHOWN = 6;
const TROUBLES = 8;

export function Overview(_: { values: Record<string, string> }) {
  const status = useLive<Status>("/status", ["nodes", "objects"]).data.value;
  const map = useLive<Told>("/map", ["objects", "resources", "tags"]);
  const hosts = useLive<Host[]>("/hosts", ["hosts"]).data.value;
  const nodes = useLive<Node[]>("/nodes", ["nodes"]).data.value;
  const policies = useLive<Policy[]>("/policies", ["objects", "realisation"]).data.value;
  const services = useLive<Schemas["ServiceState"][]>("/services", ["objects"]).data.value;
  const resources = useLive<Resource[]>("/resources", ["resources"]).data.value;
  const clouds = useLive<Cloud[]>("/clouds", ["resources"]).data.value;
  const links = useLive<Link[]>("/links", ["resources", "jobs"]).data.value;
  const jobs = useLive<Job[]>("/jobs", ["jobs"]).data.value;
  const consumers = useLive<Consumer[]>(status?.storage ? "/consumers" : undefined, ["storage"]).data.value;
  const told = map.data.value && scene(map.data.value);
  const ready = status && nodes && policies && resources && jobs && links;
  const troubles = attention({ status, nodes, policies, resources, links, jobs, consumers });
  const nothing = told?.ends === 0 && hosts?.length === 0 && nodes?.length === 0 && resources?.length === 0;
  const connected = nodes?.filter((node) => node.connected) ?? [];
  const behind = connected.filter((node) => node.applied_revision !== node.revision);
  const slowest = Math.max(0, ...connected.map((node) => node.lag_seconds));
  const open = told?.groups.nodes.filter((group) => group.open === "all") ?? [];
  const openEnds = open.reduce((sum, group) => sum + group.count, 0);
  const realized = policies?.filter((policy) => policy.phase === "Realized").length ?? 0;
  return (
    <section class="view overview">
      <header><h1>Overview</h1><p>{status ? `Up ${duration((Date.now() - Date.parse(status.started_at)) / 1000)} · version ${status.version}` : "\u00a0"}</p></header>
      <Trouble problem={map.problem.value} />
      {nothing && (
        <Empty title="Nothing is guarded yet">
          <p>Begin with what you have: the YAML of a cluster, a host, or a cloud. The page follows along.</p>
          <Command label="The YAML of a cluster" text="kubectl get pods,services,networkpolicies -A -o yaml | trestle apply -f -" />
          <Command label="A host" text="trestle token create --join" />
          <Command label="Who may talk to whom" text="trestle allow FROM TO --port 443" />
        </Empty>
      )}
      <div class="tiles">
        <Tile title="Workloads" to={href("map")} number={told?.ends}>
          {told && (told.ends === 0 ? "Pods, external entities and resources appear here."
            : !told.fine ? `in ${count(told.places.nodes.length, "place")}`
            : openEnds === 0 ? "None is open to most others." : <><b>{openEnds.toLocaleString("en")}</b> of them in {count(open.length, "group")} are open to most others.</>)}
        </Tile>
        <Tile title="Policies" to={href("policies")} number={policies?.length}>
          {policies && (policies.length === 0 ? "None: Pods are open to each other." : realized === policies.length ? "All are in force everywhere." : <><b>{realized}</b> in force everywhere, {policies.length - realized} not.</>)}
        </Tile>
        <Tile title="Nodes" to={href("nodes")} number={nodes?.length}>
          {nodes && (nodes.length === 0 ? "No agent has connected yet." : (
            <>{connected.length === nodes.length ? "All are connected" : <><b>{connected.length}</b> connected</>}; {connected.length === 0 ? "nobody hears of changes." : behind.length === 0 ? "all have the newest that concerns them." : `${behind.length} behind, the slowest by ${duration(slowest)}.`}</>
          ))}
        </Tile>
        <Tile title="Hosts" to={href("hosts")} number={hosts?.length}>
          {hosts && (hosts.length === 0 ? "A machine joins with one line." : `${hosts.filter((host) => connected.some((node) => node.name === host.name)).length} connected.`)}
        </Tile>
        <Tile title="Resources" to={href("resources")} number={resources?.length}>
          {resources && clouds && `in ${count(clouds.length, "cloud")}, ${count(links?.length ?? 0, "link")} between them.`}
        </Tile>
        <Tile title="Services" to={href("services")} number={services?.length}>
          {services && (services.length === 0 ? "None is balanced." : services.every((service) => service.ready > 0) ? "All have somebody behind them." : `${services.filter((service) => service.ready === 0).length} have nobody behind them.`)}
        </Tile>
      </div>
      <div class="columns">
        <section class="card" aria-labelledby="attention">
          <h2 id="attention">Needs attention {troubles.length > 0 && <Badge tone="bad">{troubles.length}</Badge>}</h2>
          {!ready && <p class="hint">Looking…</p>}
          {ready && troubles.length === 0 && <p class="well">Nothing. Everything that reports is as it should be.</p>}
          <ul class="troubles">
            {troubles.slice(0, TROUBLES).map((trouble) => (
              <li key={trouble.what}><a href={trouble.href}>{trouble.what}</a><code>{trouble.command}</code></li>
            ))}
          </ul>
          {troubles.length > TROUBLES && <p class="hint">and {troubles.length - TROUBLES} more; <code>trestle status</code> tells all of them</p>}
        </section>
        <Changes jobs={jobs} />
      </div>
    </section>
  );
}

function Tile({ title, to, number, children }: { title: string; to: string; number: number | undefined; children: ComponentChildren }) {
  return (
    <a class="tile" href={to}>
      <span>{title}</span>
      <b class="figure">{number === undefined ? "\u2007" : number.toLocaleString("en")}</b>
      <small>{children || "\u00a0"}</small>
    </a>
  );
}

/** What changed lately and who was refused: from the log, which administrators read; else from the jobs. */
function Changes({ jobs }: { jobs: Job[] | undefined }) {
  const allowed = identity.value?.role === "admin";
  const audit = useLive<AuditRecord[]>(allowed ? query("/audit", { limit: 1000 }) : undefined, ["audit"]).data.value;
  const since = Date.now() - HOUR;
  const made = audit?.filter((record) => record.result === "OK" && isMade(record) && Date.parse(record.time) > since) ?? [];
  const refused = audit?.filter((record) => record.phase === "outcome" && record.result !== "OK") ?? [];
  const late = jobs?.filter((job) => Date.parse(job.created_at) > since) ?? [];
  const people = [...new Set(made.map(who))];
  return (
    <div class="stack">
      <section class="card" aria-labelledby="changed">
        <h2 id="changed">Changed in the last hour</h2>
        {allowed && !audit && <p class="hint">Looking…</p>}
        {audit && <p class="hint">{made.length === 0 ? "Nothing was changed." : `${count(made.length, "change")}${made.length >= 1000 ? " or more" : ""}, by ${people.slice(0, 4).join(", ")}${people.length > 4 ? " and others" : ""}.`}</p>}
        {!allowed && <p class="hint">{late.length === 0 ? "No job was begun." : `${count(late.length, "job")}.`} Who changed what is for administrators.</p>}
        <ul class="record">
          {allowed
            ? made.slice(0, SHOWN).map((record) => <li key={record.id}><a href={href("audit", { q: record.object || record.operation })}>{record.object || record.operation}</a><span>{who(record)}</span><time title={clock(record.time)}>{ago(record.time)}</time></li>)
            : late.slice(-SHOWN).toReversed().map((job) => <li key={job.id}><a href={href("jobs", { open: job.id })}>{job.what}</a><span>{job.state}</span><time>{ago(job.created_at)}</time></li>)}
        </ul>
        {made.length > SHOWN && <p><a href={href("audit")}>All of them</a></p>}
      </section>
      {allowed && (
        <section class="card" aria-labelledby="refused">
          <h2 id="refused">Newest refusals</h2>
          {audit && refused.length === 0 && <p class="hint">Nobody was refused, as far back as the newest 1,000 records go.</p>}
          <ul class="record">
            {refused.slice(0, SHOWN).map((record) => (
              <li key={record.id}><a href={href("audit", { show: "Refused", q: record.operation })}>{record.operation}</a><span>{who(record)} · {record.result}</span><time title={clock(record.time)}>{ago(record.time)}</time></li>
            ))}
          </ul>
        </section>
      )}
    </div>
  );
}
