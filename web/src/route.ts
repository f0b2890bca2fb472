// Where we are: `#/view?key=value`. Links are plain anchors, so the browser's history and new tabs just work.

import { signal } from "@preact/signals";

export interface Route {
  view: string;
  values: Record<string, string>;
}

function read(): Route {
  const [view = "", text = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { view: view || "overview", values: Object.fromEntries(new URLSearchParams(text)) };
}

export const route = signal<Route>(read());
window.addEventListener("hashchange", () => {
  route.value = read();
});

export function href(view: string, values: Record<string, string | undefined> = {}): string {
  const pairs = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) if (value) pairs.set(key, value);
  const text = pairs.toString();
  return `#/${view}${text ? `?${text}` : ""}`;
}

export function go(view: string, values: Record<string, string | undefined> = {}) {
  location.hash = href(view, values);
}

/** Changes some values and stays; does not add to the history. */
export function adjust(values: Record<string, string | undefined>) {
  const next = href(route.value.view, { ...route.value.values, ...values });
  history.replaceState(null, "", next);
  route.value = read();
}
