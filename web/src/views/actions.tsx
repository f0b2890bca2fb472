// Forms that change something. Each shows the command that would do the same.

import { useState } from "preact/hooks";
import { call, Problem, resourcePath, type Host, type Job, type Schemas } from "../api.ts";
import { joinCommand, joinTokenCommand, list, PROTOCOLS, ruleBody, ruleCommand, tagCommand, ticketCommand, type HostForm, type RuleForm, type TagForm } from "../cli.ts";
import { Command, Dialog, Field, notify, Trouble } from "../parts/parts.tsx";
import { useLive } from "../live.ts";
import { href } from "../route.ts";

/** Sends a form; its problem, until it succeeds. */
function useSend(onDone: () => void) {
  const [problem, setProblem] = useState<Problem | undefined>();
  const [busy, setBusy] = useState(false);
  const send = async (work: () => Promise<void>) => {
    setBusy(true);
    setProblem(undefined);
    try {
      await work();
      onDone();
    } catch (failed) {
      setProblem(failed instanceof Problem ? failed : new Problem("UNKNOWN", 0, String(failed)));
    }
    setBusy(false);
  };
  return { problem, busy, send };
}

function Buttons({ busy, text, onClose }: { busy: boolean; text: string; onClose: () => void }) {
  return (
    <footer>
      <button type="button" onClick={onClose}>Cancel</button>
      <button type="submit" class="primary" disabled={busy}>{busy ? "Sending…" : text}</button>
    </footer>
  );
}

interface RuleProps {
  start: Partial<RuleForm>;
  /** Names to offer. */
  resources: string[];
  tags: string[];
  onClose: () => void;
}

/** Adds a rule to a resource or a tag. */
export function AddRule({ start, resources, tags, onClose }: RuleProps) {
  const [form, setForm] = useState<RuleForm>({
    on: "", onTag: false, direction: "in", protocol: "tcp", port: "", peers: "", name: "", ...start,
  });
  const set = (change: Partial<RuleForm>) => setForm({ ...form, ...change });
  const { problem, busy, send } = useSend(onClose);
  const submit = (event: Event) => {
    event.preventDefault();
    void send(async () => {
      const path = form.onTag ? `/tags/${encodeURIComponent(form.on)}/rules` : `${resourcePath(form.on)}/rules`;
      const job = await call<Job>("POST", path, form.onTag ? [ruleBody(form)] : ruleBody(form));
      notify(`Rule for ${form.on}: ${job.what}`, href("jobs", { open: job.id }));
    });
  };
  const hasPorts = form.protocol === "tcp" || form.protocol === "udp" || form.protocol === "sctp";
  return (
    <Dialog title="Permit traffic" onClose={onClose}>
      <form onSubmit={submit}>
        <div class="pair">
          <Field label="Applies to">
            <select value={form.onTag ? "tag" : "resource"} onChange={(event) => set({ onTag: event.currentTarget.value === "tag", on: "" })}>
              <option value="resource">a resource</option>
              <option value="tag">everything in a tag</option>
            </select>
          </Field>
          <Field label={form.onTag ? "Tag" : "Resource"} hint={form.onTag ? undefined : "namespace.cloud.name"}>
            <input required list="rule-on" value={form.on} onInput={(event) => set({ on: event.currentTarget.value })} />
          </Field>
        </div>
        <datalist id="rule-on">{(form.onTag ? tags : resources).slice(0, 500).map((name) => <option key={name} value={name} />)}</datalist>
        <Field label="Direction">
          <select value={form.direction} onChange={(event) => set({ direction: event.currentTarget.value as "in" | "out" })}>
            <option value="in">Inbound: the peer starts the connection</option>
            <option value="out">Outbound: the resource starts it</option>
          </select>
        </Field>
        <Field label="Peers" hint="Tags, resources, addresses or prefixes, separated by commas">
          <input required list="rule-peers" value={form.peers} onInput={(event) => set({ peers: event.currentTarget.value })} />
        </Field>
        <datalist id="rule-peers">{[...tags, ...resources].slice(0, 500).map((name) => <option key={name} value={name} />)}</datalist>
        <div class="pair">
          <Field label="Protocol">
            <select value={form.protocol} onChange={(event) => set({ protocol: event.currentTarget.value, port: "" })}>
              {Object.keys(PROTOCOLS).map((name) => <option key={name}>{name}</option>)}
            </select>
          </Field>
          <Field label="Port or range" hint="Empty: any">
            <input value={form.port} disabled={!hasPorts} pattern="[0-9]+(-[0-9]+)?" placeholder="any" onInput={(event) => set({ port: event.currentTarget.value })} />
          </Field>
        </div>
        <Field label="Name" hint="Empty: made from what the rule says">
          <input value={form.name} onInput={(event) => set({ name: event.currentTarget.value })} />
        </Field>
        <Command text={ruleCommand(form)} />
        <Trouble problem={problem} />
        <Buttons busy={busy} text="Add rule" onClose={onClose} />
      </form>
    </Dialog>
  );
}

/** Sets a tag: a leaf's address, or members of a group. */
export function SetTag({ start, onClose }: { start: Partial<TagForm>; onClose: () => void }) {
  const [form, setForm] = useState<TagForm>({ name: "", kind: "leaf", ip: "", members: "", ...start });
  const set = (change: Partial<TagForm>) => setForm({ ...form, ...change });
  const { problem, busy, send } = useSend(onClose);
  const submit = (event: Event) => {
    event.preventDefault();
    void send(async () => {
      const body = form.kind === "leaf" ? { ip: form.ip } : { child_tags: list(form.members) };
      await call("POST", `/tags/${encodeURIComponent(form.name)}/applyMembers`, body);
      notify(`Tag ${form.name} is set`);
    });
  };
  return (
    <Dialog title="Set a tag" onClose={onClose}>
      <form onSubmit={submit}>
        <Field label="Name"><input required value={form.name} onInput={(event) => set({ name: event.currentTarget.value })} /></Field>
        <Field label="It is">
          <select value={form.kind} onChange={(event) => set({ kind: event.currentTarget.value as "leaf" | "group" })}>
            <option value="leaf">a name for an address</option>
            <option value="group">a group of tags, addresses and prefixes</option>
          </select>
        </Field>
        {form.kind === "leaf"
          ? <Field label="Address"><input required value={form.ip} placeholder="10.0.0.5" onInput={(event) => set({ ip: event.currentTarget.value })} /></Field>
          : <Field label="Members" hint="Added to those it has; separated by commas">
              <input required value={form.members} placeholder="db1, 192.0.2.0/24" onInput={(event) => set({ members: event.currentTarget.value })} />
            </Field>}
        <Command text={tagCommand(form)} />
        <Trouble problem={problem} />
        <Buttons busy={busy} text="Set tag" onClose={onClose} />
      </form>
    </Dialog>
  );
}

/** Makes a ticket, and shows its text, which is told only once. */
export function CreateTicket({ onClose }: { onClose: () => void }) {
  const [limit, setLimit] = useState("10Gi");
  const [hours, setHours] = useState("48");
  const [made, setMade] = useState<Schemas["MadeTicket"] | undefined>();
  const { problem, busy, send } = useSend(() => undefined);
  const submit = (event: Event) => {
    event.preventDefault();
    void send(async () => setMade(await call("POST", "/tickets", { lifetime_seconds: Number(hours) * 3600, limit })));
  };
  if (made) {
    return (
      <Dialog title="Ticket" onClose={onClose}>
        <p>Hand this to the other cluster. It is shown only now.</p>
        <Command label={`Ticket ${made.ticket.id}`} text={made.text} />
        <footer><button type="button" class="primary" onClick={onClose}>Done</button></footer>
      </Dialog>
    );
  }
  return (
    <Dialog title="Create a ticket" onClose={onClose}>
      <form onSubmit={submit}>
        <p>Another cluster trades a ticket for storage of its own.</p>
        <div class="pair">
          <Field label="At most" hint="Empty: no limit"><input value={limit} onInput={(event) => setLimit(event.currentTarget.value)} /></Field>
          <Field label="Good for (hours)"><input required type="number" min="1" value={hours} onInput={(event) => setHours(event.currentTarget.value)} /></Field>
        </div>
        <Command text={ticketCommand(limit, hours)} />
        <Trouble problem={problem} />
        <Buttons busy={busy} text="Create ticket" onClose={onClose} />
      </form>
    </Dialog>
  );
}

/** The line that lets a machine join, and the machine as it comes. */
export function AddHost({ onClose }: { onClose: () => void }) {
  const [form, setForm] = useState<HostForm>({ tags: "", uses: "1", hours: "1" });
  const [made, setMade] = useState<Schemas["MadeJoinToken"] | undefined>();
  const [before, setBefore] = useState<string[]>([]);
  const hosts = useLive<Host[]>("/hosts", ["hosts"]).data.value ?? [];
  const { problem, busy, send } = useSend(() => undefined);
  const put = (change: Partial<HostForm>) => setForm({ ...form, ...change });
  const submit = (event: Event) => {
    event.preventDefault();
    void send(async () => {
      setBefore(hosts.map((host) => host.name));
      setMade(await call("POST", "/hosts/tokens", { uses: Number(form.uses), ttl_seconds: Number(form.hours) * 3600, tags: list(form.tags) }));
    });
  };
  if (made) {
    const come = hosts.filter((host) => !before.includes(host.name));
    return (
      <Dialog title="Add a host" onClose={onClose}>
        <p>Run this on the host. It is shown only now.</p>
        <Command label="On the host" text={joinCommand(made.servers[0] ?? "https://CONTROLLER:8081", made.token)} />
        {made.servers.length > 1 && <p><small>The controller is also known as {made.servers.slice(1).join(", ")}.</small></p>}
        {made.servers.length === 0 && <p><small>The controller listens on this machine only: give it an address and a name that hosts reach (<code>listen</code>, <code>names</code>).</small></p>}
        <p role="status">{come.length === 0 ? "Waiting for it…" : `Joined: ${come.map((host) => host.name).join(", ")}`}</p>
        <footer><button type="button" class="primary" onClick={onClose}>Done</button></footer>
      </Dialog>
    );
  }
  return (
    <Dialog title="Add a host" onClose={onClose}>
      <form onSubmit={submit}>
        <p>A machine with the <code>trestle</code> program joins with one line.</p>
        <Field label="Tags" hint="It is made a member of them; those that are not there are made"><input value={form.tags} placeholder="web" onInput={(event) => put({ tags: event.currentTarget.value })} /></Field>
        <div class="pair">
          <Field label="For how many hosts"><input required type="number" min="1" value={form.uses} onInput={(event) => put({ uses: event.currentTarget.value })} /></Field>
          <Field label="Good for (hours)"><input required type="number" min="1" value={form.hours} onInput={(event) => put({ hours: event.currentTarget.value })} /></Field>
        </div>
        <Command text={joinTokenCommand(form)} />
        <Trouble problem={problem} />
        <Buttons busy={busy} text="Make the line" onClose={onClose} />
      </form>
    </Dialog>
  );
}

/** A change without a form: asks first, with its command. */
export function Confirm(props: { title: string; text: string; command: string; action: string; work: () => Promise<void>; onClose: () => void }) {
  const { problem, busy, send } = useSend(props.onClose);
  return (
    <Dialog title={props.title} onClose={props.onClose}>
      <form onSubmit={(event) => { event.preventDefault(); void send(props.work); }}>
        <p>{props.text}</p>
        <Command text={props.command} />
        <Trouble problem={problem} />
        <footer>
          <button type="button" onClick={props.onClose}>Keep it</button>
          <button type="submit" class="danger" disabled={busy}>{props.action}</button>
        </footer>
      </form>
    </Dialog>
  );
}
