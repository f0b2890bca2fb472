// Services: one address in front of many endpoints, and where packets go.

import { useState } from "preact/hooks";
import { query, type Schemas } from "../api.ts";
import { useLive } from "../live.ts";
import { Badge, Command, Drawer, Empty, Facts, Trouble, type Tone } from "../parts/parts.tsx";
import { Table, Waiting } from "../parts/table.tsx";
import { adjust } from "../route.ts";

type Service = Schemas["ServiceState"];

const idOf = (service: Service) => `${service.namespace}/${service.name}`;
const portText = (service: Service) => service.ports.map((port) => `${port.port}/${port.protocol.toLowerCase()}`).join(", ");
const tone = (service: Service): Tone => (service.ready === 0 ? "bad" : service.ready < service.total ? "part" : "good");

export function Services({ values }: { values: Record<string, string> }) {
  const services = useLive<Service[]>("/services", ["objects"]);
  const list = services.data.value;
  const open = list?.find((service) => idOf(service) === values.open);
  return (
    <section class="view">
      <header><h1>Services</h1><p>One address in front of many endpoints, and where packets go.</p></header>
      <Trouble problem={services.problem.value} />
      <div class="split">
        <div class="list">
          {!list ? <Waiting /> : (
            <Table label="services" noun="service" rows={list} id={idOf} open={values.open} onOpen={(service) => adjust({ open: idOf(service) })}
              filters={[{ name: "Nobody behind", test: (service) => service.ready === 0 }]}
              columns={[
                { title: "Name", width: "minmax(8rem, 2fr)", text: (service) => service.name, cell: (service) => <b>{service.name}</b> },
                { title: "Namespace", width: "minmax(6rem, 1fr)", text: (service) => service.namespace, cell: (service) => service.namespace },
                { title: "Type", width: "7rem", minor: true, text: (service) => service.type, cell: (service) => service.type },
                { title: "Address", width: "minmax(7rem, 1fr)", text: (service) => service.cluster_ips.join(" "), cell: (service) => <code>{service.cluster_ips.join(", ")}</code> },
                { title: "Ports", width: "minmax(6rem, 1fr)", minor: true, text: portText, cell: portText },
                { title: "Endpoints", width: "7rem", text: (service) => service.ready, cell: (service) => <Badge tone={tone(service)}>{service.ready === service.total ? service.ready || "none" : `${service.ready} of ${service.total}`}</Badge> },
              ]}
              empty={<Empty title="No services yet"><p>Services come with the YAML you apply.</p><Command label="For example" text="trestle apply -f services.yaml" /></Empty>} />
          )}
        </div>
        {open && <One key={idOf(open)} namespace={open.namespace} name={open.name} />}
      </div>
    </section>
  );
}

function One({ namespace, name }: { namespace: string; name: string }) {
  const service = useLive<Service>(`/services/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, ["objects"]).data.value;
  if (!service) return null;
  return (
    <Drawer title={`${namespace}/${name}`} onClose={() => adjust({ open: undefined })}>
      <Facts facts={[
        ["Type", service.type], ["Address", <code>{service.cluster_ips.join(", ")}</code>], ["External", service.external_ips.join(", ")],
        ["Load balancer", service.load_balancers.join(", ")], ["Ready", `${service.ready} of ${service.total}`],
        ["Endpoints from", service.from_pods ? "Pods: there is no EndpointSlice" : ""], ["Notable", service.traits.join(", ")],
      ]} />
      <h3>Endpoints</h3>
      {service.endpoints.length === 0 && <p>Nobody is behind it.</p>}
      <ul class="ways">
        {service.endpoints.slice(0, 100).map((one) => (
          <li key={`${one.endpoint}${one.port_name}`}>
            <span><code>{one.endpoint}</code> <small>{[one.port_name, one.node].filter(Boolean).join(" · ")}</small></span>
            <Badge tone={one.ready ? "good" : one.terminating ? "plain" : "part"}>{one.ready ? "ready" : one.terminating ? "ending" : "not ready"}</Badge>
          </li>
        ))}
      </ul>
      <Path service={service} />
    </Drawer>
  );
}

/** Where a packet to the service goes, and why. */
function Path({ service }: { service: Service }) {
  const [at, setAt] = useState(0);
  const address = service.cluster_ips[0];
  const port = service.ports[at];
  const protocol = port?.protocol.toLowerCase() ?? "tcp";
  const path = address && address !== "None" && port ? query("/services/explain", { address, port: port.port, protocol }) : undefined;
  const live = useLive<Schemas["ServiceExplanation"]>(path, ["objects"]);
  const told = live.data.value;
  if (!path || !port || !address) return null;
  const shown = address.includes(":") ? `[${address}]` : address;
  return (
    <>
      <h3>Where packets go</h3>
      {service.ports.length > 1 && (
        <select aria-label="Port" value={String(at)} onChange={(event) => setAt(Number(event.currentTarget.value))}>
          {service.ports.map((one, index) => <option key={one.port} value={String(index)}>{`${one.port}/${one.protocol.toLowerCase()} ${one.name}`}</option>)}
        </select>
      )}
      <Trouble problem={live.problem.value} />
      {told && (
        <>
          <p><Badge tone={told.outcome === "balanced" ? "good" : "bad"}>{told.outcome}</Badge> {told.endpoints.join(", ")}</p>
          <ul class="names">{told.reasons.map((reason) => <li key={reason}>{reason}</li>)}</ul>
        </>
      )}
      <Command text={`trestle service explain ${shown}:${port.port}${protocol === "tcp" ? "" : ` --proto ${protocol}`}`} />
    </>
  );
}
