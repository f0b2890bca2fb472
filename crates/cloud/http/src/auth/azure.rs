//! Azure: a service principal, a workload identity, the machine's managed identity, or whoever `az` is logged in as.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{HeaderName, Method};
use serde::Deserialize;

use super::{Environment, Token, TokenSource, missing, token_request};
use crate::{Clock, Failure, Request, Transport, encode_component, form};

const RESOURCE: &str = "https://management.azure.com/";
const SCOPE: &str = "https://management.azure.com/.default";
const METADATA: &str = "http://169.254.169.254";
/// Outside Azure nobody answers at the metadata address; somebody who does answers within this.
const PROBE: Duration = Duration::from_secs(3);

pub struct AzureTokens {
    environment: Environment,
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
}

/// What `az account get-access-token` says.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Said {
    access_token: String,
    /// Since 1970; versions before 2.54 do not say it.
    #[serde(rename = "expires_on")]
    ends: Option<u64>,
}

impl AzureTokens {
    pub fn new(environment: Environment, transport: Arc<dyn Transport>, clock: Arc<dyn Clock>) -> Self {
        Self { environment, transport, clock }
    }

    /// Asks as a service principal, if the environment names one.
    fn principal(&self) -> Result<Option<Request>, Failure> {
        let env = |name| self.environment.get(name);
        let (Some(tenant), Some(client)) = (env("AZURE_TENANT_ID"), env("AZURE_CLIENT_ID")) else {
            return Ok(None);
        };
        let mut fields = vec![
            ("client_id", client),
            ("grant_type", "client_credentials".to_owned()),
            ("scope", SCOPE.to_owned()),
        ];
        if let Some(secret) = env("AZURE_CLIENT_SECRET") {
            fields.push(("client_secret", secret));
        } else if let Some(file) = env("AZURE_FEDERATED_TOKEN_FILE") {
            // Read each time: Kubernetes writes a new one before the old one ends.
            let unreadable = |err| missing(format!("Azure: cannot read {file}: {err}"));
            let token = std::fs::read_to_string(&file).map_err(unreadable)?;
            let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
            fields.push(("client_assertion_type", kind.to_owned()));
            fields.push(("client_assertion", token.trim().to_owned()));
        } else {
            return Ok(None);
        }
        let authority = env("AZURE_AUTHORITY_HOST");
        let authority = authority.unwrap_or_else(|| "https://login.microsoftonline.com".to_owned());
        let url = format!("{}/{tenant}/oauth2/v2.0/token", authority.trim_end_matches('/'));
        let request = Request::new("Azure's token endpoint", Method::POST, url)
            .body("application/x-www-form-urlencoded", form(fields));
        Ok(Some(request))
    }

    fn managed(&self) -> Request {
        let env = |name| self.environment.get(name);
        let base = env("AZURE_POD_IDENTITY_AUTHORITY_HOST").unwrap_or_else(|| METADATA.to_owned());
        let resource = encode_component(RESOURCE);
        let base = base.trim_end_matches('/');
        let mut url =
            format!("{base}/metadata/identity/oauth2/token?api-version=2018-02-01&resource={resource}");
        if let Some(client) = env("AZURE_CLIENT_ID") {
            url = format!("{url}&client_id={}", encode_component(&client));
        }
        let mut request = Request::new("Azure's managed identity", Method::GET, url);
        request.header(HeaderName::from_static("metadata"), "true");
        request
    }

    /// Where `az` is, if it is installed.
    fn tool(&self) -> Option<PathBuf> {
        let path = self.environment.get("PATH")?;
        std::env::split_paths(&path).map(|dir| dir.join("az")).find(|file| file.is_file())
    }

    async fn ask_tool(&self, tool: PathBuf) -> Result<Token, Failure> {
        let ask = move || {
            let arguments = ["account", "get-access-token", "--output", "json", "--resource", RESOURCE];
            std::process::Command::new(tool).args(arguments).output()
        };
        let cannot = |err: &dyn std::fmt::Display| missing(format!("az cannot be run: {err}"));
        let output = tokio::task::spawn_blocking(ask)
            .await
            .map_err(|err| cannot(&err))?
            .map_err(|err| cannot(&err))?;
        if !output.status.success() {
            let said: String = String::from_utf8_lossy(&output.stderr).trim().chars().take(300).collect();
            return Err(missing(format!("az gave no token: {said}")));
        }
        // What it said instead of a token may be one in another shape, so it is not shown.
        let said: Said = serde_json::from_slice(&output.stdout)
            .map_err(|_| missing("az answered with something that is no token"))?;
        let soon = self.clock.now() + Duration::from_secs(600);
        Ok(Token { value: said.access_token, ends: said.ends.map_or(soon, Duration::from_secs) })
    }
}

#[async_trait]
impl TokenSource for AzureTokens {
    async fn fetch(&self) -> Result<Token, Failure> {
        if let Some(request) = self.principal()? {
            return token_request(&*self.transport, &*self.clock, request).await;
        }
        let asked = token_request(&*self.transport, &*self.clock, self.managed());
        let late = |_| missing("nobody answers at Azure's metadata address");
        let managed = tokio::time::timeout(PROBE, asked).await.map_err(late).and_then(|token| token);
        match (managed, self.tool()) {
            (Err(_), Some(tool)) => self.ask_tool(tool).await,
            (Err(failure), None) => Err(missing(format!(
                "Azure: the environment names no service principal (AZURE_TENANT_ID, AZURE_CLIENT_ID and \
                 AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE), az is not installed, and: {failure}"
            ))),
            (managed, _) => managed,
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::{Reply, SystemClock, TransportError};

    /// A token endpoint and a metadata server, as Azure's answer: numbers in one, text in the other.
    #[derive(Default)]
    struct Endpoint {
        heard: Mutex<Vec<Request>>,
        is_azure: bool,
    }

    #[async_trait]
    impl Transport for Endpoint {
        async fn send(&self, request: &Request) -> Result<Reply, TransportError> {
            self.heard.lock().push(request.clone());
            let body = String::from_utf8_lossy(&request.body).into_owned();
            let text = match request.url.as_str() {
                url if url.ends_with("/t1/oauth2/v2.0/token") => {
                    let proven =
                        body.contains("client_secret=right") || body.contains("client_assertion=jwt");
                    let scope = format!("scope={}", encode_component(SCOPE));
                    match proven && body.contains(&scope) && body.contains("client_id=c1") {
                        true => r#"{"token_type":"Bearer","expires_in":3599,"access_token":"principal"}"#,
                        false => r#"{"error":"invalid_client","error_description":"AADSTS7000215"}"#,
                    }
                }
                url if url.contains("/metadata/identity/oauth2/token?") && self.is_azure => {
                    assert_eq!(request.headers["metadata"], "true");
                    r#"{"access_token":"managed","expires_in":"86399","expires_on":"1790000000","resource":"x"}"#
                }
                _ => return Err(TransportError("no route to host".into())),
            };
            let status = if text.contains("invalid_client") { 401 } else { 200 };
            Ok(Reply { status, headers: Default::default(), body: text.into() })
        }
    }

    async fn fetch(endpoint: &Arc<Endpoint>, variables: &[(&str, &str)]) -> Result<Token, Failure> {
        let environment = Environment::of(variables.iter().copied());
        AzureTokens::new(environment, Arc::clone(endpoint) as _, Arc::new(SystemClock)).fetch().await
    }

    fn lasts(token: &Token) -> u64 {
        (token.ends - SystemClock.now()).as_secs()
    }

    const PRINCIPAL: [(&str, &str); 3] =
        [("AZURE_TENANT_ID", "t1"), ("AZURE_CLIENT_ID", "c1"), ("AZURE_CLIENT_SECRET", "right")];

    #[tokio::test]
    async fn a_service_principal_shows_its_secret() {
        let endpoint = Arc::new(Endpoint::default());
        let token = fetch(&endpoint, &PRINCIPAL).await.unwrap();
        assert_eq!((token.value.as_str(), lasts(&token) / 100), ("principal", 35));
        assert!(endpoint.heard.lock()[0].url.starts_with("https://login.microsoftonline.com/t1/"));
        let mut wrong = PRINCIPAL;
        wrong[2].1 = "wrong";
        let err = fetch(&endpoint, &wrong).await.unwrap_err().to_string();
        assert!(err.contains("AADSTS7000215") && !err.contains("wrong"), "{err}");
    }

    #[tokio::test]
    async fn a_workload_shows_the_token_of_its_cluster() {
        let endpoint = Arc::new(Endpoint::default());
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "jwt\n").unwrap();
        let mut variables = PRINCIPAL.to_vec();
        variables[2] = ("AZURE_FEDERATED_TOKEN_FILE", file.to_str().unwrap());
        variables.push(("AZURE_AUTHORITY_HOST", "https://login.example/"));
        assert_eq!(fetch(&endpoint, &variables).await.unwrap().value, "principal");
        assert!(endpoint.heard.lock()[0].url.starts_with("https://login.example/t1/"));
        std::fs::remove_file(&file).unwrap();
        assert!(fetch(&endpoint, &variables).await.unwrap_err().to_string().contains("token"));
    }

    #[tokio::test]
    async fn a_machine_asks_its_metadata_server() {
        let endpoint = Arc::new(Endpoint { is_azure: true, ..Endpoint::default() });
        let token = fetch(&endpoint, &[("AZURE_CLIENT_ID", "c1")]).await.unwrap();
        assert_eq!((token.value.as_str(), lasts(&token) / 1000), ("managed", 86));
        let url = endpoint.heard.lock()[0].url.clone();
        assert!(url.starts_with(METADATA) && url.ends_with("&client_id=c1"), "{url}");
    }

    #[tokio::test]
    async fn elsewhere_az_is_asked() {
        use std::os::unix::fs::PermissionsExt as _;
        let endpoint = Arc::new(Endpoint::default());
        let dir = tempfile::tempdir().unwrap();
        let path = [("PATH", dir.path().to_str().unwrap())];
        let err = fetch(&endpoint, &path).await.unwrap_err().to_string();
        assert!(err.contains("AZURE_TENANT_ID") && err.contains("no route"), "{err}");
        let write = |script: &str| {
            let file = dir.path().join("az");
            std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        write(
            r#"[ "$1 $2" = "account get-access-token" ] && echo '{"accessToken":"tool","expires_on":1790000000}'"#,
        );
        let token = fetch(&endpoint, &path).await.unwrap();
        assert_eq!((token.value.as_str(), token.ends.as_secs()), ("tool", 1_790_000_000));
        write("echo 'Please run az login' >&2; exit 1");
        assert!(fetch(&endpoint, &path).await.unwrap_err().to_string().contains("az login"));
    }
}
