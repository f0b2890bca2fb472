//! The loop: plan, start what can be started, wait for news.

use std::{
    collections::{BTreeMap, BTreeSet},
    panic::{AssertUnwindSafe, resume_unwind},
    sync::Arc,
    time::Duration,
};

use futures::FutureExt as _;
use model::{Subscriber, TagName};
use tokio::{
    task::{JoinError, JoinSet},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span, debug, info_span, warn};

use super::{Job, Orchestrator, OrchestratorError};
use crate::plan::{Action, Intent, Inventory, Plan, StepId, plan};

/// How long news is gathered before a plan is made, so that many changes at once are one plan.
const GATHER: Duration = Duration::from_millis(2);
/// Refusals in a row after which a step will not succeed by itself.
const FINAL_AFTER: u32 = 3;

/// What went wrong with an object.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub message: String,
    /// It will not succeed until somebody changes something.
    pub is_final: bool,
    count: u32,
    not_before: Instant,
}

/// A step that has ended.
struct Ended {
    object: String,
    result: Result<(), OrchestratorError>,
}

/// What one look at the state yields.
struct Look {
    plan: Plan,
    intent: Intent,
    inventory: Arc<Inventory>,
    jobs: Vec<Job>,
}

/// The jobs that wait for a step, by their ids.
fn waiting_for(jobs: &[Job], plan: &Plan, step: StepId, object: &str) -> String {
    let waits = |job: &&Job| {
        let mut waiting = job.resources.iter().filter_map(|name| plan.waiting.get(name));
        job.objects.contains(object) || waiting.any(|steps| steps.contains(&step))
    };
    jobs.iter().filter(waits).map(|job| job.id.as_str()).collect::<Vec<_>>().join(",")
}

fn resume(err: JoinError) {
    if let Ok(panic) = err.try_into_panic() {
        resume_unwind(panic);
    }
}

impl Orchestrator {
    /// Makes the clouds as wanted, again and again, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut steps: JoinSet<Ended> = JoinSet::new();
        let mut busy: BTreeSet<String> = BTreeSet::new();
        let mut checks = JoinSet::new();
        let mut checked = Instant::now();
        self.state.lock().end_all();
        while !stop.is_cancelled() {
            if self.options.check_every.is_some_and(|every| checked.elapsed() >= every) {
                checked = Instant::now();
                let this = Arc::clone(&self);
                checks.spawn(async move {
                    let told = |err| warn!(error = common::chain(&err), "the check failed");
                    let _ = this.fix().await.map_err(told);
                });
            }
            let next = self.round(&mut steps, &mut busy).await;
            let pause = next
                .unwrap_or(Duration::from_secs(3600))
                .min(self.options.check_every.unwrap_or(Duration::MAX));
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.shared.wake.notified() => {}
                () = self.tags.changed() => {}
                () = tokio::time::sleep(pause) => {}
                Some(ended) = steps.join_next(), if !steps.is_empty() => self.ended(ended, &mut busy),
                // A check that panicked is a fault of this task.
                Some(Err(err)) = checks.join_next(), if !checks.is_empty() => resume(err),
            }
            tokio::time::sleep(GATHER).await;
            while let Some(ended) = steps.try_join_next() {
                self.ended(ended, &mut busy);
            }
        }
        // What is under way is dropped; its records say so, and the next start goes on from them. It is gone before this
        // returns: no step outlives the term it was started in.
        steps.shutdown().await;
        self.state.lock().end_all();
    }

    /// Plans and starts. Answers when to look again at the latest.
    async fn round(
        self: &Arc<Self>,
        steps: &mut JoinSet<Ended>,
        busy: &mut BTreeSet<String>,
    ) -> Option<Duration> {
        // Nothing is chosen before it is known what is stored, nor by who may not act on it.
        if *self.shared.in_doubt.borrow() || self.may_act().is_err() {
            return Some(self.options.retry_first);
        }
        let look = self.look()?;
        self.forget_failures(&look.plan);
        self.tell_standing(&look.intent, &look.plan);
        self.subscribe(&look.intent, &look.inventory).await;
        let settled = self.settle_jobs(&look.jobs, &look.plan).await;
        let now = Instant::now();
        let mut next = (!settled).then_some(self.options.retry_first);
        for (id, step) in look.plan.steps.iter().enumerate() {
            let object = step.action.object();
            if !step.after.is_empty() || busy.contains(&object) {
                continue;
            }
            let not_before = self.failures.lock().get(&object).map_or(now, |failure| failure.not_before);
            if not_before > now {
                let pause = not_before - now;
                next = Some(next.map_or(pause, |next| next.min(pause)));
                continue;
            }
            if busy.len() >= self.options.parallel {
                break;
            }
            busy.insert(object.clone());
            self.state.lock().start(object.clone(), step.action.clone());
            let span = info_span!("step", action = %step.action, jobs = waiting_for(&look.jobs, &look.plan, id, &object));
            self.start(step.action.clone(), object, steps, span);
        }
        next
    }

    fn look(&self) -> Option<Look> {
        let (intent, inventory, jobs) = {
            let mut state = self.state.lock();
            let running = state.jobs.values().filter(|job| job.is_running()).cloned();
            let jobs: Vec<_> = running.map(|job| self.with_progress(job)).collect();
            (Arc::clone(&state.intent), state.ahead(), jobs)
        };
        let intent = self.complete(&intent)?;
        let plan = plan(&intent, &inventory);
        Some(Look { plan, intent, inventory, jobs })
    }

    fn start(self: &Arc<Self>, action: Action, object: String, steps: &mut JoinSet<Ended>, span: Span) {
        let this = Arc::clone(self);
        let step = async move {
            debug!("a step starts");
            let started = Instant::now();
            // A plugin in this process that panics fails its step and nothing else.
            let result = AssertUnwindSafe(this.perform(&action)).catch_unwind().await;
            let result =
                result.unwrap_or_else(|_| Err(OrchestratorError::Panicked { action: action.to_string() }));
            // Where the time of a job goes: the longest chain of these is its critical path.
            let (seconds, done) = (started.elapsed().as_secs_f64(), result.is_ok());
            debug!(seconds, done, "a step has ended");
            Ended { object, result }
        };
        // Every line that is logged on behalf of a step says which jobs wait for it.
        steps.spawn(step.instrument(span));
    }

    fn ended(&self, ended: Result<Ended, tokio::task::JoinError>, busy: &mut BTreeSet<String>) {
        // Steps are neither aborted nor let panic, so they always end.
        let Ok(Ended { object, result }) = ended else { return };
        busy.remove(&object);
        self.state.lock().end(&object);
        let mut failures = self.failures.lock();
        match result {
            Ok(()) => drop(failures.remove(&object)),
            Err(err) => {
                let message = common::chain(&err);
                let count = failures.get(&object).map_or(0, |failure| failure.count) + 1;
                warn!(object, count, error = message, "a step failed and is tried again");
                let is_final = !err.is_passing() && count >= FINAL_AFTER;
                let pause = self.options.retry_first * 2u32.saturating_pow((count - 1).min(16));
                let not_before = Instant::now() + pause.min(self.options.retry_longest);
                failures.insert(object, Failure { message, is_final, count, not_before });
            }
        }
    }

    /// What no step acts on any more has nothing left to fail.
    fn forget_failures(&self, plan: &Plan) {
        let mut failures = self.failures.lock();
        if !failures.is_empty() {
            let objects: BTreeSet<String> = plan.steps.iter().map(|step| step.action.object()).collect();
            failures.retain(|object, _| objects.contains(object));
        }
    }

    /// Subscribes resources to the tags of their rules, and to no others, so that whoever asks a tag who listens
    /// gets the truth. What is not used any more is unsubscribed.
    async fn subscribe(&self, intent: &Intent, inventory: &Inventory) {
        let wanted = subscriptions(intent, inventory);
        let (new, old): (Vec<_>, Vec<_>) = {
            let mut known = self.subscribed.lock();
            let known = known.get_or_insert_with(|| subscriptions_of(intent, inventory));
            if *known == wanted {
                return;
            }
            (wanted.difference(known).cloned().collect(), known.difference(&wanted).cloned().collect())
        };
        for (tag, subscriber) in new {
            // A tag that does not exist yet is subscribed to when it does.
            if intent.graph.get(&tag).is_ok() && self.tags.subscribe(&tag, &subscriber).await.is_ok() {
                self.subscribed.lock().get_or_insert_default().insert((tag, subscriber));
            }
        }
        for (tag, subscriber) in old {
            // A deleted tag has taken its subscriptions with it.
            if intent.graph.get(&tag).is_err() || self.tags.unsubscribe(&tag, &subscriber).await.is_ok() {
                self.subscribed.lock().get_or_insert_default().remove(&(tag, subscriber));
            }
        }
    }
}

/// The subscriptions that resources have: an earlier life may have ended before it could undo them. O(tags).
fn subscriptions_of(intent: &Intent, inventory: &Inventory) -> BTreeSet<(TagName, Subscriber)> {
    let made: BTreeSet<Subscriber> = inventory
        .resources
        .iter()
        .filter_map(|(name, record)| {
            Subscriber::resource(&name.namespace, &name.cloud, &record.state.as_ref()?.uri).ok()
        })
        .collect();
    let tags = intent.graph.list("").map(|(tag, _)| tag);
    let of_tag = |tag: &TagName| {
        let subscribers =
            intent.graph.subscribers(tag).into_iter().flatten().filter(|name| made.contains(name));
        subscribers.map(|subscriber| (tag.clone(), subscriber.clone())).collect::<Vec<_>>()
    };
    tags.flat_map(of_tag).collect()
}

fn subscriptions(intent: &Intent, inventory: &Inventory) -> BTreeSet<(TagName, Subscriber)> {
    let mut wanted = BTreeSet::new();
    let made: BTreeMap<_, _> = intent
        .rules
        .keys()
        .filter_map(|name| {
            let state = inventory.resources.get(name)?.state.as_ref()?;
            Some((name, Subscriber::resource(&name.namespace, &name.cloud, &state.uri).ok()?))
        })
        .collect();
    for (name, rules) in &intent.rules {
        let Some(subscriber) = made.get(name) else { continue };
        for tag in rules.values().flat_map(model::PermitRule::tags) {
            wanted.insert((tag.clone(), subscriber.clone()));
        }
    }
    wanted
}
