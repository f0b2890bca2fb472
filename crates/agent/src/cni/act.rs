//! What is asked, done at the agent's socket. The agent alone knows what is attached for whom.

use std::{fs::File, io, os::fd::AsFd as _, path::Path, time::Duration};

use common::chain;
use http::StatusCode;
use node_kernel::{
    link::{Link, Links},
    netlink::NetlinkError,
};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::{
    ask::{Asked, Fault, Valid, Verb},
    link::node_end,
};
use crate::{
    endpoints::{Attachment, Endpoint, Pod},
    local::{Client, ClientError},
};

/// Between two looks whether a controller covers the Pod.
const LOOK: Duration = Duration::from_millis(50);
/// An agent that says nothing for so long is as good as gone.
const PATIENCE: Duration = Duration::from_secs(30);

pub async fn act(asked: &Asked) -> Result<Option<Value>, Fault> {
    let agent = Client { socket: asked.socket() };
    let done = async {
        match asked.verb {
            Verb::Add => add(&agent, asked).await.map(Some),
            Verb::Del => del(&agent, asked).await.map(|()| None),
            Verb::Check => check(&agent, asked).await.map(|()| None),
            Verb::Gc => gc(&agent, asked).await.map(|()| None),
            Verb::Status => status(&agent).await.map(|()| None),
            Verb::Version => Ok(None),
        }
    };
    let patience = PATIENCE + Duration::from_secs(asked.wait_seconds());
    timeout(patience, done).await.unwrap_or_else(|_| {
        Err(Fault::new(
            Fault::LATER,
            format!("the agent has not answered within {} s", patience.as_secs()),
            "",
        ))
    })
}

async fn add(agent: &Client, asked: &Asked) -> Result<Value, Fault> {
    let (pod, made, answer) = (asked.pod()?, asked.made()?, asked.previous()?.clone());
    let interface = link_of(&asked.namespace, &made.links)?;
    let container = Some(asked.container.clone());
    let attachment = Attachment { interface, addresses: made.addresses, uid: asked.uid(), container };
    let endpoint = agent.attach(&pod, &attachment).await.map_err(|err| not_done(&err))?;
    until_covered(agent, endpoint, asked.wait_seconds()).await;
    Ok(answer)
}

/// So that a Pod's first packets pass. One that is not covered by then starts all the same: nothing goes through its link until it is.
async fn until_covered(agent: &Client, mut endpoint: Endpoint, seconds: u64) {
    let end = Instant::now() + Duration::from_secs(seconds);
    while endpoint.closed && Instant::now() < end {
        sleep(LOOK).await;
        match find(agent, &endpoint.pod).await {
            Ok(Some(found)) => endpoint = found,
            Ok(None) | Err(_) => return,
        }
    }
}

async fn find(agent: &Client, pod: &Pod) -> Result<Option<Endpoint>, ClientError> {
    Ok(agent.endpoints().await?.into_iter().find(|endpoint| endpoint.pod == *pod))
}

/// Nothing is to be done of what was never attached, or is detached already. An agent that is away keeps no Pod from ending: it
/// forgets what it has attached when the link is gone.
async fn del(agent: &Client, asked: &Asked) -> Result<(), Fault> {
    match agent.detach_container(&asked.container).await {
        Ok(_) | Err(ClientError::Connect { .. }) => Ok(()),
        Err(err) => Err(not_done(&err)),
    }
}

async fn check(agent: &Client, asked: &Asked) -> Result<(), Fault> {
    let (pod, made) = (asked.pod()?, asked.made()?);
    let interface = link_of(&asked.namespace, &made.links)?;
    let differs = |text: String| Err(Fault::new(Fault::DIFFERS, text, ""));
    let Some(Endpoint { attachment, .. }) = find(agent, &pod).await.map_err(|err| not_done(&err))? else {
        return differs(format!("Pod {pod} is not attached"));
    };
    if attachment.interface != interface {
        return differs(format!("Pod {pod} is attached by {}, not by {interface}", attachment.interface));
    }
    match attachment.container.as_ref().filter(|container| **container == asked.container) {
        Some(_) => Ok(()),
        None => differs(format!("Pod {pod} is attached for another container")),
    }
}

/// What was attached for containers of this network that the runtime has no more.
async fn gc(agent: &Client, asked: &Asked) -> Result<(), Fault> {
    let Some(valid) = asked.valid() else {
        let text = "the runtime does not say what it has still (cni.dev/valid-attachments), so nothing is taken away";
        return Err(Fault::new(Fault::CONFIGURATION, text, ""));
    };
    let endpoints = agent.endpoints().await.map_err(|err| not_done(&err))?;
    for container in endpoints.into_iter().filter_map(|endpoint| endpoint.attachment.container) {
        let known = Valid { container: container.id.clone(), interface: container.interface.clone() };
        if container.network == asked.container.network && !valid.contains(&known) {
            agent.detach_container(&container).await.map_err(|err| not_done(&err))?;
        }
    }
    Ok(())
}

/// Whether an ADD would be done. The agent's worker answers, and so it would.
async fn status(agent: &Client) -> Result<(), Fault> {
    match agent.endpoints().await {
        Ok(_) => Ok(()),
        Err(err) => Err(Fault::new(Fault::NOT_AVAILABLE, "the agent does not answer", chain(&err))),
    }
}

fn not_done(err: &ClientError) -> Fault {
    let code = match err {
        ClientError::Refused { status, .. } if status.is_client_error() => Fault::REFUSED,
        ClientError::Refused { status, .. } if *status != StatusCode::SERVICE_UNAVAILABLE => Fault::READ,
        _ => Fault::LATER,
    };
    Fault::new(code, "the agent has not done it", chain(err))
}

/// The node's end of the link to the namespace in this file. The kernel is asked: not all plugins say what they have made.
fn link_of(namespace: &Path, named: &[String]) -> Result<String, Fault> {
    let (links, id) = read(namespace)
        .map_err(|err| Fault::new(Fault::READ, "cannot read the links of this node", chain(&err)))?;
    node_end(&links, id, named)
}

fn read(namespace: &Path) -> Result<(Vec<Link>, Option<i32>), NetlinkError> {
    let mut links = Links::open()?;
    let id = match open(namespace) {
        Ok(Some(file)) => links.namespace_id(file.as_fd())?,
        Ok(None) | Err(_) => None,
    };
    Ok((links.list()?, id))
}

fn open(namespace: &Path) -> io::Result<Option<File>> {
    if namespace.as_os_str().is_empty() { Ok(None) } else { File::open(namespace).map(Some) }
}
