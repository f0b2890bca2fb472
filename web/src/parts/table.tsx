// A table of any length: only the rows in sight are in the document. Search, sorting and the keyboard work on all.

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { adjust, route } from "../route.ts";
import { count } from "./format.ts";

export interface Column<T> {
  title: string;
  /** What is shown. */
  cell: (row: T) => ComponentChildren;
  /** What is sorted and searched by. */
  text: (row: T) => string | number;
  /** A CSS grid track, such as `minmax(8rem, 2fr)`. */
  width: string;
  /** Left out when the table is narrow. */
  minor?: boolean;
}

interface Props<T> {
  label: string;
  rows: readonly T[];
  columns: Column<T>[];
  id: (row: T) => string;
  noun: string;
  onOpen?: (row: T) => void;
  open?: string | undefined;
  filters?: { name: string; test: (row: T) => boolean }[];
  children?: ComponentChildren;
  empty: ComponentChildren;
}

const ROW = 40;
/** On a phone what has no column stands in a second line. */
const TALL = 66;
const PHONE = 560;
/** The header stays on top of the rows. */
const HEAD = 38;
const MARGIN = 8;
const GAP = 15;
const REM = 15;

/** The columns that have room: minor ones go first, then the last ones. */
function fitting<T>(columns: Column<T>[], width: number): Column<T>[] {
  const least = (column: Column<T>) => REM * Number(/([0-9.]+)rem/.exec(column.width)?.[1] ?? 6) + GAP;
  const room = (list: Column<T>[]) => list.reduce((sum, column) => sum + least(column), GAP);
  let kept = columns;
  while (kept.length > 1 && room(kept) > width) {
    const leaving = kept.findLast((column) => column.minor) ?? kept[kept.length - 1];
    kept = kept.filter((column) => column !== leaving);
  }
  return kept;
}

/** Stands where a table will, so that nothing jumps when it comes. */
export function Waiting() {
  return (
    <>
      <div class="bar" aria-hidden="true"><span class="blank" /></div>
      <div class="table waiting" role="status"><span class="away">Loading</span></div>
    </>
  );
}

export function Table<T>(props: Props<T>) {
  const { columns, id } = props;
  const search = route.value.values.q ?? "";
  const filter = route.value.values.show ?? "";
  const [order, setOrder] = useState<{ by: number; down: boolean } | undefined>();
  const [active, setActive] = useState(0);
  const body = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600, width: 1000 });

  // Rows that did not change are the same objects, so their texts are made once.
  const made = useRef(new WeakMap<object, string>());
  const texts = (row: T) => {
    let text = made.current.get(row as object);
    if (text === undefined) {
      text = columns.map((column) => column.text(row)).join(" ").toLowerCase();
      made.current.set(row as object, text);
    }
    return text;
  };

  const rows = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const test = props.filters?.find((one) => one.name === filter)?.test;
    let kept = props.rows.filter((row) => (!test || test(row)) && words.every((word) => texts(row).includes(word)));
    const column = order && columns[order.by];
    if (column) {
      kept = kept.toSorted((a, b) => {
        const [x, y] = [column.text(a), column.text(b)];
        const less = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
        return order.down ? -less : less;
      });
    }
    return kept;
  }, [props.rows, search, filter, order]);

  useLayoutEffect(() => {
    const element = body.current;
    if (!element) return;
    const measure = () => setView({ top: element.scrollTop, height: element.clientHeight - HEAD, width: element.clientWidth });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [props.rows.length === 0]);

  useEffect(() => setActive((at) => Math.min(at, Math.max(0, rows.length - 1))), [rows.length]);

  const shown = fitting(columns, view.width);
  const rest = view.width < PHONE ? columns.filter((column) => !shown.includes(column)) : [];
  const high = rest.length > 0 ? TALL : ROW;
  const template = { gridTemplateColumns: shown.map((column) => column.width).join(" ") };
  const first = Math.max(0, Math.floor(view.top / high) - MARGIN);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / high) + MARGIN);

  const move = (to: number) => {
    const at = Math.max(0, Math.min(rows.length - 1, to));
    setActive(at);
    const element = body.current;
    if (!element) return;
    if (at * high < element.scrollTop) element.scrollTop = at * high;
    const height = element.clientHeight - HEAD;
    if ((at + 1) * high > element.scrollTop + height) element.scrollTop = (at + 1) * high - height;
  };
  const onKey = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(view.height / high) - 1);
    const steps: Record<string, number> = {
      ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: rows.length - 1,
    };
    const to = steps[event.key];
    const row = rows[active];
    if (to !== undefined) move(to);
    else if (event.key === "Enter" && row && props.onOpen) props.onOpen(row);
    else return;
    event.preventDefault();
  };

  if (props.rows.length === 0) {
    return (
      <>
        <div class="bar">{props.children}</div>
        {props.empty}
      </>
    );
  }
  return (
    <>
      <div class="bar">
        <input type="search" class="search" placeholder="Search" aria-label={`Search ${props.label}`} value={search}
          onInput={(event) => adjust({ q: event.currentTarget.value || undefined })} />
        {props.filters && (
          <div class="choices" role="group" aria-label="Show">
            {[{ name: "", label: "All" }, ...props.filters.map((one) => ({ name: one.name, label: one.name }))].map((one) => (
              <button key={one.name} type="button" aria-pressed={filter === one.name}
                onClick={() => adjust({ show: one.name || undefined })}>{one.label}</button>
            ))}
          </div>
        )}
        <span class="count" aria-live="polite">
          {rows.length === props.rows.length ? count(rows.length, props.noun) : `${rows.length.toLocaleString("en")} of ${count(props.rows.length, props.noun)}`}
        </span>
        {props.children}
      </div>
      <div class="table">
        <div class="body" ref={body} tabIndex={0} role="grid" aria-label={props.label} aria-rowcount={rows.length + 1} onKeyDown={onKey}
          aria-activedescendant={rows[active] ? `row-${active}` : undefined}
          onScroll={(event) => setView({ ...view, top: event.currentTarget.scrollTop })}>
          <div class="head" role="row" aria-rowindex={1} style={template}>
            {shown.map((column) => {
              const at = columns.indexOf(column);
              const sorted = order?.by === at ? (order.down ? "descending" : "ascending") : "none";
              return (
                <div key={column.title} role="columnheader" aria-sort={sorted}>
                  <button type="button" onClick={() => setOrder({ by: at, down: order?.by === at && !order.down })}>
                    {column.title}<span aria-hidden="true">{sorted === "ascending" ? " ↑" : sorted === "descending" ? " ↓" : ""}</span>
                  </button>
                </div>
              );
            })}
          </div>
          <div style={{ height: `${rows.length * high}px` }} role="presentation">
            <div style={{ transform: `translateY(${first * high}px)` }} role="presentation">
              {rows.slice(first, last).map((row, at) => (
                <div key={id(row)} id={`row-${first + at}`} role="row" aria-rowindex={first + at + 2} style={template}
                  aria-selected={props.open === id(row)}
                  class={`row ${first + at === active ? "active" : ""} ${props.onOpen ? "opens" : ""} ${rest.length > 0 ? "tall" : ""}`}
                  onClick={() => { setActive(first + at); props.onOpen?.(row); }}>
                  {shown.map((column) => <div key={column.title} role="gridcell">{column.cell(row)}</div>)}
                  {rest.length > 0 && (
                    <div class="rest" role="presentation">
                      {rest.map((column) => <span key={column.title} role="gridcell"><small>{column.title}</small> {column.cell(row)}</span>)}
                    </div>
                  )}
                </div>
              ))}
            </div>
          </div>
        </div>
        {rows.length === 0 && <p class="none">Nothing matches. <button type="button" class="link" onClick={() => adjust({ q: undefined, show: undefined })}>Show all</button></p>}
      </div>
    </>
  );
}
