// Services: what clients connect to, and the workloads behind it.

import { type Workload } from "../api.ts";
import { useLive } from "../live.ts";
import { count } from "../parts/format.ts";
import { Badge, Command, Drawer, Empty, Facts, Trouble } from "../parts/parts.tsx";
import { Table } from "../parts/table.tsx";
import { adjust, href } from "../route.ts";

/** The parts of a stored Service that are shown; a document is as its user wrote it, so anything may be missing. */
interface Document {
  metadata?: { namespace?: string; name?: string };
  spec?: {
    type?: string;
    clusterIP?: string;
    externalIPs?: string[];
    selector?: Record<string, string>;
    ports?: { name?: string; port?: number; targetPort?: number | string; nodePort?: number; protocol?: string }[];
  };
}

const idOf = (service: Document) => `${service.metadata?.namespace}/${service.metadata?.name}`;
const ports = (service: Document) => service.spec?.ports ?? [];
const portText = (service: Document) => ports(service).map((port) => `${port.port}/${(port.protocol ?? "TCP").toLowerCase()}`).join(", ");

/** The workloads that a Service selects. */
function behind(service: Document, workloads: Workload[]): Workload[] {
  const selector = Object.entries(service.spec?.selector ?? {});
  if (selector.length === 0) return [];
  return workloads.filter((one) => one.namespace === service.metadata?.namespace && selector.every(([key, value]) => one.labels[key] === value));
}

export function Services({ values }: { values: Record<string, string> }) {
  const services = useLive<Document[]>("/objects?kind=Service", ["objects"]);
  const workloads = useLive<Workload[]>("/workloads", ["objects"]).data.value ?? [];
  const list = services.data.value;
  const open = list?.find((service) => idOf(service) === values.open);
  const endpoints = open ? behind(open, workloads) : [];
  return (
    <section class="view">
      <header><h1>Services</h1><p>One address in front of many workloads, and where packets go.</p></header>
      <Trouble problem={services.problem.value} />
      <div class="split">
        <div class="list">
          {list && (
            <Table label="services" noun="service" rows={list} id={idOf} open={values.open} onOpen={(service) => adjust({ open: idOf(service) })}
              filters={[{ name: "Nobody behind", test: (service) => behind(service, workloads).length === 0 }]}
              columns={[
                { title: "Name", width: "minmax(9rem, 2fr)", text: (service) => service.metadata?.name ?? "", cell: (service) => <b>{service.metadata?.name}</b> },
                { title: "Namespace", width: "minmax(6rem, 1fr)", text: (service) => service.metadata?.namespace ?? "", cell: (service) => service.metadata?.namespace },
                { title: "Type", width: "8rem", minor: true, text: (service) => service.spec?.type ?? "ClusterIP", cell: (service) => service.spec?.type ?? "ClusterIP" },
                { title: "Address", width: "minmax(7rem, 1fr)", text: (service) => service.spec?.clusterIP ?? "", cell: (service) => <code>{service.spec?.clusterIP}</code> },
                { title: "Ports", width: "minmax(7rem, 1fr)", text: portText, cell: portText },
                { title: "Endpoints", width: "7rem", text: (service) => behind(service, workloads).length, cell: (service) => { const n = behind(service, workloads).length; return <Badge tone={n ? "good" : "part"}>{n || "none"}</Badge>; } },
              ]}
              empty={<Empty title="No services yet"><p>Services come with the YAML you apply.</p><Command label="For example" text="trestle apply -f services.yaml" /></Empty>} />
          )}
        </div>
        {open && (
          <Drawer title={idOf(open)} onClose={() => adjust({ open: undefined })}>
            <Facts facts={[
              ["Type", open.spec?.type ?? "ClusterIP"], ["Address", <code>{open.spec?.clusterIP}</code>],
              ["External", open.spec?.externalIPs?.join(", ")],
              ["Selects", Object.entries(open.spec?.selector ?? {}).map(([key, value]) => `${key}=${value}`).join(", ")],
            ]} />
            <h3>Ports</h3>
            <ul class="names">{ports(open).map((port) => (
              <li key={port.port}><code>{port.port}</code> → <code>{port.targetPort ?? port.port}</code> <small>{[port.name, port.protocol ?? "TCP", port.nodePort ? `on every node ${port.nodePort}` : ""].filter(Boolean).join(" · ")}</small></li>
            ))}</ul>
            <h3>Packets go to {count(endpoints.length, "workload")}</h3>
            <ul class="names">{endpoints.slice(0, 100).map((one) => (
              <li key={one.name}><a href={href("explain", { destination: `${one.namespace}/${one.name}` })}>{one.name}</a> <code>{one.addresses[0]}</code> <small>{one.node}</small></li>
            ))}</ul>
          </Drawer>
        )}
      </div>
    </section>
  );
}
