//! `observer.Observer`: flows for Hubble's clients.

use std::{pin::Pin, sync::Arc};

use ::flows::{Ask, Flow};
use drivers::flows::Flows;
use futures::{Stream, StreamExt as _, future, stream};
use jiff::Timestamp;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tonic::{Code, Request, Response, Status};
use wire::{
    flow::{LostEvent, LostEventSource},
    observer::{
        GetFlowsRequest, GetFlowsResponse, GetNodesRequest, GetNodesResponse, Node, ServerStatusRequest,
        ServerStatusResponse, get_flows_response::ResponseTypes, observer_server,
    },
    relay::NodeState,
    trestle::v1::NodeStatus,
};

use crate::{
    failure::Failure,
    flows_view,
    nodes::Nodes,
    observer_view::{self as view, Filters},
    serving::{self, Serving},
};

type Reply<T> = Result<Response<T>, Status>;
type Told = Result<GetFlowsResponse, Status>;

/// The latest ones that are held in memory for an answer. All of them are sent file by file.
const LATEST: u64 = 20_000;

pub(super) struct Grpc {
    pub flows: Option<Arc<Flows>>,
    pub nodes: Nodes,
    pub serving: Arc<Serving>,
    pub started_at: Timestamp,
}

#[tonic::async_trait]
impl observer_server::Observer for Grpc {
    type GetFlowsStream = Pin<Box<dyn Stream<Item = Told> + Send>>;

    async fn get_flows(&self, request: Request<GetFlowsRequest>) -> Reply<Self::GetFlowsStream> {
        let request = request.into_inner();
        let filters = Arc::new(Filters::new(&request)?);
        let flows = Arc::clone(flows_view::recorded(&self.flows)?);
        let ask = Ask {
            since: millis(request.since.as_ref()).unwrap_or(0),
            until: millis(request.until.as_ref()).unwrap_or(u64::MAX),
            ..Ask::default()
        };
        let (readings, news) = flows.follow_after(ask.clone()).await;
        let is_about = {
            let (ask, filters) = (ask.clone(), Arc::clone(&filters));
            move |flow: &Flow| ask.is_about(flow) && filters.is_about(flow)
        };
        // Who follows and asks for nothing before wants what comes.
        let past: Pin<Box<dyn Stream<Item = Told> + Send>> = match request.number {
            0 if request.follow && request.since.is_none() => Box::pin(stream::empty()),
            number if number > 0 && !request.first => {
                if number > LATEST {
                    let text = format!("the latest {LATEST} at most; without a number all are sent");
                    return Err(Failure::new(Code::InvalidArgument, text).into());
                }
                let most = usize::try_from(number).unwrap_or(usize::MAX);
                let found = flows.find_in(readings, ask.clone(), is_about.clone(), most).await;
                let mut found = found.map_err(|err| Failure::from_error(Code::Internal, &err))?.flows;
                found.reverse();
                Box::pin(stream::iter(found.into_iter().map(|flow| Ok(told(&flow)))))
            }
            number => {
                let (is_about, asked) = (is_about.clone(), ask.clone());
                // Oldest first, a file at a time.
                let files = stream::iter(readings.into_iter().rev()).then(move |reading| {
                    let (flows, is_about, asked) = (Arc::clone(&flows), is_about.clone(), asked.clone());
                    async move {
                        let found = flows.find_in(vec![reading], asked, is_about, usize::MAX).await;
                        let mut told = match found {
                            Ok(found) => found.flows.iter().map(|flow| Ok(told(flow))).collect::<Vec<_>>(),
                            Err(err) => vec![Err(Failure::from_error(Code::Internal, &err).into())],
                        };
                        told.reverse();
                        stream::iter(told)
                    }
                });
                let most =
                    if number == 0 { usize::MAX } else { usize::try_from(number).unwrap_or(usize::MAX) };
                Box::pin(files.flatten().take(most))
            }
        };
        if !request.follow {
            return Ok(Response::new(past));
        }
        let news = stream::unfold(news, move |mut news| {
            let is_about = is_about.clone();
            async move {
                let told = next(&mut news, is_about).await?;
                Some((stream::iter(told.into_iter().map(Ok)), news))
            }
        });
        let end = stream::once(future::ready(Err(serving::ended())));
        let all = past.chain(news.flatten());
        Ok(Response::new(Box::pin(all.take_until(self.serving.streams().cancelled_owned()).chain(end))))
    }

    async fn get_nodes(&self, _: Request<GetNodesRequest>) -> Reply<GetNodesResponse> {
        let nodes = self.nodes.list().await?;
        Ok(Response::new(GetNodesResponse { nodes: nodes.into_iter().map(node).collect() }))
    }

    async fn server_status(&self, _: Request<ServerStatusRequest>) -> Reply<ServerStatusResponse> {
        let stats = flows_view::recorded(&self.flows)?.stats();
        let nodes = self.nodes.list().await?;
        let (connected, away): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| node.connected);
        let count = |nodes: &[NodeStatus]| Some(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        let uptime = Timestamp::now().duration_since(self.started_at).unsigned_abs();
        Ok(Response::new(ServerStatusResponse {
            num_flows: stats.rows,
            // The record has a limit in bytes, and none in flows.
            max_flows: 0,
            seen_flows: stats.rows,
            uptime_ns: u64::try_from(uptime.as_nanos()).unwrap_or(u64::MAX),
            num_connected_nodes: count(&connected),
            num_unavailable_nodes: count(&away),
            unavailable_nodes: away.into_iter().map(|node| node.name).take(10).collect(),
            version: format!("trestle {}", env!("CARGO_PKG_VERSION")),
            flows_rate: stats.rows as f64 / uptime.as_secs_f64().max(1.0),
        }))
    }
}

fn node(status: NodeStatus) -> Node {
    let state = if status.connected { NodeState::NodeConnected } else { NodeState::NodeUnavailable };
    Node {
        name: status.name,
        version: status.version,
        address: status.peer,
        state: state.into(),
        ..Node::default()
    }
}

fn millis(time: Option<&prost_types::Timestamp>) -> Option<u64> {
    let time = time?;
    let seconds = u64::try_from(time.seconds).unwrap_or(0);
    Some(seconds.saturating_mul(1_000).saturating_add(u64::try_from(time.nanos / 1_000_000).unwrap_or(0)))
}

fn told(flow: &Flow) -> GetFlowsResponse {
    GetFlowsResponse {
        node_name: flow.kind.node.to_string(),
        time: Some(view::moment(flow.last)),
        response_types: Some(ResponseTypes::Flow(view::flow(flow))),
    }
}

/// What comes next; none when nobody records any more.
async fn next(
    news: &mut Receiver<Arc<Vec<Flow>>>,
    is_about: impl Fn(&Flow) -> bool,
) -> Option<Vec<GetFlowsResponse>> {
    match news.recv().await {
        Ok(flows) => {
            let mut asked: Vec<&Flow> = flows.iter().filter(|flow| is_about(flow)).collect();
            asked.sort_by_key(|flow| flow.last);
            Some(asked.into_iter().map(told).collect())
        }
        Err(RecvError::Lagged(reports)) => {
            let lost =
                LostEvent { source: LostEventSource::ObserverEventsQueue.into(), num_events_lost: reports };
            Some(vec![GetFlowsResponse {
                response_types: Some(ResponseTypes::LostEvents(lost)),
                ..GetFlowsResponse::default()
            }])
        }
        Err(RecvError::Closed) => None,
    }
}
