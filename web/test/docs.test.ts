import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { docs, slug } from "../docs/build.mjs";

test("anchors are as GitHub has them", () => {
  assert.equal(slug("Kinds of `resources`"), "kinds-of-resources");
  assert.equal(slug("What it is not: a & b"), "what-it-is-not-a--b");
});

test("every document is shipped, and every link between them leads somewhere", async () => {
  const out = await mkdtemp(join(tmpdir(), "trestle-docs-"));
  await docs("../docs", out);
  const names = await readdir(out);
  const pages = new Map(await Promise.all(names.filter((name) => name.endsWith(".html")).map(async (name) => [name, await readFile(join(out, name), "utf8")] as const)));
  assert.ok(pages.size > 25 && pages.has("docs.html") && pages.has("docs-clouds-aws.html"));
  for (const [name, html] of pages) {
    for (const [, file = "", , anchor] of html.matchAll(/href="(docs[\w.-]*)?(#([^"]*))?"/g)) {
      const to = file === "" ? html : pages.get(file);
      assert.ok(to, `${name} leads to ${file}`);
      if (anchor) assert.ok(to.includes(`id="${anchor}"`), `${name} leads to ${file}#${anchor}`);
    }
    for (const [, image = ""] of html.matchAll(/<img src="([^"]*)"/g)) assert.ok(names.includes(image), `${name} shows ${image}`);
    assert.doesNotMatch(html, /<script(?! type="module" src="\/page\/docs.js")/);
  }
  const index = JSON.parse(await readFile(join(out, "docs-index.json"), "utf8")) as { file: string; sections: { id: string; text: string }[] }[];
  assert.equal(index.length, pages.size);
  assert.ok(index.some(({ file, sections }) => file === "docs-page.html" && sections.some(({ id, text }) => id === "the-map" && text.includes("Wheel and pinch"))));
  await rm(out, { recursive: true });
});
