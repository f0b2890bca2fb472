// Explain: why one end can or cannot reach another, layer by layer.

import { useMemo, useState } from "preact/hooks";
import { query, type Explanation, type Resource, type Schemas, type Workload } from "../api.ts";
import { explainCommand } from "../cli.ts";
import { mayWrite, useLive } from "../live.ts";
import { best } from "../parts/find.tsx";
import { Badge, Command, Empty, Field, Trouble, type Tone } from "../parts/parts.tsx";
import { hasPorts, PROTOCOLS } from "../parts/protocols.ts";
import { adjust, href } from "../route.ts";
import { Allow } from "./allow.tsx";

const STAGES: Record<string, string> = {
  loopback: "To itself",
  tiers: "Tiered policies",
  kubernetes: "Kubernetes policies",
  baseline: "Baseline policies",
  default: "If nothing decides",
  "permit list": "Permit list",
};

const TONES: Record<string, Tone> = { allow: "good", permitted: "good", drop: "bad", reject: "bad", isolated: "bad", pass: "plain", "no match": "plain" };

const VERDICTS: Record<string, { word: string; tone: Tone }> = {
  allowed: { word: "Permitted", tone: "good" },
  some: { word: "Permitted in part", tone: "part" },
  denied: { word: "Denied", tone: "bad" },
};

function what(protocol: string, port: string): string {
  if (port) return `${protocol || "tcp"} ${port}`;
  if (!protocol) return "every protocol and port";
  return hasPorts(protocol) ? `${protocol}, every port` : protocol;
}

export function Explain({ values }: { values: Record<string, string> }) {
  const { source = "", destination = "", protocol = "", port: given = "" } = values;
  // A port is one of TCP if no protocol is named.
  const has = protocol === "" || hasPorts(protocol);
  const port = has ? given : "";
  const asked = source !== "" && destination !== "";
  const valid = port === "" || /^[0-9]+$/.test(port);
  const path = asked && valid ? query("/explain", { source, destination, protocol: protocol || undefined, port }) : undefined;
  const live = useLive<Explanation>(path, ["objects", "resources", "tags"]);
  const workloads = useLive<Workload[]>("/workloads", ["objects"]).data.value;
  const resources = useLive<Resource[]>("/resources", ["resources"]).data.value;
  const names = useMemo(() => [
    ...(resources ?? []).map((one) => one.name),
    ...(workloads ?? []).map((one) => (one.kind === "Node" ? `node/${one.name}` : one.kind === "Pod" ? `${one.namespace}/${one.name}` : `entity/${one.namespace}/${one.name}`)),
  ], [workloads, resources]);
  const explanation = live.data.value;
  return (
    <section class="view">
      <header><h1>Explain</h1><p>Why one end can or cannot reach another, layer by layer.</p></header>
      <form class="question" onSubmit={(event) => event.preventDefault()}>
        <Field label="From"><End name="source" value={source} names={names} /></Field>
        <Field label="To"><End name="destination" value={destination} names={names} /></Field>
        <Field label="Protocol">
          <select value={protocol} onChange={(event) => adjust({ protocol: event.currentTarget.value || undefined })}>
            <option value="">{port ? "tcp (default)" : "all"}</option>
            {PROTOCOLS.map((name) => <option key={name}>{name}</option>)}
          </select>
        </Field>
        <Field label="Port"><input inputMode="numeric" placeholder="all" pattern="[0-9]*" disabled={!has} value={port} onInput={(event) => adjust({ port: event.currentTarget.value || undefined })} /></Field>
        <button type="button" class="swap" aria-label="Swap the two ends" title="Swap the two ends" onClick={() => adjust({ source: destination, destination: source })}>⇄</button>
      </form>
      <Trouble problem={live.problem.value} />
      {!asked && <Empty title="Ask about a connection"><p>An end is a Pod (<code>namespace/name</code>), a resource (<code>namespace.cloud.name</code>) or an address.</p></Empty>}
      {asked && explanation && !live.problem.value && <Answer explanation={explanation} source={source} destination={destination} protocol={protocol} port={port} />}
      {asked && <Command text={explainCommand(source, destination, protocol, port)} />}
    </section>
  );
}

/** Names that are offered at once. */
const NEAR = 60;

function End({ name, value, names }: { name: string; value: string; names: string[] }) {
  const [typed, setTyped] = useState(value);
  // Of many, those that are meant by what is written so far.
  const near = useMemo(() => (typed === "" ? names.slice(0, NEAR) : best(names, (one) => one, typed, NEAR)), [names, typed]);
  return (
    <>
      <input name={name} list={`${name}-names`} value={value} placeholder="shop/web-1" autocomplete="off" spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} onChange={(event) => adjust({ [name]: event.currentTarget.value || undefined })} />
      <datalist id={`${name}-names`}>{near.map((one) => <option key={one} value={one} />)}</datalist>
    </>
  );
}

interface AnswerProps {
  explanation: Explanation;
  source: string;
  destination: string;
  protocol: string;
  port: string;
}

function Answer({ explanation, source, destination, protocol, port }: AnswerProps) {
  const { verdict, openings, egress, ingress, notes, remedies } = explanation;
  const [allowing, setAllowing] = useState(false);
  const traffic = protocol === "icmp" ? "icmp" : port ? `${protocol || "tcp"} ${port}` : "";
  const closed = [egress.allowed ? "" : "at the source", ingress.allowed ? "" : "at the destination"].filter(Boolean).join(" and ");
  return (
    <div class="answer">
      <p class={`verdict ${VERDICTS[verdict]?.tone ?? "bad"}`} role="status">
        <b>{VERDICTS[verdict]?.word ?? verdict}</b>
        <span>{source} → {destination}, {what(protocol, port)}{verdict === "denied" ? ` · stopped ${closed}` : ""}</span>
      </p>
      {(openings.length > 1 || verdict === "some") && (
        <dl class="openings" aria-label="What is open">
          {openings.map((one) => (
            <div key={one.protocol}>
              <dt>{one.protocol}</dt>
              <dd><Badge tone={VERDICTS[one.verdict]?.tone ?? "plain"}>{one.ports}</Badge>{one.because.map((why) => <small key={why}>{why}</small>)}</dd>
            </div>
          ))}
        </dl>
      )}
      <div class="sides">
        <Side title="Leaving" end={explanation.source} side={egress} />
        <Side title="Entering" end={explanation.destination} side={ingress} />
      </div>
      {mayWrite() && verdict !== "allowed" && (
        <div class="buttons"><button type="button" class="primary" onClick={() => setAllowing(true)}>Allow…</button></div>
      )}
      {allowing && <Allow start={{ from: source, to: destination, traffic }} onClose={() => setAllowing(false)} />}
      {remedies.length > 0 && (
        <div class="remedies">
          <h2>What would permit it</h2>
          {remedies.map((remedy) => (remedy.startsWith("trestle ")
            ? <Command key={remedy} label="A rule" text={remedy} />
            : <p key={remedy}>{remedy}</p>))}
          {mayWrite() && [source, destination].filter((end) => /^[^/]+\.[^/]+\.[^/]+$/.test(end) && !/^[0-9.]+$/.test(end)).map((end) => (
            <a key={end} class="button" href={href("resources", { open: end })}>Rules of {end}</a>
          ))}
        </div>
      )}
      {notes.length > 0 && <ul class="notes">{notes.map((note) => <li key={note}>{note}</li>)}</ul>}
    </div>
  );
}

function Side({ title, end, side }: { title: string; end: Schemas["End"]; side: Schemas["Side"] }) {
  return (
    <section class="side" aria-label={title}>
      <header>
        <h2>{title} <b>{end.workloads.join(", ") || end.address}</b></h2>
        <small>{[end.workloads.length > 0 ? end.address : "", end.enforced_on.length > 0 ? `enforced on ${end.enforced_on.join(", ")}` : ""].filter(Boolean).join(" · ")}</small>
      </header>
      <ol>
        {side.steps.map((step, at) => (
          <li key={step.stage} class={at === side.steps.length - 1 ? `decides ${side.allowed ? "good" : "bad"}` : ""}>
            <div><b>{STAGES[step.stage] ?? step.stage}</b><Badge tone={TONES[step.outcome] ?? "plain"}>{step.outcome}</Badge></div>
            {step.details.map((detail) => <p key={detail}>{detail}</p>)}
          </li>
        ))}
      </ol>
    </section>
  );
}
