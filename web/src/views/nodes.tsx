// Nodes: who is connected, what they have applied, how far behind they are.

import { type Node } from "../api.ts";
import { useLive } from "../live.ts";
import { ago, bytes, duration } from "../parts/format.ts";
import { Badge, Command, Drawer, Empty, Facts, Trouble, type Tone } from "../parts/parts.tsx";
import { Table, Waiting } from "../parts/table.tsx";
import { adjust } from "../route.ts";

function state(node: Node): [string, Tone] {
  if (!node.connected) return ["away", "bad"];
  if (node.errors.length > 0) return ["errors", "bad"];
  if (node.applied_revision !== node.revision) return ["behind", "busy"];
  return ["current", "good"];
}

export function Nodes({ values }: { values: Record<string, string> }) {
  const nodes = useLive<Node[]>("/nodes", ["nodes"]);
  const list = nodes.data.value;
  const open = list?.find((node) => node.name === values.open);
  return (
    <section class="view">
      <header><h1>Nodes</h1><p>Every agent: what it was told, what it has applied, what it could not.</p></header>
      <Trouble problem={nodes.problem.value} />
      <div class="split">
        <div class="list">
          {!list ? <Waiting /> : (
            <Table label="nodes" noun="node" rows={list} id={(node) => node.name} open={values.open} onOpen={(node) => adjust({ open: node.name })}
              filters={[
                { name: "Away", test: (node) => !node.connected },
                { name: "With errors", test: (node) => node.errors.length > 0 },
                { name: "Behind", test: (node) => state(node)[0] === "behind" },
              ]}
              columns={[
                { title: "Name", width: "minmax(9rem, 2fr)", text: (node) => node.name, cell: (node) => <b>{node.name}</b> },
                { title: "State", width: "7rem", text: (node) => state(node)[0], cell: (node) => <Badge tone={state(node)[1]}>{state(node)[0]}</Badge> },
                { title: "Applied", width: "7rem", text: (node) => node.applied_revision ?? 0, cell: (node) => `${node.applied_revision ?? "–"} / ${node.revision}` },
                { title: "Lag", width: "5rem", text: (node) => node.lag_seconds, cell: (node) => duration(node.lag_seconds) },
                { title: "Errors", width: "5rem", text: (node) => node.errors.length, cell: (node) => node.errors.length || "" },
                { title: "From", width: "minmax(8rem, 1fr)", minor: true, text: (node) => node.peer, cell: (node) => <code>{node.peer}</code> },
                { title: "Version", width: "minmax(5rem, 1fr)", minor: true, text: (node) => node.version, cell: (node) => node.version },
              ]}
              empty={<Empty title="No node has connected yet"><p>An agent on a node enforces policies and services there.</p><Command label="A node proves itself with a certificate" text="trestle cert issue node-1 --role node --out node-1" /></Empty>} />
          )}
        </div>
        {open && (
          <Drawer title={open.name} onClose={() => adjust({ open: undefined })}>
            <Facts facts={[
              ["State", <Badge tone={state(open)[1]}>{state(open)[0]}</Badge>], ["Applied", open.applied_revision ?? "nothing yet"], ["Newest for it", open.revision],
              ["Sent", open.sent_revision], ["Lag", duration(open.lag_seconds)], ["Connected", ago(open.connected_at)],
              ["Left", open.disconnected_at ? ago(open.disconnected_at) : ""], ["Why it left", open.last_end], ["From", <code>{open.peer}</code>],
              ["Protocol", open.protocol], ["Version", open.version], ["Controller", open.controller], ["Sent in all", bytes(open.bytes_sent)],
            ]} />
            {open.errors.length > 0 && (
              <>
                <h3>Could not apply</h3>
                <ul class="names">{open.errors.map((error) => <li key={`${error.kind} ${error.name}`}><code>{error.kind} {error.name}</code> {error.message}</li>)}</ul>
              </>
            )}
            <Command text={`trestle node get ${open.name}`} />
          </Drawer>
        )}
      </div>
    </section>
  );
}
