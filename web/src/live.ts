// State that stays true: what a view shows is fetched once, and again when the controller says that it changed.
//
//   /events ─► versions of nouns ─► each path in use whose nouns changed is fetched again ─► signal ─► view
//
// Of a long list only what differs comes over the wire. One request a path at a time; what changed meanwhile is one
// further request. A path that takes long is asked less often.

import { signal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { get, Problem, renew, type Identity, type Version } from "./api.ts";

export type Noun =
  | "tags" | "namespaces" | "resources" | "jobs" | "objects" | "realisation" | "nodes" | "hosts" | "storage" | "audit" | "flows";

/** `out`: nobody is logged in. */
export const session = signal<"starting" | "out" | "in">("starting");
export const identity = signal<Identity | undefined>(undefined);
export const connection = signal<"connecting" | "live" | "lost">("connecting");

let epoch = "";
let versions: Record<string, number> = {};

/** What is known of one path. */
export interface Live<T> {
  data: Signal<T | undefined>;
  problem: Signal<Problem | undefined>;
}

interface Entry extends Live<unknown> {
  path: string;
  nouns: readonly Noun[];
  users: number;
  /** The versions the data is of. */
  of: string;
  held: Version | undefined;
  busy: boolean;
  timer: number | undefined;
  /** Not before this time. */
  next: number;
}

const entries = new Map<string, Entry>();
const KEPT = 40;

function stamp(nouns: readonly Noun[]): string {
  return epoch + nouns.map((noun) => `/${versions[noun] ?? 0}`).join("");
}

function schedule(entry: Entry) {
  if (entry.busy || entry.timer !== undefined || entry.users === 0 || session.value !== "in") return;
  if (entry.of === stamp(entry.nouns)) return;
  entry.timer = window.setTimeout(() => void load(entry), Math.max(0, entry.next - performance.now()));
}

async function load(entry: Entry) {
  entry.timer = undefined;
  entry.busy = true;
  const of = stamp(entry.nouns);
  const start = performance.now();
  try {
    entry.held = await renew(entry.path, entry.held);
    entry.data.value = entry.held.data;
    entry.problem.value = undefined;
  } catch (failed) {
    const problem = failed instanceof Problem ? failed : new Problem("UNKNOWN", 0, String(failed));
    entry.problem.value = problem;
    if (problem.status === 401) leave();
  }
  entry.of = of;
  entry.busy = false;
  entry.next = performance.now() + Math.max(150, 3 * (performance.now() - start));
  schedule(entry);
}

function entryOf(path: string, nouns: readonly Noun[]): Entry {
  let entry = entries.get(path);
  if (!entry) {
    entry = {
      path, nouns, users: 0, of: "", held: undefined, busy: false, timer: undefined, next: 0,
      data: signal(undefined), problem: signal(undefined),
    };
    entries.set(path, entry);
    for (const [old, { users }] of entries) {
      if (entries.size <= KEPT) break;
      if (users === 0 && old !== path) entries.delete(old);
    }
  }
  return entry;
}

const nothing: Live<never> = { data: signal(undefined), problem: signal(undefined) };

/** What is at a path, kept up to date while the view is shown; nothing while there is no path. */
export function useLive<T>(path: string | undefined, nouns: readonly Noun[]): Live<T> {
  const entry = useMemo(() => (path === undefined ? undefined : entryOf(path, nouns)), [path]);
  useEffect(() => {
    if (!entry) return;
    entry.users += 1;
    schedule(entry);
    return () => {
      entry.users -= 1;
    };
  }, [entry]);
  return (entry ?? nothing) as Live<T>;
}

/** Fetches what is shown once more, whatever the versions say. */
export function refresh() {
  for (const entry of entries.values()) {
    entry.of = "";
    schedule(entry);
  }
}

let source: EventSource | undefined;
let retry = 500;

function follow() {
  source?.close();
  const events = new EventSource("/events");
  source = events;
  events.onmessage = (message: MessageEvent<string>) => {
    const told = JSON.parse(message.data) as { epoch: string; versions: Record<string, number> };
    if (told.epoch !== epoch) {
      // Another process: what it counts cannot be compared with what the last one counted.
      epoch = told.epoch;
      versions = {};
    }
    versions = { ...versions, ...told.versions };
    connection.value = "live";
    retry = 500;
    for (const entry of entries.values()) schedule(entry);
  };
  events.onerror = () => {
    if (source !== events) return;
    connection.value = "lost";
    // The browser comes back by itself after a lost connection, but not after a refusal.
    if (events.readyState !== EventSource.CLOSED) return;
    window.setTimeout(() => void enter(), retry);
    retry = Math.min(retry * 2, 10_000);
  };
}

/** Finds out who we are, and begins to follow. */
export async function enter() {
  try {
    identity.value = await get<Identity>("/whoami");
  } catch (failed) {
    if (failed instanceof Problem && failed.status === 401) return leave();
    connection.value = "lost";
    window.setTimeout(() => void enter(), retry);
    retry = Math.min(retry * 2, 10_000);
    return;
  }
  session.value = "in";
  follow();
}

/** Nobody is logged in any more. */
export function leave() {
  source?.close();
  source = undefined;
  identity.value = undefined;
  session.value = "out";
  entries.clear();
}

/** Whether the user may let machines and people in. */
export function mayAdmit(): boolean {
  return identity.value?.role === "admin";
}

/** Whether the user may change anything. */
export function mayWrite(): boolean {
  return identity.value !== undefined && identity.value.role !== "viewer";
}
