use std::{
    fs,
    path::Path,
    sync::{Mutex, MutexGuard},
};

use aws_lc_rs::{
    encoding::AsDer as _,
    signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey},
};
use serde_json::{Value, json};

use super::*;
use crate::{Reply, TransportError, testing::TestClock};

/// Answers by URL, and keeps what was asked.
struct Script {
    answers: Vec<(&'static str, u16, Value)>,
    asked: Mutex<Vec<Request>>,
}

#[async_trait]
impl Transport for Script {
    async fn send(&self, request: &Request) -> Result<Reply, TransportError> {
        self.asked.lock().unwrap().push(request.clone());
        let found = self.answers.iter().find(|(url, ..)| request.url == *url);
        let (_, status, body) =
            found.ok_or_else(|| TransportError(format!("{} is not there", request.url)))?;
        let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        Ok(Reply { status: *status, headers: http::HeaderMap::new(), body: body.into() })
    }
}

impl Script {
    fn asked(&self) -> MutexGuard<'_, Vec<Request>> {
        self.asked.lock().unwrap()
    }
}

const STS: &str = "https://sts.example/v1/token";
const IMPERSONATE: &str = "https://iam.example/sa:generateAccessToken";
const OAUTH: &str = "https://oauth2.googleapis.com/token";

/// Fetches a token with a file of credentials; what it is, or the error, and what was asked.
async fn fetch(
    dir: &Path,
    credentials: &Value,
    variables: &[(&str, &str)],
    answers: Vec<(&'static str, u16, Value)>,
) -> (Result<Token, String>, Vec<Request>) {
    let file = dir.join("credentials.json");
    fs::write(&file, credentials.to_string()).unwrap();
    let own = [("GOOGLE_APPLICATION_CREDENTIALS", file.to_str().unwrap())];
    let environment = Environment::of(own.iter().chain(variables).copied());
    let script = Arc::new(Script { answers, asked: Mutex::default() });
    let tokens = GoogleTokens::new(environment, Arc::clone(&script) as _, TestClock::at(1_000));
    let outcome = tokens.fetch().await.map_err(|err| err.to_string());
    let asked = script.asked().clone();
    (outcome, asked)
}

fn external(source: Value) -> Value {
    json!({
        "type": "external_account",
        "audience": "//iam.googleapis.com/pool",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": STS,
        "credential_source": source,
    })
}

fn federated() -> (&'static str, u16, Value) {
    (STS, 200, json!({"access_token": "federated", "expires_in": 600}))
}

fn body(request: &Request) -> String {
    String::from_utf8(request.body.to_vec()).unwrap()
}

fn header<'r>(request: &'r Request, name: &str) -> Option<&'r str> {
    request.headers.get(name)?.to_str().ok()
}

#[test]
fn an_assertion_is_signed_with_the_key() {
    let pair = rsa::KeyPair::generate(rsa::KeySize::Rsa2048).unwrap();
    let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> = pair.as_der().unwrap();
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        BASE64_STANDARD.encode(der.as_ref())
    );
    let account = |private_key: String| ServiceAccount {
        client_email: "a@b".to_owned(),
        private_key,
        private_key_id: "k1".to_owned(),
        token_uri: "https://t/".to_owned(),
    };
    let assertion = account(pem).assertion(1_000).unwrap();
    let (signed, signature) = assertion.rsplit_once('.').unwrap();
    let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, pair.public_key().as_ref());
    key.verify(signed.as_bytes(), &signature).unwrap();
    assert!(account("no key".to_owned()).assertion(1_000).is_err());
}

#[tokio::test]
async fn a_user_impersonates_a_service_account() {
    let dir = tempfile::tempdir().unwrap();
    let credentials = json!({
        "type": "impersonated_service_account",
        "service_account_impersonation_url": IMPERSONATE,
        "delegates": ["d@x"],
        "source_credentials": {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r"},
    });
    let answers = vec![
        (OAUTH, 200, json!({"access_token": "own", "expires_in": 3599})),
        (IMPERSONATE, 200, json!({"accessToken": "other", "expireTime": "1970-01-01T01:00:00Z"})),
    ];
    let (token, asked) = fetch(dir.path(), &credentials, &[], answers).await;
    let token = token.unwrap();
    assert_eq!((token.value.as_str(), token.ends), ("other", Duration::from_secs(3600)));
    assert_eq!(header(&asked[1], "authorization"), Some("Bearer own"));
    let body: Value = serde_json::from_str(&body(&asked[1])).unwrap();
    assert_eq!(body, json!({"scope": [SCOPE], "delegates": ["d@x"], "lifetime": "3600s"}));
}

#[tokio::test]
async fn a_refused_impersonation_says_what_google_said() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("token"), "subject").unwrap();
    let mut credentials = external(json!({"file": dir.path().join("token")}));
    credentials["service_account_impersonation_url"] = IMPERSONATE.into();
    let answers = vec![
        federated(),
        (IMPERSONATE, 403, json!({"error": {"message": "no iam.serviceAccounts.getAccessToken"}})),
    ];
    let (token, _) = fetch(dir.path(), &credentials, &[], answers).await;
    let err = token.unwrap_err();
    assert!(err.contains("403") && err.contains("getAccessToken"), "{err}");
}

#[tokio::test]
async fn the_token_of_a_file_is_exchanged() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    for (text, format) in [
        (" subject\n", Value::Null),
        (" subject\n", json!({"type": "text"})),
        (r#"{"t":"subject"}"#, json!({"type": "json", "subject_token_field_name": "t"})),
    ] {
        fs::write(&file, text).unwrap();
        let mut source = json!({"file": file});
        if !format.is_null() {
            source["format"] = format;
        }
        let (token, asked) = fetch(dir.path(), &external(source), &[], vec![federated()]).await;
        let token = token.unwrap();
        assert_eq!((token.value.as_str(), token.ends), ("federated", Duration::from_secs(1_600)));
        let form = body(&asked[0]);
        for part in ["token-exchange", "subject_token=subject", "audience=%2F%2Fiam.googleapis.com%2Fpool"] {
            assert!(form.contains(part), "{form}");
        }
    }
    let source = json!({"file": file, "format": {"type": "json", "subject_token_field_name": "other"}});
    let (token, asked) = fetch(dir.path(), &external(source), &[], vec![federated()]).await;
    assert!(token.unwrap_err().contains("no text other") && asked.is_empty());
}

#[tokio::test]
async fn the_token_of_a_url_is_asked_for_with_its_headers() {
    let dir = tempfile::tempdir().unwrap();
    let source = json!({"url": "http://169.254.169.254/token", "headers": {"Metadata": "True"}});
    let mut credentials = external(source);
    (credentials["client_id"], credentials["client_secret"]) = ("i".into(), "s".into());
    let answers = vec![("http://169.254.169.254/token", 200, "subject".into()), federated()];
    let (token, asked) = fetch(dir.path(), &credentials, &[], answers).await;
    assert_eq!(token.unwrap().value, "federated");
    assert_eq!(header(&asked[0], "metadata"), Some("True"));
    assert_eq!(header(&asked[1], "authorization"), Some("Basic aTpz"));
}

#[tokio::test]
async fn a_program_is_run_only_if_that_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("print-token");
    let print = |json: &str| {
        fs::write(&program, format!("printf '%s' '{json}'\n")).unwrap();
    };
    print(
        r#"{"version":1,"success":true,"token_type":"urn:ietf:params:oauth:token-type:jwt","id_token":"subject"}"#,
    );
    let command = format!("/bin/sh {}", program.display());
    let credentials = external(json!({"executable": {"command": command, "timeout_millis": 20000}}));
    let allowed = [("GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES", "1")];
    let (token, _) = fetch(dir.path(), &credentials, &[], vec![federated()]).await;
    assert!(token.unwrap_err().contains("only if"));
    let (token, asked) = fetch(dir.path(), &credentials, &allowed, vec![federated()]).await;
    assert_eq!(token.unwrap().value, "federated");
    assert!(body(&asked[0]).contains("subject_token=subject"));
    print(r#"{"version":1,"success":false,"code":"401","message":"not logged in"}"#);
    let (token, _) = fetch(dir.path(), &credentials, &allowed, vec![federated()]).await;
    assert!(token.unwrap_err().contains("401 not logged in"));
}

#[tokio::test]
async fn what_is_not_known_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let aws = external(json!({"environment_id": "aws1", "region_url": "x"}));
    let (token, _) = fetch(dir.path(), &aws, &[], Vec::new()).await;
    assert!(token.unwrap_err().contains("environment_id"));
    let (token, _) = fetch(dir.path(), &json!({"type": "gdch_service_account"}), &[], Vec::new()).await;
    let err = token.unwrap_err();
    assert!(err.contains("gdch_service_account") && err.contains("credentials.json"), "{err}");
}
