//! `trestle.v1.Admin`.

use std::pin::Pin;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use tonic::{Code, Request, Response, Status};
use wire::trestle::v1::{self, BackupChunk, BackupRequest, GetStatusRequest, admin_server};

use crate::{config::StoreKind, failure::Failure, parts::Parts, store_failure};

/// Size of the pieces a backup is sent in, well below what every gRPC client accepts.
const CHUNK: usize = 1 << 20;

pub(super) struct Service(pub Parts);

#[tonic::async_trait]
impl admin_server::Admin for Service {
    async fn get_status(&self, _: Request<GetStatusRequest>) -> Result<Response<v1::Status>, Status> {
        let revision = self.0.store.revision().await;
        let revision = revision.map_err(|err| store_failure::read(&err, &err))?;
        let problems = self.0.not_ready().await;
        let unreadable = self.0.orchestrator.unreadable().into_iter();
        let unreadable = unreadable.map(|it| format!("{}: {}", it.record, it.reason)).collect();
        Ok(Response::new(v1::Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            store: match self.0.config.store {
                StoreKind::Embedded => "embedded".to_owned(),
                StoreKind::Etcd(_) => "etcd".to_owned(),
            },
            revision: revision.0,
            started_at: self.0.started_at.as_second(),
            ready: problems.is_empty(),
            problems,
            unreadable,
        }))
    }

    type BackupStream = Pin<Box<dyn Stream<Item = Result<BackupChunk, Status>> + Send>>;

    async fn backup(&self, _: Request<BackupRequest>) -> Result<Response<Self::BackupStream>, Status> {
        let pages = store::backup::stream(&self.0.store)
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
