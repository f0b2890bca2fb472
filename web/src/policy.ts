// A network policy from a form, as the object it is. Pure.

import { dump } from "js-yaml";
import { list } from "./cli.ts";

export interface PeerForm {
  /** `pods`: of the same namespace; `namespace`: Pods of others; `block`: addresses. */
  kind: "pods" | "namespace" | "block";
  /** Labels of Pods, as `app=web`; empty: all of them. */
  pods: string;
  /** The name of a namespace, or labels as `team=a`. */
  namespace: string;
  block: string;
}

export interface PolicyForm {
  name: string;
  namespace: string;
  /** Labels of those it is for; empty: everybody in the namespace. */
  pods: string;
  direction: "in" | "out";
  peers: PeerForm[];
  /** As in `tcp 5432, udp 53`; empty: all. */
  ports: string;
}

export const emptyPeer: PeerForm = { kind: "pods", pods: "", namespace: "", block: "" };

/** `app=web, tier=front` as labels; what is no pair is a label without a value. */
export function labels(text: string): Record<string, string> {
  return Object.fromEntries(list(text).map((part) => {
    const [key = "", ...rest] = part.split("=");
    return [key, rest.join("=")];
  }));
}

const selector = (text: string) => (text.trim() === "" ? {} : { matchLabels: labels(text) });

function peer(form: PeerForm): Record<string, unknown> {
  if (form.kind === "block") return { ipBlock: { cidr: form.block.trim() } };
  if (form.kind === "pods") return { podSelector: selector(form.pods) };
  const named = form.namespace.includes("=") ? form.namespace : form.namespace.trim() && `kubernetes.io/metadata.name=${form.namespace.trim()}`;
  return { namespaceSelector: selector(named), ...(form.pods.trim() !== "" && { podSelector: selector(form.pods) }) };
}

function ports(text: string): Record<string, unknown>[] {
  return text.split(",").map((part) => part.trim().toLowerCase()).filter(Boolean).map((part) => {
    const words = part.split(/\s+/);
    const [protocol, port] = words.length > 1 ? [words[0], words[1]] : /^(tcp|udp|sctp)$/.test(part) ? [part, undefined] : ["tcp", part];
    const [first, last] = (port ?? "").split("-");
    const number = (of: string) => (/^\d+$/.test(of) ? Number(of) : of);
    return { protocol: (protocol ?? "tcp").toUpperCase(), ...(first && { port: number(first) }), ...(last && { endPort: number(last) }) };
  });
}

/** The object; a policy without peers closes what it selects. */
export function policyOf(form: PolicyForm): object {
  const rule = {
    ...(form.peers.length > 0 && { [form.direction === "in" ? "from" : "to"]: form.peers.map(peer) }),
    ...(form.ports.trim() !== "" && { ports: ports(form.ports) }),
  };
  const opens = form.peers.length > 0 || form.ports.trim() !== "";
  return {
    apiVersion: "networking.k8s.io/v1",
    kind: "NetworkPolicy",
    metadata: { name: form.name, namespace: form.namespace || "default" },
    spec: {
      podSelector: selector(form.pods),
      policyTypes: [form.direction === "in" ? "Ingress" : "Egress"],
      ...(opens && { [form.direction === "in" ? "ingress" : "egress"]: [rule] }),
    },
  };
}

/** As people write it. What the store fills in is left out. */
export function yaml(object: unknown): string {
  const copy = structuredClone(object) as { metadata?: Record<string, unknown> };
  for (const field of ["uid", "generation", "resourceVersion", "creationTimestamp", "managedFields"]) delete copy.metadata?.[field];
  return dump(copy, { lineWidth: 110, noRefs: true });
}

/** The same on the command line: the file's text is part of it. */
export function applyCommand(text: string): string {
  return `trestle apply -f - <<'EOF'\n${text.trimEnd()}\nEOF`;
}
