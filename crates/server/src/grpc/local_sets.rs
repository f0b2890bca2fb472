//! `localv1.Sets` on KPNG's wire: services as one node sees them.

mod view;

use std::{pin::Pin, sync::Arc};

use drivers::services::{Due, Services};
use futures::Stream;
use life::Life;
use model::Role;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use wire::localv1::{OpItem, WatchReq, sets_server::Sets};

use self::view::LocalView;
use crate::{
    access::Caller,
    serving::{self, Serving},
};

/// Items on their way to a slow reader; more wait in the catalogue, as the newest state.
const QUEUE: usize = 256;

pub(super) struct Grpc {
    pub services: Arc<Services>,
    pub serving: Arc<Serving>,
    pub life: Life,
}

#[tonic::async_trait]
impl Sets for Grpc {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<OpItem, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<WatchReq>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let caller = request.extensions().get::<Caller>().cloned();
        let (items, stream) = mpsc::channel(QUEUE);
        let watch = Watch { services: Arc::clone(&self.services), caller, items };
        let (requests, stop) = (request.into_inner(), self.serving.streams());
        self.life.spawn_guest("proxy on KPNG's wire", async move {
            let items = watch.items.clone();
            let end = match stop.run_until_cancelled(watch.serve(requests)).await {
                Some(Ok(())) => return,
                Some(Err(status)) => status,
                None => serving::ended(),
            };
            // Whoever has gone needs no reason.
            let _ = items.send(Err(end)).await;
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

struct Watch {
    services: Arc<Services>,
    caller: Option<Caller>,
    items: mpsc::Sender<Result<OpItem, Status>>,
}

impl Watch {
    async fn serve(&self, mut requests: Streaming<WatchReq>) -> Result<(), Status> {
        let Some(first) = requests.message().await? else { return Ok(()) };
        self.check(&first.node_name)?;
        let subscription = self.services.subscribe();
        let mut view = LocalView::new(first.node_name);
        let mut due = Due::default();
        loop {
            let items = loop {
                let items = self.services.read(|catalog| view.next(catalog, &due));
                if !items.is_empty() {
                    break items;
                }
                tokio::select! {
                    () = subscription.changed.notified() => due = subscription.take(),
                    () = self.items.closed() => return Ok(()),
                }
            };
            for item in items {
                if self.items.send(Ok(item)).await.is_err() {
                    return Ok(());
                }
            }
            let request = tokio::select! {
                request = requests.message() => request?,
                () = self.items.closed() => None,
            };
            let Some(request) = request else { return Ok(()) };
            if request.node_name != view.node() {
                return Err(Status::invalid_argument(format!(
                    "a stream is for one node: it began with {:?} and now names {:?}",
                    view.node(),
                    request.node_name
                )));
            }
            due = subscription.take();
        }
    }

    /// Nodes see their own part only.
    fn check(&self, node: &str) -> Result<(), Status> {
        if node.is_empty() {
            return Err(Status::invalid_argument("NodeName is empty: say which node's view is wanted"));
        }
        match &self.caller {
            Some(caller) if caller.role() == Role::Node && caller.subject.name.as_str() != node => {
                let text = format!("{} may not watch the services of {node}", caller.subject);
                Err(Status::permission_denied(text))
            }
            _ => Ok(()),
        }
    }
}
