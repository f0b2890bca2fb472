// What may stand at the cursor of a YAML document: the fields that its kind has there, or the values of a field. Pure.
//
//   text, cursor ─► lines above ─► path of the cursor ─► what the kind has there ─► what begins as what is typed
//
// fields.json is what the controller knows; a test of crates/model writes it. Only block style is read: within {…} and […]
// nothing is offered.

import kinds from "./fields.json";

type Fields = null | [Fields] | { [name: string]: Fields };

export interface Offer {
  /** What is shown. */
  word: string;
  /** What takes the place of the text from `from` to the cursor. */
  text: string;
}

export interface Offers {
  from: number;
  offers: Offer[];
}

/** A line with a field: where its key begins, and where the dashes before it are. */
interface Line {
  column: number;
  dashes: number[];
  key: string;
  value: string;
}

/** An entry of a list, on the way to a value. */
const ENTRY = "[]";

/** Of every object, and nobody writes them. */
const KEPT_FOR_US = new Set(["status", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "finalizers", "generateName", "ownerReferences"]);

const ANTREA = "crd.antrea.io/";
const CLUSTER = "policy.networking.k8s.io/";
/** Of fields that have few values, by the API they are of. */
const VALUES: [field: string, api: string, values: string[]][] = [
  ["policyTypes", "", ["Ingress", "Egress"]],
  ["protocol", "", ["TCP", "UDP", "SCTP"]],
  ["operator", "", ["In", "NotIn", "Exists", "DoesNotExist"]],
  ["action", ANTREA, ["Allow", "Drop", "Reject", "Pass"]],
  ["action", CLUSTER, ["Accept", "Deny", "Pass"]],
  ["tier", ANTREA, ["emergency", "securityops", "networkops", "platform", "application", "baseline"]],
  ["tier", CLUSTER, ["Admin", "Baseline"]],
];

const dashesOf = (lead: string) => [...lead].flatMap((letter, at) => (letter === "-" ? [at] : []));

function read(line: string): Line | undefined {
  const [, lead = "", key = "", value = ""] = /^((?:\s|- )*)([\w./-]+):(?:\s+(.*)|)$/.exec(line) ?? [];
  return key === "" ? undefined : { column: lead.length, dashes: dashesOf(lead), key, value };
}

/** The document of several that the cursor is in, and where it begins. */
function documentAt(text: string, cursor: number): { text: string; start: number } {
  const border = /^---.*$/gm;
  let start = 0;
  for (const found of text.matchAll(border)) {
    if (found.index >= cursor) return { text: text.slice(start, found.index), start };
    start = found.index + found[0].length + 1;
  }
  return { text: text.slice(start), start };
}

/** The way from the top to what stands at a column below these lines, and what already stands beside it. */
function wayTo(lines: string[], column: number, dashes: number[]): { path: string[]; beside: Set<string> } {
  const path: string[] = [];
  const beside = new Set<string>();
  let scope = column;
  const enter = (before: number[]) => {
    for (const dash of before.toReversed()) {
      path.unshift(ENTRY);
      scope = dash + 1;
    }
  };
  let isBeside = dashes.length === 0;
  enter(dashes);
  for (const line of lines.toReversed()) {
    const found = read(line);
    if (!found || found.column > scope) continue;
    if (found.column === scope) {
      if (isBeside) beside.add(found.key);
      if (found.dashes.length > 0) {
        isBeside = false;
        enter(found.dashes);
      }
    } else {
      isBeside = false;
      path.unshift(found.key);
      scope = found.column;
      enter(found.dashes);
    }
  }
  return { path, beside };
}

/** What a path leads to. A list may be gone through without a dash: it is offered then. */
function at(fields: Fields, path: string[]): Fields {
  let now: Fields = fields;
  for (const step of path) {
    if (now === null) return null;
    if (step === ENTRY) now = Array.isArray(now) ? now[0] : null;
    else now = Array.isArray(now) ? null : (now[step] ?? null);
  }
  return now;
}

function written(name: string, fields: Fields, indent: number): string {
  if (fields === null) return `${name}: `;
  return `${name}:\n${" ".repeat(indent + 2)}${Array.isArray(fields) ? "- " : ""}`;
}

function valuesOf(field: string, version: string, kind: string): string[] {
  const unique = (all: string[]) => [...new Set(all)];
  if (field === "kind") return unique(kinds.filter((one) => version === "" || one.versions.includes(version)).map((one) => one.kind));
  if (field === "apiVersion") return unique(kinds.filter((one) => kind === "" || one.kind === kind).flatMap((one) => one.versions));
  return VALUES.find(([name, api]) => name === field && version.startsWith(api))?.[2] ?? [];
}

export function offers(text: string, cursor: number): Offers | undefined {
  const { text: document, start } = documentAt(text, cursor);
  const above = document.slice(0, cursor - start).split("\n");
  const line = above.pop() ?? "";
  const all = document.split("\n").map(read);
  const top = (name: string) => all.find((one) => one?.key === name && one.column === 0)?.value ?? "";
  const [version, kind] = [top("apiVersion"), top("kind")];
  const known = kinds.find((one) => one.kind === kind && one.versions.includes(version));
  const fields = (known?.fields ?? { apiVersion: null, kind: null }) as Fields;

  const of = (typed: string, found: Offer[]): Offers | undefined => {
    const fit = found.filter((one) => one.word.toLowerCase().startsWith(typed.toLowerCase()) && one.word !== typed);
    return fit.length === 0 ? undefined : { from: cursor - typed.length, offers: fit };
  };
  const plain = (words: string[]) => words.map((word) => ({ word, text: word }));

  const value = read(line);
  if (value && line.includes(": ")) {
    return /^[\w./-]*$/.test(value.value) ? of(value.value, plain(valuesOf(value.key, version, kind))) : undefined;
  }
  const [whole, lead = "", typed = ""] = /^((?:\s|- )*)([\w./-]*)$/.exec(line) ?? [];
  if (whole === undefined) return undefined;
  const dashes = dashesOf(lead);
  const { path, beside } = wayTo(above, lead.length, dashes);
  if (path.length === 0 && lead !== "") return undefined;
  const here = at(fields, path);
  if (here === null) {
    const list = path.findLast((step) => step !== ENTRY) ?? "";
    return path.at(-1) === ENTRY ? of(typed, plain(valuesOf(list, version, kind))) : undefined;
  }
  const isList = Array.isArray(here);
  const entry = isList ? here[0] : here;
  if (entry === null || Array.isArray(entry)) return undefined;
  const indent = lead.length + (isList ? 2 : 0);
  const names = Object.keys(entry).filter((name) => !beside.has(name) && !KEPT_FOR_US.has(name));
  return of(typed, names.map((name) => ({ word: name, text: `${isList ? "- " : ""}${written(name, entry[name] ?? null, indent)}` })));
}

/** The spaces and dashes that the next line begins with as this one does. */
export function indentAfter(text: string, cursor: number): string {
  const line = text.slice(0, cursor).split("\n").at(-1) ?? "";
  const [lead = ""] = /^(?:\s|- )*/.exec(line) ?? [];
  return lead.replaceAll("-", " ") + (line.trimEnd().endsWith(":") ? "  " : "");
}
