// Permissions: who was allowed what, how far that is, and the way to take it back.

import { useState } from "preact/hooks";
import { call, type Schemas } from "../api.ts";
import { mayWrite, useLive } from "../live.ts";
import { Badge, Command, Drawer, Empty, Facts, notify, Trouble, type Tone } from "../parts/parts.tsx";
import { Table, Waiting } from "../parts/table.tsx";
import { adjust, href } from "../route.ts";
import { Confirm } from "./actions.tsx";
import { Allow } from "./allow.tsx";

type Permission = Schemas["Permission"];
type Outcome = Schemas["AllowOutcome"];

const TONES: Record<string, Tone> = { "in force": "good", failed: "bad", pending: "busy" };

export function Permissions({ values }: { values: Record<string, string> }) {
  const permissions = useLive<Permission[]>("/permissions", ["resources", "objects", "realisation"]);
  const [allowing, setAllowing] = useState(false);
  const [denying, setDenying] = useState<Permission | undefined>();
  const list = permissions.data.value;
  const open = list?.find((permission) => permission.name === values.open);
  const state = (permission: Permission) => <Badge tone={TONES[permission.state] ?? "plain"}>{permission.state}</Badge>;
  return (
    <section class="view">
      <header><h1>Permissions</h1><p>Who may open connections to whom, at both ends at once.</p></header>
      <Trouble problem={permissions.problem.value} />
      <div class="split">
        <div class="list">
          {!list ? <Waiting /> : (
            <Table label="permissions" noun="permission" rows={list} id={(permission) => permission.name} open={values.open} onOpen={(permission) => adjust({ open: permission.name })}
              filters={[{ name: "Not in force", test: (permission) => permission.state !== "in force" }]}
              columns={[
                { title: "From", width: "minmax(8rem, 2fr)", text: (permission) => permission.from, cell: (permission) => <b>{permission.from}</b> },
                { title: "To", width: "minmax(8rem, 2fr)", text: (permission) => permission.to, cell: (permission) => <b>{permission.to}</b> },
                { title: "Traffic", width: "minmax(6rem, 1fr)", text: (permission) => permission.traffic.join(", "), cell: (permission) => permission.traffic.join(", ") },
                { title: "State", width: "7rem", text: (permission) => permission.state, cell: state },
              ]}
              empty={<Empty title="Nothing is allowed yet"><p>One line opens both ends, and another one takes it back.</p><Command text="trestle allow FROM TO --port 443" /></Empty>}>
              {mayWrite() && <button type="button" class="primary" onClick={() => setAllowing(true)}>Allow…</button>}
            </Table>
          )}
        </div>
        {open && (
          <Drawer title={`${open.from} to ${open.to}`} onClose={() => adjust({ open: undefined })}>
            <Facts facts={[["Name", <code>{open.name}</code>], ["Traffic", open.traffic.join(", ")], ["State", state(open)], ["Because", open.message]]} />
            <ul class="notes">
              {open.rules.map((rule) => <li key={rule.at + rule.what}>{rule.as} at <b>{rule.at}</b>: {rule.what}</li>)}
              {open.rules.length === 0 && <li>Nobody is at either end now; it takes effect when somebody is.</li>}
            </ul>
            <Command label="Takes it back" text={`trestle deny ${open.arguments}`} />
            {mayWrite() && <button type="button" class="danger" onClick={() => setDenying(open)}>Take back</button>}
          </Drawer>
        )}
      </div>
      {allowing && <Allow start={{}} onClose={() => setAllowing(false)} />}
      {denying && (
        <Confirm title={`Take back ${denying.from} to ${denying.to}`} text="Exactly what it gave goes, at both ends. Rules and policies that say the same stay."
          command={`trestle deny ${denying.arguments}`} action="Take it back"
          work={async () => {
            const { job } = await call<Outcome>("DELETE", `/permissions/${encodeURIComponent(denying.name)}`);
            notify(`${denying.from} to ${denying.to} is taken back`, job ? href("jobs", { open: job.id }) : undefined);
          }} onClose={() => setDenying(undefined)} />
      )}
    </section>
  );
}
