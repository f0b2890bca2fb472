// Policies: where each is to be enforced, how far the nodes are, and what is wrong with it.

import { useState } from "preact/hooks";
import { call, query, type Policy } from "../api.ts";
import { mayWrite, useLive } from "../live.ts";
import { Badge, Command, Drawer, Empty, Facts, notify, Trouble, type Tone } from "../parts/parts.tsx";
import { Table, Waiting } from "../parts/table.tsx";
import { yaml } from "../policy.ts";
import { adjust } from "../route.ts";
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
                { name: "Not realised", test: (policy) => policy.phase !== "Realized" },
              ]}
              columns={[
                { title: "Name", width: "minmax(10rem, 2fr)", text: (policy) => policy.name, cell: (policy) => <b>{policy.name}</b> },
                { title: "Namespace", width: "minmax(6rem, 1fr)", text: (policy) => policy.namespace ?? "", cell: (policy) => policy.namespace ?? <small>cluster</small> },
                { title: "Kind", width: "minmax(8rem, 1fr)", minor: true, text: (policy) => policy.kind, cell: (policy) => policy.kind },
                { title: "Phase", width: "8rem", text: (policy) => policy.phase, cell: (policy) => <Badge tone={tone(policy)}>{policy.phase}</Badge> },
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
