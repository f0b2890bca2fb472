//! IBM Cloud: an API key of IAM.

use std::sync::Arc;

use async_trait::async_trait;
use http::Method;

use super::{Environment, Token, TokenSource, missing, token_request};
use crate::{Clock, Failure, Request, Transport, form};

pub struct IbmTokens {
    environment: Environment,
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
}

impl IbmTokens {
    pub fn new(environment: Environment, transport: Arc<dyn Transport>, clock: Arc<dyn Clock>) -> Self {
        Self { environment, transport, clock }
    }
}

#[async_trait]
impl TokenSource for IbmTokens {
    async fn fetch(&self) -> Result<Token, Failure> {
        let env = |name| self.environment.get(name);
        let key = env("IBMCLOUD_API_KEY").or_else(|| env("IC_API_KEY"));
        let key = key.ok_or_else(|| missing("IBM Cloud: IBMCLOUD_API_KEY is not set"))?;
        let base = env("IBMCLOUD_IAM_API_ENDPOINT").unwrap_or_else(|| "https://iam.cloud.ibm.com".to_owned());
        let grant = "urn:ibm:params:oauth:grant-type:apikey";
        let request = Request::new("IBM's token endpoint", Method::POST, format!("{base}/identity/token"))
            .body("application/x-www-form-urlencoded", form([("grant_type", grant), ("apikey", &key)]));
        token_request(&*self.transport, &*self.clock, request).await
    }
}
