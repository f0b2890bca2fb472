// Calls to the controller. Types come from its OpenAPI document; failures are its problem JSON, as it says them.

import type { components } from "./schema";

export type Schemas = components["schemas"];
export type Resource = Schemas["Resource"];
export type Link = Schemas["Link"];
export type Host = Schemas["Host"];
export type Node = Schemas["Node"];
export type Workload = Schemas["Workload"];
export type Policy = Schemas["PolicyState"];
export type Job = Schemas["JobBody"];
export type Cloud = Schemas["Cloud"];
export type Tag = Schemas["TagInUse"];
export type Ticket = Schemas["Ticket"];
export type Consumer = Schemas["Consumer"];
export type AuditRecord = Schemas["Record"];
export type Rule = Schemas["RuleBody"];
export type Explanation = Schemas["Explanation"];
export type Reachability = Schemas["Reachability"];
export type ReachGroup = Schemas["ReachGroup"];
export type ReachCell = Schemas["ReachCell"];
export type Status = Schemas["Status"];
export type Identity = Schemas["Identity"];

/** What went wrong, as the controller says it. */
export class Problem extends Error {
  constructor(
    readonly code: string,
    readonly status: number,
    detail: string,
  ) {
    super(detail);
  }
}

export async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = { accept: "application/json" };
  if (body === undefined) return (await (await ask(path, { method, headers })).json()) as T;
  headers["content-type"] = "application/json";
  return (await (await ask(path, { method, headers, body: JSON.stringify(body) })).json()) as T;
}

export async function ask(path: string, init: RequestInit): Promise<Response> {
  let reply: Response;
  try {
    reply = await fetch(path, { ...init, cache: "no-store" });
  } catch {
    throw new Problem("UNAVAILABLE", 0, "The controller does not answer. Is it running?");
  }
  if (reply.ok || reply.status === 304) return reply;
  throw await problem(reply);
}

/** A version of what is at a path. */
export interface Version {
  data: unknown;
  tag: string | undefined;
}

/** The newest version: of a long list that is held already only what differs is sent, and what does not differ stays the same objects. */
export async function renew(path: string, held: Version | undefined): Promise<Version> {
  const headers: Record<string, string> = { accept: "application/json", "a-im": "list" };
  if (held?.tag) headers["if-none-match"] = held.tag;
  const reply = await ask(path, { headers });
  if (reply.status === 304 && held) return held;
  const tag = reply.headers.get("etag") ?? undefined;
  const told: unknown = await reply.json();
  return { data: reply.status === 226 ? together(held?.data as unknown[], told as unknown[]) : told, tag };
}

/** `[first, count]` is a part of the older list, anything else a new item. */
function together(old: unknown[], told: unknown[]): unknown[] {
  return told.flatMap((part) => (Array.isArray(part) ? old.slice(part[0] as number, (part[0] as number) + (part[1] as number)) : [part]));
}

async function problem(reply: Response): Promise<Problem> {
  try {
    const said = (await reply.json()) as Partial<Schemas["Problem"]>;
    return new Problem(said.code ?? "UNKNOWN", reply.status, said.detail ?? reply.statusText);
  } catch {
    return new Problem("UNKNOWN", reply.status, `The controller answered ${reply.status} ${reply.statusText}.`);
  }
}

export const get = <T>(path: string) => call<T>("GET", path);

/** A path with a query; what is empty is left out. */
export function query(path: string, values: Record<string, string | number | undefined>): string {
  const pairs = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    if (value !== undefined && value !== "") pairs.set(key, String(value));
  }
  const text = pairs.toString();
  return text ? `${path}?${text}` : path;
}

/** `/namespaces/N/clouds/C/resources/R` of `N.C.R`. */
export function resourcePath(name: string): string {
  const [namespace = "", cloud = "", ...rest] = name.split(".");
  return `/namespaces/${encodeURIComponent(namespace)}/clouds/${encodeURIComponent(cloud)}/resources/${encodeURIComponent(rest.join("."))}`;
}
