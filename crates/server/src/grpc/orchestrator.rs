//! `trestle.v1.Orchestrator`: resources, rules, links and jobs.

use std::{fmt::Display, pin::Pin, str::FromStr, sync::Arc};

use futures::{Stream, stream};
use model::{
    LinkName, PermitRule, ResourceName, Segment, Site,
    change::{Change, What},
};
use orchestrator::execute::{Job, JobState, LinkView, Orchestrator, Outcome, ResourceView, RuleHolder as On};
use tonic::{Request, Response, Status};
use wire::{
    invisinetspb::PermitListRule,
    permit::permit_rule,
    trestle::v1::{
        self, CheckCloudsRequest, CheckCloudsResponse, CreateCloudResourceRequest, DeleteRulesRequest,
        DriftInfo, JobInfo, JobRequest, LinkInfo, LinkRequest, ListCloudsRequest, ListCloudsResponse,
        ListJobsRequest, ListJobsResponse, ListLinksRequest, ListLinksResponse, ListResourcesRequest,
        ListResourcesResponse, ListRulesResponse, PutRulesRequest, ResourceInfo, ResourceRequest, RuleHolder,
        orchestrator_server, rule_holder::Holder,
    },
};

use crate::{
    audit,
    changes::{changing, resource_asked, rules_changed, rules_of},
    failure::Failure,
};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Service(pub Arc<Orchestrator>);

#[tonic::async_trait]
impl orchestrator_server::Orchestrator for Service {
    type WatchJobStream = Pin<Box<dyn Stream<Item = Result<JobInfo, Status>> + Send>>;

    async fn list_clouds(&self, _: Request<ListCloudsRequest>) -> Reply<ListCloudsResponse> {
        let clouds = self.0.cloud_names().iter().map(ToString::to_string).collect();
        Ok(Response::new(ListCloudsResponse { clouds }))
    }

    async fn create_cloud_resource(
        &self,
        request: Request<CreateCloudResourceRequest>,
    ) -> Reply<v1::ChangeOutcome> {
        let request = request.into_inner();
        let name: ResourceName = parse(&request.name)?;
        let (orchestrator, description) = (&self.0, request.description);
        let asked = resource_asked(&name, &description);
        let made = orchestrator.create_resource(name, description, request.attach, request.dry_run).await;
        outcome(changing(made.map_err(Failure::from)?, asked))
    }

    async fn delete_resource(&self, request: Request<ResourceRequest>) -> Reply<v1::ChangeOutcome> {
        let name: ResourceName = parse(&request.get_ref().name)?;
        let gone = Change::named(format!("resource {name}"), What::Deleted);
        let deleted = self.0.delete_resource(name, request.get_ref().dry_run).await;
        outcome(changing(deleted.map_err(Failure::from)?, gone))
    }

    async fn get_resource(&self, request: Request<ResourceRequest>) -> Reply<ResourceInfo> {
        let name: ResourceName = parse(&request.get_ref().name)?;
        Ok(Response::new(resource_info(self.0.resource(&name).map_err(Failure::from)?)))
    }

    async fn list_resources(&self, request: Request<ListResourcesRequest>) -> Reply<ListResourcesResponse> {
        let namespace = &request.get_ref().namespace;
        let resources = self.0.resources().into_iter();
        let wanted =
            resources.filter(|view| namespace.is_empty() || view.name.namespace.as_str() == namespace);
        Ok(Response::new(ListResourcesResponse { resources: wanted.map(resource_info).collect() }))
    }

    async fn put_rules(&self, request: Request<PutRulesRequest>) -> Reply<v1::ChangeOutcome> {
        let PutRulesRequest { on, rules, dry_run } = request.into_inner();
        let rules = rules.iter().map(permit_rule).collect::<Result<Vec<PermitRule>, _>>();
        let rules = rules.map_err(|err| Failure::invalid(&err))?;
        let (on, before) = rules_of(&self.0, holder(on)?);
        let put = self.0.put_rules_on(&on, rules, dry_run).await.map_err(Failure::from)?;
        outcome(changing(put, rules_changed(&self.0, on, before)))
    }

    async fn delete_rules(&self, request: Request<DeleteRulesRequest>) -> Reply<v1::ChangeOutcome> {
        let DeleteRulesRequest { on, names, dry_run } = request.into_inner();
        let names = names.iter().map(|name| parse(name)).collect::<Result<Vec<Segment>, _>>()?;
        let (on, before) = rules_of(&self.0, holder(on)?);
        let deleted = self.0.delete_rules_on(&on, names, dry_run).await;
        let deleted = deleted.map_err(Failure::from)?;
        outcome(changing(deleted, rules_changed(&self.0, on, before)))
    }

    async fn list_rules(&self, request: Request<RuleHolder>) -> Reply<ListRulesResponse> {
        let rules = match holder(Some(request.into_inner()))? {
            On::Resource(name) => self.0.rules(&name).map_err(Failure::from)?,
            On::Tag(tag) => self.0.tag_rules(&tag),
        };
        Ok(Response::new(ListRulesResponse { rules: rules.iter().map(PermitListRule::from).collect() }))
    }

    async fn create_link(&self, request: Request<LinkRequest>) -> Reply<v1::ChangeOutcome> {
        let (link, dry_run) = link(request.get_ref())?;
        let made = link_change(&link, What::Created);
        outcome(changing(self.0.connect(link, dry_run).await.map_err(Failure::from)?, made))
    }

    async fn delete_link(&self, request: Request<LinkRequest>) -> Reply<v1::ChangeOutcome> {
        let (link, dry_run) = link(request.get_ref())?;
        let gone = link_change(&link, What::Deleted);
        outcome(changing(self.0.disconnect(link, dry_run).await.map_err(Failure::from)?, gone))
    }

    async fn rotate_link(&self, request: Request<LinkRequest>) -> Reply<v1::ChangeOutcome> {
        let (link, dry_run) = link(request.get_ref())?;
        let rotated = link_change(&link, What::Changed);
        outcome(changing(self.0.rotate(link, dry_run).await.map_err(Failure::from)?, rotated))
    }

    async fn list_links(&self, _: Request<ListLinksRequest>) -> Reply<ListLinksResponse> {
        let links = self.0.links().await;
        Ok(Response::new(ListLinksResponse { links: links.into_iter().map(link_info).collect() }))
    }

    async fn list_jobs(&self, _: Request<ListJobsRequest>) -> Reply<ListJobsResponse> {
        let jobs = self.0.jobs().iter().map(job_info).collect();
        Ok(Response::new(ListJobsResponse { jobs }))
    }

    async fn watch_job(&self, request: Request<JobRequest>) -> Reply<Self::WatchJobStream> {
        let id = request.into_inner().id;
        let first = self.0.job(&id).map_err(Failure::from)?;
        let orchestrator = std::sync::Arc::clone(&self.0);
        let watched = stream::unfold(Some((orchestrator, id, first, true)), |state| async {
            let (orchestrator, id, last, is_first) = state?;
            let job = if is_first { last } else { orchestrator.change_of(&id, &last).await.ok()? };
            let next = (job.state == JobState::Running).then(|| (orchestrator, id, job.clone(), false));
            Some((Ok(job_info(&job)), next))
        });
        Ok(Response::new(Box::pin(watched)))
    }

    async fn cancel_job(&self, request: Request<JobRequest>) -> Reply<JobInfo> {
        let job = self.0.cancel(&request.get_ref().id).await.map_err(Failure::from)?;
        audit::changed(Change::named(format!("job {}: {}", job.id, job.what), What::Changed));
        Ok(Response::new(job_info(&job)))
    }

    async fn check_clouds(&self, request: Request<CheckCloudsRequest>) -> Reply<CheckCloudsResponse> {
        let orchestrator = &self.0;
        let fix = request.get_ref().fix;
        let drifts = if fix { orchestrator.fix().await } else { orchestrator.check().await };
        let drifts = drifts.map_err(Failure::from)?.into_iter().inspect(|drift| {
            if fix && drift.mendable {
                audit::changed(Change::named(&drift.object, What::Changed));
            }
        });
        let drifts = drifts.map(|drift| DriftInfo {
            object: drift.object,
            what: drift.what,
            mendable: drift.mendable,
        });
        Ok(Response::new(CheckCloudsResponse { drifts: drifts.collect() }))
    }
}

fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T, Failure> {
    text.parse().map_err(|err: T::Err| Failure::new(tonic::Code::InvalidArgument, err.to_string()))
}

fn holder(message: Option<RuleHolder>) -> Result<On, Failure> {
    let on = match message.and_then(|message| message.holder) {
        Some(Holder::Resource(name)) => On::Resource(parse(&name)?),
        Some(Holder::Tag(tag)) => On::Tag(parse(&tag)?),
        None => return Err(Failure::new(tonic::Code::InvalidArgument, "name a resource or a tag")),
    };
    Ok(on)
}

pub(crate) fn link_change(link: &LinkName, what: What) -> Change {
    Change::named(format!("link {link}"), what)
}

fn link(request: &LinkRequest) -> Result<(LinkName, bool), Failure> {
    let (a, b): (Site, Site) = (parse(&request.a)?, parse(&request.b)?);
    let link = LinkName::new(a, b).map_err(|err| Failure::invalid(&err))?;
    Ok((link, request.dry_run))
}

fn outcome(outcome: Outcome) -> Reply<v1::ChangeOutcome> {
    Ok(Response::new(match outcome {
        Outcome::Job(job) => v1::ChangeOutcome { job: Some(job_info(&job)), plan: String::new() },
        Outcome::Plan(plan) => v1::ChangeOutcome { job: None, plan: plan.to_string() },
    }))
}

fn job_info(job: &Job) -> JobInfo {
    JobInfo {
        id: job.id.clone(),
        what: job.what.clone(),
        state: job.state.to_string(),
        message: job.message.clone(),
        created_at: job.created_at.to_string(),
        ended_at: job.ended_at.map(|at| at.to_string()).unwrap_or_default(),
        steps_left: u32::try_from(job.steps_left).unwrap_or(u32::MAX),
        steps: u32::try_from(job.steps).unwrap_or(u32::MAX),
    }
}

fn resource_info(view: ResourceView) -> ResourceInfo {
    ResourceInfo {
        name: view.name.to_string(),
        region: view.region.to_string(),
        state: view.state.to_owned(),
        uri: view.uri.unwrap_or_default(),
        ip: view.ip.unwrap_or_default(),
        message: view.message,
        permit_list: view.permit_list.iter().map(PermitListRule::from).collect(),
    }
}

fn link_info(view: LinkView) -> LinkInfo {
    let [a, b] = view.name.ends().map(Clone::clone);
    let [asn_a, asn_b] = view.asns;
    let [spaces_a, spaces_b] = view.spaces;
    let [status_a, status_b] = view.ends;
    let end =
        |site: Site, asn: Option<u32>, spaces: Vec<ipnet::Ipv4Net>, bgp: Vec<String>, status| v1::LinkEnd {
            site: site.to_string(),
            asn: asn.unwrap_or_default(),
            address_spaces: spaces.iter().map(ToString::to_string).collect(),
            bgp_addresses: bgp,
            status,
        };
    let bgp_a = view.bgp.iter().map(|pair| pair.a.to_string()).collect();
    let bgp_b = view.bgp.iter().map(|pair| pair.b.to_string()).collect();
    LinkInfo {
        a: Some(end(a, asn_a, spaces_a, bgp_a, status_a.map(end_status))),
        b: Some(end(b, asn_b, spaces_b, bgp_b, status_b.map(end_status))),
        state: view.state.to_owned(),
        pinned: view.pinned,
        message: view.message,
    }
}

fn end_status(status: model::ConnectionStatus) -> v1::CloudEndStatus {
    v1::CloudEndStatus {
        tunnels: status.tunnels,
        tunnels_up: status.tunnels_up,
        bgp_established: status.bgp_established,
        routes: status.routes.iter().map(ToString::to_string).collect(),
        bytes_in: status.bytes_in,
        bytes_out: status.bytes_out,
    }
}
