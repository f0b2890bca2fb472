// Allow: one permission for both ends. First what it comes to is shown, then it is sent.

import { useState } from "preact/hooks";
import { call, Problem, type Schemas } from "../api.ts";
import { allowCommand, trafficOf, type AllowForm } from "../cli.ts";
import { Command, Dialog, Field, notify, Trouble } from "../parts/parts.tsx";
import { href } from "../route.ts";

type Outcome = Schemas["AllowOutcome"];

function minutes(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "how long that takes its clouds do not say";
  return seconds < 90 ? `usually takes ${seconds} s` : `usually takes ${Math.ceil(seconds / 60)} min`;
}

const COSTS: Record<string, string> = {
  free: "costs nothing",
  hourly: "costs by the hour as long as it is there, and by what passes",
};

function Plan({ plan }: { plan: Outcome }) {
  const { permission, planned, build } = plan;
  return (
    <div class="remedies" aria-live="polite">
      <h2>What it comes to</h2>
      <ul class="notes">
        {permission?.rules.map((rule) => <li key={rule.at + rule.what}>{rule.as} at <b>{rule.at}</b>: {rule.what}</li>)}
        {planned?.steps.map((step) => <li key={step}>{step}</li>)}
        {planned?.problems.map((problem) => <li key={problem}>{problem}</li>)}
        {permission?.rules.length === 0 && <li>Nobody is at either end now; it takes effect when somebody is.</li>}
      </ul>
      {build && (
        <p role="alert">
          Builds {[...build.links.map((link) => `the link ${link}`), ...build.gateways.map((gateway) => `the gateway ${gateway}`)].join(", ")}:{" "}
          {minutes(build.seconds)}; {COSTS[build.cost] ?? "what that costs its clouds do not say"}.
        </p>
      )}
    </div>
  );
}

/** Allows connections between two ends. */
export function Allow({ start, onClose }: { start: Partial<AllowForm>; onClose: () => void }) {
  const [form, setForm] = useState<AllowForm>({ from: "", to: "", traffic: "tcp 443", ...start });
  const [plan, setPlan] = useState<Outcome | undefined>();
  const [problem, setProblem] = useState<Problem | undefined>();
  const [busy, setBusy] = useState(false);
  // What was shown is about what was written then.
  const set = (change: Partial<AllowForm>) => { setForm({ ...form, ...change }); setPlan(undefined); };
  const send = async () => {
    setBusy(true);
    setProblem(undefined);
    const body = { from: form.from, to: form.to, traffic: trafficOf(form.traffic) };
    try {
      if (plan === undefined) setPlan(await call<Outcome>("POST", "/permissions?dry_run=true", { ...body, build: true }));
      else {
        const made = await call<Outcome>("POST", "/permissions", { ...body, build: plan.build !== undefined && plan.build !== null });
        notify(`${made.permission?.name}: ${made.permission?.state}`, made.job ? href("jobs", { open: made.job.id }) : undefined);
        onClose();
      }
    } catch (failed) {
      setProblem(failed instanceof Problem ? failed : new Problem("UNKNOWN", 0, String(failed)));
    }
    setBusy(false);
  };
  return (
    <Dialog title="Allow" onClose={onClose}>
      <form onSubmit={(event) => { event.preventDefault(); void send(); }}>
        <div class="pair">
          <Field label="From" hint="Who opens connections"><input required value={form.from} placeholder="a.web" spellcheck={false} onInput={(event) => set({ from: event.currentTarget.value })} /></Field>
          <Field label="To" hint="Resource, Pod, host, tag, namespace or address"><input required value={form.to} placeholder="tag:db" spellcheck={false} onInput={(event) => set({ to: event.currentTarget.value })} /></Field>
        </div>
        <Field label="Traffic" hint="As in: tcp 5432, udp 53, icmp"><input required value={form.traffic} spellcheck={false} onInput={(event) => set({ traffic: event.currentTarget.value })} /></Field>
        <Command text={allowCommand(form)} />
        {plan && <Plan plan={plan} />}
        <Trouble problem={problem} />
        <footer>
          <button type="button" onClick={onClose}>Cancel</button>
          <button type="submit" class="primary" disabled={busy}>{busy ? "Sending…" : plan === undefined ? "Show what it comes to" : plan.build ? "Allow, and build" : "Allow"}</button>
        </footer>
      </form>
    </Dialog>
  );
}
