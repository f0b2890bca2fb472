//! One account, and a site's part of it in one region: the handle that everything else works with.
//!
//! EC2 has no names: it gives an object its id when it is asked for one, and asked twice it makes two. So this is where AWS
//! differs from the other clouds, and does not use `cloud_http::ensure`: an object is found by its marks among those that live, or
//! asked for once ([`Place::ensure`]); then it is waited for by its id ([`Place::ready`]), and one that is
//! not seen is never asked for again. One on its way out is in nobody's way.

use std::{future::Future, time::Duration};

use cloud_api::{CloudError, Result};
use cloud_http::{Failure, Kind, Phase, Progress, Recent, Turns, patiently, wait};
use model::{Segment, Site};
use tokio::sync::OnceCell;

use crate::{
    ec2::{Action, Ec2, Made},
    kinds::Ec2Kind,
    marks::{Filter, Marks},
    shapes::{NewTag, Region, Tags, actions as ask},
};

/// How long something may stay in use by what is on its way out.
const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) struct Account {
    pub(crate) ec2: Ec2,
    pub(crate) turns: Turns,
    owner: String,
    given_regions: Option<Vec<Segment>>,
    found_regions: OnceCell<Vec<String>>,
    recent: Recent,
}

impl Account {
    pub(crate) fn new(ec2: Ec2, owner: String, given_regions: Option<Vec<Segment>>) -> Self {
        let (turns, found_regions, recent) = (Turns::default(), OnceCell::new(), Recent::default());
        Self { ec2, turns, owner, given_regions, found_regions, recent }
    }

    pub(crate) fn at<'p>(&'p self, site: &'p Site, region: &'p str) -> Place<'p> {
        Place { account: self, site, region }
    }

    /// The regions to look at.
    pub(crate) async fn regions(&self) -> Result<&[String]> {
        let find = || async {
            if let Some(given) = &self.given_regions {
                return Ok(given.iter().map(ToString::to_string).collect());
            }
            let found = self.ec2.list::<Region>("us-east-1", &[]).await?;
            Ok::<_, CloudError>(found.into_iter().map(|region| region.region_name).collect())
        };
        self.found_regions.get_or_try_init(find).await.map(Vec::as_slice)
    }

    /// The same question in all regions at once.
    pub(crate) async fn everywhere<'a, T, F>(&'a self, ask: impl FnMut(&'a String) -> F) -> Result<Vec<T>>
    where
        F: Future<Output = Result<T>>,
    {
        futures::future::try_join_all(self.regions().await?.iter().map(ask)).await
    }

    /// Waits until reads show what was last written under this name.
    pub(crate) async fn settle(&self, name: &str) {
        self.recent.settle(name, self.ec2.clock()).await;
    }

    pub(crate) fn touch(&self, name: &str) {
        self.recent.touch(name, self.ec2.clock());
    }
}

/// A site in a region.
#[derive(Clone, Copy)]
pub(crate) struct Place<'p> {
    pub(crate) account: &'p Account,
    pub(crate) site: &'p Site,
    pub(crate) region: &'p str,
}

impl<'p> Place<'p> {
    /// The same site elsewhere.
    pub(crate) fn in_region(&self, region: &'p str) -> Self {
        Self { region, ..*self }
    }

    pub(crate) fn marks(&self) -> Marks<'p> {
        Marks { owner: &self.account.owner, site: self.site }
    }

    pub(crate) fn tags<K: Ec2Kind>(&self, name: &str, more: &[(&str, &str)]) -> Result<Tags> {
        self.marks().tags::<K>(name, more)
    }

    /// Reads wait until they show what was last written to this kind of object at this site.
    pub(crate) fn touch<K: Ec2Kind>(&self) {
        self.account.touch(&format!("{}/{}", self.site, K::FAMILY));
    }

    pub(crate) async fn ask<A: Action>(&self, action: &A) -> Result<A::Answer, Failure> {
        self.account.ec2.ask(self.region, action).await
    }

    /// One that lives and has these marks, or a new one; it may not be ready yet.
    pub(crate) async fn ensure<K: Ec2Kind, A: Action<Answer = Made<K>>>(
        &self,
        name: &str,
        marks: &[(&str, &str)],
        wanted: impl FnOnce(Tags) -> A,
    ) -> Result<K> {
        match self.find(marks).await? {
            Some(there) => Ok(there),
            None => Ok(self.make(&wanted(self.tags::<K>(name, marks)?)).await?),
        }
    }

    /// Asks for a new object, which may not be ready yet.
    pub(crate) async fn make<K: Ec2Kind, A: Action<Answer = Made<K>>>(
        &self,
        action: &A,
    ) -> Result<K, Failure> {
        self.touch::<K>();
        Ok(self.ask(action).await?.0)
    }

    /// Puts tags on any object.
    pub(crate) async fn tag<K: Ec2Kind>(&self, id: &str, tag: Vec<NewTag>) -> Result<(), Failure> {
        self.touch::<K>();
        self.ask(&ask::CreateTags { resource_id: [id], tag }).await.map(drop)
    }

    /// All objects of a kind that pass the filters, whoever made them.
    pub(crate) async fn list<K: Ec2Kind>(&self, filters: &[Filter]) -> Result<Vec<K>, Failure> {
        self.account.settle(&format!("{}/{}", self.site, K::FAMILY)).await;
        self.account.ec2.list(self.region, filters).await
    }

    /// Those made for the site, with these further marks.
    pub(crate) async fn own<K: Ec2Kind>(&self, more: &[(&str, &str)]) -> Result<Vec<K>, Failure> {
        self.list(&self.marks().filters(more)).await
    }

    /// One that lives. Of two, which only a lost answer can leave, the first by id.
    pub(crate) async fn find<K: Ec2Kind>(&self, more: &[(&str, &str)]) -> Result<Option<K>, Failure> {
        let living = self.own::<K>(more).await?.into_iter().filter(K::is_alive);
        Ok(living.min_by(|a, b| a.id().cmp(b.id())))
    }

    /// Waits until an object can be used. One that is not seen was asked for a moment ago.
    pub(crate) async fn ready<K: Ec2Kind>(&self, id: &str, filters: &[Filter]) -> Result<K> {
        wait(self.account.ec2.clock(), K::PACE, &format!("the {} {id}", K::NAME), || async {
            let found = self.list::<K>(filters).await?.into_iter().find(|one| one.id() == id);
            Ok(match found.as_ref().map(Kind::phase) {
                Some(Phase::Ready) => found.map_or(Progress::Pending, Progress::Done),
                Some(Phase::Failed(why)) => Progress::Failed(why),
                _ => Progress::Pending,
            })
        })
        .await
    }

    /// Deletes an object of the site, and waits until nothing is left of it.
    pub(crate) async fn end<K: Ec2Kind>(&self, id: &str) -> Result {
        self.delete::<K>(id).await?;
        wait(self.account.ec2.clock(), K::PACE, &format!("the end of the {} {id}", K::NAME), || async {
            let is_left = self.own::<K>(&[]).await?.iter().any(|one| one.id() == id && !one.is_gone());
            Ok(if is_left { Progress::Pending } else { Progress::Done(()) })
        })
        .await
    }

    /// Deletes what may still be in use for a moment: what used it is on its way out.
    pub(crate) async fn delete<K: Ec2Kind>(&self, id: &str) -> Result {
        self.patiently(|| self.account.ec2.delete::<K>(self.region, id)).await?;
        self.touch::<K>();
        Ok(())
    }

    /// Asks again while something is in use.
    pub(crate) async fn patiently<F>(&self, ask: impl FnMut() -> F + Send) -> Result
    where
        F: Future<Output = Result<(), Failure>> + Send,
    {
        Ok(patiently(self.account.ec2.clock(), PATIENCE, ask).await?)
    }
}
