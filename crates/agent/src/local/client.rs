//! A client of the local API, for the command line.

use std::{io, path::PathBuf};

use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use tokio::net::UnixStream;

use super::{Detached, Problem, ServicesView};
use crate::{
    endpoints::{Attachment, Container, Endpoint, Pod},
    status::StatusView,
    worker::HeldObject,
};

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("cannot reach the agent at {path}: does `trestle agent` run on this node, and are you root?")]
    Connect {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the agent's answer was cut short")]
    Http(#[from] hyper::Error),
    #[error("the agent's answer cannot be read: is it of another version?")]
    Answer(#[from] serde_json::Error),
    #[error("{detail}")]
    Refused { status: StatusCode, detail: String },
}

/// One call per connection; the agent is next door.
#[derive(Clone, Debug)]
pub struct Client {
    pub socket: PathBuf,
}

impl Client {
    pub async fn status(&self) -> Result<StatusView, ClientError> {
        self.call(Method::GET, "/status", &()).await
    }

    pub async fn endpoints(&self) -> Result<Vec<Endpoint>, ClientError> {
        self.call(Method::GET, "/endpoints", &()).await
    }

    pub async fn objects(&self) -> Result<Vec<HeldObject>, ClientError> {
        self.call(Method::GET, "/objects", &()).await
    }

    pub async fn services(&self) -> Result<ServicesView, ClientError> {
        self.call(Method::GET, "/services", &()).await
    }

    /// Goes over to another plane; answers when that is done.
    pub async fn switch_services(&self, mode: &str) -> Result<ServicesView, ClientError> {
        self.call(Method::PUT, "/services", &serde_json::json!({ "mode": mode })).await
    }

    pub async fn attach(&self, pod: &Pod, attachment: &Attachment) -> Result<Endpoint, ClientError> {
        self.call(Method::PUT, &path(pod), attachment).await
    }

    pub async fn detach(&self, pod: &Pod, interface: Option<&str>) -> Result<bool, ClientError> {
        let guard = interface.map(|name| format!("?interface={}", escape(name))).unwrap_or_default();
        let done: Detached = self.call(Method::DELETE, &(path(pod) + &guard), &()).await?;
        Ok(done.detached)
    }

    /// What was attached for a container, if its Pod has no other one by now.
    pub async fn detach_container(&self, container: &Container) -> Result<bool, ClientError> {
        let (id, interface) = (escape(&container.id), escape(&container.interface));
        let path = format!("/endpoints?container={id}&interface={interface}");
        let done: Detached = self.call(Method::DELETE, &path, &()).await?;
        Ok(done.detached)
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let stream = UnixStream::connect(&self.socket).await;
        let stream = stream.map_err(|source| ClientError::Connect { path: self.socket.clone(), source })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "agent")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(serde_json::to_vec(body)?)))
            .expect("paths are escaped");
        let exchange = async move {
            let response = sender.send_request(request).await?;
            let status = response.status();
            Ok::<_, hyper::Error>((status, response.into_body().collect().await?.to_bytes()))
        };
        // The connection ends when the exchange does; how it does is of no matter to an answer that is whole.
        let (answer, _) = tokio::join!(exchange, connection);
        let (status, bytes) = answer?;
        if status.is_success() {
            return Ok(serde_json::from_slice(&bytes)?);
        }
        let text = |_| String::from_utf8_lossy(&bytes).into_owned();
        let detail =
            serde_json::from_slice::<Problem>(&bytes).map(|problem| problem.detail).unwrap_or_else(text);
        Err(ClientError::Refused { status, detail })
    }
}

fn path(pod: &Pod) -> String {
    format!("/endpoints/{}/{}", escape(&pod.namespace), escape(&pod.name))
}

/// Percent-encodes what has a meaning in a URL.
fn escape(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => (byte as char).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
