// Resources in clouds, the rules they have, and the links between sites.

import { useState } from "preact/hooks";
import { call, resourcePath, type Link, type Resource, type Rule, type Tag } from "../api.ts";
import { quote } from "../cli.ts";
import { mayWrite, useLive } from "../live.ts";
import { bytes } from "../parts/format.ts";
import { Badge, Command, Drawer, Empty, Facts, notify, Trouble, type Tone } from "../parts/parts.tsx";
import { Table } from "../parts/table.tsx";
import { adjust, href } from "../route.ts";
import { Allow } from "./allow.tsx";
import { AddRule, Confirm } from "./actions.tsx";
import { named } from "./tags.tsx";

export function stateTone(state: string): Tone {
  return state === "ready" ? "good" : state === "removing" ? "plain" : "busy";
}

export function siteOf(name: string): string {
  return name.split(".").slice(0, 2).join(".");
}

export function describeRule(rule: Rule): string {
  const protocol = { "-1": "any", 1: "icmp", 6: "tcp", 17: "udp", 132: "sctp" }[String(rule.protocol)] ?? `protocol ${rule.protocol}`;
  const last = rule.dst_port_last ?? 0;
  const port = (rule.dst_port ?? -1) < 0 ? "" : ` ${rule.dst_port}${last ? `-${last}` : ""}`;
  return `${rule.direction === 0 ? "from" : "to"} ${(rule.tags ?? []).join(", ") || (rule.targets ?? []).join(", ")} · ${protocol}${port}`;
}

export function Resources({ values }: { values: Record<string, string> }) {
  const resources = useLive<Resource[]>("/resources", ["resources", "tags"]);
  const links = useLive<Link[]>("/links", ["resources", "jobs"]);
  const tags = useLive<Tag[]>("/tags", ["tags"]);
  const [allowing, setAllowing] = useState(false);
  const [adding, setAdding] = useState<string | undefined>();
  const list = resources.data.value;
  const open = list?.find((one) => one.name === values.open);
  const site = values.site;
  const shown = site ? list?.filter((one) => siteOf(one.name) === site) : list;
  return (
    <section class="view">
      <header>
        <h1>Resources</h1>
        <p>What runs in clouds. A resource is closed to all traffic until a rule permits it.</p>
      </header>
      <Trouble problem={resources.problem.value} />
      {site && <p class="crumbs"><a href={href("resources")}>All sites</a> › <b>{site}</b></p>}
      <Links links={links.data.value ?? []} />
      <div class="split">
        <div class="list">
          {shown && (
            <Table label="resources" noun="resource" rows={shown} id={(one) => one.name} open={values.open}
              onOpen={(one) => adjust({ open: one.name })}
              filters={[
                { name: "Not ready", test: (one) => one.state !== "ready" || one.message !== "" },
                { name: "Without rules", test: (one) => one.permit_list.length === 0 },
              ]}
              columns={[
                { title: "Name", width: "minmax(11rem, 2fr)", text: (one) => one.name, cell: (one) => <b>{one.name}</b> },
                { title: "State", width: "7rem", text: (one) => one.state, cell: (one) => <Badge tone={one.message ? "bad" : stateTone(one.state)}>{one.state}</Badge> },
                { title: "Address", width: "minmax(7rem, 1fr)", text: (one) => one.ip, cell: (one) => <code>{one.ip}</code> },
                { title: "Region", width: "minmax(5rem, 1fr)", minor: true, text: (one) => one.region, cell: (one) => one.region },
                { title: "Permits", width: "5.5rem", text: (one) => one.permit_list.length, cell: (one) => one.permit_list.length || "nobody" },
                { title: "Message", width: "minmax(6rem, 2fr)", minor: true, text: (one) => one.message, cell: (one) => one.message },
              ]}
              empty={<Empty title="No resources yet"><p>Start a controller with a cloud, then make something in it.</p><Command label="For example" text={"trestle resource create lab.web --description '{\"region\":\"west\"}'"} /></Empty>}>
              {mayWrite() && shown.length > 0 && <button type="button" class="primary" onClick={() => setAllowing(true)}>Allow…</button>}
              {mayWrite() && shown.length > 0 && <button type="button" onClick={() => setAdding("")}>Add a rule</button>}
            </Table>
          )}
        </div>
        {open && <One resource={open} onAdd={() => setAdding(open.name)} />}
      </div>
      {allowing && <Allow start={{}} onClose={() => setAllowing(false)} />}
      {adding !== undefined && (
        <AddRule start={{ on: adding }} resources={list?.map((one) => one.name) ?? []}
          tags={named(tags.data.value)} onClose={() => setAdding(undefined)} />
      )}
    </section>
  );
}

function One({ resource, onAdd }: { resource: Resource; onAdd: () => void }) {
  const rules = useLive<Rule[]>(`${resourcePath(resource.name)}/rules`, ["resources", "tags"]).data.value ?? [];
  const [deleting, setDeleting] = useState<Rule | undefined>();
  return (
    <Drawer title={resource.name} onClose={() => adjust({ open: undefined })}>
      <Facts facts={[
        ["State", <Badge tone={stateTone(resource.state)}>{resource.state}</Badge>], ["Address", <code>{resource.ip}</code>],
        ["Region", resource.region], ["In the cloud", <code>{resource.uri}</code>], ["Trouble", resource.message],
      ]} />
      <h3>Rules</h3>
      {rules.length === 0 && <p>None: nobody may talk to it.</p>}
      <ul class="rules">
        {rules.map((rule) => (
          <li key={rule.name}>
            <div><b>{describeRule(rule)}</b><small>{rule.name}</small></div>
            {mayWrite() && <button type="button" class="quiet small" aria-label={`Delete rule ${rule.name}`} onClick={() => setDeleting(rule)}>Delete</button>}
          </li>
        ))}
      </ul>
      <div class="buttons">
        {mayWrite() && <button type="button" onClick={onAdd}>Add a rule</button>}
        <a class="button" href={href("explain", { destination: resource.name })}>Who can reach it?</a>
      </div>
      <Command text={`trestle rule list ${quote(resource.name)}`} />
      {deleting && (
        <Confirm title="Delete the rule" text={`${resource.name} will no longer permit traffic ${describeRule(deleting)}.`}
          command={`trestle rule delete ${quote(resource.name)} --rule ${quote(deleting.name ?? "")}`} action="Delete rule"
          work={async () => {
            await call("DELETE", `${resourcePath(resource.name)}/rules/${encodeURIComponent(deleting.name ?? "")}`);
            notify(`Rule ${deleting.name} is being deleted`);
          }}
          onClose={() => setDeleting(undefined)} />
      )}
    </Drawer>
  );
}

function Links({ links }: { links: Link[] }) {
  if (links.length === 0) return null;
  return (
    <ul class="links" aria-label="Links between sites">
      {links.map((link) => {
        const [a, b] = link.ends;
        const tunnels = a?.status ? `${a.status.tunnels_up} of ${a.status.tunnels} tunnels up` : "";
        const traffic = a?.status ? `${bytes(a.status.bytes_out)} out, ${bytes(a.status.bytes_in)} in` : "";
        return (
          <li key={`${a?.site} ${b?.site}`}>
            <b>{a?.site}</b> ⇄ <b>{b?.site}</b>
            <Badge tone={link.message ? "bad" : stateTone(link.state)}>{link.state}</Badge>
            <small>{[tunnels, traffic, link.message].filter(Boolean).join(" · ")}</small>
          </li>
        );
      })}
    </ul>
  );
}
