//! Azure: a service principal, a workload identity, or the machine's managed identity.

use std::sync::Arc;

use async_trait::async_trait;
use http::{HeaderName, Method};

use super::{Environment, Token, TokenSource, missing, token_request};
use crate::{Clock, Failure, Request, Transport, encode_component, form};

const SCOPE: &str = "https://management.azure.com/.default";
const METADATA: &str = "http://169.254.169.254";

pub struct AzureTokens {
    environment: Environment,
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
}

impl AzureTokens {
    pub fn new(environment: Environment, transport: Arc<dyn Transport>, clock: Arc<dyn Clock>) -> Self {
        Self { environment, transport, clock }
    }

    fn principal(&self, tenant: &str, proof: &[(&str, &str)], client: &str) -> Request {
        let authority = self.environment.get("AZURE_AUTHORITY_HOST");
        let authority = authority.unwrap_or_else(|| "https://login.microsoftonline.com".to_owned());
        let url = format!("{}/{tenant}/oauth2/v2.0/token", authority.trim_end_matches('/'));
        let fixed = [("client_id", client), ("grant_type", "client_credentials"), ("scope", SCOPE)];
        let body = form(fixed.into_iter().chain(proof.iter().copied()));
        Request::new("Azure's token endpoint", Method::POST, url)
            .body("application/x-www-form-urlencoded", body)
    }

    fn request(&self) -> Result<Request, Failure> {
        let env = |name| self.environment.get(name);
        if let (Some(tenant), Some(client)) = (env("AZURE_TENANT_ID"), env("AZURE_CLIENT_ID")) {
            if let Some(secret) = env("AZURE_CLIENT_SECRET") {
                return Ok(self.principal(&tenant, &[("client_secret", &secret)], &client));
            }
            if let Some(file) = env("AZURE_FEDERATED_TOKEN_FILE") {
                let unreadable = |err| missing(format!("Azure: cannot read {file}: {err}"));
                let token = std::fs::read_to_string(&file).map_err(unreadable)?;
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                let proof = [("client_assertion_type", kind), ("client_assertion", token.trim())];
                return Ok(self.principal(&tenant, &proof, &client));
            }
        }
        let base = env("AZURE_POD_IDENTITY_AUTHORITY_HOST").unwrap_or_else(|| METADATA.to_owned());
        let resource = encode_component("https://management.azure.com/");
        let mut url =
            format!("{base}/metadata/identity/oauth2/token?api-version=2018-02-01&resource={resource}");
        if let Some(client) = env("AZURE_CLIENT_ID") {
            url = format!("{url}&client_id={}", encode_component(&client));
        }
        let mut request = Request::new("Azure's managed identity", Method::GET, url);
        request.header(HeaderName::from_static("metadata"), "true");
        Ok(request)
    }
}

#[async_trait]
impl TokenSource for AzureTokens {
    async fn fetch(&self) -> Result<Token, Failure> {
        token_request(&*self.transport, &*self.clock, self.request()?).await
    }
}
