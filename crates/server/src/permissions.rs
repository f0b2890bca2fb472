//! Permissions, between the words of callers and those of the orchestrator; for gRPC and REST alike.
//!
//! In: requests with ends and traffic as text. Out: what is stored or would be, how far it is, and its proof. Not here: what a
//! permission comes to (`orchestrator::plan`, `drivers::permissions`), how a connection is explained (`explain`).

mod proof;

use std::collections::BTreeSet;

use drivers::permissions::{Permissions, policy_of};
use model::{
    Segment,
    allow::{End, GuessError, Passage, Permission, PermissionError, guess},
    change::Change,
    policy::{Object, ObjectId, antrea::Policy},
};
use orchestrator::{
    execute::{Asking, JobOrPlan, PermissionView},
    plan::Undertaking,
};
use tonic::Code;
use wire::trestle::v1::{
    AllowOutcome, AllowRequest, BuildInfo, DenyRequest, GivenRule, PermissionInfo, Proof,
};

use crate::{
    audit, changes::changing, enforcement::Kind, explain::Explainer, failure::Failure,
    policy_tests::PolicyTests, realisation::Realisations, views, what_if,
};

/// Of resources that are written without.
const NAMESPACE: &str = "default";

/// Permissions, and who knows how far they are.
#[derive(Clone)]
pub struct Allows {
    pub permissions: Permissions,
    pub explainer: Explainer,
    pub realisations: Realisations,
    pub tests: PolicyTests,
}

impl Allows {
    pub async fn allow(&self, request: &AllowRequest) -> Result<AllowOutcome, Failure> {
        let permission = self.read(request).await?;
        let asking = self.permissions.asking(permission.clone(), request.build);
        let change = async { Ok(self.would(&permission).await) };
        let _turn = self.tests.turn(request.despite_tests, false, change).await?;
        let orchestrator = &self.permissions.orchestrator;
        if request.dry_run {
            let (plan, build) = orchestrator.plan_permission(&asking)?;
            audit::note(audit::DRY_RUN);
            return Ok(AllowOutcome {
                permission: Some(self.planned(&asking)),
                job: None,
                planned: Some(views::plan(&plan)),
                build: told(&build),
            });
        }
        let outcome = orchestrator.allow(asking.clone()).await?;
        let value = serde_json::to_value(&permission).unwrap_or_default();
        let object = format!("permission {}", permission.name());
        let job = match outcome {
            None => {
                audit::changed(Change::between(object, Some(&value), Some(&value)));
                None
            }
            Some(outcome) => {
                changing(Kind::Permission, outcome, Change::between(object, None, Some(&value))).job()
            }
        };
        let info = self.get(permission.name().as_str()).unwrap_or_else(|_| self.planned(&asking));
        let job = job.as_ref().map(views::job);
        Ok(AllowOutcome { permission: Some(info), job, planned: None, build: None })
    }

    pub async fn deny(&self, request: DenyRequest) -> Result<AllowOutcome, Failure> {
        let DenyRequest { name, from, to, traffic, namespace, dry_run, despite_tests } = request;
        let stored = self.permissions.orchestrator.permissions();
        let name: Segment = match name.is_empty() {
            false => name.parse().map_err(|err: model::NameError| Failure::invalid(&err))?,
            true => {
                let asked = AllowRequest { from, to, traffic, namespace, ..AllowRequest::default() };
                let permission = self.read_stored(&asked, &stored).await?;
                let name = permission.name();
                if !stored.iter().any(|(known, _)| *known == name) {
                    return Err(not_there(&permission, &stored));
                }
                name
            }
        };
        let change = async { Ok(what_if::Change::of_deletion(vec![policy_of(name.as_str())])) };
        let _turn = self.tests.turn(despite_tests, false, change).await?;
        let before = stored.into_iter().find(|(known, _)| *known == name).map(|(_, permission)| permission);
        let info = self.get(name.as_str()).ok();
        let outcome = self.permissions.orchestrator.deny(&name, dry_run).await?;
        let value = before.and_then(|permission| serde_json::to_value(&permission).ok());
        let object = format!("permission {name}");
        let outcome = changing(
            Kind::Permission,
            outcome,
            Change::between(object, Some(&value.unwrap_or_default()), None),
        );
        let info = info.map(|info| PermissionInfo {
            state: if dry_run { info.state } else { "gone".to_owned() },
            message: String::new(),
            ..info
        });
        let (job, planned) = match outcome {
            JobOrPlan::Job(job) => (Some(views::job(&job)), None),
            JobOrPlan::Plan(plan) => (None, Some(views::plan(&plan))),
        };
        Ok(AllowOutcome { permission: info, job, planned, build: None })
    }

    /// What a permission would be to policies. A Pod that it names and that is a read cluster's is not known here as an object, so that
    /// what the permission gives to it is not tried.
    async fn would(&self, permission: &Permission) -> what_if::Change {
        let mut change = what_if::Change::default();
        for end in permission.ends() {
            let End::Pod { namespace, name } = end else { continue };
            let (namespace, name) = (namespace.to_string(), name.to_string());
            let id = ObjectId { kind: model::policy::Kind::Pod, namespace, name };
            if let Ok(stored) = self.tests.objects.get(&id).await {
                change.applied.push(stored.document.into_object());
                change.named.push(id);
            }
        }
        change.applied.extend(self.permissions.policy_of(permission));
        change
    }

    pub fn list(&self) -> Result<Vec<PermissionInfo>, Failure> {
        let views = self.permissions.orchestrator.permission_views()?;
        let states = self.realisations.policies(&self.permissions.policy, false);
        let policy = |view: &PermissionView| {
            let id = policy_of(view.name.as_str());
            states.iter().find(|state| state.kind == id.kind.as_str() && state.name == id.name)
        };
        Ok(views.iter().map(|view| self.info(view, policy(view))).collect())
    }

    pub fn get(&self, name: &str) -> Result<PermissionInfo, Failure> {
        let found = self.list()?.into_iter().find(|info| info.name == name);
        let unknown = || {
            let name: String = name.chars().take(64).collect();
            Failure::new(
                Code::NotFound,
                format!("there is no permission {name:?}; list them to see which there are"),
            )
        };
        found.ok_or_else(unknown)
    }

    pub async fn prove(&self, request: &AllowRequest) -> Result<Proof, Failure> {
        let stored = self.permissions.orchestrator.permissions();
        let permission = self.read_stored(request, &stored).await?;
        proof::prove(&self.permissions, &self.explainer, &permission).await
    }

    async fn read(&self, request: &AllowRequest) -> Result<Permission, Failure> {
        let known = self.permissions.known().await;
        let namespace = if request.namespace.is_empty() { NAMESPACE } else { &request.namespace };
        let end =
            |what: &str, text: &str| guess(text, namespace, &known).map_err(|err| not_meant(what, &err));
        permission(end("from", &request.from)?, end("to", &request.to)?, &request.traffic)
    }

    /// The same of a permission that is stored: what it names may be gone meanwhile.
    async fn read_stored(
        &self,
        request: &AllowRequest,
        stored: &[(Segment, Permission)],
    ) -> Result<Permission, Failure> {
        if let (Ok(from), Ok(to)) = (request.from.parse::<End>(), request.to.parse::<End>())
            && let Ok(read) = permission(from, to, &request.traffic)
            && stored.iter().any(|(_, permission)| *permission == read)
        {
            return Ok(read);
        }
        self.read(request).await
    }

    /// A permission that is not stored yet.
    fn planned(&self, asking: &Asking) -> PermissionInfo {
        let given = self.permissions.orchestrator.given(&asking.permission);
        let permission = asking.permission.clone();
        let name = permission.name();
        let view = PermissionView { name, permission, given, waiting: BTreeSet::new(), problems: Vec::new() };
        PermissionInfo { state: "planned".to_owned(), message: String::new(), ..self.info(&view, None) }
    }

    fn info(&self, view: &PermissionView, policy: Option<&wire::trestle::v1::PolicyState>) -> PermissionInfo {
        let permission = &view.permission;
        let made = self.permissions.policy_of(permission);
        let (state, message) = standing(view, made.is_some().then_some(policy));
        let entries = view.given.iter().map(|(resource, entry)| {
            let (way, with) = match entry.as_str().contains(".in.") {
                true => ("in", format!("from {}", permission.from)),
                false => ("out", format!("to {}", permission.to)),
            };
            let what = entry.as_str().rsplit('.').next().unwrap_or_default().replacen('-', " ", 1);
            GivenRule {
                at: resource.to_string(),
                what: format!("{way} {what} {with}"),
                r#as: "permit entry".to_owned(),
                name: entry.to_string(),
            }
        });
        let rules =
            entries.chain(made.as_ref().map(|object| of_policy(object, permission)).unwrap_or_default());
        PermissionInfo {
            rules: rules.collect(),
            name: view.name.to_string(),
            from: permission.from.to_string(),
            to: permission.to.to_string(),
            traffic: permission.passages.iter().map(ToString::to_string).collect(),
            state: state.to_owned(),
            message,
            arguments: permission.arguments(),
        }
    }
}

fn permission(from: End, to: End, traffic: &[String]) -> Result<Permission, Failure> {
    let invalid = |err: PermissionError| Failure::invalid(&err);
    let passages = traffic.iter().map(|text| text.parse::<Passage>()).collect::<Result<BTreeSet<_>, _>>();
    Permission::new(from, to, passages.map_err(invalid)?).map_err(invalid)
}

fn not_meant(what: &str, err: &GuessError) -> Failure {
    let code = match err {
        GuessError::Unknown { .. } | GuessError::Nothing { .. } => Code::NotFound,
        GuessError::Ambiguous { .. } | GuessError::Form(_) => Code::InvalidArgument,
    };
    Failure::new(code, format!("{what}: {}", common::chain(err)))
}

/// What is like it is named, so that one can be meant.
fn not_there(permission: &Permission, stored: &[(Segment, Permission)]) -> Failure {
    let between =
        |(_, other): &&(Segment, Permission)| (&other.from, &other.to) == (&permission.from, &permission.to);
    let like: Vec<String> =
        stored.iter().filter(between).map(|(name, other)| format!("{name} ({})", other.traffic())).collect();
    let like = match like.as_slice() {
        [] => "no permission is between these two".to_owned(),
        some => format!("between these two there is {}: take it back by its name", some.join(", ")),
    };
    Failure::new(Code::NotFound, format!("there is no permission of exactly this, {permission}; {like}"))
}

/// How far a permission is. `policy`: none if it needs none, and with nothing inside if the engine has not taken it in yet.
fn standing(
    view: &PermissionView,
    policy: Option<Option<&wire::trestle::v1::PolicyState>>,
) -> (&'static str, String) {
    if let Some(problem) = view.problems.first() {
        return ("failed", problem.clone());
    }
    if let Some(resource) = view.waiting.first() {
        return ("pending", format!("{resource} does not have it yet; see `trestle job list`"));
    }
    let Some(policy) = policy else {
        let nobody = view.given.is_empty().then(|| "nobody is at either end now".to_owned());
        return ("in force", nobody.unwrap_or_default());
    };
    match policy {
        None => ("pending", "the policy engine has not taken it in yet".to_owned()),
        Some(policy) => match policy.phase.as_str() {
            "Realized" => ("in force", String::new()),
            "Failed" => {
                let failed = policy.failures.first();
                let told = failed.map(|failure| format!("{}: {}", failure.node, failure.message));
                ("failed", told.unwrap_or_else(|| "a node could not enforce its policy".to_owned()))
            }
            "Pending" => ("in force", "no node guards who is at its ends".to_owned()),
            _ => {
                let (have, span) = (policy.realized, policy.span);
                ("pending", format!("{have} of {span} nodes have its policy; see `trestle node list`"))
            }
        },
    }
}

fn of_policy(object: &Object, permission: &Permission) -> Vec<GivenRule> {
    let Object::AntreaClusterNetworkPolicy(Policy { metadata, spec }) = object else { return Vec::new() };
    let sides = [
        (&spec.egress, "out", &permission.from, format!("to {}", permission.to)),
        (&spec.ingress, "in", &permission.to, format!("from {}", permission.from)),
    ];
    let given = |(rules, way, at, with): (&Vec<model::policy::antrea::Rule>, &str, &End, String)| {
        let rules = if rules.is_empty() { Vec::new() } else { permission.passages.iter().collect() };
        let rule = |passage: &Passage| GivenRule {
            at: at.to_string(),
            what: format!("{way} {passage} {with}"),
            r#as: "policy".to_owned(),
            name: metadata.name.clone(),
        };
        rules.into_iter().map(rule).collect::<Vec<_>>()
    };
    sides.into_iter().flat_map(given).collect()
}

fn told(build: &Undertaking) -> Option<BuildInfo> {
    let cost = match build.cost {
        Some(model::Cost::Free) => "free",
        Some(model::Cost::Hourly) => "hourly",
        None => "",
    };
    (!build.is_empty()).then(|| BuildInfo {
        gateways: build.gateways.iter().map(ToString::to_string).collect(),
        links: build.links.iter().map(ToString::to_string).collect(),
        seconds: build.seconds,
        cost: cost.to_owned(),
    })
}
