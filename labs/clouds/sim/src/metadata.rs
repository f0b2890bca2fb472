//! What a machine in a simulated cloud is told of itself, signed by the cloud: the metadata services, and the keys to believe them by.
//!
//! ```text
//!   /as/MACHINE/…         the metadata service of its cloud, as the machine of this id or name sees it
//!   /keys/aws             certificates (PEM) that instance identity documents are signed with
//!   /keys/azure           the authority (PEM) of whoever signs attested data
//!   /oauth2/v3/certs, /identity/keys    JSON Web Key Sets of Google and of IBM's IAM
//! ```
//!
//! Machines have nothing here that could ask from inside, so whoever asks says as whom. Keys are made when they are first needed, and go
//! with the process. Statements end by the machine's clock, since whoever judges them has no other.

mod sign;

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    body::Bytes,
    extract::{Path, Query, State},
    routing::{any, get},
};
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};

use self::sign::Issuers;
use crate::{rest::text, server::Shared};

const ACCOUNT: &str = "123456789012";
/// Of a token that says what an instance is, in seconds.
const LIFE: i64 = 3600;

type Answer = Result<String, (StatusCode, String)>;

/// The keys, once somebody needs them.
#[derive(Clone, Default)]
pub(crate) struct Keys(Arc<OnceLock<Issuers>>);

impl Keys {
    fn get(&self) -> &Issuers {
        self.0.get_or_init(Issuers::new)
    }
}

pub(crate) fn routes() -> Router<Shared> {
    Router::new()
        .route("/as/{machine}/{*path}", any(ask))
        .route("/keys/aws", get(async |State(shared): State<Shared>| shared.keys.get().aws.pem.clone()))
        .route(
            "/keys/azure",
            get(async |State(shared): State<Shared>| shared.keys.get().azure_authority.clone()),
        )
        .route(
            "/oauth2/v3/certs",
            get(async |State(shared): State<Shared>| shared.keys.get().key_set().to_string()),
        )
        .route(
            "/identity/keys",
            get(async |State(shared): State<Shared>| shared.keys.get().key_set().to_string()),
        )
}

/// A question, as a machine asks it.
struct Question<'a> {
    method: Method,
    path: &'a str,
    headers: &'a HeaderMap,
    words: &'a BTreeMap<String, String>,
    body: Value,
    now: i64,
}

impl Question<'_> {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn word(&self, name: &str) -> &str {
        self.words.get(name).map_or("", String::as_str)
    }
}

async fn ask(
    State(shared): State<Shared>,
    Path((machine, path)): Path<(String, String)>,
    Query(words): Query<BTreeMap<String, String>>,
    method: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let question = Question {
        method,
        path: &path,
        headers: &headers,
        words: &words,
        body: serde_json::from_slice(&body).unwrap_or_default(),
        now: i64::try_from(now).unwrap_or_default(),
    };
    let objects = {
        let world = shared.world.lock();
        match path.split('/').next() {
            Some("latest") => world.aws.all_objects(),
            Some("metadata") => world.azure.all_objects(),
            Some("computeMetadata") => world.gcp.all_objects(),
            _ => world.ibm.all_objects(),
        }
    };
    let ends = format!("/{machine}");
    let is_it = |(id, object): &(String, Value)| {
        is_machine(id, object) && (*id == machine || id.ends_with(&ends) || text(&object["name"]) == machine)
    };
    let found = objects.into_iter().find(is_it);
    let (id, object) =
        found.ok_or((StatusCode::NOT_FOUND, format!("{machine} is no machine of that cloud\n")))?;
    let keys = shared.keys.get();
    match (question.method.as_str(), path.as_str()) {
        ("PUT", "latest/api/token") => aws_token(&question),
        ("GET", "latest/dynamic/instance-identity/rsa2048") => aws_document(&question, keys, &id, &object),
        ("GET", "metadata/attested/document") => azure_document(&question, keys, &id),
        ("GET", "computeMetadata/v1/instance/service-accounts/default/identity") => {
            google_token(&question, keys, &id, &object)
        }
        ("PUT", "instance_identity/v1/token") => ibm_token(&question, &id),
        ("POST", "instance_identity/v1/iam_token") => iam_token(&question, keys, &id, &object),
        _ => Err((StatusCode::NOT_FOUND, format!("nothing is known of {}\n", question.path))),
    }
}

fn insist(is_right: bool, status: StatusCode, what: &str) -> Result<(), (StatusCode, String)> {
    if is_right { Ok(()) } else { Err((status, format!("{what}\n"))) }
}

/// Of the second version of the service; the first one asked for none, and is switched off.
const AWS_TOKEN: &str = "session";

fn aws_token(question: &Question<'_>) -> Answer {
    let life: Result<u32, _> = question.header("x-aws-ec2-metadata-token-ttl-seconds").parse();
    insist(matches!(life, Ok(1..=21_600)), StatusCode::BAD_REQUEST, "the token needs a life")?;
    Ok(AWS_TOKEN.to_owned())
}

fn aws_document(question: &Question<'_>, keys: &Issuers, id: &str, instance: &Value) -> Answer {
    let is_shown = question.header("x-aws-ec2-metadata-token") == AWS_TOKEN;
    insist(is_shown, StatusCode::UNAUTHORIZED, "a token is needed")?;
    let zone = text(&instance["Placement"]["AvailabilityZone"]);
    let document = json!({
        "accountId": ACCOUNT,
        "architecture": "x86_64",
        "availabilityZone": zone,
        "imageId": instance["ImageId"],
        "instanceId": id,
        "instanceType": instance["InstanceType"],
        "pendingTime": "2026-09-01T00:00:00Z",
        "privateIp": instance["PrivateIpAddress"],
        "region": zone.trim_end_matches(|c: char| c.is_ascii_lowercase()),
        "version": "2017-09-30",
    });
    let pretty = format!("{document:#}");
    Ok(sign::lines(&keys.aws.message(pretty.as_bytes(), sign::Length::ByEnd, false)))
}

fn azure_document(question: &Question<'_>, keys: &Issuers, id: &str) -> Answer {
    insist(question.header("metadata") == "true", StatusCode::BAD_REQUEST, "the header Metadata is missing")?;
    let nonce = question.word("nonce");
    let is_nonce = nonce.len() <= 10 && nonce.bytes().all(|byte| byte.is_ascii_digit());
    insist(is_nonce, StatusCode::BAD_REQUEST, "the nonce is a number of at most ten digits")?;
    let moment = |seconds: i64| {
        let time = jiff::Timestamp::from_second(seconds).unwrap_or_default();
        time.strftime("%m/%d/%y %H:%M:%S -0000").to_string()
    };
    let document = json!({
        "licenseType": "",
        "nonce": nonce,
        "plan": { "name": "", "product": "", "publisher": "" },
        "sku": "22_04-lts",
        "subscriptionId": id.split('/').nth(2).unwrap_or_default(),
        "timeStamp": { "createdOn": moment(question.now), "expiresOn": moment(question.now + 6 * LIFE) },
        "vmId": machine_id(id),
    });
    let signature = keys.azure.message(document.to_string().as_bytes(), sign::Length::Said, true);
    Ok(json!({ "encoding": "pkcs7", "signature": sign::base64(&signature) }).to_string())
}

fn google_token(question: &Question<'_>, keys: &Issuers, id: &str, instance: &Value) -> Answer {
    let is_flavored = question.header("metadata-flavor") == "Google";
    insist(is_flavored, StatusCode::FORBIDDEN, "the header Metadata-Flavor is missing")?;
    let audience = question.word("audience");
    insist(!audience.is_empty(), StatusCode::BAD_REQUEST, "an audience is needed")?;
    let part = |after: &str| {
        let mut parts = id.split('/').skip_while(|part| *part != after);
        parts.nth(1).unwrap_or_default().to_owned()
    };
    let mut claims = json!({
        "aud": audience,
        "azp": "100000000000000000000",
        "exp": question.now + LIFE,
        "iat": question.now,
        "iss": "https://accounts.google.com",
        "sub": "100000000000000000000",
    });
    if question.word("format") == "full" {
        claims["google"] = json!({ "compute_engine": {
            "instance_id": machine_number(id).to_string(),
            "instance_name": instance["name"],
            "project_id": part("projects"),
            "zone": part("zones"),
        } });
    }
    Ok(keys.token(&claims))
}

fn ibm_token(question: &Question<'_>, id: &str) -> Answer {
    insist(
        question.header("metadata-flavor") == "ibm",
        StatusCode::BAD_REQUEST,
        "the header Metadata-Flavor is missing",
    )?;
    Ok(json!({ "access_token": format!("instance {id}"), "expires_in": 300 }).to_string())
}

fn iam_token(question: &Question<'_>, keys: &Issuers, id: &str, instance: &Value) -> Answer {
    let is_shown = question.header("authorization") == format!("Bearer instance {id}");
    insist(is_shown, StatusCode::UNAUTHORIZED, "the instance's own token is needed")?;
    let profile = text(&question.body["trusted_profile"]["id"]);
    insist(!profile.is_empty(), StatusCode::BAD_REQUEST, "a trusted profile is needed")?;
    let claims = json!({
        "account": { "valid": true, "bss": "a1" },
        "authn": { "sub": instance["crn"], "sub_type": "CRN", "name": instance["name"] },
        "exp": question.now + LIFE,
        "iam_id": format!("iam-{profile}"),
        "iat": question.now,
        "iss": "https://iam.cloud.ibm.com/identity",
        "sub": profile,
        "sub_type": "Profile",
    });
    Ok(json!({ "access_token": keys.token(&claims), "expires_in": LIFE }).to_string())
}

/// As each cloud calls them.
fn is_machine(id: &str, object: &Value) -> bool {
    let (is_ibms, id) = (text(&object["crn"]).contains("::instance:"), id.to_ascii_lowercase());
    is_ibms || id.starts_with("i-") || id.contains("/instances/") || id.contains("/virtualmachines/")
}

/// A number that is a machine's and nobody else's.
fn machine_number(id: &str) -> u64 {
    id.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn machine_id(id: &str) -> String {
    let (high, low) = (machine_number(id), machine_number(&format!("{id} ")));
    let hex = format!("{high:016x}{low:016x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
