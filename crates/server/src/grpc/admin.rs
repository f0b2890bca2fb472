//! `trestle.v1.Admin`.

use std::pin::Pin;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use store::Store;
use tonic::{Code, Request, Response, Status};
use wire::trestle::v1::{self, BackupChunk, BackupRequest, GetStatusRequest, admin_server};

use crate::{about::About, failure::Failure};

/// Size of the pieces a backup is sent in, well below what every gRPC client accepts.
const CHUNK: usize = 1 << 20;

pub(super) struct Grpc {
    pub about: About,
    pub store: Store,
}

#[tonic::async_trait]
impl admin_server::Admin for Grpc {
    async fn get_status(&self, _: Request<GetStatusRequest>) -> Result<Response<v1::Status>, Status> {
        Ok(Response::new(self.about.tell().await?))
    }

    type BackupStream = Pin<Box<dyn Stream<Item = Result<BackupChunk, Status>> + Send>>;

    async fn backup(&self, _: Request<BackupRequest>) -> Result<Response<Self::BackupStream>, Status> {
        let pages = store::backup::stream(&self.store)
            .map_err(|err| Status::from(Failure::from_error(Code::Internal, &err)));
        let chunks = pages.flat_map(|page| stream::iter(split(page)));
        Ok(Response::new(Box::pin(chunks)))
    }
}

fn split(page: Result<Bytes, Status>) -> Vec<Result<BackupChunk, Status>> {
    match page {
        Err(status) => vec![Err(status)],
        Ok(bytes) => bytes.chunks(CHUNK).map(|chunk| Ok(BackupChunk { data: chunk.to_vec() })).collect(),
    }
}
