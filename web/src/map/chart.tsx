// The map as something to look at and move: a canvas under d3's zoom, with pointer, fingers and keyboard.
//
// In: what is shown, what is chosen, where to fly. Out: what was chosen. Holds: the camera. Everything that can be seen here
// is also in the list beside it (`outline.tsx`), which screen readers read.

import { select } from "d3-selection";
import "d3-transition";
import { zoom, zoomIdentity, type D3ZoomEvent, type ZoomBehavior } from "d3-zoom";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { theme } from "../theme.ts";
import { count } from "../parts/format.ts";
import { at, endBox, middle, type Box, type Spot } from "./layout.ts";
import { detail, paint, type Camera, type Palette, type Shown, type State } from "./paint.ts";
import { short } from "./scene.ts";

const CLOSEST = 12;
/** A small map is not blown up. */
const LARGEST = 1.3;
const MARGIN = 28;
/** Names of places can just be read. A larger map is not shown whole at first, but from its beginning. */
export const LEGIBLE = 0.19;
/** How close one flies to a group, and to an end. */
const GROUP = 1.25;
const END = 3.4;
const FLIGHT = 650;

interface Props {
  shown: Shown;
  state: Omit<State, "cursor" | "cursorIsKey">;
  /** Changes when there is somewhere to fly to; pixels at the bottom that something covers. */
  flight: { to: Box | undefined; closest: number; number: number } | undefined;
  covered: number;
  onChoose: (spot: Spot | undefined) => void;
  label: string;
}

const VARIABLES = ["ground", "surface", "raised", "line", "strong", "text", "muted", "accent", "accent-soft", "good", "part", "bad", "site", "site-line", "cell"] as const;

function palette(): Palette {
  const style = getComputedStyle(document.documentElement);
  const colours = Object.fromEntries(VARIABLES.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  return { ...colours, font: style.fontFamily } as Palette;
}

export const closeness = { group: GROUP, end: END };

export function Chart({ shown, state, flight, covered, onChoose, label }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const [cursor, setCursor] = useState<{ spot: Spot; isKey: boolean } | undefined>();
  // What the next frame needs, where the frame finds it.
  const now = useRef({ shown, state, cursor, camera: { k: 1, x: 0, y: 0 } as Camera, size: { width: 0, height: 0, ratio: 1 }, colours: undefined as Palette | undefined, moved: false, asked: 0 });
  const behaviour = useRef<ZoomBehavior<HTMLDivElement, unknown>>(undefined);
  Object.assign(now.current, { shown, state, cursor });

  const draw = () => {
    const { current } = now;
    if (current.asked) return;
    current.asked = requestAnimationFrame(() => {
      current.asked = 0;
      const context = canvas.current?.getContext("2d", { alpha: false });
      if (!context || current.size.width === 0) return;
      current.colours ??= palette();
      const { cursor: own } = current;
      paint(context, current.shown, current.camera, { ...current.state, cursor: own?.spot, cursorIsKey: own?.isKey ?? false }, current.colours, current.size);
    });
  };

  const fitting = (box: Box, closest: number, bottom: number): Camera => {
    const { width, height } = now.current.size;
    const high = Math.max(80, height - bottom);
    const k = Math.min(closest, (width - 2 * MARGIN) / box.width, (high - 2 * MARGIN) / box.height);
    const { x, y } = middle(box);
    return { k, x: width / 2 - x * k, y: high / 2 - y * k };
  };
  const whole = (): Box => ({ x: 0, y: 0, width: now.current.shown.picture.width, height: now.current.shown.picture.height });
  const go = (camera: Camera, smoothly: boolean) => {
    const element = frame.current;
    if (!element || !behaviour.current) return;
    const target = zoomIdentity.translate(camera.x, camera.y).scale(camera.k);
    const quick = !smoothly || matchMedia("(prefers-reduced-motion: reduce)").matches;
    const selection = select<HTMLDivElement, unknown>(element);
    if (quick) behaviour.current.transform(selection, target);
    else behaviour.current.transform(selection.transition().duration(FLIGHT), target);
  };
  const fit = (smoothly: boolean) => {
    now.current.moved = false;
    const camera = fitting(whole(), LARGEST, 0);
    behaviour.current?.scaleExtent([Math.min(camera.k * 0.7, 0.5), CLOSEST]);
    go(camera, smoothly);
  };
  const begin = () => {
    fit(false);
    const { k } = now.current.camera;
    if (k >= LEGIBLE * 0.8) return;
    const wide = now.current.shown.picture.width * LEGIBLE;
    go({ k: LEGIBLE, x: Math.max(MARGIN, (now.current.size.width - wide) / 2), y: MARGIN }, false);
  };

  useLayoutEffect(() => {
    const element = frame.current;
    if (!element) return;
    const zooming = zoom<HTMLDivElement, unknown>()
      .scaleExtent([0.02, CLOSEST])
      .clickDistance(5)
      .filter((event: Event) => !(event instanceof MouseEvent && event.button !== 0) && !(event.target as HTMLElement).closest("button"))
      .on("zoom", (event: D3ZoomEvent<HTMLDivElement, unknown>) => {
        now.current.camera = { k: event.transform.k, x: event.transform.x, y: event.transform.y };
        if (event.sourceEvent) now.current.moved = true;
        element.dataset.detail = detail(now.current.camera, now.current.shown.scene);
        draw();
      });
    behaviour.current = zooming;
    const selection = select<HTMLDivElement, unknown>(element);
    selection.call(zooming).on("dblclick.zoom", null);
    const observer = new ResizeObserver(() => {
      const [width, height, ratio] = [element.clientWidth, element.clientHeight, Math.min(2, devicePixelRatio)];
      const before = now.current.size;
      now.current.size = { width, height, ratio };
      if (canvas.current) [canvas.current.width, canvas.current.height] = [Math.round(width * ratio), Math.round(height * ratio)];
      if (!now.current.moved) begin();
      // What was in the middle stays there.
      else if (before.width > 0) go({ ...now.current.camera, x: now.current.camera.x + (width - before.width) / 2, y: now.current.camera.y + (height - before.height) / 2 }, false);
      draw();
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      selection.on(".zoom", null);
      cancelAnimationFrame(now.current.asked);
    };
  }, []);

  useEffect(() => {
    if (!now.current.moved) begin();
    draw();
  }, [shown.picture]);
  useEffect(draw);
  useEffect(() => {
    now.current.colours = undefined;
    draw();
  }, [theme.value]);
  useEffect(() => {
    // The typeface comes after the first picture.
    void document.fonts.ready.then(draw);
  }, []);
  useEffect(() => {
    if (!flight) return;
    // What is opened beside takes its room first.
    const timer = setTimeout(() => {
      if (!flight.to) return fit(true);
      now.current.moved = true;
      go(fitting(flight.to, flight.closest, covered), true);
    }, 60);
    return () => clearTimeout(timer);
  }, [flight?.number]);

  const spotAt = (event: MouseEvent): Spot | undefined => {
    const box = frame.current?.getBoundingClientRect();
    if (!box) return undefined;
    const { camera } = now.current;
    const spot = at(shown.picture, shown.scene, (event.clientX - box.x - camera.x) / camera.k, (event.clientY - box.y - camera.y) / camera.k);
    return spot && shallow(spot, camera);
  };
  /** Only what can be told apart can be chosen. */
  const shallow = (spot: Spot, camera: Camera): Spot => {
    const level = detail(camera, shown.scene);
    if (level === "far") return { place: spot.place };
    return level === "mid" && camera.k < 1.2 ? { place: spot.place, ...(spot.group !== undefined && { group: spot.group }) } : spot;
  };
  const same = (a: Spot | undefined, b: Spot | undefined) => a?.place === b?.place && a?.group === b?.group && a?.end === b?.end;

  const scale = (by: number) => {
    const element = frame.current;
    if (!element || !behaviour.current) return;
    now.current.moved = true;
    behaviour.current.scaleBy(select<HTMLDivElement, unknown>(element).transition().duration(200), by);
  };

  const onKey = (event: KeyboardEvent) => {
    const ways: Record<string, [number, number]> = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const way = ways[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (way) {
      const next = step(shown, now.current.camera, cursor?.spot, way);
      if (next) {
        setCursor({ spot: next, isKey: true });
        const box = boxOf(shown, next);
        if (box) reveal(box);
      }
    } else if (event.key === "Enter" || event.key === " ") {
      if (cursor) onChoose(cursor.spot);
    } else if (event.key === "+" || event.key === "=") scale(1.5);
    else if (event.key === "-") scale(1 / 1.5);
    else if (event.key === "0") fit(true);
    else if (event.key === "Escape") {
      setCursor(undefined);
      onChoose(undefined);
    } else return;
    event.preventDefault();
  };
  /** Moves as little as needed. */
  const reveal = (box: Box) => {
    const { camera, size } = now.current;
    const [x, y] = [box.x * camera.k + camera.x, box.y * camera.k + camera.y];
    const [width, height] = [box.width * camera.k, box.height * camera.k];
    const pull = (start: number, long: number, room: number) => (start < MARGIN ? MARGIN - start : start + long > room - MARGIN ? Math.max(room - MARGIN - start - long, MARGIN - start) : 0);
    const [dx, dy] = [pull(x, width, size.width), pull(y, height, size.height - covered)];
    if (dx === 0 && dy === 0) return;
    now.current.moved = true;
    go({ ...camera, x: camera.x + dx, y: camera.y + dy }, false);
  };

  return (
    <div class="chart" ref={frame} tabIndex={0} role="application" aria-label={label} aria-describedby="chart-keys" aria-roledescription="map" onKeyDown={onKey}
      onPointerMove={(event) => {
        if (event.pointerType === "touch") return;
        const spot = spotAt(event);
        if (!same(spot, cursor?.spot) || cursor?.isKey) setCursor(spot && { spot, isKey: false });
      }}
      onPointerLeave={() => !cursor?.isKey && setCursor(undefined)}
      onClick={(event) => {
        if ((event.target as HTMLElement).closest("button")) return;
        onChoose(spotAt(event));
      }}
      onDblClick={(event) => {
        const spot = spotAt(event);
        const box = spot && boxOf(shown, spot);
        if (!box) return;
        now.current.moved = true;
        go(fitting(box, spot.end !== undefined ? END : spot.group !== undefined ? GROUP * 2 : GROUP, covered), true);
      }}>
      <canvas ref={canvas} aria-hidden="true" />
      <p id="chart-keys" class="away">Arrow keys walk from one to the next, Enter shows what it may reach, plus and minus zoom, zero shows all. The list has the same for reading.</p>
      <p class="away" aria-live="polite">{cursor?.isKey ? tell(shown, cursor.spot) : ""}</p>
      {cursor && !cursor.isKey && <p class="tip" aria-hidden="true">{tell(shown, cursor.spot)}</p>}
      <div class="zooms">
        <button type="button" aria-label="Zoom in" onClick={() => scale(1.6)}>+</button>
        <button type="button" aria-label="Zoom out" onClick={() => scale(1 / 1.6)}>−</button>
        <button type="button" aria-label="Show all" onClick={() => fit(true)}>⤢</button>
      </div>
    </div>
  );
}

export function boxOf({ picture }: Shown, spot: Spot): Box | undefined {
  if (spot.group !== undefined && spot.end !== undefined) return endBox(picture, spot.group, spot.end);
  return spot.group !== undefined ? picture.groups[spot.group] : picture.places[spot.place];
}

function tell({ scene }: Shown, spot: Spot): string {
  const place = scene.places.nodes[spot.place];
  const group = spot.group === undefined ? undefined : scene.groups.nodes[spot.group];
  const node = group ?? place;
  if (!node || !place) return "";
  if (group && spot.end !== undefined && group.count > 1) return `${short(group.ends[spot.end] ?? "")} · ${group.name} in ${place.name}`;
  const open = node.open ? (node.open === "all" ? ", open to most others" : `, open to most others on ${node.openPorts || "some ports"}`) : "";
  return `${group ? `${group.name} in ${place.name}` : place.name}, ${count(node.count, "workload")}${open}${node.far ? `, may reach most others${node.farPorts ? ` on ${node.farPorts}` : node.far === "some" ? " in part" : ""}` : ""}${node.shut ? ", may not reach most others" : ""}`;
}

/** The nearest of what can be told apart now, in a direction. */
function step(shown: Shown, camera: Camera, from: Spot | undefined, [dx, dy]: [number, number]): Spot | undefined {
  const { scene, picture } = shown;
  const level = detail(camera, scene);
  const all: Spot[] =
    level === "far" ? scene.places.nodes.map((_, place) => ({ place }))
    : level === "near" && from?.group !== undefined && (scene.groups.nodes[from.group]?.count ?? 0) > 1
      ? scene.groups.nodes[from.group]!.ends.map((_, end) => ({ place: from.place, group: from.group as number, end }))
      : scene.groups.nodes.map((node, group) => ({ place: node.place, group }));
  const own = from && boxOf(shown, from);
  if (!own || !from) return all[0];
  const start = middle(own);
  let best: Spot | undefined;
  let least = Infinity;
  for (const spot of all) {
    if (spot.place === from.place && spot.group === from.group && spot.end === from.end) continue;
    const box = level === "far" ? picture.places[spot.place] : boxOf(shown, spot);
    if (!box) continue;
    const to = middle(box);
    const along = (to.x - start.x) * dx + (to.y - start.y) * dy;
    const aside = Math.abs((to.x - start.x) * dy + (to.y - start.y) * dx);
    if (along <= 1 || along + aside * 3 >= least) continue;
    [best, least] = [spot, along + aside * 3];
  }
  if (!best && level === "near" && from.end !== undefined) return step(shown, { ...camera, k: 1 }, { place: from.place, group: from.group as number }, [dx, dy]);
  return best;
}
