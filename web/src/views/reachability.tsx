// The matrix: who can reach whom, from places down to single endpoints.

import { useRef, useState } from "preact/hooks";
import { query, type ReachCell, type Reachability as Matrix, type ReachGroup } from "../api.ts";
import { useLive } from "../live.ts";
import { count } from "../parts/format.ts";
import { Empty, Trouble } from "../parts/parts.tsx";
import { hasPorts, PROTOCOLS } from "../parts/protocols.ts";
import { adjust, go, href } from "../route.ts";

type Kind = "self" | "all" | "some" | "none";

function kind(cell: ReachCell | undefined): Kind {
  if (!cell || cell.pairs === 0) return "self";
  if (cell.open === cell.pairs) return "all";
  return cell.open + cell.partly === 0 ? "none" : "some";
}

const full = (group: ReachGroup) => (group.name === group.place ? group.name : `${group.place}/${group.name}`);

/** Every protocol, unless one is asked about. */
const EVERY = "all";

function describe(from: ReachGroup, to: ReachGroup, cell: ReachCell, protocol: string, port: string): string {
  const what = protocol === EVERY ? "every protocol and port" : port ? `${protocol} ${port}` : protocol;
  const way = `${full(from)} → ${full(to)}`;
  switch (kind(cell)) {
    case "self": return `${way}: one and the same`;
    case "all": return `${way}: open (${what})`;
    case "none": return `${way}: closed (${what})`;
    case "some": {
      const pairs = cell.pairs === 1 ? "" : ` for ${cell.open + cell.partly} of ${count(cell.pairs, "pair")}`;
      return `${way}: ${cell.ports ? `${protocol === EVERY ? "" : `${protocol} `}${cell.ports}` : "open in part, not alike"}${pairs}`;
    }
  }
}

export function Reachability({ values }: { values: Record<string, string> }) {
  const { source, destination, level, search, port = "" } = values;
  const protocol = values.protocol ?? EVERY;
  const has = hasPorts(protocol);
  const path = query("/reachability", { level, source, destination, search, protocol: protocol === EVERY ? undefined : protocol, port: has && /^[0-9]+$/.test(port) ? port : undefined });
  const live = useLive<Matrix>(path, ["objects", "resources", "tags"]);
  // The last matrix stays until the next one is there.
  const last = useRef<Matrix | undefined>(undefined);
  last.current = live.data.value ?? last.current;
  const matrix = last.current;
  const stale = !live.data.value;
  const open = (from: ReachGroup, to: ReachGroup) => {
    if (!matrix || stale) return;
    if (matrix.level === "end") go("explain", { source: from.id, destination: to.id, protocol: values.protocol, port: has ? port : "" });
    else go("reachability", { source: from.id, destination: to.id, level: matrix.level === "place" ? "group" : "end", protocol: values.protocol, port });
  };
  return (
    <section class="view">
      <header><h1>Reachability</h1><p>Rows connect to columns{protocol === EVERY ? ", over every protocol" : ""}. Open a cell to go deeper, down to the reason.</p></header>
      <div class="bar">
        <input type="search" class="search" placeholder="Search groups" aria-label="Search groups" value={search ?? ""} onInput={(event) => adjust({ search: event.currentTarget.value || undefined })} />
        <label class="inline">Protocol
          <select value={protocol} onChange={(event) => adjust({ protocol: event.currentTarget.value === EVERY ? undefined : event.currentTarget.value })}>
            {[EVERY, ...PROTOCOLS].map((name) => <option key={name}>{name}</option>)}
          </select>
        </label>
        <label class="inline">Port
          <input class="port" inputMode="numeric" placeholder="all" pattern="[0-9]*" value={port} disabled={!has} onInput={(event) => adjust({ port: event.currentTarget.value || undefined })} />
        </label>
        {!source && !destination && (
          <div class="choices" role="group" aria-label="Show">
            {["place", "group"].map((one) => (
              <button key={one} type="button" aria-pressed={matrix?.level === one} onClick={() => adjust({ level: one })}>{one === "place" ? "Places" : "Groups"}</button>
            ))}
          </div>
        )}
      </div>
      {(source || destination) && (
        <p class="crumbs">
          <a href={href("reachability", { protocol: values.protocol, port })}>Everything</a> › <b>{source?.replace(/^\w+:/, "") ?? "all"}</b> → <b>{destination?.replace(/^\w+:/, "") ?? "all"}</b>
        </p>
      )}
      <Trouble problem={live.problem.value} />
      {matrix && matrix.sources.length === 0 && <Empty title={search ? "No group matches" : "Nothing to compare yet"}><p>Workloads and resources appear here as they come.</p></Empty>}
      {matrix && matrix.left_out > 0 && <p class="hint">{count(matrix.left_out, "group")} left out: search, or start from places.</p>}
      {matrix && matrix.sources.length > 0 && <Grid matrix={matrix} stale={stale} protocol={protocol} port={has ? port : ""} onOpen={open} />}
    </section>
  );
}

interface GridProps {
  matrix: Matrix;
  /** Another one is on its way. */
  stale: boolean;
  protocol: string;
  port: string;
  onOpen: (from: ReachGroup, to: ReachGroup) => void;
}

function Grid({ matrix, stale, protocol, port, onOpen }: GridProps) {
  const [at, setAt] = useState({ row: 0, column: 0 });
  const table = useRef<HTMLTableElement>(null);
  const row = Math.min(at.row, matrix.sources.length - 1);
  const column = Math.min(at.column, matrix.destinations.length - 1);
  const cellAt = (target: EventTarget | null) => {
    const cell = (target as HTMLElement | null)?.closest("td");
    return cell ? { row: Number(cell.dataset.row), column: Number(cell.dataset.column) } : undefined;
  };
  const open = (place: { row: number; column: number } | undefined) => {
    const [from, to] = [place && matrix.sources[place.row], place && matrix.destinations[place.column]];
    if (from && to && place && (matrix.cells[place.row]?.[place.column]?.pairs ?? 0) > 0) onOpen(from, to);
  };
  const onKey = (event: KeyboardEvent) => {
    // Where the focus is, which the state may not know of yet.
    const here = cellAt(event.target) ?? { row, column };
    const steps: Record<string, [number, number]> = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    if (step) {
      const next = {
        row: Math.max(0, Math.min(matrix.sources.length - 1, here.row + step[0])),
        column: Math.max(0, Math.min(matrix.destinations.length - 1, here.column + step[1])),
      };
      setAt(next);
      table.current?.querySelector<HTMLElement>(`td[data-row="${next.row}"][data-column="${next.column}"]`)?.focus();
    } else if (event.key === "Enter" || event.key === " ") open(here);
    else return;
    event.preventDefault();
  };
  const [from, to, cell] = [matrix.sources[row], matrix.destinations[column], matrix.cells[row]?.[column]];
  return (
    <>
      <p class="telling" aria-live="polite">{from && to && cell && describe(from, to, cell, protocol, port)}</p>
      <div class={`matrix ${stale ? "stale" : ""}`} aria-busy={stale}>
        <table ref={table} role="grid" aria-label="Who can reach whom" onKeyDown={onKey}
          onMouseOver={(event) => { const over = cellAt(event.target); if (over) setAt(over); }}
          onFocusIn={(event) => { const on = cellAt(event.target); if (on) setAt(on); }}
          onClick={(event) => open(cellAt(event.target))}>
          <thead>
            <tr>
              <td class="corner" />
              {matrix.destinations.map((group, index) => (
                <th key={group.id} scope="col" class={index === column ? "on" : ""} title={full(group)}><div><span>{full(group)}</span></div></th>
              ))}
            </tr>
          </thead>
          <tbody>
            {matrix.sources.map((group, r) => (
              <tr key={group.id} class={r > 0 && matrix.sources[r - 1]?.place !== group.place ? "first" : ""}>
                <th scope="row" class={r === row ? "on" : ""} title={full(group)}>{full(group)} {group.ends > 1 && <small>{group.ends}</small>}</th>
                {matrix.cells[r]?.map((one, c) => {
                  const other = matrix.destinations[c];
                  return (
                    <td key={other?.id} data-row={r} data-column={c} class={kind(one)} tabIndex={r === row && c === column ? 0 : -1}
                      aria-label={other && describe(group, other, one, protocol, port)}><i /></td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <ul class="legend" aria-label="Legend">
        <li><i class="cell all" /> open</li><li><i class="cell some" /> some protocols, ports, source ports or pairs</li><li><i class="cell none" /> closed</li>
      </ul>
    </>
  );
}
