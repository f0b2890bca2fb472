// The page: who is there, where they are, what they see.

import { render } from "preact";
import { useEffect } from "preact/hooks";
import { call, Problem, type Identity, type Job, type Status } from "./api.ts";
import { connection, enter, identity, leave, session, useLive } from "./live.ts";
import { Notices, Trouble } from "./parts/parts.tsx";
import { href, route } from "./route.ts";
import { signal } from "@preact/signals";
import { theme, toggleTheme } from "./theme.ts";
import { Audit } from "./views/audit.tsx";
import { Explain } from "./views/explain.tsx";
import { Hosts } from "./views/hosts.tsx";
import { Jobs } from "./views/jobs.tsx";
import { Map } from "./views/map.tsx";
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
  jobs: { title: "Jobs", view: Jobs },
  audit: { title: "Audit", view: Audit },
};

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
    history.replaceState(null, "", "#/map");
    route.value = { view: "map", values: {} };
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
  const entry = VIEWS[view as keyof typeof VIEWS] ?? VIEWS.map;
  const jobs = useLive<Job[]>("/jobs", ["jobs"]).data.value;
  const status = useLive<Status>("/status", ["nodes"]).data.value;
  const running = jobs?.filter((job) => job.state === "running").length ?? 0;
  document.title = `${entry.title} · Trestle`;
  useEffect(() => {
    // On narrow screens the views stand in one line; the current one comes into sight.
    document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }, [view]);
  return (
    <div class="shell">
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); document.getElementById("content")?.focus(); }}>Skip to content</a>
      <nav aria-label="Views">
        <a class="brand" href={href("map")}><Mark /> Trestle</a>
        <ul>
          {Object.entries(VIEWS).map(([name, { title }]) => (
            <li key={name}>
              <a href={href(name)} aria-current={entry === VIEWS[name as keyof typeof VIEWS] ? "page" : undefined}>
                {title}
                {name === "jobs" && running > 0 && <span class="pill" aria-label={`${running} running`}>{running}</span>}
              </a>
            </li>
          ))}
        </ul>
        <div class="foot">
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
