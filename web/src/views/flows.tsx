// Flows: connections that nodes have seen, allowed and denied, and what decided.

import { query, type Schemas } from "../api.ts";
import { flowsCommand } from "../cli.ts";
import { useLive } from "../live.ts";
import { ago, bytes, clock } from "../parts/format.ts";
import { Badge, Command, Drawer, Empty, Facts, Trouble, type Tone } from "../parts/parts.tsx";
import { Table, Waiting } from "../parts/table.tsx";
import { adjust, href } from "../route.ts";

type Flow = Schemas["Flow"];
type End = Schemas["FlowEnd"];

/** Those for whom a node had no row of their own. */
const MANY = "many";
/** The newest that are asked for at once. */
const MOST = 2000;
const TONES: Record<string, Tone> = { allowed: "good", denied: "bad", observed: "part" };

/** Its workload, else its address. */
export function nameOf(end: End): string {
  if (end.workload) return end.workload.slice(end.workload.indexOf(" ") + 1);
  return end.address || MANY;
}

/** As `explain` takes it; none if it is many. */
export function askedAs(end: End): string | undefined {
  const [kind = "", name = ""] = (end.workload ?? "").split(" ");
  if (kind === "Pod") return name;
  if (kind === "Node") return `node/${name}`;
  if (kind === "ExternalEntity") return `entity/${name}`;
  return end.address || undefined;
}

export function portOf(flow: Flow): string {
  const isIcmp = flow.protocol.startsWith("icmp");
  if (flow.port === undefined || flow.port === null) return ["tcp", "udp", "sctp"].includes(flow.protocol) ? `${flow.protocol} many` : flow.protocol;
  return isIcmp ? `${flow.protocol} ${flow.port >> 8}` : `${flow.protocol} ${flow.port}`;
}

const idOf = (flow: Flow) => [flow.first, flow.node, flow.verdict, flow.direction, flow.from.address, flow.to.address, flow.protocol, flow.port, flow.service, flow.rule, flow.from.workload, flow.to.workload].join("|");

export function Flows({ values }: { values: Record<string, string> }) {
  const { end, verdict, rule } = values;
  const flows = useLive<Schemas["FlowList"]>(query("/flows", { limit: MOST, end, verdict, rule }), ["flows"]);
  const told = flows.data.value;
  const open = told?.flows.find((flow) => idOf(flow) === values.open);
  return (
    <section class="view">
      <header><h1>Flows</h1><p>Connections that nodes have seen, allowed and denied, and what decided; newest first.</p></header>
      <Trouble problem={flows.problem.value} />
      <div class="split">
        <div class="list">
          {!told ? <Waiting /> : (
            <Table label="flows" noun="flow" rows={told.flows} id={idOf} open={values.open} onOpen={(flow) => adjust({ open: idOf(flow) })}
              filters={[{ name: "Denied", test: (flow) => flow.verdict === "denied" }, { name: "Would be denied", test: (flow) => flow.verdict === "observed" }]}
              columns={[
                { title: "When", width: "6rem", text: (flow) => flow.last, cell: (flow) => <span title={clock(flow.last)}>{ago(flow.last)}</span> },
                { title: "Verdict", width: "7rem", text: (flow) => flow.verdict, cell: (flow) => <Badge tone={TONES[flow.verdict] ?? "plain"}>{flow.verdict}</Badge> },
                { title: "From", width: "minmax(8rem, 2fr)", text: (flow) => nameOf(flow.from), cell: (flow) => <b title={flow.from.address}>{nameOf(flow.from)}</b> },
                { title: "To", width: "minmax(8rem, 2fr)", text: (flow) => nameOf(flow.to), cell: (flow) => <b title={flow.to.address}>{nameOf(flow.to)}</b> },
                { title: "Port", width: "6rem", text: portOf, cell: portOf },
                { title: "Count", width: "5rem", text: (flow) => flow.count, cell: (flow) => flow.count },
                { title: "Decided by", width: "minmax(9rem, 3fr)", minor: true, text: (flow) => flow.rule ?? "", cell: (flow) => flow.rule },
              ]}
              empty={<Empty title="No flows yet"><p>Nodes whose agents record them tell every connection they see.</p><Command label="The same, as it happens" text="trestle flows --follow" /></Empty>} />
          )}
        </div>
        {open && <One key={idOf(open)} flow={open} />}
      </div>
    </section>
  );
}

function One({ flow }: { flow: Flow }) {
  const [source, destination] = [askedAs(flow.from), askedAs(flow.to)];
  const port = flow.protocol.startsWith("icmp") ? undefined : flow.port?.toString();
  return (
    <Drawer title={`${nameOf(flow.from)} → ${nameOf(flow.to)}`} onClose={() => adjust({ open: undefined })}>
      <p><Badge tone={TONES[flow.verdict] ?? "plain"}>{flow.verdict}</Badge> {flow.rule || (flow.verdict === "allowed" ? "nothing restricts it" : "policies changed meanwhile")}</p>
      {source && destination && (
        <p><a class="button" href={href("explain", { source, destination, protocol: flow.protocol.replace("icmpv6", "icmp"), port })}>Why, and what would change it</a></p>
      )}
      <Facts facts={[
        ["Port", portOf(flow)], ["Asked for", flow.service ?? ""], ["Count", String(flow.count)],
        ["Bytes", flow.bytes === undefined || flow.bytes === null ? "" : bytes(flow.bytes)],
        ["First", clock(flow.first)], ["Last", clock(flow.last)], ["Seen by", `${flow.node}, ${flow.direction}`],
      ]} />
      <Ends title="From" end={flow.from} />
      <Ends title="To" end={flow.to} />
      <Command text={flowsCommand(nameOf(flow.from), nameOf(flow.to), flow.verdict)} />
    </Drawer>
  );
}

/** Who it was then. */
function Ends({ title, end }: { title: string; end: End }) {
  const labels = Object.entries(end.labels ?? {}).map(([key, value]) => `${key}=${value}`);
  return (
    <>
      <h3>{title}</h3>
      <Facts facts={[["Workload", end.workload ?? ""], ["Address", end.address ?? ""], ["Labels", labels.join(", ")], ["Tags", (end.tags ?? []).join(", ")]]} />
    </>
  );
}
