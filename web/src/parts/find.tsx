// A field that finds: what matches is listed below it, and Enter goes there. The keyboard never leaves the field.

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";

export interface Hit {
  key: string;
  title: string;
  /** Where it is, or what it does. */
  note: string;
  /** What it is, in a word. */
  kind: string;
  go: () => void;
}

interface Props {
  label: string;
  placeholder: string;
  find: (text: string) => Hit[];
  /** Called when something was chosen, or Escape was pressed in an empty field. */
  onDone?: () => void;
  /** The list is always there, and not only while something is typed. */
  open?: boolean;
  nothing?: ComponentChildren;
}

export function Find({ label, placeholder, find, onDone, open = false, nothing }: Props) {
  const [text, setText] = useState("");
  const [active, setActive] = useState(0);
  const [focused, setFocused] = useState(false);
  const list = useRef<HTMLUListElement>(null);
  const id = useId();
  const shown = open || (focused && text.trim() !== "");
  const hits = shown ? find(text) : [];
  const at = Math.min(active, Math.max(0, hits.length - 1));
  useEffect(() => {
    list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }, [at, text]);
  const choose = (hit: Hit | undefined) => {
    if (!hit) return;
    setText("");
    setActive(0);
    hit.go();
    onDone?.();
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") setActive(Math.min(hits.length - 1, at + 1));
    else if (event.key === "ArrowUp") setActive(Math.max(0, at - 1));
    else if (event.key === "Enter") choose(hits[at]);
    else if (event.key === "Escape" && text !== "") setText("");
    else if (event.key === "Escape") return onDone?.();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class={`find ${open ? "open" : ""}`}>
      <input type="search" role="combobox" list={undefined} autofocus={open} aria-label={label} placeholder={placeholder} value={text} autocomplete="off" spellcheck={false}
        aria-expanded={shown} aria-controls={`${id}-list`} aria-autocomplete="list" aria-activedescendant={hits[at] ? `${id}-${at}` : undefined}
        onInput={(event) => { setText(event.currentTarget.value); setActive(0); }} onKeyDown={onKey}
        onFocus={() => setFocused(true)} onBlur={() => setTimeout(() => setFocused(false), 150)} />
      {shown && (
        <ul id={`${id}-list`} role="listbox" aria-label={label} ref={list}>
          {hits.map((hit, index) => (
            <li key={hit.key} id={`${id}-${index}`} role="option" aria-selected={index === at} onPointerDown={(event) => event.preventDefault()}
              onPointerMove={() => index !== at && setActive(index)} onClick={() => choose(hit)}>
              <b>{hit.title}</b><span>{hit.note}</span><small>{hit.kind}</small>
            </li>
          ))}
          {hits.length === 0 && <li role="option" aria-selected={false} aria-disabled="true" class="nothing">{nothing ?? "Nothing matches."}</li>}
        </ul>
      )}
    </div>
  );
}

/** How well a text matches what is sought: less is better; undefined if it does not. */
export function rank(text: string, sought: string): number | undefined {
  const at = text.toLowerCase().indexOf(sought);
  if (at < 0) return undefined;
  if (text.length === sought.length) return 0;
  const before = at === 0 ? "/" : text[at - 1] ?? "";
  return (at === 0 ? 1 : /[^a-z0-9]/i.test(before) ? 2 : 3) + text.length / 1000;
}

/** The best matches of many, in order; every word must be found. */
export function best<T>(all: Iterable<T>, text: (one: T) => string, sought: string, most: number): T[] {
  const words = sought.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return [];
  const found: { one: T; score: number }[] = [];
  for (const one of all) {
    const own = text(one);
    let score = 0;
    for (const word of words) {
      const part = rank(own, word);
      if (part === undefined) { score = Infinity; break; }
      score += part;
    }
    if (score < Infinity) found.push({ one, score });
  }
  found.sort((a, b) => a.score - b.score);
  return found.slice(0, most).map(({ one }) => one);
}
