// Builds the page into dist/: one script, one style sheet, one document. `--watch` builds again on every change.
import { build, context } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";

const options = {
  entryPoints: { app: "src/main.tsx" },
  outdir: "dist",
  bundle: true,
  minify: !process.argv.includes("--watch"),
  target: ["es2022"],
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
};

await mkdir("dist", { recursive: true });
for (const file of ["index.html", "icon.svg"]) await copyFile(`src/${file}`, `dist/${file}`);
if (process.argv.includes("--watch")) {
  await (await context(options)).watch();
} else {
  await build(options);
}
