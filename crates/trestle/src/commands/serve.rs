//! `trestle up` and `serve`.

use std::{
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use model::{Role, Segment};
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::json;
use server::{
    CloudConfig, ClusterConfig, Config, Controller, Listen, PageFile, PluginConfig, StorageConfig,
    access::session::LOGIN,
};
use tokio::signal::unix::{SignalKind, signal};
use tracing::warn;
use tracing_subscriber::EnvFilter;

use super::page;
use crate::{
    args::UpArgs,
    config_file,
    context::{self, ContextFile},
    output::print,
    simulated::Simulated,
};

pub async fn up(args: UpArgs) -> anyhow::Result<()> {
    let data_dir = match &args.data_dir {
        Some(dir) => dir.clone(),
        None => context::default_data_dir()?,
    };
    let data_dir =
        std::path::absolute(&data_dir).with_context(|| format!("cannot use {}", data_dir.display()))?;
    let mut config = config(&args, data_dir);
    log_to_stderr("warn,rustls=error");
    let mut simulated = None;
    for flag in args.cloud {
        let cloud = match flag {
            CloudFlag::Configured(cloud) => cloud,
            CloudFlag::Simulated(name) => {
                let program = match simulated.take() {
                    Some(running) => running,
                    None => Simulated::start().await?,
                };
                simulated.insert(program).cloud(&name)?
            }
        };
        config.clouds.push(cloud);
    }
    let ended = run(config, async |controller| {
        announce(controller, args.plaintext_loopback, args.anonymous_role).await
    })
    .await;
    match simulated {
        Some(simulated) => ended.and(simulated.stop().await),
        None => ended,
    }
}

/// What the flags of `trestle up` come to, but for its clouds.
pub fn config(args: &UpArgs, data_dir: PathBuf) -> Config {
    let mut config = Config::in_dir(data_dir);
    config.listen = Listen { http: args.http, grpc: args.grpc, watch: args.watch };
    (config.plaintext_loopback, config.anonymous_role) = (args.plaintext_loopback, args.anonymous_role);
    config.kubernetes.clone_from(&args.kubernetes);
    config.storage = Some(StorageConfig::nbd(args.nbd));
    config.page = page_file;
    config
}

pub async fn serve(path: &Path, names: Vec<String>) -> anyhow::Result<()> {
    let mut config = config_file::load(path)?;
    config.names.extend(names);
    config.page = page_file;
    log_to_stderr("info,rustls=error");
    run(config, async |_| Ok(())).await
}

/// The page that is in this binary.
fn page_file(name: &str) -> Option<PageFile> {
    ::page::file(name).map(|file| PageFile { kind: file.kind, tag: file.tag, bytes: file.bytes })
}

/// Serves until asked to stop.
async fn run(
    config: Config,
    started: impl AsyncFnOnce(&Controller) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    raise_file_limit();
    // Before the start, so that whoever sees it serve can also stop it cleanly.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let controller = Controller::start(config).await?;
    started(&controller).await?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = controller.faulted() => {}
    }
    Ok(controller.stop().await?)
}

/// Every connection needs a file descriptor, and the usual soft limit is 1024.
fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(err) = setrlimit(Resource::Nofile, limit) {
        warn!(error = %err, "cannot raise the limit of open files; many connections may not fit");
    }
}

/// Leaves behind where the controller is, for other commands.
pub fn note(controller: &Controller, plaintext: bool) -> anyhow::Result<ContextFile> {
    let scheme = if plaintext { "http" } else { "https" };
    let context = ContextFile {
        grpc: format!("{scheme}://{}", controller.grpc_addr()),
        http: format!("{scheme}://{}", controller.http_addr()),
        ca: (!plaintext).then(|| controller.ca_path()),
        token_file: Some(controller.token_path()),
        namespace: ContextFile::load().ok().flatten().and_then(|context| context.namespace),
    };
    context.save()?;
    Ok(context)
}

/// The address of the page, with a code that logs the browser in if it needs one.
pub async fn page_link(
    controller: &Controller,
    context: &ContextFile,
    anonymous: Option<Role>,
) -> anyhow::Result<String> {
    match anonymous {
        Some(_) => Ok(format!("{}/", context.http)),
        None => Ok(page::link(&context.http, controller.login().await?.expose())),
    }
}

async fn announce(controller: &Controller, plaintext: bool, anonymous: Option<Role>) -> anyhow::Result<()> {
    let scheme = if plaintext { "http" } else { "https" };
    let context = note(controller, plaintext)?;
    let kubeconfig = write_kubeconfig(controller, scheme, context.ca.as_deref())?;
    let page = page_link(controller, &context, anonymous).await?;
    let me = std::env::args().next().unwrap_or_else(|| "trestle".to_owned());
    let once = match anonymous {
        Some(_) => String::new(),
        None => format!("\n        (logs in once, within {} minutes; then: {me} page)", LOGIN.as_secs() / 60),
    };
    let ca = context.ca.as_ref().map(|path| format!("\n  CA    {}", path.display())).unwrap_or_default();
    let nbd = controller.nbd_addr().map(|addr| format!("\n  NBD   {addr}")).unwrap_or_default();
    print(&format!(
        "Trestle is up.\n\n  page  {page}{once}\n  gRPC  {}\n  watch {}{nbd}\n  token {}{ca}\n\nTry, in another terminal:\n\n  \
         {me} tag set db1 --ip 10.0.0.5\n  {me} tag set databases --children db1,192.0.2.0/24\n  \
         {me} tag resolve databases\n  {me} status\n  kubectl --kubeconfig {kubeconfig} get addressgroups\n\nStop with Ctrl-C.",
        context.grpc,
        format_args!("{scheme}://{}", controller.watch_addr()),
        controller.token_path().display(),
    ))
}

/// Lets kubectl read the watch API. Names the CA and the token by their files, so that there is one copy of each.
fn write_kubeconfig(controller: &Controller, scheme: &str, ca: Option<&Path>) -> anyhow::Result<String> {
    let token = controller.token_path();
    let path = token.with_file_name("kubeconfig");
    let mut cluster = json!({ "server": format!("{scheme}://{}", controller.watch_addr()) });
    if let Some(ca) = ca {
        cluster["certificate-authority"] = json!(ca);
    }
    // JSON is YAML.
    let text = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "trestle", "cluster": cluster }],
        "users": [{ "name": "admin", "user": { "tokenFile": token } }],
        "contexts": [{ "name": "trestle", "context": { "cluster": "trestle", "user": "admin" } }],
        "current-context": "trestle",
    });
    files::write(&path, format!("{text:#}\n").as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.display().to_string())
}

pub fn log_to_stderr(default: &str) {
    let filter = EnvFilter::try_from_env("TRESTLE_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    // A log nobody reads must not end the controller: reporting a failed write would panic on the same pipe.
    // What comes from elsewhere cannot steer a terminal: the formatter shows escapes, and JSON has none.
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).log_internal_errors(false);
    if io::stderr().is_terminal() { builder.init() } else { builder.json().init() }
}

/// `NAME[=KUBECONFIG]` of a Kubernetes cluster.
pub fn cluster(text: &str) -> Result<ClusterConfig, String> {
    let (name, kubeconfig) = match text.split_once('=') {
        Some((_, "")) => return Err("after the = a kubeconfig is needed".to_owned()),
        Some((name, path)) => (name, Some(PathBuf::from(path))),
        None => (text, None),
    };
    let name = name.parse().map_err(|err| format!("{name:?} cannot be a cluster's name: {err}"))?;
    Ok(ClusterConfig { name, kubeconfig, context: None, publish_ca: None })
}

/// A cloud that `trestle up` is to have.
#[derive(Clone, Debug)]
pub enum CloudFlag {
    Configured(CloudConfig),
    /// Of this name, by the lab program.
    Simulated(Segment),
}

/// `NAME=KIND` of a cloud.
pub fn cloud(text: &str) -> Result<CloudFlag, String> {
    let (name, kind) = text.split_once('=').ok_or("write it as NAME=KIND, for example a=linux")?;
    let name = name.parse().map_err(|err| format!("{name:?} cannot be a cloud's name: {err}"))?;
    let plugin = match kind {
        "sim" => return Ok(CloudFlag::Simulated(name)),
        "linux" => PluginConfig::Linux { uplink: Default::default() },
        "fake" => PluginConfig::Fake {},
        "aws" => PluginConfig::Aws(cloud_aws::AwsOptions::default()),
        "azure" => PluginConfig::Azure(cloud_azure::AzureOptions::default()),
        "gcp" => PluginConfig::Gcp(cloud_gcp::GcpOptions::default()),
        "ibm" => PluginConfig::Ibm(cloud_ibm::IbmOptions::default()),
        url if url.starts_with("http://") => {
            let (url, revision) = match url.split_once(",revision=") {
                Some((url, revision)) => (
                    url,
                    Some(
                        revision
                            .parse()
                            .map_err(|err: cloud_api::grpc::ParseRevisionError| err.to_string())?,
                    ),
                ),
                None => (url, None),
            };
            PluginConfig::Remote { url: url.to_owned(), ca: None, client: None, revision }
        }
        _ => {
            return Err(format!(
                "{kind:?} is no kind of cloud: linux, aws, azure, gcp, ibm, sim, fake and http://… are"
            ));
        }
    };
    Ok(CloudFlag::Configured(CloudConfig { name, plugin }))
}
