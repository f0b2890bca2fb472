//! `trestle.v1.Flows`.

use std::{pin::Pin, sync::Arc};

use ::flows::Ask;
use drivers::{flows::Flows, flows::now, hosts::Hosts};
use futures::{Stream, StreamExt as _, stream};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tonic::{Code, Request, Response, Status};
use wire::trestle::v1::{FlowList, FlowsRequest, NodeFlows, NodeFlowsTaken, flows_server};

use super::node_feed::may_be;
use crate::{
    access::Caller,
    failure::Failure,
    flows_view as view,
    serving::{self, Serving},
};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Grpc {
    pub flows: Option<Arc<Flows>>,
    pub joined: Arc<Hosts>,
    pub serving: Arc<Serving>,
}

#[tonic::async_trait]
impl flows_server::Flows for Grpc {
    type FollowFlowsStream = Pin<Box<dyn Stream<Item = Result<FlowList, Status>> + Send>>;

    async fn report_flows(&self, request: Request<NodeFlows>) -> Reply<NodeFlowsTaken> {
        let caller = request.extensions().get::<Caller>().cloned();
        let caller = caller.ok_or_else(|| Status::unauthenticated("flows are told with a certificate"))?;
        let report = request.into_inner();
        if !may_be(&self.joined, &caller, &report.node) {
            let text = format!("{} may not tell the flows of node {}", caller.subject, report.node);
            return Err(Failure::new(Code::PermissionDenied, text).into());
        }
        let Some(flows) = &self.flows else {
            return Err(Failure::new(Code::Unimplemented, "this controller records no flows").into());
        };
        flows.take(report).await.map_err(|err| Failure::from_error(Code::Unavailable, &err))?;
        Ok(Response::new(NodeFlowsTaken {}))
    }

    async fn list_flows(&self, request: Request<FlowsRequest>) -> Reply<FlowList> {
        Ok(Response::new(view::list(&self.flows, request.get_ref()).await?))
    }

    async fn top_flows(&self, request: Request<FlowsRequest>) -> Reply<FlowList> {
        Ok(Response::new(view::top(&self.flows, request.get_ref()).await?))
    }

    async fn follow_flows(&self, request: Request<FlowsRequest>) -> Reply<Self::FollowFlowsStream> {
        let ask = view::ask(request.get_ref(), now())?;
        let following = (view::recorded(&self.flows)?.follow(), ask);
        let lists = stream::unfold(following, |(mut news, ask)| async {
            let list = next(&mut news, &ask).await?;
            Some((Ok(list), (news, ask)))
        });
        let end = stream::once(async { Err(serving::ended()) });
        let lists = lists.take_until(self.serving.streams().cancelled_owned()).chain(end);
        Ok(Response::new(Box::pin(lists)))
    }
}

/// The next ones that are asked about; none when nobody records any more.
async fn next(news: &mut Receiver<Arc<Vec<::flows::Flow>>>, ask: &Ask) -> Option<FlowList> {
    let mut more = false;
    loop {
        let flows = match news.recv().await {
            Ok(flows) => flows,
            Err(RecvError::Lagged(_)) => {
                more = true;
                continue;
            }
            Err(RecvError::Closed) => return None,
        };
        let mut asked: Vec<_> = flows.iter().filter(|flow| ask.is_about(flow)).collect();
        asked.sort_by_key(|flow| flow.last);
        if more || !asked.is_empty() {
            return Some(FlowList { flows: asked.into_iter().map(view::message).collect(), more });
        }
    }
}
