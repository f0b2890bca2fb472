// Numbers and times for people.

export function bytes(value: number | null | undefined): string {
  if (value === undefined || value === null) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${at === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[at]}`;
}

/** `3 s ago`, from a time the controller wrote. */
export function ago(time: string | number | null | undefined, now = Date.now()): string {
  if (!time) return "–";
  const then = typeof time === "number" ? time * 1000 : Date.parse(time);
  return `${duration((now - then) / 1000)} ago`;
}

export function duration(seconds: number): string {
  if (seconds < 1) return seconds < 0.001 ? "0 s" : `${Math.max(1, Math.round(seconds * 1000))} ms`;
  const steps: [number, string][] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  // Below two of a unit the next smaller one says more.
  for (const [size, unit] of steps) if (seconds >= (size > 1 ? 2 * size : size)) return `${Math.floor(seconds / size)} ${unit}`;
  return "0 s";
}

export function clock(time: string): string {
  return new Date(time).toLocaleString(undefined, { dateStyle: "short", timeStyle: "medium" });
}

export function count(number: number, one: string, many = one.endsWith("y") ? `${one.slice(0, -1)}ies` : `${one}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}
