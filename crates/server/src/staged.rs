//! Staged changes: what each would come to, and their end.
//!
//! In: what is staged (`drivers::objects::staged`). Out: each with what it would change of the object, of who reaches whom, and of the
//! tests it would break; objects in force; nothing. Pure where it decides (`reach::difference`). Not here: staging itself, which is a way
//! to apply and to delete (`objects`).

use drivers::objects::{Outcome, staged::Staged};
use model::policy::{Kind, ObjectId};
use tonic::Code;
use wire::trestle::v1::{
    ApplyObjectsResponse, DiscardStagedRequest, DiscardStagedResponse, ListStagedRequest, ListStagedResponse,
    ObjectRef, PromoteStagedRequest, StagedChange, StagedPair, StagedReach,
};

use crate::{
    failure::Failure,
    objects::{Changing, object_id, object_ref, wire_outcome},
    reach::{Cell, Difference, difference},
    turns::in_turn,
    what_if::Change,
};

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
            });
        }
        let mut together = None;
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
            together = Some(staged_reach(all));
        }
        Ok(ListStagedResponse { changes, together })
    }

    pub async fn promote(&self, request: PromoteStagedRequest) -> Result<ApplyObjectsResponse, Failure> {
        let PromoteStagedRequest { objects, dry_run, despite_tests } = request;
        let staged = chosen(self.objects.staged().await?, objects)?;
        let adds_tests = staged.iter().any(|one| one.id.kind == Kind::PolicyTest);
        let _turn = match self.looks(despite_tests, adds_tests).await? {
            true => Some(self.tests.admit(Change::of_staged(&staged)).await?),
            false => None,
        };
        let applied = self.objects.promote(&staged, dry_run).await;
        let applied = self.settled(applied, dry_run).await?;
        Ok(ApplyObjectsResponse { applied, warnings: Vec::new() })
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
