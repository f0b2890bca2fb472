// What is not as it should be, worst first, with where to look and the command that says more or mends it. Pure: the same
// judgement as `trestle status` has (`crates/trestle/src/commands/overview.rs`).

import type { Consumer, Job, Link, Node, Policy, Resource, Status } from "../api.ts";
import { duration } from "../parts/format.ts";
import { href } from "../route.ts";

/** Jobs that failed longer ago are history. */
const LATELY = 3600;
/** A node that is further behind is worth a look. */
const BEHIND = 10;
/** A grant that is used beyond this share is nearly full. */
const NEARLY = 0.9;
/** So many of many that are alike are named. */
const NAMED = 4;

export interface Known {
  status?: Status | undefined;
  nodes?: readonly Node[] | undefined;
  policies?: readonly Policy[] | undefined;
  resources?: readonly Resource[] | undefined;
  links?: readonly Link[] | undefined;
  jobs?: readonly Job[] | undefined;
  consumers?: readonly Consumer[] | undefined;
}

export interface Trouble {
  what: string;
  /** Where the page shows it. */
  href: string;
  command: string;
}

const isDown = (link: Link) => link.state === "ready" && link.ends.some((end) => end.status && end.status.tunnels > 0 && end.status.tunnels_up === 0);

export function attention(known: Known, now = Date.now()): Trouble[] {
  const { status, nodes = [], policies = [], resources = [], links = [], jobs = [], consumers = [] } = known;
  const found: Trouble[] = [];
  for (const problem of status?.problems ?? []) found.push({ what: `The controller is not ready: ${problem}`, href: href("overview"), command: "trestle status" });
  for (const what of status?.attention ?? []) found.push({ what, href: href("policies"), command: "trestle check" });
  for (const what of status?.storage_trouble ?? []) found.push({ what, href: href("storage"), command: "trestle consumer list" });
  const never = nodes.filter((node) => !node.connected && !node.connected_at && !node.disconnected_at).map((node) => node.name);
  for (const node of nodes) {
    if (never.includes(node.name)) continue;
    const told = { href: href("nodes", { open: node.name }), command: `trestle node get ${node.name}` };
    const [error] = node.errors;
    if (!node.connected) {
      const since = node.disconnected_at ? ` for ${duration(now / 1000 - node.disconnected_at)}` : "";
      found.push({ what: `Node ${node.name} is away${since}: it keeps what it has and hears of no change`, ...told });
    } else if (error) found.push({ what: `Node ${node.name} could not apply ${error.name}: ${error.message}`, ...told });
    else if (node.lag_seconds > BEHIND) found.push({ what: `Node ${node.name} is ${Math.round(node.lag_seconds)} s behind`, ...told });
  }
  if (never.length > 0) {
    const more = never.length > NAMED ? ` and ${never.length - NAMED} more` : "";
    found.push({ what: `No agent has ever connected as ${never.slice(0, NAMED).join(", ")}${more}: nothing is enforced there`, href: href("nodes", { show: "Away" }), command: "trestle node list" });
  }
  for (const policy of policies) {
    const why = policy.problems[0] ? `${policy.problems[0].path}: ${policy.problems[0].message}` : policy.failures[0] && `${policy.failures[0].node}: ${policy.failures[0].message}`;
    const name = policy.namespace ? `${policy.namespace}/${policy.name}` : policy.name;
    if (why) found.push({ what: `Policy ${name} is not enforced as written: ${why}`, href: href("policies", { open: `${policy.kind}/${name}` }), command: "trestle policy list" });
  }
  for (const resource of resources) {
    if (resource.message) found.push({ what: `Resource ${resource.name} is ${resource.state}: ${resource.message}`, href: href("resources", { open: resource.name }), command: `trestle resource get ${resource.name}` });
  }
  for (const link of links) {
    if (!link.message && !isDown(link)) continue;
    found.push({ what: `Link ${link.ends.map((end) => end.site).join(" – ")} is in trouble: ${link.message || "no tunnel is up"}`, href: href("resources"), command: "trestle link list" });
  }
  for (const job of jobs) {
    if (job.state !== "failed" || !job.ended_at || now - Date.parse(job.ended_at) >= LATELY * 1000) continue;
    found.push({ what: `A job failed: ${job.what}: ${job.message}`, href: href("jobs", { open: job.id }), command: `trestle job get ${job.id}` });
  }
  for (const consumer of consumers) {
    const share = (consumer.used_bytes ?? 0) / Math.max(1, consumer.granted_bytes);
    const name = consumer.name || consumer.id;
    if (consumer.phase === "Failed") found.push({ what: `Consumer ${name} failed: ${consumer.reason}`, href: href("storage", { open: consumer.id }), command: `trestle consumer get ${consumer.id}` });
    else if (share > NEARLY) found.push({ what: `Consumer ${name} has used ${Math.round(share * 100)} % of its grant`, href: href("storage", { open: consumer.id }), command: `trestle consumer resize ${consumer.id} CAPACITY` });
  }
  return found;
}
