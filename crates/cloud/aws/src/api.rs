//! One EC2 request: parameters as JSON in, the answer as JSON out.

use std::sync::Arc;

use cloud_api::CloudError;
use cloud_http::{
    Access, Answer, Class, Client, Clock, Dialect, Failure, HttpTransport, Parts, Rates, Recorder, Repeat,
    Reply, Request, SystemClock,
    auth::{Environment, aws::AwsSigner},
    form,
};
use http::Method;
use model::Segment;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::xml;

/// How the plugin is set up.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AwsOptions {
    /// Where EC2 is, the same for all regions; by default AWS's own endpoint of each region.
    pub endpoint: Option<String>,
    /// The regions to look at; by default all that the account has.
    pub regions: Option<Vec<Segment>>,
    /// Marks what this controller made. Two controllers on one account need two owners.
    pub owner: Option<String>,
    /// PEM file of a CA to trust instead of the machine's.
    pub ca: Option<std::path::PathBuf>,
}

const VERSION: &str = "2016-11-15";

/// Requests per second to begin with: EC2's limits differ by action and account; these are low for all.
const RATES: Rates = Rates { read: 20.0, write: 5.0 };

pub(crate) struct Ec2 {
    client: Client,
    endpoint: Option<String>,
}

/// Reads EC2's refusals.
struct Ec2Dialect;

impl Dialect for Ec2Dialect {
    fn judge(&self, reply: &Reply) -> Option<Answer> {
        let text = reply.text();
        let root = xml::parse(&text);
        if reply.status < 300 && root.is_some() {
            return None;
        }
        let error = root.map(|root| root["Errors"]["Error"].clone()).unwrap_or_default();
        let field = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
        let (code, message) = (field("Code"), field("Message"));
        let class = class(reply.status, &code);
        if code.is_empty() {
            let start: String = text.chars().take(80).collect();
            return Some(Answer { class, code: "no EC2 answer".into(), message: start });
        }
        Some(Answer { class, code, message })
    }
}

fn class(status: u16, code: &str) -> Class {
    match code {
        "RequestLimitExceeded" | "EC2ThrottledException" | "Throttling" | "ThrottlingException" => {
            Class::Throttled
        }
        "IncorrectState" | "IncorrectInstanceState" | "InvalidStateTransition" => Class::Busy,
        "DependencyViolation" | "InvalidIPAddress.InUse" | "CannotDelete" => Class::InUse,
        "AuthFailure"
        | "RequestExpired"
        | "ExpiredToken"
        | "InvalidClientTokenId"
        | "SignatureDoesNotMatch" => Class::Unauthenticated,
        "UnauthorizedOperation" | "OptInRequired" => Class::Denied,
        "RouteAlreadyExists" | "Resource.AlreadyAssociated" | "DuplicateTransitGatewayAttachment" => {
            Class::Exists
        }
        "NatGatewayNotFound" | "Gateway.NotAttached" => Class::NotFound,
        _ if code.ends_with(".Duplicate") => Class::Exists,
        _ if code.ends_with(".NotFound") => Class::NotFound,
        _ if code.ends_with("LimitExceeded") || code.starts_with("Insufficient") => Class::Limit,
        _ if status == 429 => Class::Throttled,
        _ if status >= 500 || code.is_empty() => Class::Failed,
        _ => Class::Invalid,
    }
}

/// Flattens parameters: objects by dots, lists by numbers from 1.
fn flatten(prefix: &str, value: &Value, pairs: &mut Vec<(String, String)>) {
    let below = |name: &str| if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") };
    match value {
        Value::Null => {}
        Value::Object(fields) => fields.iter().for_each(|(name, value)| flatten(&below(name), value, pairs)),
        Value::Array(items) => {
            for (number, item) in items.iter().enumerate() {
                flatten(&below(&(number + 1).to_string()), item, pairs);
            }
        }
        Value::String(text) => pairs.push((prefix.to_owned(), text.clone())),
        other => pairs.push((prefix.to_owned(), other.to_string())),
    }
}

/// The items of a list in an answer.
pub(crate) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(crate) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

impl Ec2 {
    pub(crate) fn new(
        options: &AwsOptions,
        environment: Environment,
        clock: Option<Arc<dyn Clock>>,
        recorder: Option<Arc<dyn Recorder>>,
    ) -> Result<Self, CloudError> {
        let transport = || {
            HttpTransport::new(options.ca.as_deref())
                .map_err(|err| CloudError::invalid(format!("AWS: {err}")))
        };
        let clock = clock.unwrap_or_else(|| Arc::new(SystemClock));
        let endpoint = options.endpoint.clone().or_else(|| environment.get("AWS_ENDPOINT_URL_EC2"));
        let signer = AwsSigner::new("ec2", environment, Arc::new(transport()?), Arc::clone(&clock));
        let mut parts = Parts::new(transport()?, Arc::new(signer), Arc::new(Ec2Dialect), RATES);
        (parts.clock, parts.recorder) = (clock, recorder);
        Ok(Self { client: Client::new(parts), endpoint })
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.client.clock()
    }

    async fn send(
        &self,
        region: &str,
        action: &str,
        parameters: &Value,
        repeat: Repeat,
    ) -> Result<Value, Failure> {
        let is_read = action.starts_with("Describe") || action.starts_with("Search");
        let mut pairs =
            vec![("Action".to_owned(), action.to_owned()), ("Version".to_owned(), VERSION.to_owned())];
        flatten("", parameters, &mut pairs);
        let url = match &self.endpoint {
            Some(endpoint) => format!("{}/", endpoint.trim_end_matches('/')),
            None => format!("https://ec2.{region}.amazonaws.com/"),
        };
        let mut request = Request::new(format!("ec2:{action}"), Method::POST, url)
            .scope(region)
            .body("application/x-www-form-urlencoded; charset=utf-8", form(pairs));
        request.access = if is_read { Access::Read } else { Access::Write };
        request.repeat = if is_read { Repeat::Safe } else { repeat };
        let operation = request.operation.clone();
        let reply = self.client.call(request).await?;
        let unreadable = || Failure::Unreadable { operation, message: "it is not XML".to_owned() };
        xml::parse(&reply.text()).ok_or_else(unreadable)
    }

    /// A change that would happen twice if it were sent twice.
    pub(crate) async fn call(&self, region: &str, action: &str, parameters: Value) -> Result<Value, Failure> {
        self.send(region, action, &parameters, Repeat::LookFirst).await
    }

    /// A read, or a change that EC2 itself recognises when it comes again.
    pub(crate) async fn safe(&self, region: &str, action: &str, parameters: Value) -> Result<Value, Failure> {
        self.send(region, action, &parameters, Repeat::Safe).await
    }

    /// A change that needs objects which were made a moment ago: EC2 may not know them everywhere yet.
    pub(crate) async fn fresh(
        &self,
        region: &str,
        action: &str,
        parameters: Value,
    ) -> Result<Value, Failure> {
        let mut tries = 0;
        loop {
            match self.send(region, action, &parameters, Repeat::LookFirst).await {
                Err(failure) if failure.is(Class::NotFound) && tries < 4 => {
                    tries += 1;
                    self.clock().sleep(std::time::Duration::from_secs(2)).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// All pages of a Describe, as one list.
    pub(crate) async fn list(
        &self,
        region: &str,
        action: &str,
        list: &str,
        parameters: Value,
    ) -> Result<Vec<Value>, Failure> {
        let mut found = Vec::new();
        let mut parameters = parameters;
        loop {
            let answer = self.safe(region, action, parameters.clone()).await?;
            found.extend(items(&answer[list]).cloned());
            match answer["nextToken"].as_str() {
                Some(token) => parameters["NextToken"] = json!(token),
                None => return Ok(found),
            }
        }
    }
}

/// Nothing to delete is as good as deleted.
pub(crate) fn or_gone(outcome: Result<Value, Failure>) -> Result<(), Failure> {
    match outcome {
        Ok(_) => Ok(()),
        Err(failure) if failure.is(Class::NotFound) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// Something that is there already is as good as made.
pub(crate) fn or_there(outcome: Result<Value, Failure>) -> Result<(), Failure> {
    match outcome {
        Ok(_) => Ok(()),
        Err(failure) if failure.is(Class::Exists) => Ok(()),
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_written_as_the_query_protocol_wants_them() {
        let mut pairs = Vec::new();
        flatten("", &json!({"A": "x", "B": [{"C": 1}, {"C": true}], "N": null}), &mut pairs);
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(pairs, ["A=x", "B.1.C=1", "B.2.C=true"]);
    }

    #[test]
    fn refusals_have_their_classes() {
        for (status, code, expected) in [
            (503, "RequestLimitExceeded", Class::Throttled),
            (400, "InvalidGroup.Duplicate", Class::Exists),
            (400, "InvalidVpcID.NotFound", Class::NotFound),
            (400, "DependencyViolation", Class::InUse),
            (400, "RulesPerSecurityGroupLimitExceeded", Class::Limit),
            (403, "UnauthorizedOperation", Class::Denied),
            (401, "AuthFailure", Class::Unauthenticated),
            (500, "InternalError", Class::Failed),
            (502, "", Class::Failed),
            (400, "MissingParameter", Class::Invalid),
        ] {
            assert_eq!(class(status, code), expected, "{code}");
        }
    }

    #[test]
    fn a_page_of_html_is_no_answer() {
        let html = |status| Reply { status, headers: Default::default(), body: "<html><p>x</html>".into() };
        assert_eq!(Ec2Dialect.judge(&html(200)).map(|answer| answer.class), Some(Class::Failed));
        assert_eq!(Ec2Dialect.judge(&html(502)).map(|answer| answer.class), Some(Class::Failed));
    }
}
