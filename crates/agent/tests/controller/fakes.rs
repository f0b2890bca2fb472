//! Controllers that only say where they are, and the lines to them, which can be cut or made mute.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    task::{JoinHandle, JoinSet},
};
use tokio_stream::{
    Stream,
    wrappers::{TcpListenerStream, UnboundedReceiverStream},
};
use tonic::{Request, Response, Status, Streaming, transport::Server};
use wire::trestle::v1::{
    FromNode, NodeApply, NodeFlush, NodePolicy, NodeStart, NodeWait, ToNode,
    node_apply::Body,
    node_feed_server::{NodeFeed, NodeFeedServer},
    node_start::Mode,
    to_node,
};

type Answer = Result<ToNode, Status>;

/// A controller with one policy for everyone.
#[derive(Default)]
pub struct Fake {
    pub streams: AtomicUsize,
    /// It has lost its store: it takes nobody, and lets go of those it has.
    unavailable: AtomicBool,
    /// It waits for its sources, for ever.
    pub waits: AtomicBool,
    open: Mutex<Vec<mpsc::UnboundedSender<Answer>>>,
}

impl Fake {
    pub fn lose_store(&self) {
        self.unavailable.store(true, Relaxed);
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.send(Err(Status::unavailable("the store is lost")));
        }
    }

    pub fn find_store(&self) {
        self.unavailable.store(false, Relaxed);
    }
}

struct Service(Arc<Fake>);

#[tonic::async_trait]
impl NodeFeed for Service {
    type ConnectStream = Pin<Box<dyn Stream<Item = Answer> + Send>>;

    async fn connect(
        &self,
        request: Request<Streaming<FromNode>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        self.0.streams.fetch_add(1, Relaxed);
        if self.0.unavailable.load(Relaxed) {
            return Err(Status::unavailable("the store is lost"));
        }
        request.into_inner().message().await?;
        let (say, said) = mpsc::unbounded_channel();
        let start = NodeStart { epoch: 1, mode: Mode::Snapshot.into(), buckets: vec![], tells_pods: true };
        let body = Some(Body::Policy(NodePolicy { generation: 1, ..NodePolicy::default() }));
        let policy = NodeApply { kind: 3, name: "p".into(), hash: 7, body };
        let flush = NodeFlush { revision: 1, synced: true };
        let messages = match self.0.waits.load(Relaxed) {
            true => vec![to_node::Message::Wait(NodeWait { sources: vec!["store".into()] })],
            false => vec![
                to_node::Message::Start(start),
                to_node::Message::Apply(policy),
                to_node::Message::Flush(flush),
            ],
        };
        for message in messages {
            say.send(Ok(ToNode { message: Some(message) })).unwrap();
        }
        self.0.open.lock().unwrap().push(say);
        Ok(Response::new(Box::pin(UnboundedReceiverStream::new(said))))
    }
}

/// A line to a controller.
pub struct Line {
    pub controller: Arc<Fake>,
    address: SocketAddr,
    mute: Arc<Mute>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Mute {
    to: AtomicBool,
    from: AtomicBool,
    connections: AtomicUsize,
}

impl Line {
    pub async fn new() -> Self {
        let controller = Arc::new(Fake::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let behind = listener.local_addr().unwrap();
        let server = Server::builder().add_service(NodeFeedServer::new(Service(Arc::clone(&controller))));
        let serving = tokio::spawn(async move {
            server.serve_with_incoming(TcpListenerStream::new(listener)).await.unwrap();
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mute = Arc::new(Mute::default());
        let forwarding = tokio::spawn(forward(listener, behind, Arc::clone(&mute)));
        Self { controller, address, mute, tasks: Mutex::new(vec![serving, forwarding]) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn mute(&self, to: bool, from: bool) {
        self.mute.to.store(to, Relaxed);
        self.mute.from.store(from, Relaxed);
    }

    /// How often somebody has called.
    pub fn connections(&self) -> usize {
        self.mute.connections.load(Relaxed)
    }

    /// As `kill -9` does: connections are closed, and nobody listens any more.
    pub fn cut(&self) {
        self.tasks.lock().unwrap().drain(..).for_each(|task| task.abort());
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.cut();
    }
}

async fn forward(listener: TcpListener, to: SocketAddr, mute: Arc<Mute>) {
    let mut connections = JoinSet::new();
    loop {
        let (near, _) = listener.accept().await.unwrap();
        mute.connections.fetch_add(1, Relaxed);
        let mute = Arc::clone(&mute);
        connections.spawn(async move {
            let Ok(far) = TcpStream::connect(to).await else { return };
            let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
            tokio::select! {
                () = copy(near_read, far_write, &mute.to) => {}
                () = copy(far_read, near_write, &mute.from) => {}
            }
        });
    }
}

/// Carries bytes until the end of either side; while mute they vanish, and so does the end.
async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mute: &AtomicBool) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        if mute.load(Relaxed) {
            if read == 0 {
                std::future::pending::<()>().await;
            }
        } else if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
