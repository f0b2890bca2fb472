// The small things all views are made of.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Problem } from "../api.ts";

export type Tone = "good" | "part" | "bad" | "plain" | "busy";

/** A state: its word, with a mark that does not depend on colour. */
export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

/** A failure, as the controller says it. */
export function Trouble({ problem }: { problem: Problem | undefined }) {
  if (!problem) return null;
  return (
    <div class="trouble" role="alert">
      <p>{problem.message}</p>
      <code>{problem.code}</code>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** A command, ready to be copied. */
export function Command({ text, label = "The same on the command line" }: { text: string; label?: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <div class="command">
      <span class="label">{label}</span>
      <div class="line">
        <code>{text}</code>
        <button type="button" class="quiet small" onClick={() => void copy()}>{copied ? "Copied" : "Copy"}</button>
      </div>
    </div>
  );
}

export function Field(props: { label: string; hint?: string; children: ComponentChildren }) {
  return (
    <label class="field">
      <span>{props.label}</span>
      {props.children}
      {props.hint && <small>{props.hint}</small>}
    </label>
  );
}

/** A dialog over the page. The browser keeps the focus inside and closes it on Escape. */
export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren; wide?: boolean }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    element.current?.showModal();
  }, []);
  return (
    <dialog ref={element} class={props.wide ? "wide" : ""} onClose={props.onClose} aria-label={props.title}>
      <header>
        <h2>{props.title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={() => element.current?.close()}>✕</button>
      </header>
      {props.children}
    </dialog>
  );
}

/** What is known of one object, beside the list it is in. */
export function Drawer(props: { title: string; onClose: () => void; children: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), [props.title]);
  return (
    <aside class="drawer" aria-label={props.title} onKeyDown={(event) => event.key === "Escape" && props.onClose()}>
      <header>
        <h2 ref={heading} tabIndex={-1}>{props.title}</h2>
        <button type="button" class="quiet" aria-label="Close" onClick={props.onClose}>✕</button>
      </header>
      <div class="content">{props.children}</div>
    </aside>
  );
}

export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {facts.filter(([, value]) => value !== "" && value !== undefined && value !== null).map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** How much of something is used. */
export function Meter({ value, most, label }: { value: number; most: number; label: string }) {
  const share = most > 0 ? Math.min(1, value / most) : 0;
  return (
    <span class={`meter ${share > 0.95 ? "bad" : share > 0.8 ? "part" : ""}`} role="meter" aria-label={label}
      aria-valuenow={Math.round(share * 100)} aria-valuemin={0} aria-valuemax={100}>
      <span style={{ width: `${share * 100}%` }} />
    </span>
  );
}

// Short messages, told to screen readers too.

interface Notice {
  id: number;
  text: string;
  href: string | undefined;
}

const notices = signal<Notice[]>([]);
let last = 0;

export function notify(text: string, href?: string) {
  const id = ++last;
  notices.value = [...notices.value.slice(-2), { id, text, href }];
  setTimeout(() => {
    notices.value = notices.value.filter((notice) => notice.id !== id);
  }, 6000);
}

export function Notices() {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notices.value.map((notice) => (
        <p key={notice.id}>{notice.href ? <a href={notice.href}>{notice.text}</a> : notice.text}</p>
      ))}
    </div>
  );
}
