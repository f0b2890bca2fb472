// Builds the page into dist/: one script, one style sheet, one document, one typeface; and the documents beside it. `--watch` builds again on every change.
import { build, context } from "esbuild";
import { copyFile, mkdir, readdir, rm } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import { docs } from "./docs/build.mjs";

export const options = {
  entryPoints: [{ in: "src/main.tsx", out: "app" }, { in: "docs/docs.ts", out: "docs" }, { in: "docs/docs.css", out: "docs" }],
  outdir: "dist",
  bundle: true,
  minify: !process.argv.includes("--watch"),
  target: ["es2022"],
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
  loader: { ".woff2": "file" },
  assetNames: "[name]",
  // Under which the controller serves them.
  publicPath: "/page",
};

export async function files() {
  await mkdir("dist", { recursive: true });
  // What is no more is not shipped.
  for (const name of await readdir("dist")) if (!name.startsWith(".")) await rm(`dist/${name}`, { recursive: true });
  for (const file of ["index.html", "icon.svg"]) await copyFile(`src/${file}`, `dist/${file}`);
  await docs("../docs", "dist");
  await copyFile("node_modules/@fontsource-variable/inter/LICENSE", "dist/inter-licence.txt");
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  await files();
  if (process.argv.includes("--watch")) await (await context(options)).watch();
  else await build(options);
}
