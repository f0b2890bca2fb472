// Runs the unit tests: test/*.test.ts, each made one script and given to node's own runner.
import { spawnSync } from "node:child_process";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "esbuild";

const out = await mkdtemp(join(tmpdir(), "trestle-page-"));
const names = (await readdir("test")).filter((name) => name.endsWith(".test.ts"));
await build({ entryPoints: names.map((name) => `test/${name}`), outdir: out, outExtension: { ".js": ".mjs" }, bundle: true, platform: "node", format: "esm", jsx: "automatic", jsxImportSource: "preact", logLevel: "warning", inject: ["test/browser.ts"], sourcemap: "inline" });
const { status } = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...names.map((name) => join(out, name.replace(/ts$/, "mjs")))], { stdio: "inherit" });
await rm(out, { recursive: true });
process.exit(status ?? 1);
