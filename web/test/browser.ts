// What modules ask of a browser when they are loaded.
const nothing = () => undefined;
Object.assign(globalThis, {
  window: globalThis, location: { hash: "" }, addEventListener: nothing, matchMedia: () => ({ matches: false, addEventListener: nothing }),
  localStorage: { getItem: () => null, setItem: nothing }, document: { documentElement: { dataset: {} } }, history: { replaceState: nothing },
});
