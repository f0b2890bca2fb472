// How smooth the map is: one JSON line per figure. node dev/measure.mjs [WORKLOADS …]
//
// Pans and zooms with real wheel and pointer events, at every level of detail, and takes the time of each frame as the
// page sees it (requestAnimationFrame), and of painting alone.

import { build } from "esbuild";
import { launch } from "puppeteer-core";
import { files, options } from "../build.mjs";
import { serve } from "./serve.mjs";

const sizes = process.argv.slice(2).map(Number);
await files();
await build(options);

const quantile = (list, share) => list.toSorted((a, b) => a - b)[Math.min(list.length - 1, Math.floor(list.length * share))] ?? 0;
const round = (number) => Math.round(number * 10) / 10;

for (const workloads of sizes.length ? sizes : [2000, 20_000]) {
  const page = await serve({ workloads });
  const browser = await launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
  const tab = await browser.newPage();
  await tab.setViewport({ width: 1280, height: 800 });
  await tab.evaluateOnNewDocument(() => {
    window.painting = [];
    const ask = window.requestAnimationFrame.bind(window);
    window.requestAnimationFrame = (work) => ask((time) => {
      const start = performance.now();
      work(time);
      window.painting.push(performance.now() - start);
    });
  });
  const start = performance.now();
  await tab.goto(`${page.url}#/map`);
  await tab.waitForSelector(".chart canvas");
  const shown = performance.now() - start;
  await new Promise((done) => setTimeout(done, 800));
  const told = await tab.evaluate(() => ({ ...document.querySelector(".sum").dataset }));
  const figure = (name, value, unit, more = {}) => console.log(JSON.stringify({ name, value: round(value), unit, workloads, groups: Number(told.groups), ways: Number(told.ways), ...more }));
  const paint = await tab.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? 0);
  figure("page_first_paint", paint, "ms");
  figure("map_shown", shown, "ms");
  const record = async (name, act) => {
    await tab.evaluate(() => {
      window.painting.length = 0;
      window.frames_seen = [];
      window.watching = true;
      let last;
      const watch = (time) => {
        if (last !== undefined) window.frames_seen.push(time - last);
        last = time;
        if (window.watching) requestAnimationFrame(watch);
      };
      requestAnimationFrame(watch);
    });
    await act();
    const { seen, painting } = await tab.evaluate(() => {
      window.watching = false;
      return { seen: window.frames_seen, painting: window.painting.filter((one) => one > 0.3) };
    });
    figure(`map_${name}_frame_p50`, quantile(seen, 0.5), "ms", { frames: seen.length });
    figure(`map_${name}_frame_p95`, quantile(seen, 0.95), "ms");
    figure(`map_${name}_paint_p50`, quantile(painting, 0.5), "ms");
    figure(`map_${name}_paint_p95`, quantile(painting, 0.95), "ms");
  };
  const [x, y] = [700, 420];
  const wheel = async (deltaY, times) => {
    await tab.mouse.move(x, y);
    for (let n = 0; n < times; n += 1) {
      await tab.mouse.wheel({ deltaY });
      await new Promise((done) => setTimeout(done, 8));
    }
  };
  const pan = async () => {
    await tab.mouse.move(x, y);
    await tab.mouse.down();
    for (let n = 0; n < 60; n += 1) await tab.mouse.move(x + 200 * Math.sin(n / 6), y + 120 * Math.cos(n / 6));
    await tab.mouse.up();
  };
  await record("pan_far", pan);
  await record("zoom", () => wheel(-60, 30));
  await record("pan_mid", pan);
  await wheel(-80, 25);
  await record("pan_near", pan);
  await browser.close();
  page.close();
}
