// Policies: where each is to be enforced, how far the nodes are, and what is wrong with it.

import { useLive } from "../live.ts";
import { type Policy } from "../api.ts";
import { Badge, Command, Drawer, Empty, Facts, Trouble, type Tone } from "../parts/parts.tsx";
import { Table } from "../parts/table.tsx";
import { adjust } from "../route.ts";

export const policyId = (policy: Policy) => `${policy.kind}/${policy.namespace ? `${policy.namespace}/` : ""}${policy.name}`;

function tone(policy: Policy): Tone {
  if (policy.problems.length > 0 || policy.phase === "Failed") return "bad";
  return ({ Realized: "good", Realizing: "busy" } as Record<string, Tone>)[policy.phase] ?? "plain";
}

export function Policies({ values }: { values: Record<string, string> }) {
  const policies = useLive<Policy[]>("/policies", ["objects", "realisation"]);
  const list = policies.data.value;
  const open = list?.find((policy) => policyId(policy) === values.open);
  return (
    <section class="view">
      <header><h1>Policies</h1><p>What is stated, where it is enforced, and how far the nodes are.</p></header>
      <Trouble problem={policies.problem.value} />
      <div class="split">
        <div class="list">
          {list && (
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
              empty={<Empty title="No policies yet"><p>Feed it the YAML you have.</p><Command label="For example" text="trestle apply -f docs/examples/shop.yaml" /></Empty>} />
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
            <h3>Enforced on</h3>
            {open.span.length === 0 ? <p>Nobody: it selects no workload.</p> : <ul class="names">{open.span.slice(0, 100).map((node) => <li key={node}>{node}</li>)}</ul>}
            <Command text={`trestle get ${open.kind} ${open.name}${open.namespace ? ` -n ${open.namespace}` : ""} -o yaml`} />
          </Drawer>
        )}
      </div>
    </section>
  );
}
