// The page without a controller: its files, and made-up answers to what it asks.
//
//   node dev/serve.mjs [--workloads 2000] [--port 5173] [--empty]
//
// Builds on every change of a source. Nothing can be changed here: every other call is refused as unimplemented.

import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";
import { context } from "esbuild";
import { files, options } from "../build.mjs";
import { around, map, world } from "./fixture.mjs";
import { lists } from "./lists.mjs";

const TYPES = { js: "text/javascript", css: "text/css", html: "text/html; charset=utf-8", svg: "image/svg+xml", woff2: "font/woff2", png: "image/png", json: "application/json" };
/** As the controller says it, so that what it would block is blocked here. */
const POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

export async function serve({ workloads = 2000, port = 0, empty = false } = {}) {
  const own = empty ? { places: [], groups: [], cell: () => ({}) } : world(workloads);
  const drawn = JSON.stringify(map(own));
  const answers = lists(own, empty);
  const listeners = new Set();
  const server = createServer(async (request, reply) => {
    const url = new URL(request.url, "http://127.0.0.1");
    const send = (status, body, type = "application/json") => {
      reply.writeHead(status, { "content-type": type, "content-security-policy": POLICY, "cache-control": "no-store" });
      reply.end(body);
    };
    const file = url.pathname === "/" ? "index.html" : /^\/page\/([\w.-]+)$/.exec(url.pathname)?.[1];
    if (file) {
      try {
        return send(200, await readFile(new URL(`../dist/${file}`, import.meta.url)), TYPES[file.split(".").at(-1)]);
      } catch {
        return send(404, "", "text/plain");
      }
    }
    if (url.pathname === "/events") {
      reply.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
      reply.write(`data: ${JSON.stringify({ epoch: "fixture", versions: { tags: 1 } })}\n\n`);
      listeners.add(reply);
      return request.on("close", () => listeners.delete(reply));
    }
    if (url.pathname === "/openapi.json") return send(200, await readFile(new URL("../openapi.json", import.meta.url)));
    if (url.pathname === "/map") return send(200, drawn);
    if (url.pathname === "/map/around") {
      const found = around(own, url.searchParams.get("id"));
      return found ? send(200, JSON.stringify(found)) : send(404, JSON.stringify({ code: "NOT_FOUND", detail: "it is not on the map" }));
    }
    const answer = answers(request.method, url);
    if (answer !== undefined) return send(200, JSON.stringify(answer));
    send(501, JSON.stringify({ code: "UNIMPLEMENTED", detail: `no made-up answer to ${request.method} ${url.pathname}` }));
  });
  await new Promise((done) => server.listen(port, "127.0.0.1", done));
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => { for (const one of listeners) one.end(); server.closeAllConnections(); server.close(); } };
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const of = (name) => process.argv[process.argv.indexOf(`--${name}`) + 1];
  const has = (name) => process.argv.includes(`--${name}`);
  await files();
  await (await context({ ...options, minify: false })).watch();
  const { url } = await serve({ workloads: has("workloads") ? Number(of("workloads")) : 2000, port: has("port") ? Number(of("port")) : 5173, empty: has("empty") });
  console.log(url);
}
