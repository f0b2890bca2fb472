// Whether every view can be used by everybody: axe in every view, light and dark, in two sizes, with made-up answers and
// with none. Prints one JSON line per finding; fails if there is one.

import { readFile } from "node:fs/promises";
import { build } from "esbuild";
import { launch } from "puppeteer-core";
import { files, options } from "../build.mjs";
import { serve } from "./serve.mjs";

const VIEWS = ["overview", "map", "map?list=1", "map?open=namespace%3Ashop%2Fdb", "reachability", "explain", "permissions", "policies", "policies?open=NetworkPolicy%2Fshop%2Fdb", "tags", "resources", "services", "hosts", "nodes", "storage", "jobs", "audit", "api"];

await files();
await build(options);
const axe = await readFile(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const browser = await launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });
let findings = 0;
for (const empty of [false, true]) {
  const page = await serve({ workloads: 300, empty });
  for (const [width, height] of [[1280, 800], [390, 800]]) {
    for (const theme of ["light", "dark"]) {
      const tab = await browser.newPage();
      await tab.setViewport({ width, height });
      await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }, { name: "prefers-reduced-motion", value: "reduce" }]);
      await tab.goto(page.url);
      await tab.waitForSelector("h1");
      await tab.evaluate(axe);
      for (const view of VIEWS) {
        await tab.evaluate((hash) => { location.hash = hash; }, `#/${view}`);
        await new Promise((done) => setTimeout(done, 400));
        const { violations } = await tab.evaluate(() => window.axe.run({ resultTypes: ["violations"] }));
        for (const { id, help, nodes } of violations) {
          findings += 1;
          console.log(JSON.stringify({ view, theme, width, empty, rule: id, help, nodes: nodes.slice(0, 3).map((node) => node.html.slice(0, 160)), why: nodes[0].failureSummary.slice(0, 200) }));
        }
      }
      await tab.close();
    }
  }
  page.close();
}
await browser.close();
process.exit(findings > 0 ? 1 : 0);
