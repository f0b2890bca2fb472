// Jobs: long work, how far it is, and what went wrong.

import { useState } from "preact/hooks";
import { call, type Job } from "../api.ts";
import { mayWrite, useLive } from "../live.ts";
import { ago, clock, duration } from "../parts/format.ts";
import { Badge, Command, Drawer, Empty, Facts, Meter, notify, Trouble, type Tone } from "../parts/parts.tsx";
import { Table, Waiting } from "../parts/table.tsx";
import { adjust } from "../route.ts";
import { Confirm } from "./actions.tsx";

const tone = (state: string): Tone => (({ done: "good", failed: "bad", running: "busy" }) as Record<string, Tone>)[state] ?? "plain";

/** A job that is done has done all its steps. */
const stepsDone = (job: Job) => (job.state === "done" ? job.steps : job.steps - job.steps_left);

function took(job: Job): string {
  const end = job.ended_at ? Date.parse(job.ended_at) : Date.now();
  return duration((end - Date.parse(job.created_at)) / 1000);
}

export function Jobs({ values }: { values: Record<string, string> }) {
  const jobs = useLive<Job[]>("/jobs", ["jobs"]);
  const [cancelling, setCancelling] = useState<Job | undefined>();
  const list = jobs.data.value && jobs.data.value.toReversed();
  const open = list?.find((job) => job.id === values.open);
  return (
    <section class="view">
      <header><h1>Jobs</h1><p>What changes in clouds, step by step; newest first.</p></header>
      <Trouble problem={jobs.problem.value} />
      <div class="split">
        <div class="list">
          {!list ? <Waiting /> : (
            <Table label="jobs" noun="job" rows={list} id={(job) => job.id} open={values.open} onOpen={(job) => adjust({ open: job.id })}
              filters={["running", "failed"].map((state) => ({ name: state, test: (job: Job) => job.state === state }))}
              columns={[
                { title: "What", width: "minmax(12rem, 3fr)", text: (job) => job.what, cell: (job) => <b>{job.what}</b> },
                { title: "State", width: "7.5rem", text: (job) => job.state, cell: (job) => <Badge tone={tone(job.state)}>{job.state}</Badge> },
                { title: "Steps", width: "8rem", minor: true, text: stepsDone, cell: (job) => job.steps > 0 ? <span class="usage"><Meter value={stepsDone(job)} most={job.steps} label="progress" />{stepsDone(job)}/{job.steps}</span> : "" },
                { title: "Took", width: "5.5rem", text: (job) => Date.parse(job.ended_at ?? job.created_at) - Date.parse(job.created_at), cell: took },
                { title: "Started", width: "7rem", minor: true, text: (job) => job.created_at, cell: (job) => ago(job.created_at) },
                { title: "Message", width: "minmax(6rem, 2fr)", minor: true, text: (job) => job.message, cell: (job) => job.message },
              ]}
              empty={<Empty title="No jobs yet"><p>Work that takes a while, such as making a resource, shows up here.</p></Empty>} />
          )}
        </div>
        {open && (
          <Drawer title={open.what} onClose={() => adjust({ open: undefined })}>
            {open.steps > 0 && <Meter value={stepsDone(open)} most={open.steps} label="progress" />}
            <Facts facts={[
              ["State", <Badge tone={tone(open.state)}>{open.state}</Badge>], ["Message", open.message], ["Steps", open.steps > 0 ? `${stepsDone(open)} of ${open.steps} done` : ""],
              ["Started", clock(open.created_at)], ["Ended", open.ended_at ? clock(open.ended_at) : ""], ["Took", took(open)], ["Id", <code>{open.id}</code>],
            ]} />
            {open.state === "running" && mayWrite() && <div class="buttons"><button type="button" class="danger" onClick={() => setCancelling(open)}>Cancel the job</button></div>}
            <Command text={`trestle job get ${open.id}`} />
          </Drawer>
        )}
      </div>
      {cancelling && (
        <Confirm title="Cancel the job" text={`“${cancelling.what}” ends, and what it wanted is taken back.`} command={`trestle job cancel ${cancelling.id}`} action="Cancel job"
          work={async () => { await call("DELETE", `/jobs/${encodeURIComponent(cancelling.id)}`); notify("The job is cancelled"); }} onClose={() => setCancelling(undefined)} />
      )}
    </section>
  );
}
