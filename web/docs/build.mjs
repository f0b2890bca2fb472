// The documents of docs/ as pages beside the page: one file each, with the list of all of them and a search over their text.
//
//   docs/README.md ─► docs.html (and the order of all)     docs/clouds/aws.md ─► docs-clouds-aws.html     docs/images/* ─► as they are

import { copyFile, readdir, readFile, writeFile } from "node:fs/promises";
import { basename, dirname, join, normalize } from "node:path";
import { Marked } from "marked";

/** The file of a document, by its path below docs/. */
const fileOf = (path) => (path === "README.md" ? "docs.html" : `docs-${path.replace(/\.md$/, "").replaceAll("/", "-")}.html`);

/** As GitHub makes them, so that links between documents hold in both. */
export const slug = (text) => text.toLowerCase().replace(/<[^>]+>|`/g, "").replace(/&#?\w+;/g, "").replace(/[^\p{L}\p{N}\s_-]/gu, "").trim().replace(/\s/g, "-");

const plain = (html) => html.replace(/<[^>]+>/g, " ").replace(/&#39;/g, "'").replace(/&quot;/g, '"').replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&").replace(/\s+/g, " ").trim();

const escaped = (text) => text.replace(/[&<>"]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[one]);

/** Where a link of a document leads; none where that is not shipped. */
function target(from, href, known) {
  if (/^[a-z]+:/.test(href) || href.startsWith("#")) return href;
  const [path, anchor] = href.split("#");
  const whole = normalize(join(dirname(from), path));
  if (!known.has(whole)) return undefined;
  return `${fileOf(whole)}${anchor ? `#${anchor}` : ""}`;
}

function render(path, text, known) {
  const seen = new Map();
  const images = new Set();
  const marked = new Marked({ gfm: true });
  marked.use({
    renderer: {
      heading({ tokens, depth }) {
        const inner = this.parser.parseInline(tokens);
        const title = inner.replace(/<[^>]+>/g, "");
        const name = slug(title);
        const again = seen.get(name) ?? 0;
        seen.set(name, again + 1);
        const id = again ? `${name}-${again}` : name;
        return `<h${depth} id="${id}">${depth === 1 ? inner : `<a href="#${id}">${inner}</a>`}</h${depth}>\n`;
      },
      link({ href, tokens }) {
        const to = target(path, href, known);
        const inner = this.parser.parseInline(tokens);
        return to === undefined ? inner : `<a href="${escaped(to)}">${inner}</a>`;
      },
      image({ href, text: alt }) {
        const name = basename(href);
        images.add(name);
        return `<img src="${escaped(name)}" alt="${escaped(alt)}">`;
      },
      // A wide table or command moves by itself, and not the page.
      code({ text: code }) {
        return `<pre tabindex="0"><code>${escaped(code)}</code></pre>\n`;
      },
    },
    hooks: { postprocess: (html) => html.replaceAll("<table>", '<div class="table" tabindex="0"><table>').replaceAll("</table>", "</table></div>").replace(/<th><\/th>/g, "<td></td>") },
  });
  const html = marked.parse(text);
  // Words by section, for the search: what is between two headings.
  const parts = html.split(/(?=<h[1-6] id=)/);
  const found = parts.map((part) => {
    const id = /^<h([1-6]) id="([^"]*)"/.exec(part);
    const title = id ? plain(part.slice(0, part.indexOf(`</h${id[1]}>`))) : "";
    return { id: id && id[1] !== "1" ? id[2] : "", title, text: plain(part) };
  });
  return { html, title: found.find((one) => one.title)?.title ?? path, sections: found.filter((one) => one.text), images };
}

/** The documents in the order of README.md; those it does not name come last. */
function ordered(readme, paths) {
  const named = [...readme.matchAll(/\]\(([^)#]+\.md)/g)].map(([, href]) => normalize(href)).filter((path) => paths.includes(path));
  return [...new Set(["README.md", ...named, ...paths.toSorted()])];
}

export async function docs(from, out) {
  const paths = ["README.md", "CHANGELOG.md", ...(await readdir(from)).filter((name) => name.endsWith(".md") && name !== "README.md"), ...(await readdir(join(from, "clouds"))).filter((name) => name.endsWith(".md")).map((name) => `clouds/${name}`)];
  const texts = new Map(await Promise.all(paths.map(async (path) => [path, await readFile(path === "CHANGELOG.md" ? join(from, "..", path) : join(from, path), "utf8")])));
  const order = ordered(texts.get("README.md"), paths);
  const pages = new Map(order.map((path) => [path, render(path, texts.get(path), new Set(paths))]));
  const index = [];
  for (const [at, path] of order.entries()) {
    const { html, title, sections, images } = pages.get(path);
    const link = (other, word) => (other ? `<a href="${fileOf(other)}">${word} ${escaped(pages.get(other).title)}</a>` : "<span></span>");
    const list = order.map((other) => `<li><a href="${fileOf(other)}"${other === path ? ' aria-current="page"' : ""}>${escaped(pages.get(other).title)}</a></li>`).join("");
    await writeFile(join(out, fileOf(path)), `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>${escaped(title)} · Trestle</title><link rel="icon" href="/page/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="/page/docs.css"><script type="module" src="/page/docs.js"></script></head>
<body><a class="skip" href="#document">Skip to the document</a>
<nav aria-label="Documents"><a class="home" href="/">← The page</a>
<input type="search" id="search" placeholder="Search" aria-label="Search the documents" autocomplete="off"><ul id="found" aria-live="polite"></ul>
<details id="all"><summary>All documents</summary><ul>${list}</ul></details></nav>
<main id="document" tabindex="-1">${html}<footer>${link(order[at - 1], "←")}${link(order[at + 1], "→")}</footer></main></body></html>
`);
    index.push({ file: fileOf(path), title, sections });
    for (const image of images) await copyFile(join(from, "images", image), join(out, image));
  }
  await writeFile(join(out, "docs-index.json"), JSON.stringify(index));
}
