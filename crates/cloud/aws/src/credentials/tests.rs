//! Every source of keys, against a server on loopback that answers as AWS's do.

use std::path::Path;

use cloud_http::{
    HttpTransport,
    testing::{Server, TestClock},
};
use http::Method;
use tempfile::TempDir;

use super::*;

/// 2026-11-16.
const START: u64 = 1_794_787_200;

fn with_clock(clock: &Arc<TestClock>, pairs: &[(&str, &str)]) -> AwsSigner {
    let transport = Arc::new(HttpTransport::new(None).unwrap());
    AwsSigner::new("ec2", Environment::of(pairs.iter().copied()), transport, Arc::clone(clock) as _)
}

fn signer(pairs: &[(&str, &str)]) -> AwsSigner {
    with_clock(&TestClock::at(START), pairs)
}

/// The key that a request is signed with, and the session's token.
async fn used(signer: &AwsSigner) -> Result<(String, String), Failure> {
    let mut request = Request::new("x", Method::POST, "http://127.0.0.1:1/").scope("eu-west-1");
    signer.sign(&mut request).await?;
    let header = |name: &str| request.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let authorization = header("authorization").unwrap();
    assert!(authorization.contains("/eu-west-1/ec2/aws4_request"), "{authorization}");
    let key = authorization.split_once("Credential=").unwrap().1.split('/').next().unwrap().to_owned();
    Ok((key, header("x-amz-security-token").unwrap_or_default()))
}

async fn key(signer: &AwsSigner) -> String {
    used(signer).await.unwrap().0
}

/// A server that answers by what is asked.
async fn serve(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Server {
    Server::telling("x-aws-ec2-metadata-token-ttl-seconds: 21600\r\n", answer).await
}

fn role_json(key: &str, ends: &str) -> String {
    format!(
        r#"{{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"{key}","SecretAccessKey":"s","Token":"t-{key}","Expiration":"{ends}"}}"#
    )
}

fn role_xml(action: &str, key: &str) -> String {
    format!(
        "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result><AssumedRoleUser>\
         <AssumedRoleId>R:x</AssumedRoleId><Arn>arn:aws:sts::1:assumed-role/r/x</Arn></AssumedRoleUser><Credentials>\
         <AccessKeyId>{key}</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t-{key}</SessionToken>\
         <Expiration>2026-11-16T01:00:00Z</Expiration></Credentials></{action}Result></{action}Response>"
    )
}

/// A home with AWS's two files.
fn home(credentials: &str, config: &str) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".aws")).unwrap();
    std::fs::write(home.path().join(".aws/credentials"), credentials).unwrap();
    std::fs::write(home.path().join(".aws/config"), config).unwrap();
    home
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

const QUIET: [(&str, &str); 2] = [("AWS_REGION", "eu-west-1"), ("AWS_EC2_METADATA_DISABLED", "true")];

fn at_home<'p>(home: &'p TempDir, more: &[(&'p str, &'p str)]) -> Vec<(&'p str, &'p str)> {
    [("HOME", text(home.path()))].into_iter().chain(QUIET).chain(more.iter().copied()).collect()
}

/// Three of the cases that AWS publishes.
#[tokio::test]
async fn known_signatures_hold() {
    let clock = TestClock::at(1_440_938_160);
    let keys = [
        ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
    ];
    let signer = AwsSigner { service: "service", ..with_clock(&clock, &keys) };
    for (method, query, expected) in [
        (Method::GET, "", "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        (
            Method::GET,
            "?Param2=value2&Param1=value1",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        (Method::POST, "", "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    ] {
        let url = format!("https://example.amazonaws.com/{query}");
        let mut request = Request::new("x", method, url).scope("us-east-1");
        signer.sign(&mut request).await.unwrap();
        let value = request.headers["authorization"].to_str().unwrap();
        assert_eq!(value.rsplit_once("Signature=").unwrap().1, expected);
    }
}

#[tokio::test]
async fn a_wrong_clock_is_corrected_by_what_the_cloud_says() {
    let keys = [("AWS_ACCESS_KEY_ID", "A"), ("AWS_SECRET_ACCESS_KEY", "s")];
    let signer = signer(&keys);
    let mut headers = http::HeaderMap::new();
    headers.insert("date", HeaderValue::from_static("Mon, 16 Nov 2026 02:00:00 GMT"));
    assert!(signer.refused(&Reply { status: 401, headers, body: Default::default() }));
    assert_eq!(signer.time(), UNIX_EPOCH + Duration::from_secs(START + 7200));
}

#[tokio::test]
async fn environment_comes_before_profiles_and_nothing_says_what_was_tried() {
    let home = home(
        "[default]\naws_access_key_id = A\naws_secret_access_key=s\n[work]\naws_access_key_id=B\naws_secret_access_key = s\n",
        "",
    );
    assert_eq!(key(&signer(&at_home(&home, &[]))).await, "A");
    assert_eq!(key(&signer(&at_home(&home, &[("AWS_PROFILE", "work")]))).await, "B");
    let both = [("AWS_PROFILE", "work"), ("AWS_ACCESS_KEY_ID", "C"), ("AWS_SECRET_ACCESS_KEY", "s")];
    assert_eq!(key(&signer(&at_home(&home, &both))).await, "C");
    let none = used(&signer(&at_home(&home, &[("AWS_PROFILE", "none")]))).await.unwrap_err();
    assert!(matches!(none, Failure::Credentials { .. }), "{none}");
    let shown = none.to_string();
    let tried = ["Environment", "Profile", "WebIdentityToken", "EcsContainer", "Ec2InstanceMetadata"];
    let places: Vec<usize> = tried.iter().filter_map(|name| shown.find(name)).collect();
    assert!(places.len() == tried.len() && places.is_sorted(), "{shown}");
    assert!(shown.contains("profile none") && !shown.contains('\n'), "{shown}");
}

#[tokio::test]
async fn an_instance_has_a_role_which_is_renewed_before_it_ends() {
    let keys = Arc::new(Lock::new(vec![("K2", "2026-11-16T12:00:00Z"), ("K1", "2026-11-16T06:00:00Z")]));
    let server = serve(move |asked| {
        let knows = || asked.contains("x-aws-ec2-metadata-token: token").then_some(());
        match asked.split_whitespace().take(2).collect::<Vec<_>>().as_slice() {
            ["PUT", "/latest/api/token"] => Some("token".to_owned()),
            ["GET", "/latest/meta-data/iam/security-credentials/"] => knows().map(|()| "role".to_owned()),
            ["GET", "/latest/meta-data/iam/security-credentials/role"] => {
                knows().and_then(|()| keys.lock().pop()).map(|(key, ends)| role_json(key, ends))
            }
            _ => None,
        }
    })
    .await;
    let clock = TestClock::at(START);
    let home = home("", "");
    let pairs = [
        ("HOME", text(home.path())),
        ("AWS_REGION", "eu-west-1"),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.url.as_str()),
    ];
    let signer = with_clock(&clock, &pairs);
    assert_eq!(used(&signer).await.unwrap(), ("K1".to_owned(), "t-K1".to_owned()));
    let once = server.asked().len();
    assert_eq!(key(&signer).await, "K1");
    assert_eq!(server.asked().len(), once, "they are kept");
    clock.advance(Duration::from_secs(6 * 3600 - 60));
    assert_eq!(key(&signer).await, "K2");
    clock.advance(Duration::from_secs(6 * 3600 - 60));
    assert_eq!(key(&signer).await, "K2", "there are no new ones, and these are good for another minute");
}

#[tokio::test]
async fn a_container_shows_its_token_and_gets_a_role() {
    let server = serve(|asked| {
        let is_it = asked.starts_with("GET /v1/credentials ") && asked.contains("authorization: pod-token");
        is_it.then(|| role_json("POD", "2026-11-16T06:00:00Z"))
    })
    .await;
    let home = home("", "");
    let (token, url) = (home.path().join("token"), format!("{}/v1/credentials", server.url));
    std::fs::write(&token, "pod-token").unwrap();
    let more = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", text(&token)),
    ];
    assert_eq!(used(&signer(&at_home(&home, &more))).await.unwrap(), ("POD".to_owned(), "t-POD".to_owned()));
}

#[tokio::test]
async fn a_web_identity_becomes_a_role() {
    let server = serve(|asked| {
        let is_it =
            asked.contains("Action=AssumeRoleWithWebIdentity") && asked.contains("WebIdentityToken=jwt");
        is_it.then(|| role_xml("AssumeRoleWithWebIdentity", "WEBWEBWEBWEBWEBWEB"))
    })
    .await;
    let home = home("", "");
    let token = home.path().join("token");
    std::fs::write(&token, "jwt").unwrap();
    let more = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", text(&token)),
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/web"),
        ("AWS_ENDPOINT_URL_STS", server.url.as_str()),
    ];
    assert_eq!(key(&signer(&at_home(&home, &more))).await, "WEBWEBWEBWEBWEBWEB");
    let nowhere = [more[0], more[1], ("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")];
    let refused = used(&signer(&at_home(&home, &nowhere))).await.unwrap_err().to_string();
    assert!(refused.contains("127.0.0.1:1"), "{refused}");
}

#[tokio::test]
async fn a_profile_takes_a_role_with_that_of_another_profile() {
    let server = serve(|asked| {
        let role = asked.contains("Action=AssumeRole&").then_some(asked)?;
        let by = |key: &str| role.contains(&format!("Credential={key}/"));
        match (role.contains("role%2Ffirst"), role.contains("role%2Fsecond")) {
            (true, false) if by("BASE") => Some(role_xml("AssumeRole", "FIRSTFIRSTFIRSTFIRST")),
            (false, true) if by("FIRSTFIRSTFIRSTFIRST") => Some(role_xml("AssumeRole", "SECONDSECONDSECOND")),
            _ => None,
        }
    })
    .await;
    let home = home(
        "[base]\naws_access_key_id = BASE\naws_secret_access_key = s\n",
        "[profile work]\nrole_arn = arn:aws:iam::123456789012:role/second\nsource_profile = middle\n\
         [profile middle]\nrole_arn = arn:aws:iam::123456789012:role/first\nsource_profile = base\n",
    );
    let more = [("AWS_PROFILE", "work"), ("AWS_ENDPOINT_URL_STS", server.url.as_str())];
    assert_eq!(used(&signer(&at_home(&home, &more))).await.unwrap().0, "SECONDSECONDSECOND");
    assert_eq!(server.asked().len(), 2);
}

#[tokio::test]
async fn who_is_logged_in_with_sso_has_a_role() {
    let server = serve(|asked| {
        let is_it = asked.starts_with("GET /federation/credentials?")
            && asked.contains("role_name=admin")
            && asked.contains("account_id=123456789012")
            && asked.contains("x-amz-sso_bearer_token: sso-token");
        is_it.then(|| {
            r#"{"roleCredentials":{"accessKeyId":"SSO","secretAccessKey":"s","sessionToken":"t-SSO","expiration":1794800000000}}"#
                .to_owned()
        })
    })
    .await;
    let home = home(
        "",
        "[profile sso]\nsso_session = corp\nsso_account_id = 123456789012\nsso_role_name = admin\n\
         [sso-session corp]\nsso_region = eu-west-1\nsso_start_url = https://corp.awsapps.com/start\n",
    );
    let cache = home.path().join(".aws/sso/cache");
    std::fs::create_dir_all(&cache).unwrap();
    let token = r#"{"accessToken":"sso-token","expiresAt":"2026-11-16T05:00:00Z","region":"eu-west-1","startUrl":"https://corp.awsapps.com/start"}"#;
    // SHA-1 of the session's name.
    std::fs::write(cache.join("ee0bfd2552fbd840c02cc48b6e823320543c450f.json"), token).unwrap();
    let more = [("AWS_PROFILE", "sso"), ("AWS_ENDPOINT_URL_SSO", server.url.as_str())];
    assert_eq!(used(&signer(&at_home(&home, &more))).await.unwrap(), ("SSO".to_owned(), "t-SSO".to_owned()));
    std::fs::remove_file(cache.join("ee0bfd2552fbd840c02cc48b6e823320543c450f.json")).unwrap();
    let gone = used(&signer(&at_home(&home, &more))).await.unwrap_err().to_string();
    assert!(gone.contains("cached SSO token") && gone.contains("profile sso"), "{gone}");
}

#[tokio::test]
async fn a_program_may_know_the_keys() {
    let home = home("", "");
    let answer = home.path().join("answer");
    std::fs::write(&answer, r#"{"Version":1,"AccessKeyId":"PROGRAM","SecretAccessKey":"s"}"#).unwrap();
    let config = format!("[profile own]\ncredential_process = cat {}\n", answer.display());
    std::fs::write(home.path().join(".aws/config"), config).unwrap();
    assert_eq!(key(&signer(&at_home(&home, &[("AWS_PROFILE", "own")]))).await, "PROGRAM");
}
