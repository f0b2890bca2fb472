// Objects, written in a form or as YAML: checked as they are typed, and what they would change shown before they are sent.

import { useEffect, useRef, useState } from "preact/hooks";
import { ask, Problem, query, type ReachCell, type Schemas } from "../api.ts";
import { plain } from "../map/scene.ts";
import { count } from "../parts/format.ts";
import { Command, Dialog, Field, notify, Trouble } from "../parts/parts.tsx";
import { Yaml } from "../parts/yaml.tsx";
import { applyCommand, emptyPeer, policyOf, yaml, type PeerForm, type PolicyForm } from "../policy.ts";

type Applied = Schemas["AppliedObjects"];
type Change = Schemas["ReachChange"];

/** How long after the last key a text is checked. */
const PAUSE = 450;
const SHOWN = 40;

async function send(text: string, dryRun: boolean): Promise<Applied> {
  const path = query("/objects", dryRun ? { dry_run: "true", reach: "true" } : {});
  const reply = await ask(path, { method: "POST", headers: { accept: "application/json", "content-type": "application/yaml" }, body: text });
  return (await reply.json()) as Applied;
}

const asProblem = (failed: unknown) => (failed instanceof Problem ? failed : new Problem("UNKNOWN", 0, String(failed)));

/** What a text would do, as the controller says it; of the newest text only. */
function useCheck(text: string): { checked: Applied | undefined; problem: Problem | undefined; busy: boolean } {
  const [state, setState] = useState<{ checked?: Applied; problem?: Problem; of: string }>({ of: "" });
  const newest = useRef(text);
  newest.current = text;
  useEffect(() => {
    if (text.trim() === "") return;
    const timer = setTimeout(async () => {
      try {
        const checked = await send(text, true);
        if (newest.current === text) setState({ checked, of: text });
      } catch (failed) {
        if (newest.current === text) setState({ problem: asProblem(failed), of: text });
      }
    }, PAUSE);
    return () => clearTimeout(timer);
  }, [text]);
  const current = state.of === text;
  return { checked: current ? state.checked : undefined, problem: current ? state.problem : undefined, busy: !current && text.trim() !== "" };
}

const BLANK: PolicyForm = { name: "", namespace: "default", pods: "", direction: "in", peers: [{ ...emptyPeer }], ports: "" };

/** A new policy, or one that is there (`start` is its YAML). */
export function Editor({ start, title, onClose }: { start?: string; title: string; onClose: () => void }) {
  const [form, setForm] = useState<PolicyForm>(BLANK);
  const [written, setWritten] = useState<string | undefined>(start);
  const text = written ?? (form.name.trim() === "" ? "" : yaml(policyOf(form)));
  const { checked, problem, busy } = useCheck(text);
  const [failed, setFailed] = useState<Problem | undefined>();
  const [sending, setSending] = useState(false);
  const store = async () => {
    setSending(true);
    setFailed(undefined);
    try {
      const { applied } = await send(text, false);
      notify(applied.map((one) => `${one.object.kind} ${one.object.namespace ? `${one.object.namespace}/` : ""}${one.object.name}: ${one.outcome}`).join("; "));
      onClose();
    } catch (refused) {
      setFailed(asProblem(refused));
    }
    setSending(false);
  };
  const nothing = checked?.applied.every((one) => one.outcome === "unchanged");
  return (
    <Dialog title={title} onClose={onClose} wide>
      <form class="editor" onSubmit={(event) => { event.preventDefault(); void store(); }}>
        <div class="write">
          {start === undefined && (
            <div class="choices" role="group" aria-label="Write it">
              <button type="button" aria-pressed={written === undefined} onClick={() => setWritten(undefined)}>In a form</button>
              <button type="button" aria-pressed={written !== undefined} onClick={() => setWritten(text || yaml(policyOf({ ...BLANK, name: "NAME" })))}>As YAML</button>
            </div>
          )}
          {written === undefined ? <Form form={form} set={(change) => setForm({ ...form, ...change })} />
            : <Yaml value={written} onInput={setWritten} />}
          {text !== "" && <Command text={applyCommand(text)} />}
        </div>
        <div class="check" aria-live="polite" aria-busy={busy}>
          <h3>What it would do</h3>
          {text === "" && <p class="hint">Give it a name; what it would change is shown here as you write.</p>}
          {busy && <p class="hint">Checking…</p>}
          <Trouble problem={failed ?? problem} />
          {checked && <Outcome checked={checked} />}
        </div>
        <footer>
          <button type="button" onClick={onClose}>Cancel</button>
          <button type="submit" class="primary" disabled={sending || !checked || nothing}>{sending ? "Storing…" : "Store it"}</button>
        </footer>
      </form>
    </Dialog>
  );
}

function Form({ form, set }: { form: PolicyForm; set: (change: Partial<PolicyForm>) => void }) {
  const peer = (at: number, change: Partial<PeerForm>) => set({ peers: form.peers.map((one, index) => (index === at ? { ...one, ...change } : one)) });
  const inwards = form.direction === "in";
  return (
    <>
      <div class="pair">
        <Field label="Name"><input required value={form.name} placeholder="web-to-db" spellcheck={false} onInput={(event) => set({ name: event.currentTarget.value })} /></Field>
        <Field label="Namespace"><input required value={form.namespace} spellcheck={false} onInput={(event) => set({ namespace: event.currentTarget.value })} /></Field>
      </div>
      <div class="pair">
        <Field label="For Pods with labels" hint="Empty: every Pod of the namespace"><input value={form.pods} placeholder="app=db" spellcheck={false} onInput={(event) => set({ pods: event.currentTarget.value })} /></Field>
        <Field label="It says">
          <select value={form.direction} onChange={(event) => set({ direction: event.currentTarget.value as "in" | "out" })}>
            <option value="in">who may connect to them</option>
            <option value="out">to whom they may connect</option>
          </select>
        </Field>
      </div>
      <fieldset>
        <legend>{inwards ? "From" : "To"}</legend>
        {form.peers.length === 0 && <p class="hint">{form.ports.trim() === "" ? "Nobody: everything that no other policy permits is closed." : "Everybody, on these ports."}</p>}
        {form.peers.map((one, at) => (
          <div class="peer" key={at}>
            <select aria-label="Kind of peer" value={one.kind} onChange={(event) => peer(at, { kind: event.currentTarget.value as PeerForm["kind"] })}>
              <option value="pods">Pods of this namespace</option>
              <option value="namespace">Pods of other namespaces</option>
              <option value="block">addresses</option>
            </select>
            {one.kind === "namespace" && <input aria-label="Namespace or its labels" placeholder="name, or team=a" value={one.namespace} spellcheck={false} onInput={(event) => peer(at, { namespace: event.currentTarget.value })} />}
            {one.kind === "block" ? <input aria-label="Prefix" required placeholder="10.0.0.0/8" value={one.block} spellcheck={false} onInput={(event) => peer(at, { block: event.currentTarget.value })} />
              : <input aria-label="Labels of Pods" placeholder="app=web; empty: all" value={one.pods} spellcheck={false} onInput={(event) => peer(at, { pods: event.currentTarget.value })} />}
            <button type="button" class="quiet" aria-label="Remove this peer" onClick={() => set({ peers: form.peers.filter((_, index) => index !== at) })}>✕</button>
          </div>
        ))}
        <button type="button" class="small" onClick={() => set({ peers: [...form.peers, { ...emptyPeer }] })}>Add a peer</button>
      </fieldset>
      <Field label="Ports" hint="As in: tcp 5432, udp 53, 8000-8010. Empty: all"><input value={form.ports} placeholder="tcp 5432" spellcheck={false} onInput={(event) => set({ ports: event.currentTarget.value })} /></Field>
    </>
  );
}

const WOULD: Record<string, string> = { created: "would be new", configured: "would be changed", unchanged: "is so already", deleted: "would be gone" };

const share = (cell: ReachCell) => (cell.pairs === 0 ? "not there" : cell.open + cell.partly === 0 ? "closed" : cell.open === cell.pairs ? "open" : cell.ports && cell.ports !== "all" ? cell.ports : `${(cell.open + cell.partly).toLocaleString("en")} of ${count(cell.pairs, "pair")}`);
const reached = (cell: ReachCell) => cell.open + cell.partly;

/** Opens more, or less; of some changes neither can be said. */
function tone({ before, after }: Change): "more" | "less" | "other" {
  const [open, all] = [after.open - before.open, reached(after) - reached(before)];
  if (open >= 0 && all >= 0 && open + all > 0) return "more";
  return open <= 0 && all <= 0 && open + all < 0 ? "less" : "other";
}

export function Outcome({ checked }: { checked: Applied }) {
  const { applied, warnings, reach } = checked;
  return (
    <>
      <ul class="names">
        {applied.map((one) => (
          <li key={`${one.object.kind} ${one.object.namespace} ${one.object.name}`}>
            <b>{one.object.kind} {one.object.namespace ? `${one.object.namespace}/` : ""}{one.object.name}</b> {WOULD[one.outcome] ?? one.outcome}
            {one.outcome === "configured" && <pre class="difference">{one.difference}</pre>}
          </li>
        ))}
      </ul>
      {warnings.map((warning) => <p key={warning} class="hint">{warning}</p>)}
      {reach && (
        <>
          <h3>Who reaches whom</h3>
          {reach.changes.length === 0 && <p>Nothing changes for anybody.</p>}
          <ul class="reach">
            {reach.changes.slice(0, SHOWN).map((change) => (
              <li key={`${change.from} ${change.to}`} class={tone(change)}>
                <span>{plain(change.from)} → {plain(change.to)}</span>
                <span><s>{share(change.before)}</s> {share(change.after)}</span>
              </li>
            ))}
          </ul>
          {reach.changes.length + reach.left_out > SHOWN && <p class="hint">and {(reach.changes.length + reach.left_out - SHOWN).toLocaleString("en")} more</p>}
        </>
      )}
    </>
  );
}
