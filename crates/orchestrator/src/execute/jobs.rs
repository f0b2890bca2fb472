//! Jobs: long work that can be watched, waited for and cancelled.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use futures::future::join_all;
use jiff::Timestamp;
use model::ResourceName;
use serde::{Deserialize, Serialize};
use store::Key;
use tokio::sync::watch;
use tracing::info;

use super::{Orchestrator, OrchestratorError, facts::Fact};
use crate::plan::{Plan, Problem};

/// Ended jobs kept for those who ask later; older ones are forgotten.
const KEPT: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    Running,
    Done,
    /// It could not be done, and what was wanted is not wanted any more.
    Failed,
    Cancelled,
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub id: String,
    /// For people: `create resource default.linux.web`.
    pub what: String,
    pub state: JobState,
    /// The last trouble, or why it ended.
    pub message: String,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Steps still to be done when it was last looked at, and the most there have been.
    pub steps_left: usize,
    pub steps: usize,
    /// Done when none of these waits for a step…
    pub resources: BTreeSet<ResourceName>,
    /// …and no step acts on one of these.
    pub objects: BTreeSet<String>,
    /// What puts the intent back, if it fails or is cancelled.
    undo: Vec<Fact>,
}

impl Job {
    pub(super) fn new(
        what: String,
        resources: BTreeSet<ResourceName>,
        objects: BTreeSet<String>,
        undo: Vec<Fact>,
    ) -> Self {
        Self {
            id: uuid::Uuid::now_v7().to_string(),
            what,
            state: JobState::Running,
            message: String::new(),
            created_at: Timestamp::now(),
            ended_at: None,
            steps_left: 0,
            steps: 0,
            resources,
            objects,
            undo,
        }
    }

    pub(super) fn fact(&self) -> Fact {
        Fact::Job(self.id.clone(), Some(self.clone()))
    }

    pub(super) fn key(&self) -> Key {
        Fact::Job(self.id.clone(), None).key()
    }

    pub(super) fn is_running(&self) -> bool {
        self.state == JobState::Running
    }

    pub(super) fn undo(&self) -> &[Fact] {
        &self.undo
    }

    pub(super) fn undo_of(&self, key: &Key) -> Option<&Fact> {
        self.undo.iter().find(|fact| fact.key() == *key)
    }

    fn end(mut self, state: JobState, message: String) -> Self {
        if state == JobState::Done {
            self.steps_left = 0;
        }
        (self.state, self.message, self.ended_at) = (state, message, Some(Timestamp::now()));
        self
    }
}

/// How far a running job is, as the last plan found it.
pub(super) struct Progress {
    steps_left: usize,
    steps: usize,
    message: String,
}

/// What a plan means for a job.
enum Verdict {
    Waits {
        left: usize,
        message: String,
    },
    Done,
    /// With what could not be done, if it was tried.
    Failed {
        message: String,
        object: Option<String>,
    },
}

/// A plan, with what jobs ask of it at hand: there may be as many of them as there are steps.
struct Outlook<'a> {
    plan: &'a Plan,
    /// What each step acts on.
    objects: Vec<String>,
    /// The steps that act on an object.
    steps: HashMap<String, Vec<usize>>,
    problems: BTreeMap<&'a ResourceName, Vec<&'a Problem>>,
}

impl<'a> Outlook<'a> {
    fn new(plan: &'a Plan) -> Self {
        let objects: Vec<String> = plan.steps.iter().map(|step| step.action.object()).collect();
        let (mut steps, mut problems) = (HashMap::<_, Vec<_>>::new(), BTreeMap::<_, Vec<_>>::new());
        for (id, object) in objects.iter().enumerate() {
            steps.entry(object.clone()).or_default().push(id);
        }
        for problem in &plan.problems {
            problems.entry(&problem.resource).or_default().push(problem);
        }
        Self { plan, objects, steps, problems }
    }
}

impl Orchestrator {
    /// All jobs, oldest first.
    pub fn jobs(&self) -> Vec<Job> {
        let jobs: Vec<_> = self.state.lock().jobs.values().cloned().collect();
        jobs.into_iter().map(|job| self.with_progress(job)).collect()
    }

    /// A job with how far it is, as far as that is known.
    pub(super) fn with_progress(&self, mut job: Job) -> Job {
        if job.is_running()
            && let Some(progress) = self.job_progress.lock().get(&job.id)
        {
            (job.steps_left, job.steps) = (progress.steps_left, progress.steps);
            job.message.clone_from(&progress.message);
        }
        job
    }

    /// Changes with every change of what is wanted, made or under way.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    pub fn job(&self, id: &str) -> Result<Job, OrchestratorError> {
        let found = self.state.lock().jobs.get(id).cloned();
        let job = found.ok_or_else(|| OrchestratorError::UnknownJob { id: id.to_owned() })?;
        Ok(self.with_progress(job))
    }

    /// Waits until a job has ended.
    pub async fn wait(&self, id: &str) -> Result<Job, OrchestratorError> {
        let mut changes = self.shared.changes.subscribe();
        loop {
            let job = self.job(id)?;
            if job.state != JobState::Running {
                return Ok(job);
            }
            // The sender lives in self, so the wait cannot fail.
            let _ = changes.changed().await;
        }
    }

    /// Waits until a job is not as it was.
    pub async fn change_of(&self, id: &str, last: &Job) -> Result<Job, OrchestratorError> {
        let mut changes = self.shared.changes.subscribe();
        loop {
            let job = self.job(id)?;
            if job != *last {
                return Ok(job);
            }
            // The sender lives in self, so the wait cannot fail.
            let _ = changes.changed().await;
        }
    }

    /// Ends a running job and takes back what it wanted; what it made already is taken down.
    pub async fn cancel(&self, id: &str) -> Result<Job, OrchestratorError> {
        let job = self.job(id)?;
        if job.state != JobState::Running {
            return Err(OrchestratorError::JobEnded { id: job.id, state: job.state.to_string() });
        }
        self.end_job(job, JobState::Cancelled, "cancelled by a user".to_owned()).await?;
        self.job(id)
    }

    async fn end_job(&self, job: Job, state: JobState, message: String) -> Result<(), OrchestratorError> {
        info!(job = job.id, what = job.what, %state, message, "a job has ended");
        let mut facts = match state {
            JobState::Done => Vec::new(),
            _ => self.state.lock().undo(&job),
        };
        facts.push(job.end(state, message).fact());
        self.commit(facts).await
    }

    /// Looks at the jobs that were running when the plan was made. False if one could not be settled.
    pub(super) async fn settle_jobs(&self, running: &[Job], plan: &Plan) -> bool {
        let outlook = Outlook::new(plan);
        self.forget_progress(running);
        // All at once, so that thousands of them share the store's writes.
        let settled = join_all(running.iter().map(|job| async {
            match self.judge(job, &outlook) {
                Verdict::Done => self.end_job(job.clone(), JobState::Done, String::new()).await,
                Verdict::Failed { message, object } => {
                    let ended = self.end_job(job.clone(), JobState::Failed, message).await;
                    // What is left to do there is something else now, and later jobs are not judged by this one.
                    object.into_iter().for_each(|object| drop(self.failures.lock().remove(&object)));
                    ended
                }
                Verdict::Waits { left, message } => {
                    self.tell_progress(job, left, message);
                    Ok(())
                }
            }
        }));
        let mut all = true;
        for err in settled.await.into_iter().filter_map(Result::err) {
            // Somebody else ended it, or the store does not answer; the next round looks again.
            tracing::debug!(error = %err, "a job could not be settled");
            all = false;
        }
        self.forget_old_jobs().await;
        all
    }

    fn judge(&self, job: &Job, outlook: &Outlook<'_>) -> Verdict {
        let about = |problem: &&&Problem| {
            problem
                .rule
                .as_ref()
                .is_none_or(|rule| job.objects.contains(&format!("rule/{}/{rule}", problem.resource)))
        };
        let problems = job.resources.iter().filter_map(|name| outlook.problems.get(name)).flatten();
        // Without the cloud, nobody knows what is left to do there; what was promised stays promised.
        let mut absent = None;
        for problem in problems.filter(about) {
            match problem.kind.goes_by_itself() {
                true => absent = Some(problem.to_string()),
                false => return Verdict::Failed { message: problem.to_string(), object: None },
            }
        }
        let waiting = job.resources.iter().filter_map(|name| outlook.plan.waiting.get(name)).flatten();
        let acting = job.objects.iter().filter_map(|object| outlook.steps.get(object)).flatten();
        let left: BTreeSet<usize> = waiting.chain(acting).copied().collect();
        if left.is_empty() && absent.is_none() {
            return Verdict::Done;
        }
        let failures = self.failures.lock();
        let mut message = absent.unwrap_or_default();
        for id in &left {
            // What a step waits for holds the job up just as well.
            let held = outlook.plan.steps[*id].after.iter().chain([id]);
            for (object, failure) in held.filter_map(|step| failures.get_key_value(&outlook.objects[*step])) {
                if failure.is_final {
                    return Verdict::Failed {
                        message: failure.message.clone(),
                        object: Some(object.clone()),
                    };
                }
                message.clone_from(&failure.message);
            }
        }
        Verdict::Waits { left: left.len(), message }
    }

    fn tell_progress(&self, job: &Job, left: usize, message: String) {
        if (job.steps_left, &job.message) == (left, &message) {
            return;
        }
        let progress = Progress { steps_left: left, steps: job.steps.max(left), message };
        self.job_progress.lock().insert(job.id.clone(), progress);
        self.shared.changes.send_modify(|count| *count += 1);
    }

    fn forget_progress(&self, running: &[Job]) {
        let mut progress = self.job_progress.lock();
        if !progress.is_empty() {
            let running: BTreeSet<&str> = running.iter().map(|job| &*job.id).collect();
            progress.retain(|id, _| running.contains(&**id));
        }
    }

    async fn forget_old_jobs(&self) {
        let old: Vec<Fact> = {
            let state = self.state.lock();
            let ended: Vec<_> = state.jobs.values().filter(|job| job.state != JobState::Running).collect();
            let surplus = ended.len().saturating_sub(KEPT);
            ended.iter().take(surplus).map(|job| Fact::Job(job.id.clone(), None)).collect()
        };
        if !old.is_empty() {
            // If it fails, the next round does it.
            let _ = self.commit(old).await;
        }
    }
}
