// Tags: names for addresses, resources and groups of other tags.

import { useState } from "preact/hooks";
import { call, type Tag } from "../api.ts";
import { mayWrite, useLive } from "../live.ts";
import { Command, Drawer, Empty, Facts, Trouble } from "../parts/parts.tsx";
import { Table, Waiting } from "../parts/table.tsx";
import { adjust, href } from "../route.ts";
import { useEffect } from "preact/hooks";
import { AddRule, SetTag } from "./actions.tsx";

const members = (tag: Tag) => tag.child_tags ?? [];

/** Names that rules may use: not those that rules name and that are not there. */
export const named = (tags: Tag[] | undefined) =>
  (tags ?? []).filter((tag) => members(tag).length > 0 || tag.ip || tag.uri).map((tag) => tag.name);

export function Tags({ values }: { values: Record<string, string> }) {
  const tags = useLive<Tag[]>("/tags", ["tags", "resources"]);
  const [dialog, setDialog] = useState<"tag" | "members" | "rule" | undefined>();
  const list = tags.data.value;
  const open = list?.find((tag) => tag.name === values.open);
  const names = named(list);
  return (
    <section class="view">
      <header><h1>Tags</h1><p>Names for addresses, resources and groups of other tags.</p></header>
      <Trouble problem={tags.problem.value} />
      <div class="split">
        <div class="list">
          {!list ? <Waiting /> : (
            <Table label="tags" noun="tag" rows={list} id={(tag) => tag.name ?? ""} open={values.open}
              onOpen={(tag) => adjust({ open: tag.name })}
              filters={[
                { name: "Groups", test: (tag) => members(tag).length > 0 },
                { name: "Leaves", test: (tag) => members(tag).length === 0 },
                { name: "In trouble", test: (tag) => tag.message !== "" },
              ]}
              columns={[
                { title: "Name", width: "minmax(10rem, 2fr)", text: (tag) => tag.name ?? "", cell: (tag) => <b>{tag.name}</b> },
                { title: "Address", width: "minmax(8rem, 1fr)", text: (tag) => tag.ip ?? "", cell: (tag) => <code>{tag.ip}</code> },
                { title: "Members", width: "minmax(8rem, 3fr)", text: (tag) => members(tag).join(" "), cell: (tag) => members(tag).join(", ") },
                { title: "Rules", width: "minmax(5rem, 1fr)", text: (tag) => used(tag), cell: (tag) => used(tag) },
                { title: "Trouble", width: "minmax(6rem, 2fr)", minor: true, text: (tag) => tag.message, cell: (tag) => tag.message },
                { title: "Resource", width: "minmax(6rem, 1fr)", minor: true, text: (tag) => tag.uri ?? "", cell: (tag) => <code>{tag.uri}</code> },
              ]}
              empty={<Empty title="No tags yet"><p>A tag is a name for an address or a group; rules are written with tags.</p><Command label="Make one" text="trestle tag set db1 --ip 10.0.0.5" /></Empty>}>
              {mayWrite() && <button type="button" class="primary" onClick={() => setDialog("tag")}>Set a tag</button>}
            </Table>
          )}
        </div>
        {open && (
          <Drawer title={open.name ?? ""} onClose={() => adjust({ open: undefined })}>
            <Facts facts={[["Address", open.ip], ["Resource", open.uri], ["Members", members(open).length || ""], ["Of a", open.from], ["Rules", used(open)], ["Trouble", open.message]]} />
            {members(open).length > 0 && (
              <ul class="names">{members(open).map((name) => <li key={name}>{names.includes(name) ? <a href={href("tags", { open: name })}>{name}</a> : <code>{name}</code>}</li>)}</ul>
            )}
            <Resolved name={open.name ?? ""} />
            {mayWrite() && (
              <div class="buttons">
                {members(open).length > 0 && <button type="button" onClick={() => setDialog("members")}>Add members</button>}
                <button type="button" onClick={() => setDialog("rule")}>Add a rule</button>
              </div>
            )}
          </Drawer>
        )}
      </div>
      {(dialog === "tag" || dialog === "members") && (
        <SetTag start={dialog === "members" && open ? { name: open.name ?? "", kind: "group" } : {}} onClose={() => setDialog(undefined)} />
      )}
      {dialog === "rule" && open && (
        <AddRule start={{ on: open.name ?? "", onTag: true }} resources={[]} tags={names} onClose={() => setDialog(undefined)} />
      )}
    </section>
  );
}

/** What rules make of it. */
function used(tag: Tag): string {
  const on = tag.rules > 0 ? [`${tag.rules} on it`] : [];
  const by = tag.named_by > 0 ? [`named by ${tag.named_by}`] : [];
  return [...on, ...by].join(", ");
}

/** What a tag comes to; asked when it is opened. */
function Resolved({ name }: { name: string }) {
  const [resolved, setResolved] = useState<Tag[] | undefined>();
  useEffect(() => {
    let current = true;
    setResolved(undefined);
    call<Tag[]>("POST", `/tags/${encodeURIComponent(name)}/resolveMembers`).then((list) => current && setResolved(list), () => undefined);
    return () => {
      current = false;
    };
  }, [name]);
  if (!resolved) return null;
  return (
    <>
      <h3>Resolves to {resolved.length.toLocaleString("en")}</h3>
      <ul class="names">{resolved.slice(0, 50).map((one) => <li key={`${one.name}${one.ip}`}><code>{one.ip ?? one.uri}</code> <small>{one.name}</small></li>)}</ul>
      {resolved.length > 50 && <p><small>and {(resolved.length - 50).toLocaleString("en")} more</small></p>}
      <Command text={`trestle tag resolve ${name}`} />
    </>
  );
}
