//! Policy tests: whether what their authors rely on is so, and a change that would break one refused.
//!
//! In: the PolicyTests that are stored or about to be, and a change of objects. Out: what became of each line, or the refusal of the
//! change with the connection that would be decided otherwise. Holds: whose turn it is to change objects.
//! Judging is pure (`judge`). Not here: what an end of explain is (`explain`), the copy that a change is tried on (`what_if`).
//!
//! A change breaks a test that fails after it and does not now. One that fails already stops nobody: what it is about may be mended in
//! several steps. What clusters, clouds and tags do is not refused by anybody here; the test fails then when it is run.

mod judge;

use std::{collections::BTreeMap, sync::Arc};

use drivers::objects::{Objects, ObjectsError, Validation, read_entry};
use futures::StreamExt as _;
use model::policy::{Kind, Object, ObjectId, policy_test::Expectation};
use policy::Engine;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tonic::Code;
use wire::trestle::v1::{PolicyTestResult, RunPolicyTestsRequest, RunPolicyTestsResponse};

use crate::{
    explain::Explainer,
    failure::Failure,
    objects::{documents, kind},
    turns::in_turn,
    what_if::Change,
};
use judge::{Judge, Judged, Outcome};

/// Broken tests that a refusal names.
const MOST_TOLD: usize = 10;

#[derive(Clone)]
pub struct PolicyTests {
    pub objects: Objects,
    pub explainer: Explainer,
    /// Held from the look at tests until the engine has what was done.
    pub turn: Arc<RwLock<()>>,
}

/// Kept by whoever changes objects until the engine has taken the change in.
pub enum Turn {
    /// Nothing is held against tests: others may change objects meanwhile, but none may add a test.
    Beside(OwnedRwLockReadGuard<()>),
    /// Nobody else changes objects.
    Alone(OwnedRwLockWriteGuard<()>),
}

/// One line of a PolicyTest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    test: ObjectId,
    index: usize,
    expectation: Expectation,
}

impl Line {
    /// As in `test shop/basics, line 2`, from 1 as people count.
    fn name(&self) -> String {
        let ObjectId { namespace, name, .. } = &self.test;
        format!("test {namespace}/{name}, line {}", self.index + 1)
    }
}

/// Tests by their name.
type Tests = BTreeMap<ObjectId, Vec<Expectation>>;

fn lines(tests: &Tests) -> Vec<Line> {
    let of = |(id, lines): (&ObjectId, &Vec<Expectation>)| {
        let line = |(index, expectation): (usize, &Expectation)| Line {
            test: id.clone(),
            index,
            expectation: expectation.clone(),
        };
        lines.iter().enumerate().map(line).collect::<Vec<_>>()
    };
    tests.iter().flat_map(of).collect()
}

/// The tests as they would be.
fn changed(mut tests: Tests, change: &Change) -> Tests {
    for object in &change.applied {
        if let Object::PolicyTest(test) = object {
            tests.insert(object.id(), test.spec.tests.clone());
        }
    }
    change.deleted.iter().for_each(|id| drop(tests.remove(id)));
    tests
}

impl PolicyTests {
    /// Runs what is stored, as if a change were made. Nothing is.
    pub async fn run(&self, request: RunPolicyTestsRequest) -> Result<RunPolicyTestsResponse, Failure> {
        let RunPolicyTestsRequest { documents: texts, staged, deleted } = request;
        let documents = drivers::blocking(move || documents(&texts, Validation::Strict)).await?;
        let deleted = deleted.into_iter().map(|one| {
            Ok::<_, Failure>(ObjectId { kind: kind(&one.kind)?, namespace: one.namespace, name: one.name })
        });
        let deleted = Change::of_deletion(deleted.collect::<Result<_, _>>()?);
        let change = Change::of_documents(&documents).then(deleted);
        let change = if staged { self.staged().await?.then(change) } else { change };
        let before = self.stored().await?;
        let tests = lines(&changed(before.clone(), &change));
        let judge = self.judge();
        let judged = in_turn(move || {
            let now = judge.engine();
            let is_tried = !change.is_empty();
            let then = is_tried.then(|| change.on(now.clone()));
            let then = then.as_ref().unwrap_or(&now);
            let broken = if is_tried { broken(&judge, &now, then, &before, &tests)? } else { Vec::new() };
            let judged = tests
                .into_iter()
                .map(|line| Ok((judge.judge(then, is_tried.then_some(&now), &line.expectation)?, line)));
            Ok((judged.collect::<Result<Vec<_>, _>>()?, broken))
        });
        let (judged, broken) = judged.await?;
        Ok(answer(judged, broken))
    }

    /// The turn of a change, so that no two are looked at without each other. Refuses one that would break a test, unless it is made
    /// despite tests. `alone`: it adds a test, or is held against something else that others could change meanwhile. What would be changed
    /// is asked only where it matters, and then nobody else changes anything.
    pub async fn turn(
        &self,
        despite_tests: bool,
        alone: bool,
        change: impl Future<Output = Result<Change, Failure>>,
    ) -> Result<Turn, Failure> {
        if !alone {
            let beside = Arc::clone(&self.turn).read_owned().await;
            if despite_tests || self.stored().await?.is_empty() {
                return Ok(Turn::Beside(beside));
            }
        }
        let turn = Arc::clone(&self.turn).write_owned().await;
        if !despite_tests {
            self.admit(change.await?).await?;
        }
        Ok(Turn::Alone(turn))
    }

    /// Refuses a change that would break a test.
    async fn admit(&self, change: Change) -> Result<(), Failure> {
        let before = self.stored().await?;
        let after = lines(&changed(before.clone(), &change));
        if after.is_empty() {
            return Ok(());
        }
        let judge = self.judge();
        let broken = in_turn(move || {
            let now = judge.engine();
            let then = change.on(now.clone());
            broken(&judge, &now, &then, &before, &after)
        });
        let broken = broken.await?;
        if broken.is_empty() { Ok(()) } else { Err(refusal(&broken)) }
    }

    /// What of the tests each change alone would break, a sentence for each.
    pub async fn breaks(&self, changes: Vec<Change>) -> Result<Vec<Vec<String>>, Failure> {
        let tests = self.stored().await?;
        let mut applied = changes.iter().flat_map(|change| &change.applied);
        if tests.is_empty() && applied.all(|object| object.kind() != Kind::PolicyTest) {
            return Ok(vec![Vec::new(); changes.len()]);
        }
        let judge = self.judge();
        in_turn(move || {
            let now = judge.engine();
            let of = |change: Change| {
                let after = lines(&changed(tests.clone(), &change));
                broken(&judge, &now, &change.on(now.clone()), &tests, &after)
            };
            changes.into_iter().map(of).collect()
        })
        .await
    }

    pub async fn staged(&self) -> Result<Change, Failure> {
        Ok(Change::of_staged(&self.objects.staged().await?))
    }

    async fn stored(&self) -> Result<Tests, Failure> {
        let mut snapshot = self.objects.snapshot(Some(Kind::PolicyTest)).await?;
        let mut tests = Tests::new();
        while let Some(page) = snapshot.pages.next().await {
            let page = page.map_err(ObjectsError::Read)?;
            for stored in page.iter().filter_map(read_entry) {
                if let Object::PolicyTest(test) = stored.document.object() {
                    tests.insert(stored.id().clone(), test.spec.tests.clone());
                }
            }
        }
        Ok(tests)
    }

    fn judge(&self) -> Judge {
        Judge { explainer: self.explainer.clone() }
    }
}

/// Lines that fail then and do not now.
fn broken(
    judge: &Judge,
    now: &Engine,
    then: &Engine,
    before: &Tests,
    after: &[Line],
) -> Result<Vec<String>, policy::survey::TooManyPairs> {
    let mut told = Vec::new();
    for line in after {
        let judged = judge.judge(then, Some(now), &line.expectation)?;
        if judged.outcome != Outcome::Failed {
            continue;
        }
        let is_old = before.get(&line.test).is_some_and(|lines| lines.contains(&line.expectation));
        if is_old && judge.judge(now, None, &line.expectation)?.outcome == Outcome::Failed {
            continue;
        }
        told.push(format!("{}: {}", line.name(), judged.because));
    }
    Ok(told)
}

fn refusal(broken: &[String]) -> Failure {
    let mut text = match broken.len() {
        1 => "nothing was changed, for a policy test would fail:".to_owned(),
        many => format!("nothing was changed, for {many} policy tests would fail:"),
    };
    broken.iter().take(MOST_TOLD).for_each(|line| text.extend(["\n  ", line]));
    if broken.len() > MOST_TOLD {
        text.push_str(&format!("\n  … and {} more", broken.len() - MOST_TOLD));
    }
    text.push_str("\nchange the test with it, or do it --despite-tests (despite_tests)");
    Failure::new(Code::FailedPrecondition, text)
}

fn answer(judged: Vec<(Judged, Line)>, broken: Vec<String>) -> RunPolicyTestsResponse {
    let count = |outcome: Outcome| {
        let many = judged.iter().filter(|(judged, _)| judged.outcome == outcome).count();
        u32::try_from(many).unwrap_or(u32::MAX)
    };
    let (passed, failed, undecided) =
        (count(Outcome::Passed), count(Outcome::Failed), count(Outcome::Undecided));
    let result = |(judged, line): (Judged, Line)| PolicyTestResult {
        namespace: line.test.namespace,
        name: line.test.name,
        index: u32::try_from(line.index).unwrap_or(u32::MAX),
        from: line.expectation.from,
        to: line.expectation.to,
        traffic: judged.traffic,
        expected: line.expectation.expect,
        outcome: judged.outcome.as_str().to_owned(),
        because: judged.because,
        pairs: judged.pairs,
    };
    let results = judged.into_iter().map(result).collect();
    RunPolicyTestsResponse { results, passed, failed, undecided, broken }
}
