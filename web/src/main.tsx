// The page: who is there, where they are, what they see.

import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { call, Problem, type Identity, type Job, type Status } from "./api.ts";
import { connection, enter, identity, leave, session, useLive } from "./live.ts";
import { Notices, Trouble } from "./parts/parts.tsx";
import { href, route } from "./route.ts";
import { signal } from "@preact/signals";
import { theme, toggleTheme } from "./theme.ts";
import { Api } from "./views/api.tsx";
import { Audit } from "./views/audit.tsx";
import { Explain } from "./views/explain.tsx";
import { Flows } from "./views/flows.tsx";
import { Hosts } from "./views/hosts.tsx";
import { Jobs } from "./views/jobs.tsx";
import { Map } from "./views/map.tsx";
import { Overview } from "./views/overview.tsx";
import { Palette, searching, useShortcut } from "./views/palette.tsx";
import { Nodes } from "./views/nodes.tsx";
import { Permissions } from "./views/permissions.tsx";
import { Policies } from "./views/policies.tsx";
import { Reachability } from "./views/reachability.tsx";
import { Resources } from "./views/resources.tsx";
import { Services } from "./views/services.tsx";
import { Storage } from "./views/storage.tsx";
import { Tags } from "./views/tags.tsx";
import "./style.css";

const VIEWS = {
  overview: { title: "Overview", view: Overview },
  map: { title: "Map", view: Map },
  reachability: { title: "Reachability", view: Reachability },
  explain: { title: "Explain", view: Explain },
  resources: { title: "Resources", view: Resources },
  tags: { title: "Tags", view: Tags },
  permissions: { title: "Permissions", view: Permissions },
  policies: { title: "Policies", view: Policies },
  services: { title: "Services", view: Services },
  hosts: { title: "Hosts", view: Hosts },
  nodes: { title: "Nodes", view: Nodes },
  storage: { title: "Storage", view: Storage },
  flows: { title: "Flows", view: Flows },
  jobs: { title: "Jobs", view: Jobs },
  audit: { title: "Audit", view: Audit },
  api: { title: "API", view: Api },
};

/** How views stand in the navigation. */
const PARTS: { name: string; views: (keyof typeof VIEWS)[] }[] = [
  { name: "", views: ["overview", "map", "reachability", "explain"] },
  { name: "What is stated", views: ["permissions", "policies", "tags", "resources", "services"] },
  { name: "Where it holds", views: ["hosts", "nodes", "storage"] },
  { name: "What happened", views: ["flows", "jobs", "audit"] },
  { name: "To build on", views: ["api"] },
];

const loginProblem = signal<Problem | undefined>(undefined);

async function login(proof: { code: string } | { token: string }) {
  try {
    identity.value = await call<Identity>("POST", "/session", proof);
    loginProblem.value = undefined;
    await enter();
  } catch (failed) {
    loginProblem.value = failed instanceof Problem ? failed : new Problem("UNKNOWN", 0, String(failed));
    session.value = "out";
  }
}

async function start() {
  // A login link has its code in the fragment; it is taken out of the address and the history at once.
  const code = /^#login=([0-9a-f-]+)$/.exec(location.hash)?.[1];
  if (code !== undefined) {
    history.replaceState(null, "", "#/overview");
    route.value = { view: "overview", values: {} };
    await login({ code });
  } else {
    await enter();
  }
}

function Login() {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const field = (event.target as HTMLFormElement).elements.namedItem("token") as HTMLInputElement;
    void login({ token: field.value });
    field.value = "";
  };
  return (
    <main class="login">
      <h1><Mark /> Trestle</h1>
      <p>Run this where the controller's command line works, and open the link it prints:</p>
      <pre><code>trestle page</code></pre>
      <form onSubmit={submit}>
        <label class="field">
          <span>Or paste a token</span>
          <input name="token" type="password" autocomplete="off" required placeholder="trestle-…" />
        </label>
        <Trouble problem={loginProblem.value} />
        <button type="submit" class="primary">Log in</button>
      </form>
    </main>
  );
}

function Mark() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
      <path d="M3 9h26M8 9 4 25M24 9l4 16M8 9l8 16 8-16M12 17h8" />
    </svg>
  );
}

function Shell() {
  const { view, values } = route.value;
  const entry = VIEWS[view as keyof typeof VIEWS] ?? VIEWS.overview;
  const jobs = useLive<Job[]>("/jobs", ["jobs"]).data.value;
  const status = useLive<Status>("/status", ["nodes"]).data.value;
  const running = jobs?.filter((job) => job.state === "running").length ?? 0;
  document.title = `${entry.title} · Trestle`;
  const [menu, setMenu] = useState(false);
  useShortcut();
  useEffect(() => setMenu(false), [route.value]);
  return (
    <div class="shell">
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); document.getElementById("content")?.focus(); }}>Skip to content</a>
      <nav aria-label="Views" class={menu ? "wide" : ""} onKeyDown={(event) => event.key === "Escape" && setMenu(false)}>
        <div class="top">
          <a class="brand" href={href("overview")}><Mark /> Trestle</a>
          <b class="here">{entry.title}</b>
          <button type="button" class="search-all" onClick={() => { searching.value = true; }}><span>Find</span> <kbd>Ctrl K</kbd></button>
          <button type="button" class="menu" aria-expanded={menu} aria-controls="views" onClick={() => setMenu(!menu)}>
            {menu ? "Close" : "Views"}{running > 0 && !menu && <span class="pill" aria-hidden="true">{running}</span>}
          </button>
        </div>
        <div class="views" id="views">
          {PARTS.map(({ name, views }) => (
            <div key={name}>
              {name && <h2>{name}</h2>}
              <ul>
                {views.map((one) => (
                  <li key={one}>
                    <a href={href(one)} aria-current={entry === VIEWS[one] ? "page" : undefined}>
                      {VIEWS[one].title}
                      {one === "jobs" && running > 0 && <span class="pill" role="img" aria-label={`${running} running`}>{running}</span>}
                    </a>
                  </li>
                ))}
              </ul>
            </div>
          ))}
        </div>
        <div class="foot">
          <a class="docs" href="/page/docs.html">Documents</a>
          <span class={`connection ${connection.value}`} role="status">
            {{ live: "Live", connecting: "Connecting", lost: "Connection lost" }[connection.value]}
          </span>
          {status && !status.ready && <p class="trouble" role="alert">{status.problems.join("; ")}</p>}
          <span class="who" title={`${identity.value?.role}, by ${identity.value?.proof}`}>
            {identity.value?.name} <small>{identity.value?.role}</small>
          </span>
          <span class="buttons">
            <button type="button" class="quiet small" onClick={toggleTheme}>{theme.value === "dark" ? "Light" : "Dark"}</button>
            {identity.value?.proof === "session" && (
              <button type="button" class="quiet small" onClick={() => void call("DELETE", "/session").finally(leave)}>Log out</button>
            )}
          </span>
          {status && <small class="version">{status.version} · {status.store} store</small>}
        </div>
      </nav>
      <main id="content" tabIndex={-1} key={view}>
        <entry.view values={values} />
      </main>
      <Notices />
      {searching.value && <Palette views={VIEWS} />}
    </div>
  );
}

function App() {
  if (session.value === "starting") return <p class="starting" role="status">Connecting…</p>;
  return session.value === "in" ? <Shell /> : <Login />;
}

const root = document.getElementById("app");
if (root) render(<App />, root);
void start();
