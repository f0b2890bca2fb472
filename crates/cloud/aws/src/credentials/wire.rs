//! Our transport and clock, as AWS's crates know them.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aws_smithy_async::time::TimeSource;
use aws_smithy_runtime_api::client::{
    http::{HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector},
    orchestrator::{HttpRequest, HttpResponse},
    result::ConnectorError,
    runtime_components::RuntimeComponents,
};
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use cloud_http::{Clock, Request, Transport};

pub(super) struct Time(pub(super) Arc<dyn Clock>);

impl TimeSource for Time {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + self.0.now()
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Time")
    }
}

#[derive(Clone)]
pub(super) struct Wire {
    transport: Arc<dyn Transport>,
    /// The longest that one exchange may take. Where nobody answers on the instance's own address, that is found out at once.
    longest: Option<Duration>,
}

impl Wire {
    pub(super) fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, longest: None }
    }

    async fn send(self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let request = request.try_into_http1x().map_err(|err| ConnectorError::user(err.into()))?;
        let (head, body) = request.into_parts();
        let mut ours = Request::new("credentials", head.method, head.uri.to_string());
        ours.headers = head.headers;
        ours.body = Bytes::copy_from_slice(body.bytes().unwrap_or_default());
        let exchange = self.transport.send(&ours);
        let answer = match self.longest {
            Some(longest) => tokio::time::timeout(longest, exchange)
                .await
                .map_err(|_| ConnectorError::timeout(format!("{} does not answer", ours.url).into()))?,
            None => exchange.await,
        };
        let reply = answer.map_err(|err| ConnectorError::io(format!("{}: {err}", ours.url).into()))?;
        let mut response = http::Response::new(SdkBody::from(reply.body));
        *response.status_mut() =
            http::StatusCode::from_u16(reply.status).map_err(|err| ConnectorError::user(err.into()))?;
        *response.headers_mut() = reply.headers;
        response.try_into().map_err(|err| ConnectorError::user(Box::new(err)))
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl HttpClient for Wire {
    fn http_connector(&self, settings: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        let longest = settings.connect_timeout().zip(settings.read_timeout()).map(|(one, two)| one + two);
        SharedHttpConnector::new(Self { longest, ..self.clone() })
    }
}

impl HttpConnector for Wire {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(self.clone().send(request))
    }
}
