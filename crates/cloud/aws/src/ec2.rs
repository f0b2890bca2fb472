//! One EC2 request: a typed action in, a typed answer out.
//!
//! ```text
//!   Action ── query ──► A.1.B=…  ── cloud-http ──► EC2 ──► XML ── answers ──► Answer, or where it cannot be read
//! ```

mod answers;
mod query;
mod refusals;

use std::time::Duration;

use cloud_api::CloudError;
use cloud_http::{Access, Class, Client, Clock, Failure, Rates, Repeat, Request, World, form, or_gone};
use http::Method;
use model::Segment;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub(crate) use answers::{Answer, Done, List, Made};

use crate::{credentials::AwsSigner, kinds::Ec2Kind, marks::Filter};

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

/// What may be done when a request has no answer, or EC2 does not know what it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It would happen twice if it were sent twice.
    Once,
    /// It changes nothing, or EC2 itself recognises it when it comes again.
    Safe,
    /// As once, and it names objects which were made a moment ago: EC2 may not know them everywhere yet.
    Fresh,
}

/// An action of EC2, with its parameters as fields.
pub(crate) trait Action: Serialize + Send + Sync {
    const MANNER: Manner;
    type Answer: DeserializeOwned;

    fn name(&self) -> &'static str;
}

pub(crate) struct Ec2 {
    client: Client,
    endpoint: Option<String>,
}

impl Ec2 {
    pub(crate) fn new(options: &AwsOptions, world: World) -> Result<Self, CloudError> {
        let endpoint = options.endpoint.clone().or_else(|| world.environment.get("AWS_ENDPOINT_URL_EC2"));
        let (ca, dialect) = (options.ca.as_deref(), refusals::Ec2Dialect);
        let signer = |environment, transport, clock| AwsSigner::new("ec2", environment, transport, clock);
        let client = Client::open("AWS", world, ca, dialect, RATES, signer)?;
        Ok(Self { client, endpoint })
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.client.clock()
    }

    pub(crate) async fn ask<A: Action>(&self, region: &str, action: &A) -> Result<A::Answer, Failure> {
        let pairs = query::pairs(action);
        let mut tries = 0;
        loop {
            match self.send(region, action.name(), A::MANNER, pairs.clone()).await {
                Err(failure) if A::MANNER == Manner::Fresh && failure.is(Class::NotFound) && tries < 4 => {
                    tries += 1;
                    self.clock().sleep(Duration::from_secs(2)).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// All objects of a kind that pass the filters, whatever the number of pages.
    pub(crate) async fn list<K: Ec2Kind>(&self, region: &str, filters: &[Filter]) -> Result<Vec<K>, Failure> {
        #[derive(Serialize)]
        #[serde(rename_all = "PascalCase")]
        struct Page<'p> {
            filter: &'p [Filter],
            next_token: Option<String>,
        }
        let mut page = Page { filter: filters, next_token: None };
        let mut found = Vec::new();
        loop {
            let pairs = query::pairs(&page);
            let answer: Answer<K> = self.send(region, K::DESCRIBE, Manner::Safe, pairs).await?;
            found.extend(answer.listed);
            match answer.next_token {
                Some(token) => page.next_token = Some(token),
                None => return Ok(found),
            }
        }
    }

    /// Nothing to delete is as good as deleted.
    pub(crate) async fn delete<K: Ec2Kind>(&self, region: &str, id: &str) -> Result<(), Failure> {
        let pairs = vec![(K::ID.to_owned(), id.to_owned())];
        or_gone(self.send::<Done>(region, K::DELETE, Manner::Safe, pairs).await)
    }

    async fn send<T: DeserializeOwned>(
        &self,
        region: &str,
        action: &'static str,
        manner: Manner,
        parameters: Vec<(String, String)>,
    ) -> Result<T, Failure> {
        let is_read = action.starts_with("Describe") || action.starts_with("Search");
        let own =
            [("Action", action), ("Version", VERSION)].map(|(key, value)| (key.to_owned(), value.to_owned()));
        let url = match &self.endpoint {
            Some(endpoint) => format!("{}/", endpoint.trim_end_matches('/')),
            None => format!("https://ec2.{region}.amazonaws.com/"),
        };
        let mut request = Request::new(format!("ec2:{action}"), Method::POST, url).scope(region).body(
            "application/x-www-form-urlencoded; charset=utf-8",
            form(own.into_iter().chain(parameters)),
        );
        request.access = if is_read { Access::Read } else { Access::Write };
        request.repeat = if is_read || manner == Manner::Safe { Repeat::Safe } else { Repeat::LookFirst };
        let reply = self.client.call(request).await?;
        answers::read(action, &reply)
    }
}
