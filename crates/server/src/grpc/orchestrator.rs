//! `trestle.v1.Orchestrator`: resources, rules, links and jobs.

use std::{fmt::Display, pin::Pin, str::FromStr, sync::Arc};

use futures::{Stream, stream};
use model::{
    LinkName, PermitRule, ResourceName, Segment, Site,
    change::{Change, What},
};
use orchestrator::{
    execute::{JobOrPlan, JobState, Orchestrator, RuleHolder as On},
    plan::Scope,
};
use tonic::{Request, Response, Status};
use wire::{
    invisinetspb::PermitListRule,
    permit::permit_rule,
    trestle::v1::{
        self, CheckCloudsRequest, CheckCloudsResponse, CloudInfo, CloudRequest, CreateCloudResourceRequest,
        DeleteRulesRequest, DescribeTagsRequest, DescribeTagsResponse, DriftInfo, JobInfo, JobRequest,
        LinkRequest, ListCloudsRequest, ListCloudsResponse, ListJobsRequest, ListJobsResponse,
        ListLinksRequest, ListLinksResponse, ListResourcesRequest, ListResourcesResponse,
        ListRulesInForceResponse, ListRulesResponse, PutRulesRequest, ResourceInfo, ResourceRequest,
        RuleHolder, RuleScope, orchestrator_server, rule_holder::Holder, rule_scope,
    },
};

use crate::{
    audit,
    changes::{changing, resource_asked, rules_changed, rules_of},
    enforcement::Kind,
    failure::Failure,
    views,
};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Grpc(pub Arc<Orchestrator>);

#[tonic::async_trait]
impl orchestrator_server::Orchestrator for Grpc {
    type WatchJobStream = Pin<Box<dyn Stream<Item = Result<JobInfo, Status>> + Send>>;

    async fn list_clouds(&self, _: Request<ListCloudsRequest>) -> Reply<ListCloudsResponse> {
        Ok(Response::new(ListCloudsResponse { clouds: views::clouds(&self.0) }))
    }

    async fn get_cloud(&self, request: Request<CloudRequest>) -> Reply<CloudInfo> {
        let name: Segment = parse(&request.get_ref().name)?;
        let view = self.0.cloud_view(&name).map_err(Failure::from)?;
        Ok(Response::new(views::cloud(view, &self.0.resources())))
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
        outcome(changing(Kind::Resource, made.map_err(Failure::from)?, asked))
    }

    async fn delete_resource(&self, request: Request<ResourceRequest>) -> Reply<v1::ChangeOutcome> {
        let name: ResourceName = parse(&request.get_ref().name)?;
        let gone = Change::named(format!("resource {name}"), What::Deleted);
        let deleted = self.0.delete_resource(name, request.get_ref().dry_run).await;
        outcome(changing(Kind::Resource, deleted.map_err(Failure::from)?, gone))
    }

    async fn get_resource(&self, request: Request<ResourceRequest>) -> Reply<ResourceInfo> {
        let name: ResourceName = parse(&request.get_ref().name)?;
        let view = self.0.resource(&name).map_err(Failure::from)?;
        Ok(Response::new(views::resource_with_notes(&self.0, view)))
    }

    async fn list_resources(&self, request: Request<ListResourcesRequest>) -> Reply<ListResourcesResponse> {
        let namespace = &request.get_ref().namespace;
        let resources = self.0.resources().into_iter();
        let wanted =
            resources.filter(|view| namespace.is_empty() || view.name.namespace.as_str() == namespace);
        Ok(Response::new(ListResourcesResponse { resources: wanted.map(views::resource).collect() }))
    }

    async fn put_rules(&self, request: Request<PutRulesRequest>) -> Reply<v1::ChangeOutcome> {
        let PutRulesRequest { on, rules, dry_run, build } = request.into_inner();
        let rules = rules.iter().map(permit_rule).collect::<Result<Vec<PermitRule>, _>>();
        let rules = rules.map_err(|err| Failure::invalid(&err))?;
        let rules = rules.into_iter().map(|rule| rule.building(build)).collect();
        let (on, before) = rules_of(&self.0, holder(on)?);
        let put = self.0.put_rules_on(&on, rules, dry_run).await.map_err(Failure::from)?;
        outcome(changing(Kind::Rule, put, rules_changed(&self.0, on, before)))
    }

    async fn delete_rules(&self, request: Request<DeleteRulesRequest>) -> Reply<v1::ChangeOutcome> {
        let DeleteRulesRequest { on, names, dry_run } = request.into_inner();
        let names = names.iter().map(|name| parse(name)).collect::<Result<Vec<Segment>, _>>()?;
        let (on, before) = rules_of(&self.0, holder(on)?);
        let deleted = self.0.delete_rules_on(&on, names, dry_run).await;
        let deleted = deleted.map_err(Failure::from)?;
        outcome(changing(Kind::Rule, deleted, rules_changed(&self.0, on, before)))
    }

    async fn list_rules(&self, request: Request<RuleHolder>) -> Reply<ListRulesResponse> {
        let rules = match holder(Some(request.into_inner()))? {
            On::Resource(name) => views::rules(&self.0, &name).map_err(Failure::from)?,
            On::Tag(tag) => self.0.tag_rules(&tag).iter().map(PermitListRule::from).collect(),
        };
        Ok(Response::new(ListRulesResponse { rules }))
    }

    async fn list_rules_in_force(&self, request: Request<RuleScope>) -> Reply<ListRulesInForceResponse> {
        let scope = match request.into_inner().scope {
            None => Scope::All,
            Some(rule_scope::Scope::Namespace(name)) => Scope::Namespace(parse(&name)?),
            Some(rule_scope::Scope::Resource(name)) => Scope::Resource(parse(&name)?),
            Some(rule_scope::Scope::Tag(name)) => Scope::Tag(parse(&name)?),
        };
        let rules = views::rules_in_force(&self.0, &scope).map_err(Failure::from)?;
        Ok(Response::new(ListRulesInForceResponse { rules }))
    }

    async fn describe_tags(&self, request: Request<DescribeTagsRequest>) -> Reply<DescribeTagsResponse> {
        let tags = self.0.tags_in_use(&request.get_ref().prefix).map_err(Failure::from)?;
        Ok(Response::new(DescribeTagsResponse { tags: tags.into_iter().map(views::tag).collect() }))
    }

    async fn create_link(&self, request: Request<LinkRequest>) -> Reply<v1::ChangeOutcome> {
        let (link, dry_run) = link(request.get_ref())?;
        let made = link_change(&link, What::Created);
        outcome(changing(Kind::Link, self.0.connect(link, dry_run).await.map_err(Failure::from)?, made))
    }

    async fn delete_link(&self, request: Request<LinkRequest>) -> Reply<v1::ChangeOutcome> {
        let (link, dry_run) = link(request.get_ref())?;
        let gone = link_change(&link, What::Deleted);
        outcome(changing(Kind::Link, self.0.disconnect(link, dry_run).await.map_err(Failure::from)?, gone))
    }

    async fn rotate_link(&self, request: Request<LinkRequest>) -> Reply<v1::ChangeOutcome> {
        let (link, dry_run) = link(request.get_ref())?;
        let rotated = link_change(&link, What::Changed);
        outcome(changing(Kind::Link, self.0.rotate(link, dry_run).await.map_err(Failure::from)?, rotated))
    }

    async fn list_links(&self, _: Request<ListLinksRequest>) -> Reply<ListLinksResponse> {
        let links = self.0.links().await;
        Ok(Response::new(ListLinksResponse { links: links.into_iter().map(views::link).collect() }))
    }

    async fn list_jobs(&self, _: Request<ListJobsRequest>) -> Reply<ListJobsResponse> {
        let jobs = self.0.jobs().iter().map(views::job).collect();
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
            Some((Ok(views::job(&job)), next))
        });
        Ok(Response::new(Box::pin(watched)))
    }

    async fn cancel_job(&self, request: Request<JobRequest>) -> Reply<JobInfo> {
        let job = self.0.cancel(&request.get_ref().id).await.map_err(Failure::from)?;
        audit::changed(Change::named(format!("job {}: {}", job.id, job.what), What::Changed));
        Ok(Response::new(views::job(&job)))
    }

    async fn check_clouds(&self, request: Request<CheckCloudsRequest>) -> Reply<CheckCloudsResponse> {
        let orchestrator = &self.0;
        let fix = request.get_ref().fix;
        let drifts = if fix { orchestrator.fix().await } else { orchestrator.check().await };
        let unmet = orchestrator.unmet();
        let drifts = drifts.map_err(Failure::from)?.into_iter().chain(unmet).inspect(|drift| {
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

fn outcome(outcome: JobOrPlan) -> Reply<v1::ChangeOutcome> {
    Ok(Response::new(match outcome {
        JobOrPlan::Job(job) => v1::ChangeOutcome { job: Some(views::job(&job)), ..Default::default() },
        JobOrPlan::Plan(plan) => {
            v1::ChangeOutcome { job: None, plan: plan.to_string(), planned: Some(views::plan(&plan)) }
        }
    }))
}
