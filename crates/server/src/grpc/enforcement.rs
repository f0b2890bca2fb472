//! `trestle.v1.Enforcement`.

use std::{pin::Pin, sync::Arc};

use futures::Stream;
use tonic::{Code, Request, Response, Status};
use wire::trestle::v1::{EnforcementRequest, EnforcementState, enforcement_server};

use crate::{enforcement::Enforcement, failure::Failure, serving::Serving};

pub(super) struct Grpc {
    pub enforcement: Arc<Enforcement>,
    pub serving: Arc<Serving>,
}

#[tonic::async_trait]
impl enforcement_server::Enforcement for Grpc {
    type WatchEnforcementStream = Pin<Box<dyn Stream<Item = Result<EnforcementState, Status>> + Send>>;

    async fn watch_enforcement(
        &self,
        request: Request<EnforcementRequest>,
    ) -> Result<Response<Self::WatchEnforcementStream>, Status> {
        let changes = request.into_inner().changes;
        if changes.is_empty() {
            let text = "name a change, as the reply to it does in `trestle-change`";
            return Err(Failure::new(Code::InvalidArgument, text).into());
        }
        // A change that is not known is said at once, and not in the stream.
        self.enforcement.state(&changes)?;
        Ok(Response::new(Box::pin(self.enforcement.watch(changes, self.serving.streams()))))
    }
}
