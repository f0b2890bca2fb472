//! `trestle apply` and `delete`: Kubernetes-style objects. They are read in `get`.

use std::path::PathBuf;

use anyhow::bail;
use model::policy::Kind;
use serde::Serialize;
use tonic::Code;
use wire::trestle::v1::{
    Applied, ApplyObjectsRequest, DeleteObjectsRequest, DeletedObject, ListObjectsRequest, ObjectRef,
    Outcome, PruneObjectsRequest, RunPolicyTestsRequest, Validation, objects_client::ObjectsClient,
    policies_client::PoliciesClient,
};

use crate::{
    client::{Connection, MAX_MESSAGE},
    commands::enforcement::{Changes, WaitArgs},
    manifest::{self, Manifest},
    output::{Format, Rows, print, warn},
    progress,
};

/// What one request carries at most: few enough to answer quickly, and what an etcd with default flags takes in one transaction
/// (1.5 MiB, with what is stored beside each document).
const REQUEST_BYTES: usize = 1 << 20;
const REQUEST_DOCUMENTS: usize = 500;
/// Behind an outcome that is none yet.
pub const DRY_RUN: &str = " (dry run)";

/// Flags of `trestle apply`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  trestle apply -f policies/
  trestle apply -f policies/ --wait=1m            until every node has them in its kernel
  trestle apply -f policies/ --stage              look at them with `trestle staged` first
  kubectl get pods,networkpolicies -A -o yaml | trestle apply -f -
  trestle apply -f shop/ --set shop --prune --dry-run")]
pub struct ApplyArgs {
    /// YAML or JSON file, directory, or - for standard input
    #[arg(short, long = "file", required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Show what would change and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Name of the set these objects belong to
    #[arg(long, value_name = "NAME", default_value = "")]
    set: String,
    /// Delete what belongs to the set and is not in the files
    #[arg(long, requires = "set")]
    prune: bool,
    /// Leave out kinds that Trestle does not take, instead of failing
    #[arg(long)]
    skip_unknown: bool,
    /// What becomes of objects with fields or of a version that are not known. Stored, they are listed in `trestle status`, and
    /// policies among them deny everything to all that they select
    #[arg(long, value_enum, default_value_t = Validate::Strict, value_name = "HOW")]
    validate: Validate,
    /// Keep them beside what is in force: see `trestle staged`
    #[arg(long, conflicts_with_all = ["prune", "wait"])]
    stage: bool,
    /// Do it although a policy test fails then
    #[arg(long)]
    despite_tests: bool,
    #[command(flatten)]
    wait: WaitArgs,
}

/// As kubectl has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Validate {
    /// Refuse them, with the path of the field
    #[value(alias = "true")]
    Strict,
    /// Store them and say so: for objects of a cluster whose API is newer
    Warn,
    /// Store them
    #[value(alias = "false")]
    Ignore,
}

impl From<Validate> for Validation {
    fn from(validate: Validate) -> Self {
        match validate {
            Validate::Strict => Self::Strict,
            Validate::Warn => Self::Warn,
            Validate::Ignore => Self::Ignore,
        }
    }
}

/// Flags of `trestle delete`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  trestle delete pod web-1 -n shop
  trestle delete networkpolicy shop/db
  trestle delete -f policies/")]
pub struct DeleteArgs {
    #[arg(value_parser = kind, required_unless_present = "files", requires = "names")]
    kind: Option<KindArg>,
    names: Vec<String>,
    /// Where they are, if their names do not say: `default` unless given
    #[arg(short, long)]
    namespace: Option<String>,
    /// Delete what these files describe
    #[arg(short, long = "file", value_name = "FILE", conflicts_with = "kind")]
    files: Vec<PathBuf>,
    /// Show what would be deleted and delete nothing
    #[arg(long)]
    dry_run: bool,
    /// Keep the deletion beside what is in force: see `trestle staged`
    #[arg(long, conflicts_with = "wait")]
    stage: bool,
    /// Do it although a policy test fails then
    #[arg(long)]
    despite_tests: bool,
    #[command(flatten)]
    wait: WaitArgs,
}

/// A kind as users write it; none stands for all.
#[derive(Clone, Copy, Debug)]
pub struct KindArg(pub Option<Kind>);

pub fn kind(text: &str) -> Result<KindArg, String> {
    let short = match text.to_lowercase().as_str() {
        "all" => return Ok(KindArg(None)),
        "netpol" => Some(Kind::NetworkPolicy),
        "anp" | "annp" => Some(Kind::AntreaNetworkPolicy),
        "acnp" => Some(Kind::AntreaClusterNetworkPolicy),
        "cnp" => Some(Kind::ClusterNetworkPolicy),
        "ns" => Some(Kind::Namespace),
        "no" => Some(Kind::Node),
        "po" => Some(Kind::Pod),
        "svc" => Some(Kind::Service),
        "eps" => Some(Kind::EndpointSlice),
        "ee" => Some(Kind::ExternalEntity),
        lower => Kind::ALL.into_iter().find(|kind| {
            let name = kind.as_str().to_lowercase();
            lower == name
                || lower == format!("{name}s")
                || name.strip_suffix('y').is_some_and(|n| lower == format!("{n}ies"))
        }),
    };
    let all = || Kind::ALL.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ");
    short.map(|kind| KindArg(Some(kind))).ok_or_else(|| format!("no such kind; there are {}", all()))
}

pub async fn apply(mut args: ApplyArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut manifests = manifest::read(std::mem::take(&mut args.files)).await?;
    if args.skip_unknown {
        manifests.retain(Manifest::is_known);
    }
    // Before the first is sent, so that a mistake in the last file changes nothing. Only what is pruned is compared with all names.
    let mut refs = Vec::new();
    for manifest in &manifests {
        let reference = reference(manifest)?;
        refs.extend(args.prune.then_some(reference));
    }
    args.wait.check(args.dry_run)?;
    let mut objects = ObjectsClient::new(connection.clone()).max_decoding_message_size(MAX_MESSAGE);
    let chunks = chunks(&manifests);
    let is_in_parts = chunks.len() > 1 || args.prune;
    if is_in_parts && !args.stage && !args.despite_tests {
        check_tests(&connection, &mut objects, &manifests, &args, &refs).await?;
        // Parts of it would be held against tests that only the whole meets.
        args.despite_tests = true;
    }
    if chunks.len() > 1 {
        // All of it is checked before any of it is stored.
        for chunk in &chunks {
            progress::note(format!("checked {} of {} objects", chunk.start, manifests.len()));
            let request = request(&manifests[chunk.clone()], true, &args, &refs);
            objects.apply_objects(request).await?;
        }
    }
    let (mut shown, mut gone, mut changes) =
        (Shown::new(output, aside(args.dry_run, args.stage)), Vec::new(), Changes::default());
    for chunk in &chunks {
        if chunks.len() > 1 {
            progress::note(format!("{} of {} objects", chunk.start, manifests.len()));
        }
        let request = request(&manifests[chunk.clone()], args.dry_run, &args, &refs);
        let reply = changes.of(objects.apply_objects(request).await?);
        reply.warnings.iter().for_each(|warning| warn(warning));
        let deleted = reply.applied.iter().filter(|one| one.outcome() == Outcome::Deleted);
        gone.extend(deleted.map(|one| one.object.clone()));
        shown.more(&reply.applied)?;
    }
    if args.prune {
        let request = PruneObjectsRequest {
            set: args.set,
            keep: refs,
            dry_run: args.dry_run,
            despite_tests: args.despite_tests,
        };
        let pruned = changes.of(objects.prune_objects(request).await?).applied;
        // A dry run has left there what gave way.
        let others: Vec<_> = pruned.into_iter().filter(|one| !gone.contains(&one.object)).collect();
        shown.more(&others)?;
    }
    shown.end()?;
    args.wait.until_in_force(&connection, changes, output).await
}

/// What stands behind each outcome.
fn aside(dry_run: bool, stage: bool) -> &'static str {
    match (dry_run, stage) {
        (true, _) => DRY_RUN,
        (false, true) => " (staged)",
        (false, false) => "",
    }
}

/// Refuses what would break a policy test as a whole.
async fn check_tests(
    connection: &Connection,
    objects: &mut ObjectsClient<Connection>,
    manifests: &[Manifest],
    args: &ApplyArgs,
    refs: &[ObjectRef],
) -> anyhow::Result<()> {
    let test = Kind::PolicyTest.as_str();
    let request = ListObjectsRequest { kind: test.to_owned(), namespace: String::new() };
    let mut stored = match objects.list_objects(request).await {
        Ok(stored) => stored.into_inner(),
        // A controller that knows no tests has none.
        Err(status) if status.code() == Code::InvalidArgument => return Ok(()),
        Err(status) => return Err(status.into()),
    };
    let is_test = |one: &Manifest| one.identity().is_ok_and(|(kind, ..)| kind == Kind::PolicyTest);
    let mut are_there = manifests.iter().any(is_test);
    while let Some(page) = stored.message().await? {
        are_there |= !page.objects.is_empty();
    }
    if !are_there {
        return Ok(());
    }
    let mut deleted = Vec::new();
    if args.prune {
        let (set, keep) = (args.set.clone(), refs.to_vec());
        let request = PruneObjectsRequest { set, keep, dry_run: true, despite_tests: true };
        let pruned = objects.prune_objects(request).await?.into_inner().applied;
        let named = |ObjectRef { kind, namespace, name }| DeletedObject { kind, namespace, name };
        deleted.extend(pruned.into_iter().filter_map(|one| one.object).map(named));
    }
    let documents = manifests.iter().map(|manifest| manifest.document.to_vec()).collect();
    let request = RunPolicyTestsRequest { documents, staged: false, deleted };
    let mut policies = PoliciesClient::new(connection.clone()).max_decoding_message_size(MAX_MESSAGE);
    let broken = policies.run_policy_tests(request).await?.into_inner().broken;
    if !broken.is_empty() {
        bail!(
            "nothing was changed, for policy tests would fail:\n  {}\nchange the test with it, or do it --despite-tests",
            broken.join("\n  ")
        );
    }
    Ok(())
}

fn reference(manifest: &Manifest) -> anyhow::Result<ObjectRef> {
    let (kind, namespace, name) = manifest.identity()?;
    Ok(ObjectRef { kind: kind.as_str().to_owned(), namespace, name })
}

/// Ranges of documents that fit one request each.
fn chunks(manifests: &[Manifest]) -> Vec<std::ops::Range<usize>> {
    let (mut chunks, mut start, mut bytes) = (Vec::new(), 0, 0);
    for (index, manifest) in manifests.iter().enumerate() {
        let size = manifest.document.len();
        if index > start && (bytes + size > REQUEST_BYTES || index - start >= REQUEST_DOCUMENTS) {
            chunks.push(start..index);
            (start, bytes) = (index, 0);
        }
        bytes += size;
    }
    chunks.push(start..manifests.len());
    chunks
}

fn request(
    manifests: &[Manifest],
    dry_run: bool,
    args: &ApplyArgs,
    refs: &[ObjectRef],
) -> ApplyObjectsRequest {
    let services = refs.iter().filter(|one| args.prune && one.kind == Kind::Service.as_str());
    let documents = manifests.iter().map(|manifest| manifest.document.to_vec());
    ApplyObjectsRequest {
        documents: documents.collect(),
        dry_run,
        set: args.set.clone(),
        validation: Validation::from(args.validate).into(),
        prune: args.prune,
        keep: services.cloned().collect(),
        // Of what is only checked nobody reads what would change.
        no_differences: !args.dry_run,
        stage: args.stage,
        despite_tests: args.despite_tests,
    }
}

pub async fn delete(args: DeleteArgs, output: Format, connection: Connection) -> anyhow::Result<()> {
    let objects: Vec<ObjectRef> = match args.kind {
        Some(KindArg(None)) => bail!("name one kind; to delete a whole set use `trestle apply --prune`"),
        Some(KindArg(Some(kind))) => {
            let one = |name: &String| named(kind, name, args.namespace.as_deref());
            args.names.iter().map(one).collect::<anyhow::Result<Vec<_>>>()?
        }
        None => {
            manifest::read(args.files).await?.iter().map(reference).collect::<anyhow::Result<Vec<_>>>()?
        }
    };
    args.wait.check(args.dry_run)?;
    let mut client = ObjectsClient::new(connection.clone()).max_decoding_message_size(MAX_MESSAGE);
    let request = |part: &[ObjectRef], dry_run| DeleteObjectsRequest {
        objects: part.to_vec(),
        dry_run,
        stage: args.stage,
        despite_tests: args.despite_tests,
    };
    if objects.len() > REQUEST_DOCUMENTS {
        // All of it is checked before any of it is deleted.
        for (index, part) in objects.chunks(REQUEST_DOCUMENTS).enumerate() {
            progress::note(format!("checked {} of {} objects", index * REQUEST_DOCUMENTS, objects.len()));
            client.delete_objects(request(part, true)).await?;
        }
    }
    let (mut shown, mut changes) = (Shown::new(output, aside(args.dry_run, args.stage)), Changes::default());
    for (index, part) in objects.chunks(REQUEST_DOCUMENTS).enumerate() {
        shown.more(&changes.of(client.delete_objects(request(part, args.dry_run)).await?).applied)?;
        progress::note(format!("{} of {} objects", index * REQUEST_DOCUMENTS + part.len(), objects.len()));
    }
    shown.end()?;
    args.wait.until_in_force(&connection, changes, output).await
}

/// An object by its name as `apply` prints it, NAMESPACE/NAME, or by its name alone.
pub fn named(kind: Kind, name: &str, namespace: Option<&str>) -> anyhow::Result<ObjectRef> {
    let of = |namespace: &str, name: &str| ObjectRef {
        kind: kind.as_str().to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    match name.split_once('/') {
        Some((written, _)) if namespace.is_some_and(|given| given != written) => {
            bail!(
                "{name} is in namespace {written}, and -n {} is not; leave one out",
                namespace.unwrap_or_default()
            )
        }
        Some((written, name)) if kind.is_namespaced() => Ok(of(written, name)),
        Some(_) => bail!("{name} is no name of a {}, which has no namespace", kind.as_str()),
        None if kind.is_namespaced() => Ok(of(namespace.unwrap_or("default"), name)),
        None => Ok(of("", name)),
    }
}

/// What became of objects: told to people as it comes, to programs as one list.
pub struct Shown {
    output: Format,
    /// Behind each outcome.
    aside: &'static str,
    rows: Vec<AppliedRow>,
}

impl Shown {
    pub fn new(output: Format, aside: &'static str) -> Self {
        Self { output, aside, rows: Vec::new() }
    }

    pub fn more(&mut self, results: &[Applied]) -> anyhow::Result<()> {
        for row in results.iter().map(|applied| AppliedRow::new(applied, self.aside == DRY_RUN)) {
            if self.output.is_for_people() { self.tell(&row)? } else { self.rows.push(row) }
        }
        Ok(())
    }

    fn tell(&self, row: &AppliedRow) -> anyhow::Result<()> {
        print(&format!("{} {}{}", row.object, row.outcome, self.aside))?;
        if self.aside == DRY_RUN && !row.difference.is_empty() {
            let indented = row.difference.lines().map(|line| format!("    {line}")).collect::<Vec<_>>();
            print(&indented.join("\n"))?;
        }
        Ok(())
    }

    pub fn end(self) -> anyhow::Result<()> {
        if self.output.is_for_people() { Ok(()) } else { self.output.list(&self.rows) }
    }
}

#[derive(Debug, Serialize)]
struct AppliedRow {
    object: String,
    outcome: &'static str,
    dry_run: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    difference: String,
}

impl AppliedRow {
    fn new(applied: &Applied, dry_run: bool) -> Self {
        let outcome = applied.outcome().word();
        let object = applied.object.as_ref().map(label).unwrap_or_default();
        Self { object, outcome, dry_run, difference: applied.difference.clone() }
    }
}

impl Rows for AppliedRow {
    const HEADER: &'static [&'static str] = &["object", "outcome"];

    fn row(&self) -> Vec<String> {
        vec![self.object.clone(), self.outcome.to_owned()]
    }
}

pub fn label(object: &ObjectRef) -> String {
    match object.namespace.as_str() {
        "" => format!("{} {}", object.kind, object.name),
        namespace => format!("{} {namespace}/{}", object.kind, object.name),
    }
}
