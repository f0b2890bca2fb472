// A field for YAML: keeps the indentation, and offers what may stand at the cursor, to be taken by touch or with Ctrl+Space.

import { useRef, useState } from "preact/hooks";
import { indentAfter, offers, type Offer } from "../completion.ts";

/** So many are shown; the others come as one types. */
const SHOWN = 14;

/** Typed, as far as the browser is concerned: it can be undone. */
function type(area: HTMLTextAreaElement, text: string, from = area.selectionStart) {
  area.focus();
  area.setSelectionRange(from, area.selectionEnd);
  if (document.execCommand("insertText", false, text)) return;
  area.setRangeText(text, from, area.selectionEnd, "end");
  area.dispatchEvent(new InputEvent("input", { bubbles: true }));
}

export function Yaml({ value, onInput }: { value: string; onInput: (text: string) => void }) {
  const area = useRef<HTMLTextAreaElement>(null);
  const [cursor, setCursor] = useState(value.length);
  const found = offers(value, Math.min(cursor, value.length));
  const take = (offer: Offer) => {
    if (area.current && found) type(area.current, offer.text, found.from);
  };
  const follow = () => {
    if (area.current) setCursor(area.current.selectionEnd);
  };
  const onKey = (event: KeyboardEvent) => {
    const [first] = found?.offers ?? [];
    if (event.key === " " && event.ctrlKey && first) take(first);
    else if (event.key === "Enter" && area.current && !event.ctrlKey && !event.metaKey) type(area.current, `\n${indentAfter(value, area.current.selectionStart)}`);
    else return;
    event.preventDefault();
  };
  return (
    <div class="yaml-field">
      <textarea ref={area} aria-label="YAML" aria-describedby="yaml-offers" class="code" spellcheck={false} autocapitalize="off" value={value} rows={18}
        onInput={(event) => { onInput(event.currentTarget.value); follow(); }} onKeyDown={onKey} onKeyUp={follow} onClick={follow} />
      <div class="offers" id="yaml-offers" role="group" aria-label="What may stand at the cursor">
        {found?.offers.slice(0, SHOWN).map((offer, at) => (
          <button key={offer.word} type="button" class="small" title={at === 0 ? "Ctrl+Space" : undefined} onClick={() => take(offer)}>{offer.word}</button>
        ))}
        {found && found.offers.length > SHOWN && <small>and {found.offers.length - SHOWN} more</small>}
        {!found && <small>Fields and values are offered here as you write; Ctrl+Space takes the first.</small>}
      </div>
    </div>
  );
}
