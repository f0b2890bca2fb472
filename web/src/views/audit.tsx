// Audit: who changed what, and who was refused.

import { type AuditRecord } from "../api.ts";
import { identity, useLive } from "../live.ts";
import { ago, clock } from "../parts/format.ts";
import { Badge, Empty, Trouble } from "../parts/parts.tsx";
import { Table, Waiting } from "../parts/table.tsx";

export const who = (record: AuditRecord) => {
  const caller = record.caller as { name?: string; role?: string } | string | null | undefined;
  if (!caller && record.phase === "event") return "the controller";
  return typeof caller === "string" ? caller : caller ? `${caller.role}/${caller.name}` : "unknown";
};

/** Whether something was changed by it. Who comes and goes has changed nothing. */
export const isMade = (record: AuditRecord) => (record.changes?.length ?? 0) > 0 && !/\/session$|\/CreateLogin$/.test(record.operation);

export function Audit(_: { values: Record<string, string> }) {
  const allowed = identity.value?.role === "admin";
  const audit = useLive<AuditRecord[]>(allowed ? "/audit?limit=1000" : undefined, ["audit"]);
  const list = audit.data.value;
  return (
    <section class="view">
      <header><h1>Audit</h1><p>Every change, and every call that was refused; newest first.</p></header>
      {!allowed && <Empty title="For administrators"><p>Your role is {identity.value?.role}.</p></Empty>}
      <Trouble problem={audit.problem.value} />
      <div class="list">
        {!list ? <Waiting /> : (
          <Table label="audit records" noun="record" rows={list} id={(record) => `${record.time}${record.operation}${record.object}${record.peer}`}
            filters={[{ name: "Refused", test: (record) => record.result !== "OK" }]}
            columns={[
              { title: "When", width: "6rem", text: (record) => record.time, cell: (record) => <span title={clock(record.time)}>{ago(record.time)}</span> },
              { title: "Who", width: "minmax(7rem, 1fr)", minor: true, text: who, cell: who },
              { title: "Operation", width: "minmax(8rem, 2fr)", text: (record) => record.operation, cell: (record) => <code>{record.operation}</code> },
              { title: "Object", width: "minmax(7rem, 1fr)", text: (record) => record.object ?? "", cell: (record) => record.object },
              { title: "Result", width: "minmax(6rem, 10rem)", text: (record) => record.result, cell: (record) => <Badge tone={record.result === "OK" ? "good" : "bad"}>{record.result}</Badge> },
              { title: "From", width: "minmax(7rem, 1fr)", minor: true, text: (record) => record.peer, cell: (record) => <code>{record.peer}</code> },
            ]}
            empty={<Empty title="Nothing yet" />} />
        )}
      </div>
    </section>
  );
}
