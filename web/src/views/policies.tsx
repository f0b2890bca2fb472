// Policies: where each is to be enforced, how far the nodes are, and what is wrong with it.

import { useState } from "preact/hooks";
import { call, query, type Policy, type Schemas } from "../api.ts";
import { mayWrite, useLive } from "../live.ts";
import { ago, clock } from "../parts/format.ts";
import { Badge, Command, Drawer, Empty, Facts, notify, Trouble, type Tone } from "../parts/parts.tsx";
import { Table, Waiting } from "../parts/table.tsx";
import { yaml } from "../policy.ts";
import { adjust, href } from "../route.ts";
import { Confirm } from "./actions.tsx";
import { Editor } from "./editor.tsx";

interface Stored {
  kind: string;
  metadata: { namespace?: string; name: string };
}

export const policyId = (policy: Policy) => `${policy.kind}/${policy.namespace ? `${policy.namespace}/` : ""}${policy.name}`;

function tone(policy: Policy): Tone {
  if (policy.problems.length > 0 || policy.phase === "Failed") return "bad";
  return ({ Realized: "good", Realizing: "busy" } as Record<string, Tone>)[policy.phase] ?? "plain";
}

const MONTH = 30 * 24 * 3600 * 1000;

/** Counted for so long, everywhere, and it has decided nothing. */
export function isUnused(policy: Policy, since: number): boolean {
  const { counted_since: counted, last_used: last, silent, span } = policy;
  const isCounted = Boolean(counted) && Date.parse(counted ?? "") <= since && silent === 0 && span.length > 0;
  return isCounted && (!last || Date.parse(last) < since);
}

/** What is not counted, or not everywhere, is not said to be unused. */
export function used(policy: Policy): string {
  if (policy.last_used) return ago(policy.last_used);
  if (!policy.counted_since) return "not counted";
  return policy.silent > 0 || policy.span.length === 0 ? "not known" : "not yet";
}

function usedTitle(policy: Policy): string {
  if (!policy.counted_since) return "No flows are recorded here";
  const silent = policy.silent > 0 ? `; ${policy.silent} of its places have told of no connection` : "";
  return `${policy.uses.toLocaleString("en")} times, counted since ${clock(policy.counted_since)}${silent}`;
}

/** How often each rule has decided. */
function Uses({ policy }: { policy: Policy }) {
  const path = policy.counted_since ? `/policies/${policy.kind}/${policy.namespace ?? "-"}/${policy.name}` : undefined;
  const detail = useLive<Schemas["PolicyDetail"]>(path, ["objects", "flows"]).data.value;
  const rules = detail?.rules ?? [];
  if (!policy.counted_since) return null;
  return (
    <>
      <h3>How often it has decided</h3>
      <p><small>{usedTitle(policy)}. A change of it begins anew.</small></p>
      <ul class="names">
        {rules.map((rule) => (
          <li key={rule.rule}><code>{rule.rule}</code> {rule.uses === 0 ? "never" : `${rule.uses.toLocaleString("en")} times, last ${ago(rule.last_used ?? "")}`}</li>
        ))}
      </ul>
      <p><a href={href("flows", { rule: `${policy.namespace ? `${policy.namespace}/` : ""}${policy.name}` })}>What it has decided</a></p>
    </>
  );
}

export function Policies({ values }: { values: Record<string, string> }) {
  const policies = useLive<Policy[]>("/policies", ["objects", "realisation"]);
  const list = policies.data.value;
  const open = list?.find((policy) => policyId(policy) === values.open);
  const documents = useLive<Stored[]>(open && query("/objects", { kind: open.kind }), ["objects"]).data.value;
  const document = documents?.find(({ metadata }) => metadata.name === open?.name && (metadata.namespace ?? "") === (open.namespace ?? ""));
  const [editing, setEditing] = useState<{ title: string; start?: string } | undefined>();
  const [deleting, setDeleting] = useState<Policy | undefined>();
  return (
    <section class="view">
      <header><h1>Policies</h1><p>What is stated, where it is enforced, and how far the nodes are.</p></header>
      <Trouble problem={policies.problem.value} />
      <div class="split">
        <div class="list">
          {!list ? <Waiting /> : (
            <Table label="policies" noun="policy" rows={list} id={policyId} open={values.open}
              onOpen={(policy) => adjust({ open: policyId(policy) })}
              filters={[
                { name: "With problems", test: (policy) => tone(policy) === "bad" },
                { name: "Unused for 30 days", test: (policy) => isUnused(policy, Date.now() - MONTH) },
                { name: "Not realised", test: (policy) => policy.phase !== "Realized" },
              ]}
              columns={[
                { title: "Name", width: "minmax(10rem, 2fr)", text: (policy) => policy.name, cell: (policy) => <b>{policy.name}</b> },
                { title: "Namespace", width: "minmax(6rem, 1fr)", text: (policy) => policy.namespace ?? "", cell: (policy) => policy.namespace ?? <small>cluster</small> },
                { title: "Kind", width: "minmax(8rem, 1fr)", minor: true, text: (policy) => policy.kind, cell: (policy) => policy.kind },
                { title: "Phase", width: "8rem", text: (policy) => policy.phase, cell: (policy) => <Badge tone={tone(policy)}>{policy.phase}</Badge> },
                { title: "Last used", width: "7rem", minor: true, text: (policy) => policy.last_used ?? "", cell: (policy) => <span title={usedTitle(policy)}>{used(policy)}</span> },
                { title: "Nodes", width: "6rem", text: (policy) => policy.span.length, cell: (policy) => `${policy.realized} of ${policy.span.length}` },
              ]}
              empty={<Empty title="No policies yet"><p>A policy says who may connect to Pods. Without one they are open to each other. Write one here, or feed it the YAML you have.</p><Command label="For example" text="trestle apply -f docs/examples/shop.yaml" /></Empty>}>
              {mayWrite() && <button type="button" class="primary" onClick={() => setEditing({ title: "A new policy" })}>New policy</button>}
            </Table>
          )}
        </div>
        {open && (
          <Drawer title={open.name} onClose={() => adjust({ open: undefined })}>
            <Facts facts={[
              ["Kind", open.kind], ["Namespace", open.namespace], ["Generation", open.generation],
              ["Phase", <Badge tone={tone(open)}>{open.phase}</Badge>], ["Realised", `on ${open.realized} of ${open.span.length} nodes`],
            ]} />
            {open.problems.length > 0 && (
              <>
                <h3>Cannot be enforced as written</h3>
                <p>What it covers is denied until this is mended.</p>
                <ul class="names">{open.problems.map((problem) => <li key={problem.path}><code>{problem.path}</code> {problem.message}</li>)}</ul>
              </>
            )}
            {open.failures.length > 0 && (
              <>
                <h3>Failed on</h3>
                <ul class="names">{open.failures.map((failure) => <li key={failure.node}><b>{failure.node}</b> {failure.message}</li>)}</ul>
              </>
            )}
            <Uses policy={open} />
            {document && (
              <>
                <h3>What it says</h3>
                <pre class="yaml" tabIndex={0} aria-label={`YAML of ${open.name}`}>{yaml(document)}</pre>
                {mayWrite() && (
                  <div class="buttons">
                    <button type="button" onClick={() => setEditing({ title: `Change ${open.name}`, start: yaml(document) })}>Change</button>
                    <button type="button" class="danger" onClick={() => setDeleting(open)}>Delete</button>
                  </div>
                )}
              </>
            )}
            <h3>Enforced on</h3>
            {open.span.length === 0 ? <p>Nobody: it selects no workload.</p> : <ul class="names">{open.span.slice(0, 100).map((node) => <li key={node}>{node}</li>)}</ul>}
            <Command text={`trestle get ${open.kind} ${open.name}${open.namespace ? ` -n ${open.namespace}` : ""} -o yaml`} />
          </Drawer>
        )}
      </div>
      {editing && <Editor {...editing} onClose={() => setEditing(undefined)} />}
      {deleting && (
        <Confirm title={`Delete ${deleting.name}`} text="What it permits or denies ends; what other policies say stays." action="Delete policy"
          command={`trestle delete ${deleting.kind} ${deleting.name}${deleting.namespace ? ` -n ${deleting.namespace}` : ""}`}
          work={async () => {
            await call("DELETE", query("/objects", { kind: deleting.kind, namespace: deleting.namespace, name: deleting.name }));
            notify(`${deleting.name} is deleted`);
            adjust({ open: undefined });
          }} onClose={() => setDeleting(undefined)} />
      )}
    </section>
  );
}
