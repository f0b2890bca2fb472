// The same as the map, to be read: places, their groups and their ends, with what is so of each.

import { useMemo, useState } from "preact/hooks";
import { count } from "../parts/format.ts";
import { short, type Node, type Scene } from "./scene.ts";

/** More ends of one group are not written down. */
const MOST = 500;

interface Props {
  scene: Scene;
  chosen: string | undefined;
  onChoose: (id: string) => void;
}

interface Ways {
  into: number;
  out: number;
}

function words(node: Node, ways: Ways | undefined): string {
  const parts = [];
  if (node.open) parts.push(node.open === "all" ? "open to most" : `open to most: ${node.openPorts || "in part"}`);
  if (node.far) parts.push(`may reach most${node.farPorts ? `: ${node.farPorts}` : node.far === "some" ? " in part" : ""}`);
  if (node.shut) parts.push("may not reach most");
  if (ways && ways.into + ways.out > 0) parts.push(`${count(ways.into, "way")} in, ${ways.out} out`);
  return parts.join(" · ");
}

export function Outline({ scene, chosen, onChoose }: Props) {
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const toggle = (id: string) => {
    const next = new Set(open);
    if (!next.delete(id)) next.add(id);
    setOpen(next);
  };
  const ways = useMemo(() => {
    const sums: Ways[] = scene.groups.nodes.map(() => ({ into: 0, out: 0 }));
    for (const { from, to, kind } of scene.groups.ways) {
      if (kind === "blocked") continue;
      const [a, b] = [sums[from], sums[to]];
      if (a) a.out += 1;
      if (b) b.into += 1;
    }
    return sums;
  }, [scene]);
  const row = (node: Node, title: string, many: string, note: string, inner: boolean) => (
    <div class="entry">
      {inner && <button type="button" class="quiet twist" aria-expanded={open.has(node.id)} aria-label={`What is in ${title}`} onClick={() => toggle(node.id)}>{open.has(node.id) ? "▾" : "▸"}</button>}
      <button type="button" class="link name" aria-current={chosen === node.id ? "true" : undefined} onClick={() => onChoose(node.id)}>{title}</button>
      <small>{many}</small>
      {note && <small class="note">{note}</small>}
    </div>
  );
  return (
    <aside class="outline" aria-label="List of what is on the map">
      <ul>
        {scene.places.nodes.map((place, at) => (
          <li key={place.id}>
            {row(place, place.name, `${place.kind === "site" ? "cloud" : "namespace"} · ${place.count.toLocaleString("en")}`, words(place, undefined), place.count > 0)}
            {open.has(place.id) && (
              <ul>
                {scene.groups.nodes.map((group, index) => group.place === at && (
                  <li key={group.id}>
                    {row(group, group.name, group.count.toLocaleString("en"), words(group, ways[index]), group.count > 1)}
                    {open.has(group.id) && (
                      <ul>
                        {group.ends.slice(0, MOST).map((end) => (
                          <li key={end} class="entry"><button type="button" class="link name" aria-current={chosen === end ? "true" : undefined} onClick={() => onChoose(end)}>{short(end)}</button></li>
                        ))}
                        {group.ends.length > MOST && <li class="entry"><small>{(group.ends.length - MOST).toLocaleString("en")} more; search for them</small></li>}
                      </ul>
                    )}
                  </li>
                ))}
              </ul>
            )}
          </li>
        ))}
      </ul>
    </aside>
  );
}
