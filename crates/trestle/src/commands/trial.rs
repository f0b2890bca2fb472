//! `trestle try`: policies that go back to what they were by themselves. All of a trial stands in the object (`server::trials`), so
//! that the controller ends it whether or not anybody can still reach it.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use jiff::SignedDuration;
use model::policy::Kind;
use serde::Serialize;
use serde_json::{Map, Value, json};
use server::trials::{BEFORE, FOR, UNTIL};
use tonic::Code;
use wire::trestle::v1::{
    ApplyObjectsRequest, ListObjectsRequest, ObjectRef, StoredObject, Validation,
    objects_client::ObjectsClient,
};

use super::access::duration;
use crate::{
    client::{Connection, MAX_MESSAGE},
    manifest,
    output::{Format, Rows},
};

type Client = ObjectsClient<Connection>;

/// What may be tried: what decides, and not what it decides about.
const KINDS: [Kind; 9] = [
    Kind::Tier,
    Kind::ClusterGroup,
    Kind::Group,
    Kind::NetworkPolicy,
    Kind::AntreaNetworkPolicy,
    Kind::AntreaClusterNetworkPolicy,
    Kind::ClusterNetworkPolicy,
    Kind::AdminNetworkPolicy,
    Kind::BaselineAdminNetworkPolicy,
];

/// Flags of `trestle try`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The controller puts everything back when the time is over, also if it was restarted meanwhile.

Examples:
  trestle try --for 60s -f policy.yaml
  trestle try                        # what is on trial, and until when
  trestle try --confirm              # keep it"
)]
pub struct TryArgs {
    /// YAML or JSON file, directory, or - for standard input
    #[arg(short, long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How long it is tried: at most a day
    #[arg(long = "for", value_name = "TIME", value_parser = duration, default_value = "60s", requires = "files")]
    length: SignedDuration,
    /// Do it although a policy test fails then
    #[arg(long)]
    despite_tests: bool,
    /// Keep everything that is on trial
    #[arg(long, conflicts_with = "files")]
    confirm: bool,
}

pub async fn run(args: TryArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut objects = ObjectsClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    if args.confirm {
        return confirm(&mut objects, args.despite_tests, output).await;
    }
    if args.files.is_empty() {
        let tried = tried(&mut objects).await?;
        return output.list(&tried.into_iter().map(|(row, _)| row).collect::<Vec<_>>());
    }
    begin(&mut objects, args, output).await
}

async fn begin(objects: &mut Client, args: TryArgs, output: Format) -> anyhow::Result<()> {
    let mut documents = Vec::new();
    for manifest in manifest::read(args.files).await? {
        let (kind, namespace, name) = manifest.identity()?;
        if !KINDS.contains(&kind) {
            bail!(
                "{} {name} cannot be tried: policies, tiers and groups can; apply it before",
                kind.as_str()
            );
        }
        let reference = ObjectRef { kind: kind.as_str().to_owned(), namespace, name: name.clone() };
        let before = match objects.get_object(reference).await {
            Ok(reply) => Some(reply.into_inner().document),
            Err(status) if status.code() == Code::NotFound => None,
            Err(status) => return Err(status.into()),
        };
        let mut document = serde_json::from_slice(&manifest.document).with_context(|| manifest.origin())?;
        let annotations = annotations(&mut document).with_context(|| manifest.origin())?;
        annotations.insert(FOR.to_owned(), args.length.to_string().into());
        if let Some(before) = before {
            let before = String::from_utf8(before).context("what is stored is no text")?;
            if before.contains(FOR) {
                bail!("{} {name} is on trial already: confirm it, or wait until it is over", kind.as_str());
            }
            annotations.insert(BEFORE.to_owned(), before.into());
        }
        documents.push(document.to_string().into_bytes());
    }
    let count = documents.len();
    apply(objects, documents, args.despite_tests).await?;
    let sentence = format!(
        "{count} objects are tried for {:#}; then they go back by themselves. Keep them: trestle try --confirm",
        args.length
    );
    output.done(&sentence, &json!({ "tried": count, "for": args.length.to_string() }))
}

async fn confirm(objects: &mut Client, despite_tests: bool, output: Format) -> anyhow::Result<()> {
    let tried = tried(objects).await?;
    let count = tried.len();
    let mut documents = Vec::new();
    for (_, mut document) in tried {
        let annotations = annotations(&mut document)?;
        [FOR, UNTIL, BEFORE].iter().for_each(|key| drop(annotations.remove(*key)));
        if annotations.is_empty()
            && let Some(metadata) = document["metadata"].as_object_mut()
        {
            metadata.remove("annotations");
        }
        documents.push(document.to_string().into_bytes());
    }
    if !documents.is_empty() {
        apply(objects, documents, despite_tests).await?;
    }
    let sentence = match count {
        0 => "Nothing is on trial".to_owned(),
        _ => format!("Kept: {count} objects"),
    };
    output.done(&sentence, &json!({ "kept": count }))
}

async fn apply(objects: &mut Client, documents: Vec<Vec<u8>>, despite_tests: bool) -> anyhow::Result<()> {
    let request = ApplyObjectsRequest {
        documents,
        validation: Validation::Strict.into(),
        despite_tests,
        ..ApplyObjectsRequest::default()
    };
    objects.apply_objects(request).await?;
    Ok(())
}

/// What is on trial, with its document.
async fn tried(objects: &mut Client) -> anyhow::Result<Vec<(Tried, Value)>> {
    let mut tried = Vec::new();
    for kind in KINDS {
        let request = ListObjectsRequest { kind: kind.as_str().to_owned(), namespace: String::new() };
        let mut pages = objects.list_objects(request).await?.into_inner();
        while let Some(page) = pages.message().await? {
            tried.extend(page.objects.iter().filter_map(read));
        }
    }
    Ok(tried)
}

fn read(stored: &StoredObject) -> Option<(Tried, Value)> {
    let document: Value = serde_json::from_slice(&stored.document).ok()?;
    let annotations = &document["metadata"]["annotations"];
    let length = annotations[FOR].as_str()?;
    let reference = stored.object.clone().unwrap_or_default();
    let row = Tried {
        kind: reference.kind,
        namespace: reference.namespace,
        name: reference.name,
        length: length.to_owned(),
        until: annotations[UNTIL].as_str().unwrap_or_default().to_owned(),
        then: if annotations[BEFORE].is_null() { "deleted" } else { "as before" },
    };
    Some((row, document))
}

fn annotations(document: &mut Value) -> anyhow::Result<&mut Map<String, Value>> {
    let metadata = document["metadata"].as_object_mut().context("it has no metadata")?;
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if annotations.is_null() {
        *annotations = json!({});
    }
    annotations.as_object_mut().context("its annotations are no map")
}

/// An object on trial.
#[derive(Debug, Serialize)]
struct Tried {
    kind: String,
    namespace: String,
    name: String,
    #[serde(rename = "for")]
    length: String,
    until: String,
    then: &'static str,
}

impl Rows for Tried {
    const HEADER: &'static [&'static str] = &["kind", "namespace", "name", "for", "until", "then"];

    fn row(&self) -> Vec<String> {
        let Self { kind, namespace, name, length, until, then } = self;
        vec![kind.clone(), namespace.clone(), name.clone(), length.clone(), until.clone(), (*then).to_owned()]
    }
}
