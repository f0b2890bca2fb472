//! The connection to the controller.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, bail};
use model::Secret;
use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::context::{self, ContextFile};

/// Messages up to this size are accepted: a tag of a million members is about 40 MiB.
pub const MAX_MESSAGE: usize = 256 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Where the controller is and who calls; each overrides what `trestle up` left behind.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Connection (default: the controller started by `trestle up`)")]
pub struct ConnectionArgs {
    /// URL of the controller's gRPC listener, e.g. https://127.0.0.1:8081; `trestle agent` takes several, once per controller
    #[arg(long, global = true, env = "TRESTLE_SERVER", value_name = "URL")]
    pub server: Vec<String>,
    /// PEM file of the CA that the controller's certificate is from
    #[arg(long, global = true, env = "TRESTLE_CA", value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// File that holds the bearer token
    #[arg(long, global = true, env = "TRESTLE_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// PEM file of a client certificate, instead of a token
    #[arg(long, global = true, env = "TRESTLE_CERT", value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// PEM file of the client certificate's key
    #[arg(long, global = true, env = "TRESTLE_KEY", value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
}

/// Adds the bearer token to each call.
#[derive(Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

/// A connection that proves who calls.
pub type Connection = InterceptedService<Channel, Bearer>;

impl ConnectionArgs {
    /// The controller that commands are for, if one is known.
    pub fn place(&self) -> anyhow::Result<Option<String>> {
        match self.server.first() {
            Some(server) => Ok(Some(server.clone())),
            None => Ok(ContextFile::load()?.map(|context| context.grpc)),
        }
    }

    pub async fn connect(self) -> anyhow::Result<Connection> {
        let context = ContextFile::load()?;
        let server = match self.server.as_slice() {
            [] if context.is_none() => {
                bail!("no controller is known: start one with `trestle up`, or name one with --server")
            }
            [] => None,
            [server] => Some(server.clone()),
            _ => bail!("a command is for one controller: give --server once"),
        };
        // A server named by hand is not given the token of another one. What the user trusts is no secret.
        let context = match (context.unwrap_or_default(), &server) {
            (context, None) => context,
            (context, Some(_)) => ContextFile { ca: context.ca, ..ContextFile::default() },
        };
        let url = server.unwrap_or(context.grpc);
        let token = match self.token_file.or(context.token_file) {
            Some(path) if self.cert.is_none() => Some(context::read_token(&path)?),
            _ => None,
        };
        let bearer = Bearer(token.map(bearer).transpose()?);
        let mut endpoint = Endpoint::from_shared(url.clone())
            .with_context(|| format!("{url:?} is not a URL like https://127.0.0.1:8081"))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(Duration::from_secs(20))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true);
        if url.starts_with("https://") {
            let identity = self.cert.zip(self.key);
            endpoint = endpoint.tls_config(tls(self.ca.or(context.ca), identity)?)?;
        }
        let channel =
            endpoint.connect().await.with_context(|| format!("cannot reach the controller at {url}"))?;
        Ok(InterceptedService::new(channel, bearer))
    }
}

fn bearer(token: Secret) -> anyhow::Result<MetadataValue<Ascii>> {
    let value = format!("Bearer {}", token.expose()).parse::<MetadataValue<Ascii>>();
    let mut value = value.ok().context("the token file does not hold a token")?;
    value.set_sensitive(true);
    Ok(value)
}

fn tls(ca: Option<PathBuf>, identity: Option<(PathBuf, PathBuf)>) -> anyhow::Result<ClientTlsConfig> {
    let read = |path: &PathBuf| fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let Some(ca) = ca else {
        bail!("the controller speaks TLS: name the CA of its certificate with --ca");
    };
    let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(&ca)?));
    if let Some((certificate, key)) = identity {
        config = config.identity(Identity::from_pem(read(&certificate)?, read(&key)?));
    }
    Ok(config)
}
