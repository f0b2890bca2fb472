//! A certificate for each agent, made by the controller under test.

use std::{fs, io::Write as _, path::Path};

use futures::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use server::Controller;
use tonic::{
    Request,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};
use wire::trestle::v1::{IssueCertificateRequest, Role, access_client::AccessClient};

use crate::Outcome;

/// What an agent proves itself with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Identity {
    pub name: String,
    pub certificate: String,
    pub key: String,
}

/// Writes one identity per line.
pub async fn issue(controller: &Controller, count: usize, path: &Path) -> Outcome<()> {
    let token = fs::read_to_string(controller.token_path())?;
    let ca = Certificate::from_pem(fs::read(controller.ca_path())?);
    let url = format!("https://localhost:{}", controller.grpc_addr().port());
    let channel =
        Endpoint::from_shared(url)?.tls_config(ClientTlsConfig::new().ca_certificate(ca))?.connect().await?;
    let mut issued =
        stream::iter(0..count).map(|n| issue_one(channel.clone(), &token, n)).buffer_unordered(128);
    let mut file = std::io::BufWriter::new(fs::File::create(path)?);
    while let Some(identity) = issued.next().await {
        writeln!(file, "{}", serde_json::to_string(&identity?)?)?;
    }
    Ok(file.flush()?)
}

async fn issue_one(channel: Channel, token: &str, n: usize) -> Outcome<Identity> {
    let name = format!("bench-node-{n}");
    let message = IssueCertificateRequest { name: name.clone(), role: Role::Node.into(), ttl_seconds: None };
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {}", token.trim()).parse()?);
    let reply = AccessClient::new(channel).issue_certificate(request).await?.into_inner();
    Ok(Identity { name, certificate: reply.certificate_pem, key: reply.key_pem })
}
