// A controller's answers, made up: as many workloads as are asked for, in namespaces and clouds as they are in life.
// The same numbers give the same answers.

const APPS = ["web", "api", "db", "cache", "queue", "worker", "metrics", "search", "mail", "auth"];
const TEAMS = ["shop", "billing", "search", "media", "identity", "logistics", "analytics", "support", "mobile", "risk", "ads", "maps"];
const OTHERS = ["kube-system", "monitoring", "ingress"];

function random(seed) {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Places with their groups, and the cell of any two groups. */
export function world(workloads, seed = 7) {
  const next = random(seed);
  const places = [];
  const groups = [];
  const add = (kind, place, name, ends) => groups.push({ id: `${kind}:${place}/${name}`, name, place, kind, ends });
  const few = workloads <= 40;
  const namespaces = few ? ["shop", "billing"] : [...OTHERS, ...Array.from({ length: Math.max(3, Math.round(workloads / 26)) }, (_, n) => `${TEAMS[n % TEAMS.length]}${n < TEAMS.length ? "" : `-${["dev", "test", "eu", "us", "apac", "blue", "green"][Math.floor(n / TEAMS.length) % 7]}${n >= 84 ? Math.floor(n / 84) : ""}`}`)];
  const each = Math.max(1, Math.floor((workloads - 8) / namespaces.length));
  for (const namespace of namespaces.toSorted()) {
    places.push({ id: `namespace:${namespace}`, name: namespace, kind: "namespace" });
    const apps = APPS.slice(0, few ? 4 : 3 + Math.floor(next() * 6)).toSorted();
    let left = each;
    apps.forEach((app, at) => {
      const many = at === apps.length - 1 ? Math.max(1, left) : Math.max(1, Math.min(left - 1, Math.round((each / apps.length) * (0.3 + next() * 1.4))));
      left -= many;
      add("namespace", namespace, app, Array.from({ length: many }, (_, n) => `pod/${namespace}/${app}-${(0x5f3a + at * 977 + n * 7919).toString(16)}-${n}`));
    });
  }
  for (const [site, names] of [["default.aws", ["web", "worker", "bastion"]], ["default.gcp", ["db", "cache"]], ["default.lab", ["build", "store"]]].slice(0, few ? 2 : 3)) {
    places.push({ id: `site:${site}`, name: site, kind: "site" });
    for (const name of names) add("site", site, name, [`${site}.${name}`]);
  }
  const open = (pairs) => ({ pairs, open: pairs, partly: 0, ports: "all" });
  const shut = (pairs) => ({ pairs, open: 0, partly: 0 });
  const part = (pairs, ports, some = pairs) => ({ pairs, open: 0, partly: some, ports });
  const needs = { web: ["api", "auth"], api: ["db", "cache", "queue", "search"], worker: ["queue", "db"], auth: ["db"], mail: ["queue"] };
  const ports = { api: "tcp 8080", db: "tcp 5432", cache: "tcp 6379", queue: "tcp 5672", search: "tcp 9200", auth: "tcp 8443; udp 53", web: "tcp 80, 443" };
  const closed = new Set(places.filter((place, at) => place.kind === "namespace" && at % 5 === 1).map((place) => place.name));
  const mute = new Set(groups.filter((_, at) => at % 97 === 40).map((group) => group.id));
  const cell = (a, b) => {
    const pairs = a === b ? a.ends.length * (a.ends.length - 1) : a.ends.length * b.ends.length;
    if (a.kind === "site" || b.kind === "site") {
      const known = { "web>db": "tcp 5432", "worker>cache": "tcp 6379; icmp", "web>cache": "tcp 6379", "build>store": undefined };
      const key = `${a.name}>${b.name}`;
      if (a.kind === "site" && b.kind === "site" && key in known) return known[key] ? part(pairs, known[key]) : open(pairs);
      if (a.kind === "site" && a.name === "bastion" && b.kind === "namespace") return part(pairs, "tcp 22");
      return shut(pairs);
    }
    if (mute.has(a.id) && a !== b) return shut(pairs);
    if (b.name === "db" && a !== b) return a.place === b.place && needs[a.name]?.includes("db") ? part(pairs, ports.db) : shut(pairs);
    if (closed.has(b.place)) {
      if (a.place === b.place) return needs[a.name]?.includes(b.name) ? part(pairs, ports[b.name] ?? "tcp 80") : a === b ? open(pairs) : shut(pairs);
      if (a.place === "ingress" && b.name === "web") return part(pairs, "tcp 80, 443");
      return a.place === "monitoring" && a.name === "metrics" ? part(pairs, "tcp 9090") : shut(pairs);
    }
    if (b.place === "monitoring" && b.name === "db") return shut(pairs);
    if (b.place === "billing" && a.place.startsWith("ads")) return shut(pairs);
    return open(pairs);
  };
  return { places, groups, cell };
}

const share = (cell) => (cell.pairs === 0 ? undefined : cell.open === cell.pairs ? "all" : cell.open + cell.partly === 0 ? "none" : "some");

/** As the controller makes it (`crates/server/src/reach/sparse.rs`). */
function sparse(nodes, cell, words) {
  const usual = [];
  const within = [];
  const ways = [];
  const word = (one) => {
    const own = share(one);
    if (own === undefined) return undefined;
    const key = JSON.stringify({ share: own, ...(own === "some" && one.ports && { ports: one.ports }) });
    if (!words.has(key)) words.set(key, words.size);
    return words.get(key);
  };
  nodes.forEach((to, at) => {
    const sides = [[], []];
    nodes.forEach((from, index) => {
      if (from === to) return;
      const found = word(cell(from, to));
      if (found !== undefined) sides[from.kind === "site" ? 1 : 0].push([index, found]);
    });
    const most = sides.map((side) => {
      const counts = new Map();
      for (const [, found] of side) counts.set(found, (counts.get(found) ?? 0) + 1);
      return [...counts].find(([, many]) => many >= 3 && many * 2 > side.length)?.[0] ?? 0;
    });
    sides.forEach((side, index) => side.filter(([, found]) => found !== most[index]).forEach(([from, found]) => ways.push([from, at, found])));
    usual.push(most);
    within.push(word(cell(to, to)) ?? null);
  });
  return { usual, within, ways, left_out: 0 };
}

const together = (a, b) => ({
  pairs: a.pairs + b.pairs, open: a.open + b.open, partly: a.partly + b.partly,
  ports: a.open + a.partly === 0 ? b.ports : b.open + b.partly === 0 ? a.ports : a.ports === b.ports ? a.ports : undefined,
});

export function map({ places, groups, cell }) {
  const words = new Map([[JSON.stringify({ share: "none" }), 0]]);
  const sums = new Map();
  for (const from of groups) {
    for (const to of groups) {
      const key = `${from.place} ${to.place}`;
      const own = cell(from, to);
      sums.set(key, sums.has(key) ? together(sums.get(key), own) : own);
    }
  }
  const place_ways = sparse(places, (a, b) => sums.get(`${a.name} ${b.name}`), words);
  const group_ways = groups.length <= 1000 ? sparse(groups, cell, words) : undefined;
  const index = new Map(places.map((place, at) => [place.name, at]));
  return {
    protocol: "all", words: [...words.keys()].map((key) => JSON.parse(key)), places,
    groups: groups.map(({ id, name, place, ends }) => ({ id, name, place: index.get(place), ends })), place_ways, group_ways,
  };
}

const told = (group) => ({ id: group.id, name: group.name, place: group.place, place_kind: group.kind, ends: group.ends.length });

export function around({ places, groups, cell }, id) {
  const place = places.find((one) => one.id === id);
  const group = groups.find((one) => one.id === id) ?? groups.find((one) => one.ends.includes(id));
  const inside = place ? groups.filter((one) => one.place === place.name) : [group];
  if (!inside[0]) return undefined;
  const level = place ? "place" : group.id === id ? "group" : "end";
  const others = place ? places.filter((one) => one !== place).map((one) => ({ ...one, place: one.name, members: groups.filter((own) => own.place === one.name) }))
    : groups.filter((one) => one !== group).map((one) => ({ ...one, members: [one] }));
  const between = (from, to) => from.flatMap((a) => to.map((b) => cell(a, b))).reduce(together);
  const ways = (into) => others.flatMap((peer) => {
    const own = into ? between(peer.members, inside) : between(inside, peer.members);
    const ends = peer.members.flatMap((one) => one.ends);
    return own.open + own.partly > 0 ? [{ peer: told({ ...peer, ends }), cell: own }] : [];
  });
  const self = place ? { id, name: place.name, place: place.name, kind: place.kind, ends: inside.flatMap((one) => one.ends) } : { ...group, id, name: level === "end" ? id.split(/[./]/).at(-1) : group.name, ends: level === "end" ? [id] : group.ends };
  return { this: told(self), level, into: ways(true), out: ways(false), others: others.length };
}
