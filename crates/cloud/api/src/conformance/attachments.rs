//! What exists is attached and let go again, and is then as it was.

use model::Segment;

use super::{Existing, Promise as _, Subject, Verdict, Violation, check, entry, refused, same};
use crate::{Attachment, CloudErrorKind};

pub(super) async fn run(subject: &Subject<'_>, existing: &Existing) -> Verdict {
    let (cloud, at) = (subject.cloud, &subject.at);
    let found = inspection(subject, existing).await?;
    let verdict = story(subject, existing, &found).await;
    for _ in 0..2 {
        cloud.delete_resource(at, &name()).await.promised("lets go what was attached")?;
        cloud.release_network(at, &found.region).await.promised("lets go an adopted network")?;
    }
    verdict?;
    let left = cloud.list(at).await.promised("lists")?;
    check(left == crate::Listing::default(), format!("nothing of ours is left, not {left:?}"))?;
    let again = cloud.inspect_attachment(at, &existing.id).await.promised("inspects what was let go")?;
    check(again == found, format!("what was let go is as it was: {again:?} is not {found:?}"))
}

fn name() -> Segment {
    "conf-2".parse().expect("a legal name")
}

async fn inspection(subject: &Subject<'_>, existing: &Existing) -> Result<Attachment, Violation> {
    let (cloud, at) = (subject.cloud, &subject.at);
    let kinds = &[CloudErrorKind::Invalid, CloudErrorKind::NotFound];
    for nothing in ["", "no/such/machine"] {
        refused(cloud.inspect_attachment(at, nothing).await, kinds, "inspecting nothing")?;
    }
    let found = cloud.inspect_attachment(at, &existing.id).await.promised("inspects what exists")?;
    let space = found.network.as_ref().map(|network| network.space);
    check(space == Some(existing.space), format!("says the space of its network, not {space:?}"))?;
    let is_inside = |address| matches!(address, std::net::IpAddr::V4(ip) if existing.space.contains(&ip));
    check(found.address.is_some_and(is_inside), format!("says its address, not {:?}", found.address))?;
    check(!found.changes.is_empty(), "says what would change")?;
    let listed = cloud.list(at).await.promised("lists")?;
    check(listed == crate::Listing::default(), format!("inspecting changes nothing, not {listed:?}"))?;
    Ok(found)
}

async fn story(subject: &Subject<'_>, existing: &Existing, found: &Attachment) -> Verdict {
    let (cloud, at, region) = (subject.cloud, &subject.at, &found.region);
    let conflict = &[CloudErrorKind::Conflict];
    let early = cloud.attach_resource(at, &name(), &existing.id).await;
    refused(early, conflict, "attaching from a network that is not adopted")?;
    let other = cloud.adopt_network(at, region, subject.spaces[0]).await;
    refused(other, conflict, "adopting a network with another space")?;
    for turn in ["adopts a network", "adopts a network that it has adopted"] {
        cloud.adopt_network(at, region, existing.space).await.promised(turn)?;
    }
    let attached = cloud.attach_resource(at, &name(), &existing.id).await.promised("attaches")?;
    let again = cloud.attach_resource(at, &name(), &existing.id).await.promised("attaches again")?;
    check(attached == again, "attaches once, whatever the number of calls")?;
    check(
        Some(attached.address) == found.address.map(Into::into),
        format!("keeps its address, not {}", attached.address),
    )?;
    let listed = cloud.list(at).await.promised("lists")?;
    check(listed.networks == [(region.clone(), existing.space)], format!("lists it, not {listed:?}"))?;
    let wanted = [(name(), attached.clone())];
    check(listed.resources == wanted, format!("lists what is attached, not {:?}", listed.resources))?;
    guarded(subject, existing, region).await?;

    let uri = &attached.uri;
    same(subject, uri, &[], "what was attached is closed").await?;
    let one = entry("one", &["10.99.0.1", "10.99.1.0/24"]);
    cloud.put_list(at, uri, &[], std::slice::from_ref(&one)).await.promised("adds an entry")?;
    same(subject, uri, &[&one], "reads back what was added").await?;
    cloud.attach_resource(at, &name(), &existing.id).await.promised("attaches once more")?;
    same(subject, uri, &[&one], "attaching again leaves the list as it is").await?;
    cloud.delete_resource(at, &name()).await.promised("lets go what was attached")?;
    let gone = &[CloudErrorKind::NotFound, CloudErrorKind::Invalid];
    refused(cloud.permit_list(at, uri).await, gone, "the list of what was let go")
}

/// What is in use stays, and what is somebody's is nobody else's.
async fn guarded(subject: &Subject<'_>, existing: &Existing, region: &Segment) -> Verdict {
    let (cloud, at) = (subject.cloud, &subject.at);
    let conflict = &[CloudErrorKind::Conflict];
    refused(cloud.delete_network(at, region).await, conflict, "deleting somebody else's network")?;
    refused(cloud.release_network(at, region).await, conflict, "letting go a network that is in use")?;
    let mut elsewhere = at.clone();
    elsewhere.site.namespace = "elsewhere".parse().map_err(|_| Violation("a name".into()))?;
    for at in [at, &elsewhere] {
        let twice = cloud.inspect_attachment(at, &existing.id).await;
        refused(twice, conflict, "inspecting what is attached")?;
        let other: Segment = "conf-3".parse().expect("a legal name");
        let twice = cloud.attach_resource(at, &other, &existing.id).await;
        refused(twice, conflict, "attaching what is attached, under another name")?;
    }
    Ok(())
}
