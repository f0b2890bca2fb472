//! Template deployments: objects that are made together, each when those it depends on are there.
//!
//! In: a template, as `az vm create` and `az network vpn-connection create` send one. Out: the deployment, and where to watch it.
//! A deployment is kept with `_left`, the objects that are not yet asked for, and `_begun`, the ids of those that are.

use serde_json::{Value, json};

use super::{
    Done, Outcome, Refusal, Target, is, refuse,
    state::{Azure, Request, key},
    template::{self, Template},
};
use crate::rest::{items, text, texts};

pub(super) fn is_for(target: &Target) -> bool {
    is(&target.provider, "Microsoft.Resources") && is(&target.kind, "deployments")
}

/// What a template lists is about, apart from what becomes of it.
const ABOUT: [&str; 5] = ["type", "name", "apiVersion", "dependsOn", "comments"];

impl Azure {
    pub(super) fn deployments(&mut self, request: &Request<'_>) -> Outcome {
        let Target { child_kind, .. } = request.target;
        let id = key(&request.target.id());
        let there = self.deployments.get(&id);
        let missing = || {
            refuse(
                404,
                "DeploymentNotFound",
                format!("Deployment '{}' could not be found.", request.target.name),
            )
        };
        match request.ask.method.as_str() {
            "PUT" => self.deploy(request),
            "POST" if is(child_kind, "validate") => self
                .planned(request)
                .map(|_| Done::now(json!({"properties": {"provisioningState": "Succeeded"}}))),
            "GET" if is(child_kind, "operationStatuses") => {
                let properties = &there.ok_or_else(missing)?["properties"];
                let mut answer = json!({"status": properties["provisioningState"]});
                if !properties["error"].is_null() {
                    answer["error"] = properties["error"].clone();
                }
                Ok(Done { headers: vec![("retry-after", "2".to_owned())], ..Done::now(answer) })
            }
            "GET" => there.map(|found| Done::now(crate::rest::show(found))).ok_or_else(missing),
            _ => Err(refuse(405, "MethodNotAllowed", "It is not simulated.")),
        }
    }

    /// The objects of a template, each with its id, its body, and what it depends on.
    fn planned(&self, request: &Request<'_>) -> Result<Vec<Value>, Refusal> {
        let properties = &request.body["properties"];
        let template = self.template(&request.target.scope, properties);
        let listed = properties["template"]["resources"].as_array();
        let listed =
            listed.ok_or_else(|| refuse(400, "InvalidTemplate", "The template has no resources."))?;
        let plan = |one: &Value| {
            let mut body = template.value(one)?;
            let names: Vec<&str> = text(&body["name"]).split('/').collect();
            let id = template::id(&request.target.scope, text(&body["type"]), &names);
            let id =
                id.ok_or_else(|| refuse(400, "InvalidTemplate", "Type and name do not fit each other."))?;
            let needs = body["dependsOn"].take();
            if let Some(fields) = body.as_object_mut() {
                fields.retain(|name, value| !ABOUT.contains(&name.as_str()) && !value.is_null());
            }
            Ok(json!({"id": id, "body": body, "needs": needs}))
        };
        listed.iter().map(plan).collect()
    }

    fn template<'t>(&'t self, scope: &'t str, properties: &'t Value) -> Template<'t> {
        Template {
            body: &properties["template"],
            parameters: &properties["parameters"],
            scope,
            reference: &|_| Value::Null,
        }
    }

    fn deploy(&mut self, request: &Request<'_>) -> Outcome {
        let planned = self.planned(request)?;
        let (target, given) = (request.target, &request.body["properties"]);
        let deployment = json!({
            "id": target.id(), "name": target.name, "type": "Microsoft.Resources/deployments",
            "properties": {"provisioningState": "Running", "mode": "Incremental", "timestamp": "2026-10-01T00:00:00.0000000Z",
                "correlationId": "00000000-0000-0000-0000-000000000000"},
            "_left": planned, "_begun": [], "_scope": target.scope, "_given": given,
        });
        let shown = crate::rest::show(&deployment);
        self.deployments.insert(key(&target.id()), deployment);
        self.deploy_on(request.ask.now);
        let watch =
            format!("{}{}/operationStatuses/1?api-version=2022-09-01", request.ask.origin, target.id());
        Ok(Done {
            status: 201,
            body: shown,
            headers: vec![("azure-asyncoperation", watch), ("retry-after", "2".to_owned())],
        })
    }

    /// What can be asked for now is asked for, and what is complete is over.
    pub(super) fn deploy_on(&mut self, now: u64) {
        let running = |one: &Value| one["properties"]["provisioningState"] == "Running";
        let ids: Vec<String> =
            self.deployments.iter().filter(|(_, one)| running(one)).map(|(id, _)| id.clone()).collect();
        for id in ids {
            let mut deployment = self.deployments[&id].clone();
            if let Err(refusal) = self.step(&mut deployment, now) {
                let inner = json!({"code": refusal.code, "message": refusal.message});
                deployment["properties"]["error"] = json!({"code": "DeploymentFailed", "message": "At least one resource deployment operation failed.", "details": [inner]});
                deployment["properties"]["provisioningState"] = "Failed".into();
            }
            self.deployments.insert(id, deployment);
        }
    }

    fn step(&mut self, deployment: &mut Value, now: u64) -> Result<(), Refusal> {
        let planned = items(&deployment["_left"]);
        let mut left = Vec::new();
        for one in &planned {
            let waits = planned.iter().map(|other| text(&other["id"])).any(|other| needs(one, other))
                || texts(&deployment["_begun"])
                    .into_iter()
                    .any(|begun| needs(one, begun) && !self.is_made(begun));
            match waits {
                true => left.push(one.clone()),
                false => match self.put_as(text(&one["id"]), one["body"].clone(), now) {
                    // Somebody else is at work on it.
                    Err(refusal) if refusal.status == 429 => left.push(one.clone()),
                    Err(refusal) => return Err(refusal),
                    Ok(()) => {
                        deployment["_begun"]
                            .as_array_mut()
                            .into_iter()
                            .for_each(|all| all.push(one["id"].clone()));
                    }
                },
            }
        }
        let is_over = left.is_empty() && texts(&deployment["_begun"]).into_iter().all(|id| self.is_made(id));
        deployment["_left"] = left.into();
        if is_over {
            deployment["properties"]["outputs"] = self.outputs(deployment)?;
            deployment["properties"]["provisioningState"] = "Succeeded".into();
        }
        Ok(())
    }

    fn is_made(&self, id: &str) -> bool {
        self.objects.get(&key(id)).is_none_or(|object| object["_until"].is_null())
    }

    fn outputs(&self, deployment: &Value) -> Result<Value, Refusal> {
        let begun = texts(&deployment["_begun"]);
        let reference = |name: &str| {
            let full = begun.iter().find(|id| is(id, name) || id.rsplit('/').next() == Some(name));
            let found = full.and_then(|id| self.objects.get(&key(id)));
            found.map(|object| self.show(object)["properties"].clone()).unwrap_or_default()
        };
        let scope = text(&deployment["_scope"]);
        let template = Template { reference: &reference, ..self.template(scope, &deployment["_given"]) };
        template.value(&deployment["_given"]["template"]["outputs"])
    }
}

/// Whether an object depends on another: by its id, the end of that, or its name alone.
fn needs(one: &Value, id: &str) -> bool {
    let id = key(id);
    text(&one["id"]).to_ascii_lowercase() != id
        && texts(&one["needs"]).into_iter().map(key).any(|need| {
            id == need || id.ends_with(&format!("/{}", need.trim_matches('/'))) || short(&id) == need
        })
}

/// `microsoft.network/virtualnetworks/v` of an id.
fn short(id: &str) -> String {
    id.split("/providers/").nth(1).unwrap_or_default().to_owned()
}
