// Takes pictures of the page with made-up answers: node dev/look.mjs OUT [--workloads N] [--only NAME,…] [VIEW …]
import { mkdir } from "node:fs/promises";
import { build } from "esbuild";
import { launch } from "puppeteer-core";
import { files, options } from "../build.mjs";
import { serve } from "./serve.mjs";

const out = process.argv[2] ?? "/tmp/look";
const of = (name, other) => (process.argv.includes(`--${name}`) ? process.argv[process.argv.indexOf(`--${name}`) + 1] : other);
const views = process.argv.slice(3).filter((one) => one.startsWith("#"));
await mkdir(out, { recursive: true });
await files();
await build(options);
const page = await serve({ workloads: Number(of("workloads", 2000)), empty: process.argv.includes("--empty") });
const browser = await launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"] });
const tab = await browser.newPage();
tab.on("console", (message) => ["error", "warn"].includes(message.type()) && console.log("console:", message.text()));
tab.on("pageerror", (failed) => console.log("error:", failed.stack ?? failed));
const sizes = { desktop: [1280, 800], phone: [390, 800] };
for (const size of of("size", "desktop,phone").split(",")) {
  for (const theme of of("theme", "light,dark").split(",")) {
    const [width, height] = sizes[size];
    await tab.setViewport({ width, height, deviceScaleFactor: 1, isMobile: size === "phone", hasTouch: size === "phone" });
    await tab.emulateMediaFeatures([{ name: "prefers-color-scheme", value: theme }]);
    for (const view of views.length ? views : ["#/map"]) {
      await tab.goto("about:blank");
      await tab.goto(`${page.url}${view}`);
      await tab.waitForSelector("h1");
      await new Promise((done) => setTimeout(done, 1500));
      const name = `${view.replace(/[^a-z0-9]+/gi, "-").replace(/^-|-$/g, "")}-${of("workloads", 2000)}-${size}-${theme}.png`;
      await tab.screenshot({ path: `${out}/${name}` });
      console.log(`${out}/${name}`);
    }
  }
}
await browser.close();
page.close();
