// Find anything: views, what there is (by name and by address), and commands. Ctrl-K, or / outside a field.

import { signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { type Host, type Job, type Node, type Policy, type Resource, type Schemas, type Tag, type Workload } from "../api.ts";
import commands from "../commands.json";
import { useLive } from "../live.ts";
import type { Told } from "../map/scene.ts";
import { plain, short } from "../map/scene.ts";
import { best, Find, type Hit } from "../parts/find.tsx";
import { Dialog, notify } from "../parts/parts.tsx";
import { go } from "../route.ts";
import { policyId } from "./policies.tsx";

const MOST = 60;

export const searching = signal(false);

interface Known {
  kind: string;
  title: string;
  note: string;
  /** What it is found by, beside its title. */
  words: string;
  go: () => void;
}

const to = (view: string, values: Record<string, string | undefined>) => () => go(view, values);

/** Opens on Ctrl-K and on /, wherever one is. */
export function useShortcut() {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const typing = (event.target as HTMLElement).closest("input, textarea, select, [contenteditable]");
      if ((event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey)) {
        event.preventDefault();
        searching.value = true;
      }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

export function Palette({ views }: { views: Record<string, { title: string }> }) {
  const map = useLive<Told>("/map", ["objects", "resources", "tags"]).data.value;
  const workloads = useLive<Workload[]>("/workloads", ["objects"]).data.value;
  const resources = useLive<Resource[]>("/resources", ["resources"]).data.value;
  const tags = useLive<Tag[]>("/tags", ["tags"]).data.value;
  const policies = useLive<Policy[]>("/policies", ["objects", "realisation"]).data.value;
  const permissions = useLive<Schemas["Permission"][]>("/permissions", ["resources", "objects", "realisation"]).data.value;
  const services = useLive<Schemas["ServiceState"][]>("/services", ["objects"]).data.value;
  const hosts = useLive<Host[]>("/hosts", ["hosts"]).data.value;
  const nodes = useLive<Node[]>("/nodes", ["nodes"]).data.value;
  const jobs = useLive<Job[]>("/jobs", ["jobs"]).data.value;
  const known = useMemo(() => {
    const all: Known[] = Object.entries(views).map(([name, { title }]) => ({ kind: "view", title, note: "", words: "", go: to(name, {}) }));
    const add = (kind: string, title: string, note: string, where: () => void, words = "") => all.push({ kind, title, note, words, go: where });
    for (const place of map?.places ?? []) add(place.kind === "site" ? "cloud" : "namespace", place.name, "on the map", to("map", { open: place.id }));
    for (const group of map?.groups ?? []) add("group", group.name, plain(group.id), to("map", { open: group.id }), group.id);
    for (const one of workloads ?? []) {
      const kinds: Record<string, string> = { Pod: "pod", ExternalEntity: "entity" };
      const where = kinds[one.kind] ? to("map", { open: `${kinds[one.kind]}/${one.namespace}/${one.name}` }) : to("nodes", { open: one.name });
      add(one.kind, one.name, `${one.namespace ?? ""} ${one.addresses.join(" ")}`, where, `${one.namespace ?? ""}/${one.name} ${one.addresses.join(" ")}`);
    }
    for (const one of resources ?? []) add("resource", one.name, one.ip ?? "", to("resources", { open: one.name }), one.ip ?? "");
    for (const one of tags ?? []) add("tag", one.name, one.ip ?? "", to("tags", { open: one.name }), one.ip ?? "");
    for (const one of policies ?? []) add("policy", one.name, one.namespace ?? "", to("policies", { open: policyId(one) }), `${one.namespace}/${one.name}`);
    for (const one of permissions ?? []) add("permission", `${one.from} to ${one.to}`, `${one.traffic.join(", ")} · ${one.state}`, to("permissions", { open: one.name }), one.name);
    for (const one of services ?? []) add("service", one.name, `${one.namespace} ${one.cluster_ips.join(" ")}`, to("services", { open: `${one.namespace}/${one.name}` }), `${one.namespace}/${one.name} ${one.cluster_ips.join(" ")}`);
    for (const one of hosts ?? []) add("host", one.name, one.addresses.join(" "), to("hosts", { open: one.name }), one.addresses.join(" "));
    for (const one of nodes ?? []) add("node", one.name, one.peer, to("nodes", { open: one.name }), one.peer);
    for (const one of jobs ?? []) add("job", one.what, one.state, to("jobs", { open: one.id }), one.id);
    for (const { name, about } of commands) {
      add("command", `trestle ${name}`, about, () => {
        const done = navigator.clipboard?.writeText(`trestle ${name} `);
        void done?.then(() => notify(`Copied: trestle ${name}`));
      }, about);
    }
    return all;
  }, [views, map, workloads, resources, tags, policies, permissions, services, hosts, nodes, jobs]);
  const find = (text: string): Hit[] => {
    const found = text.trim() === "" ? known.filter((one) => one.kind === "view") : best(known, (one) => `${one.title} ${one.words}`, text, MOST);
    return found.map((one, at) => ({ key: `${one.kind} ${one.title} ${one.note} ${at}`, title: one.kind === "resource" ? one.title : one.kind === "Pod" ? short(one.title) : one.title, note: one.note, kind: one.kind, go: one.go }));
  };
  const close = () => { searching.value = false; };
  return (
    <Dialog title="Find anything" onClose={close}>
      <Find label="Find anything" placeholder="A name, an address, a command" find={find} onDone={close} open nothing="Nothing is called so, and no command." />
    </Dialog>
  );
}
