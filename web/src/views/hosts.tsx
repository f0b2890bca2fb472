// Hosts: machines that have joined, and the line that lets another one join.

import { useState } from "preact/hooks";
import { call, type Host } from "../api.ts";
import { mayAdmit, useLive } from "../live.ts";
import { ago, duration } from "../parts/format.ts";
import { Badge, Command, Drawer, Empty, Facts, notify, Trouble } from "../parts/parts.tsx";
import { Table, Waiting } from "../parts/table.tsx";
import { adjust } from "../route.ts";
import { AddHost, Confirm } from "./actions.tsx";

const left = (host: Host) => Date.parse(host.certificate_until) / 1000 - Date.now() / 1000;

export function Hosts({ values }: { values: Record<string, string> }) {
  const hosts = useLive<Host[]>("/hosts", ["hosts"]);
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState<Host | undefined>();
  const list = hosts.data.value;
  const open = list?.find((host) => host.name === values.open);
  return (
    <section class="view">
      <header><h1>Hosts</h1><p>Machines that have joined: each is a node, has a tag of its own, and renews its certificate.</p></header>
      <Trouble problem={hosts.problem.value} />
      <div class="split">
        <div class="list">
          {!list ? <Waiting /> : (
            <Table label="hosts" noun="host" rows={list} id={(host) => host.name} open={values.open} onOpen={(host) => adjust({ open: host.name })}
              filters={[{ name: "Certificate ended", test: (host) => left(host) <= 0 }]}
              columns={[
                { title: "Name", width: "minmax(9rem, 2fr)", text: (host) => host.name, cell: (host) => <b>{host.name}</b> },
                { title: "Tags", width: "minmax(8rem, 2fr)", text: (host) => host.tags.join(" "), cell: (host) => host.tags.join(", ") },
                { title: "Addresses", width: "minmax(9rem, 2fr)", text: (host) => host.addresses.join(" "), cell: (host) => <code>{host.addresses.join(" ")}</code> },
                { title: "Certificate", width: "9rem", text: left, cell: (host) => (left(host) > 0 ? `${duration(left(host))} left` : <Badge tone="bad">ended</Badge>) },
                { title: "Joined", width: "7rem", minor: true, text: (host) => host.joined_at, cell: (host) => ago(Date.parse(host.joined_at) / 1000) },
              ]}
              empty={<Empty title="No host has joined yet"><p>A host joins with one line, run on it.</p><Command label="Its token" text="trestle token create --join --tag web" /></Empty>}>
              {mayAdmit() && <button type="button" class="primary" onClick={() => setAdding(true)}>Add a host</button>}
            </Table>
          )}
        </div>
        {open && (
          <Drawer title={open.name} onClose={() => adjust({ open: undefined })}>
            <Facts facts={[
              ["Its tag", <code>{open.tag}</code>], ["Tags", open.tags.join(", ")],
              ["Labels", Object.entries(open.labels).map(([key, value]) => `${key}=${value}`).join(", ")], ["Addresses", <code>{open.addresses.join(" ")}</code>],
              ["Joined", ago(Date.parse(open.joined_at) / 1000)], ["By", open.joined_by], ["Certificate until", open.certificate_until],
              ["Key", <code title={open.fingerprint}>{open.fingerprint.slice(0, 16)}…</code>],
            ]} />
            <Command text={`trestle host get ${open.name}`} />
            {mayAdmit() && <button type="button" class="danger" onClick={() => setRemoving(open)}>Remove</button>}
          </Drawer>
        )}
      </div>
      {adding && <AddHost onClose={() => setAdding(false)} />}
      {removing && (
        <Confirm title={`Remove ${removing.name}`} text="It is nobody from then on: its certificate, its tag and its record go, and it cannot come back with the key it had. What is in force on it stays."
          command={`trestle host remove ${removing.name}`} action="Remove host"
          work={async () => {
            const { notice } = await call<{ notice?: string }>("DELETE", `/hosts/${encodeURIComponent(removing.name)}`);
            notify(notice ? `${removing.name} is removed. ${notice}` : `${removing.name} is removed`);
          }} onClose={() => setRemoving(undefined)} />
      )}
    </section>
  );
}
