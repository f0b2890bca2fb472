//! Staged changes: what each would come to, and their end.
//!
//! In: what is staged (`drivers::objects::staged`), and what nodes have seen. Out: each with what it would change of the object, of who
//! reaches whom, of the tests it would break, and of the connections that were seen; objects in force; nothing. Pure where it decides (`reach::difference`). Not here: staging itself, which is a way
//! to apply and to delete (`objects`).

use drivers::objects::{Outcome, staged::Staged};
use model::policy::{Kind, ObjectId};
use tonic::Code;
use wire::trestle::v1::{
    ApplyObjectsResponse, DiscardStagedRequest, DiscardStagedResponse, ListStagedRequest, ListStagedResponse,
    ObjectRef, PromoteStagedRequest, ReplayedFlow, StagedChange, StagedPair, StagedReach,
};

use crate::{
    failure::Failure,
    objects::{Changing, object_id, object_ref, wire_outcome},
    reach::{Cell, Difference, difference},
    seen::{self, Order, Recorded, Replay, recorded},
    turns::in_turn,
    what_if::Change,
};

/// Connections that are told of one change, and that a refusal names.
const MOST_SEEN: usize = 200;
const MOST_REFUSED: usize = 10;

impl Changing {
    pub async fn list_staged(&self, request: ListStagedRequest) -> Result<ListStagedResponse, Failure> {
        let staged = self.objects.staged().await?;
        let each: Vec<Change> = staged.iter().map(|one| Change::of_staged([one])).collect();
        let breaks = self.tests.breaks(each.clone()).await?;
        let mut changes = Vec::with_capacity(staged.len());
        for (one, breaks) in staged.iter().zip(breaks) {
            let (applied, _) = self.objects.promote(std::slice::from_ref(one), true).await?;
            // A deletion of what has gone.
            let applied = applied.into_iter().next();
            changes.push(StagedChange {
                object: Some(object_ref(&one.id)),
                outcome: wire_outcome(applied.as_ref().map_or(Outcome::Unchanged, |applied| applied.outcome))
                    as i32,
                difference: applied.map(|applied| applied.difference).unwrap_or_default(),
                staged_at: one.at.as_second(),
                reach: None,
                breaks,
                seen: None,
            });
        }
        let mut response = ListStagedResponse::default();
        if !request.since.is_empty() && !staged.is_empty() {
            self.hold_seen(&request.since, &each, Change::of_staged(&staged), &mut changes, &mut response)
                .await?;
        }
        if request.reach && !staged.is_empty() {
            let policy = self.policy.clone();
            let all = Change::of_staged(&staged);
            let reaches = in_turn(move || {
                let engine = policy.ask(Clone::clone);
                let each = each.iter().map(|change| difference(engine.clone(), change));
                let each = each.collect::<Result<Vec<_>, _>>()?;
                Ok((each, difference(engine, &all)?))
            });
            let (each, all) = reaches.await?;
            for (change, reach) in changes.iter_mut().zip(each) {
                change.reach = Some(staged_reach(reach));
            }
            response.together = Some(staged_reach(all));
        }
        Ok(ListStagedResponse { changes, ..response })
    }

    /// Holds connections that were seen against each change, and against all.
    async fn hold_seen(
        &self,
        since: &str,
        each: &[Change],
        all: Change,
        changes: &mut [StagedChange],
        response: &mut ListStagedResponse,
    ) -> Result<(), Failure> {
        let Recorded { flows, notes, .. } = match recorded(&self.flows, since, true).await {
            Ok(recorded) => recorded,
            // All else can be told.
            Err(failure) if failure.code == Code::FailedPrecondition => {
                response.notes.push(format!("connections are not looked at: {}", failure.message));
                return Ok(());
            }
            Err(failure) => return Err(failure),
        };
        response.notes.extend(notes);
        let (flows, explainer) = (seen::read(flows)?, self.tests.explainer.clone());
        let tried: Vec<Change> = each.iter().cloned().chain([all]).collect();
        let told = in_turn(move || {
            let mut replay = Replay::new(explainer, flows)?;
            let against = |change: Change| {
                let then = change.on(replay.now.clone());
                replay.against(&then, Order::Newest, MOST_SEEN)
            };
            tried.into_iter().map(against).collect::<Result<Vec<_>, _>>()
        });
        let mut told = told.await?;
        response.together_seen = told.pop();
        for (change, told) in changes.iter_mut().zip(told) {
            change.seen = Some(told);
        }
        Ok(())
    }

    pub async fn promote(&self, request: PromoteStagedRequest) -> Result<ApplyObjectsResponse, Failure> {
        let PromoteStagedRequest { objects, dry_run, despite_tests, if_clean } = request;
        let staged = chosen(self.objects.staged().await?, objects)?;
        // Read before others have to wait; what comes meanwhile is not seen yet.
        let seen = match if_clean.is_empty() {
            true => None,
            false => Some(recorded(&self.flows, &if_clean, true).await?),
        };
        let adds_tests = staged.iter().any(|one| one.id.kind == Kind::PolicyTest);
        let change = async { Ok(Change::of_staged(&staged)) };
        let _turn = self.tests.turn(despite_tests, adds_tests || seen.is_some(), change).await?;
        let warnings = match seen {
            Some(seen) => self.held_clean(Change::of_staged(&staged), seen).await?,
            None => Vec::new(),
        };
        let applied = self.objects.promote(&staged, dry_run).await;
        let applied = self.settled(applied, dry_run).await?;
        Ok(ApplyObjectsResponse { applied, warnings })
    }

    /// Refuses a change by which a connection that was seen would be decided otherwise. What is not known of those that were seen is told;
    /// if there is more than was looked at, it is not known to be clean.
    async fn held_clean(&self, change: Change, seen: Recorded) -> Result<Vec<String>, Failure> {
        let refused =
            |why: String| Failure::new(Code::FailedPrecondition, format!("nothing was changed: {why}"));
        if let Some(why) = seen.is_cut {
            return Err(refused(format!("{why}; ask for less, or do it without --if-clean (if_clean)")));
        }
        let (flows, explainer) = (seen::read(seen.flows)?, self.tests.explainer.clone());
        let told = in_turn(move || {
            let mut replay = Replay::new(explainer, flows)?;
            let then = change.on(replay.now.clone());
            replay.against(&then, Order::Newest, MOST_REFUSED)
        });
        let told = told.await?;
        if !told.changed.is_empty() {
            let mut text = "connections that were seen would be decided otherwise:".to_owned();
            for one in &told.changed {
                let ReplayedFlow { from, to, traffic, count, before, after, last, .. } = one;
                text.push_str(&format!(
                    "\n  {from} to {to} {traffic}, {count} times, last {last}: {before}, would be {after}"
                ));
            }
            if told.left_out > 0 {
                text.push_str(&format!("\n  … and {} more", told.left_out));
            }
            return Err(refused(text));
        }
        let mut warnings = seen.notes;
        if told.unknown > 0 {
            warnings.push(format!("{} connections were of workloads that are not there", told.unknown));
        }
        Ok(warnings)
    }

    pub async fn discard(&self, request: DiscardStagedRequest) -> Result<DiscardStagedResponse, Failure> {
        let staged = chosen(self.objects.staged().await?, request.objects)?;
        self.objects.discard(&staged).await?;
        Ok(DiscardStagedResponse { discarded: staged.iter().map(|one| object_ref(&one.id)).collect() })
    }
}

/// Those that are named; all, if none is.
fn chosen(staged: Vec<Staged>, named: Vec<ObjectRef>) -> Result<Vec<Staged>, Failure> {
    if named.is_empty() {
        return match staged.is_empty() {
            true => Err(Failure::new(Code::NotFound, "nothing is staged; see `trestle apply --stage`")),
            false => Ok(staged),
        };
    }
    let ids = named.into_iter().map(object_id).collect::<Result<Vec<ObjectId>, _>>()?;
    if let Some(absent) = ids.iter().find(|id| !staged.iter().any(|one| one.id == **id)) {
        return Err(Failure::new(Code::NotFound, format!("{absent} is not staged; see `trestle staged`")));
    }
    Ok(staged.into_iter().filter(|one| ids.contains(&one.id)).collect())
}

fn staged_reach(difference: Difference) -> StagedReach {
    let word = |cell: &Cell| match (cell.open + cell.partly, &cell.ports) {
        (0, _) => String::new(),
        (_, Some(ports)) => ports.clone(),
        (_, None) => "some".to_owned(),
    };
    let pairs = difference.changes.iter().map(|change| StagedPair {
        from: change.from.clone(),
        to: change.to.clone(),
        pairs: change.before.pairs.max(change.after.pairs),
        open_before: change.before.open + change.before.partly,
        open_after: change.after.open + change.after.partly,
        before: word(&change.before),
        after: word(&change.after),
    });
    StagedReach {
        level: difference.level.to_owned(),
        pairs: pairs.collect(),
        left_out: difference.left_out as u64,
    }
}
