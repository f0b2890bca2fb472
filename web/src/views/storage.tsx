// Storage: clusters that use ours, their usage against their grant, and the tickets that let them in.

import { useState } from "preact/hooks";
import { call, type Consumer, type Status, type Ticket } from "../api.ts";
import { mayWrite, useLive } from "../live.ts";
import { ago, bytes, duration } from "../parts/format.ts";
import { Badge, Command, Drawer, Empty, Facts, Meter, notify, Trouble, type Tone } from "../parts/parts.tsx";
import { Table, Waiting } from "../parts/table.tsx";
import { adjust } from "../route.ts";
import { Confirm, CreateTicket } from "./actions.tsx";

const tone = (phase: string): Tone => (({ Ready: "good", Failed: "bad", Configuring: "busy" }) as Record<string, Tone>)[phase] ?? "plain";

export function Storage({ values }: { values: Record<string, string> }) {
  const status = useLive<Status>("/status", ["nodes"]).data.value;
  const provides = status?.storage !== false;
  const consumers = useLive<Consumer[]>(provides ? "/consumers" : undefined, ["storage"]);
  const tickets = useLive<Ticket[]>(provides ? "/tickets" : undefined, ["storage"]);
  const [dialog, setDialog] = useState(false);
  const [revoking, setRevoking] = useState<Ticket | undefined>();
  const list = consumers.data.value;
  const open = list?.find((one) => one.id === values.open);
  const valid = tickets.data.value?.filter((ticket) => ticket.state === "valid") ?? [];
  if (!provides) {
    return (
      <section class="view">
        <header><h1>Storage</h1></header>
        <Empty title="This controller provides no storage"><p>Name a backend in its configuration, or start it with <code>trestle up</code>.</p></Empty>
      </section>
    );
  }
  return (
    <section class="view">
      <header><h1>Storage</h1><p>Storage handed to other clusters: usage against grant.</p></header>
      <Trouble problem={consumers.problem.value ?? tickets.problem.value} />
      {valid.length > 0 && (
        <ul class="links" aria-label="Tickets that can be used">
          {valid.map((ticket) => (
            <li key={ticket.id}>
              Ticket <code>{ticket.id}</code>
              <small>{ticket.limit_bytes ? `at most ${bytes(ticket.limit_bytes)} · ` : ""}expires in {duration(ticket.expires_at - Date.now() / 1000)}</small>
              {mayWrite() && <button type="button" class="quiet small" onClick={() => setRevoking(ticket)}>Revoke</button>}
            </li>
          ))}
        </ul>
      )}
      <div class="split">
        <div class="list">
          {!list ? <Waiting /> : (
            <Table label="consumers" noun="consumer" rows={list} id={(one) => one.id} open={values.open} onOpen={(one) => adjust({ open: one.id })}
              filters={[
                { name: "Nearly full", test: (one) => (one.used_bytes ?? 0) > 0.8 * one.granted_bytes },
                { name: "Failed", test: (one) => one.phase === "Failed" },
              ]}
              columns={[
                { title: "Consumer", width: "minmax(10rem, 2fr)", text: (one) => one.id, cell: (one) => <b>{one.id}</b> },
                { title: "Phase", width: "8rem", text: (one) => one.phase, cell: (one) => <Badge tone={tone(one.phase)}>{one.phase}</Badge> },
                { title: "Usage", width: "minmax(10rem, 2fr)", text: (one) => one.used_bytes ?? 0, cell: (one) => <span class="usage"><Meter value={one.used_bytes ?? 0} most={one.granted_bytes} label="usage" /> {bytes(one.used_bytes)} of {bytes(one.granted_bytes)}</span> },
                { title: "Since", width: "7rem", minor: true, text: (one) => one.created_at, cell: (one) => ago(one.created_at) },
              ]}
              empty={<Empty title="No cluster uses storage yet"><p>Make a ticket and hand it to another cluster.</p><Command label="There" text="trestle consumer onboard --ticket-file ticket --capacity 1Gi --out ./storage" /></Empty>}>
              {mayWrite() && <button type="button" class="primary" onClick={() => setDialog(true)}>Create a ticket</button>}
            </Table>
          )}
        </div>
        {open && (
          <Drawer title={open.id} onClose={() => adjust({ open: undefined })}>
            <Meter value={open.used_bytes ?? 0} most={open.granted_bytes} label="usage" />
            <Facts facts={[
              ["Phase", <Badge tone={tone(open.phase)}>{open.phase}</Badge>], ["Why", open.reason], ["Used", bytes(open.used_bytes)],
              ["Granted", bytes(open.granted_bytes)], ["Requested", open.requested], ["Notice", open.notice], ["Since", ago(open.created_at)],
            ]} />
            <Command label="Give it more" text={`trestle consumer resize ${open.id} 20Gi`} />
          </Drawer>
        )}
      </div>
      {dialog && <CreateTicket onClose={() => setDialog(false)} />}
      {revoking && (
        <Confirm title="Revoke the ticket" text="Nobody can use it any more. Consumers that came with it stay." command={`trestle ticket revoke ${revoking.id}`} action="Revoke ticket"
          work={async () => { await call("DELETE", `/tickets/${encodeURIComponent(revoking.id)}`); notify("The ticket is revoked"); }} onClose={() => setRevoking(undefined)} />
      )}
    </section>
  );
}
