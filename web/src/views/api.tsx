// What can be asked of the controller over REST: its own description of itself, made readable.

import { useMemo, useState } from "preact/hooks";
import { useLive } from "../live.ts";
import { count } from "../parts/format.ts";
import { Command, Trouble } from "../parts/parts.tsx";
import { Waiting } from "../parts/table.tsx";
import { adjust } from "../route.ts";

interface Schema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema | false;
  oneOf?: Schema[];
  allOf?: Schema[];
}

interface Operation {
  summary?: string;
  description?: string;
  tags?: string[];
  parameters?: { name: string; in: string; required?: boolean; description?: string }[];
  requestBody?: { content: Record<string, { schema?: Schema }> };
  responses: Record<string, { content?: Record<string, { schema?: Schema }> }>;
}

interface Document {
  paths: Record<string, Record<string, Operation>>;
  tags?: { name: string; description?: string }[];
  components: { schemas: Record<string, Schema> };
}

const METHODS = ["get", "post", "put", "delete"];
const OTHERS = "everything else";

interface Route {
  id: string;
  method: string;
  path: string;
  operation: Operation;
}

export function Api({ values }: { values: Record<string, string> }) {
  const live = useLive<Document>("/openapi.json", []);
  const document = live.data.value;
  const search = (values.q ?? "").toLowerCase();
  const routes = useMemo(() => {
    const all: Route[] = Object.entries(document?.paths ?? {}).flatMap(([path, methods]) =>
      METHODS.flatMap((method) => (methods[method] ? [{ id: `${method.toUpperCase()} ${path}`, method: method.toUpperCase(), path, operation: methods[method] }] : [])));
    return all;
  }, [document]);
  const shown = routes.filter(({ id, operation }) => `${id} ${operation.summary} ${operation.description}`.toLowerCase().includes(search));
  const tags = [...(document?.tags ?? []), { name: OTHERS, description: "" }];
  const of = (tag: string) => shown.filter(({ operation }) => (operation.tags?.[0] ?? OTHERS) === tag);
  return (
    <section class="view">
      <header><h1>API</h1><p>Everything the page and the command line do can be done over REST.</p></header>
      <Trouble problem={live.problem.value} />
      {!document && !live.problem.value && <Waiting />}
      {document && (
        <>
          <div class="bar">
            <input type="search" class="search" placeholder="Search" aria-label="Search routes" value={values.q ?? ""} onInput={(event) => adjust({ q: event.currentTarget.value || undefined })} />
            <span class="count" aria-live="polite">{count(shown.length, "route")}</span>
          </div>
          <div class="api">
            {tags.filter(({ name }) => of(name).length > 0).map(({ name, description }) => (
              <section key={name} aria-labelledby={`tag-${name}`}>
                <h2 id={`tag-${name}`}>{name}</h2>
                {description && <p class="hint">{description}</p>}
                {of(name).map((route) => <One key={route.id} route={route} schemas={document.components.schemas} />)}
              </section>
            ))}
          </div>
        </>
      )}
    </section>
  );
}

function One({ route, schemas }: { route: Route; schemas: Record<string, Schema> }) {
  const [open, setOpen] = useState(false);
  const { method, path, operation } = route;
  const body = operation.requestBody && Object.entries(operation.requestBody.content)[0];
  const answer = Object.entries(operation.responses).find(([status]) => status.startsWith("2"))?.[1].content;
  const schema = answer && Object.values(answer)[0]?.schema;
  return (
    <details class="operation" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary><b class={method.toLowerCase()}>{method}</b> <code>{path}</code> <span>{operation.summary}</span></summary>
      {open && (
        <div>
          {operation.description && <p>{operation.description}</p>}
          <Command label="With curl" text={curl(route, body?.[0])} />
          {operation.parameters && operation.parameters.length > 0 && (
            <>
              <h3>Parameters</h3>
              <dl class="fields">{operation.parameters.map((one) => <div key={one.name}><dt><code>{one.name}</code>{one.required ? "" : " (may be left out)"}</dt><dd>{one.description}</dd></div>)}</dl>
            </>
          )}
          {body && <><h3>Body ({body[0]})</h3><Shape schema={body[1].schema} schemas={schemas} depth={0} /></>}
          {schema && <><h3>Answer</h3><Shape schema={schema} schemas={schemas} depth={0} /></>}
        </div>
      )}
    </details>
  );
}

export function curl({ method, path, operation }: Route, type: string | undefined): string {
  const query = operation.parameters?.filter((one) => one.in === "query" && one.required).map((one) => `${one.name}=${one.name.toUpperCase()}`) ?? [];
  const address = `https://127.0.0.1:8080${path.replace(/\{(\w+)\}/g, (_, name: string) => name.toUpperCase())}${query.length > 0 ? `?${query.join("&")}` : ""}`;
  const data = type ? ` -H 'Content-Type: ${type}' --data-binary @FILE` : "";
  return `curl --cacert ca.pem -H "Authorization: Bearer $(cat admin.token)"${method === "GET" ? "" : ` -X ${method}`}${data} '${address}'`;
}

const nameOf = (schema: Schema) => schema.$ref?.split("/").at(-1);

function typeOf(schema: Schema): string {
  const ref = nameOf(schema);
  if (ref) return ref;
  const some = (schema.oneOf ?? schema.allOf)?.map(typeOf).filter((one) => one !== "null");
  if (some && some.length > 0) return some.join(" or ");
  if (schema.type === "array" && schema.items) return `list of ${typeOf(schema.items)}`;
  return [schema.type].flat().filter((one) => one !== "null").join(" or ") || "anything";
}

const DEEPEST = 3;

/** The fields of what is sent or answered, and of what is in them. */
function Shape({ schema, schemas, depth }: { schema: Schema | undefined; schemas: Record<string, Schema>; depth: number }) {
  if (!schema) return null;
  const inner = schema.type === "array" && schema.items ? schema.items : schema;
  const name = nameOf(inner) ?? nameOf((inner.oneOf ?? inner.allOf)?.find((one) => nameOf(one)) ?? {});
  const whole = name ? schemas[name] : inner;
  const fields = Object.entries(whole?.properties ?? {});
  return (
    <>
      {depth === 0 && <p class="hint">{typeOf(schema)}{whole?.description ? `: ${whole.description}` : ""}</p>}
      {fields.length > 0 && (
        <dl class="fields">
          {fields.map(([field, of]) => {
            const deeper = depth < DEEPEST && (nameOf(of) ?? (of.items && nameOf(of.items)) ?? of.oneOf?.some(nameOf));
            return (
              <div key={field}>
                <dt><code>{field}</code> <small>{typeOf(of)}</small></dt>
                <dd>
                  {of.description}
                  {deeper && <details><summary>its fields</summary><Shape schema={of} schemas={schemas} depth={depth + 1} /></details>}
                </dd>
              </div>
            );
          })}
        </dl>
      )}
    </>
  );
}
