use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::atomic::AtomicBool,
    task::{Context, Poll},
};

use ::flows::{Direction, End, Kind, Verdict};
use parking_lot::Mutex;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, UdpSocket},
};
use tonic::{
    Response,
    body::Body,
    codegen::{Service, http},
    server::{Grpc, NamedService, UnaryService},
    transport::Server,
};

use super::*;

fn flow(number: u16) -> Flow {
    let end = |last: u8, workload: &str| {
        Arc::new(End {
            address: Some([10, 0, 0, last].into()),
            workload: workload.to_owned(),
            labels: vec![("app".to_owned(), "web".to_owned())],
            tags: Vec::new(),
        })
    };
    let kind = Kind {
        node: "n1".into(),
        verdict: Verdict::Denied,
        direction: Direction::In,
        from: end(1, "Pod shop/a"),
        to: end(2, ""),
        protocol: 6,
        port: Some(number),
        service: None,
        rule: "isolated by NetworkPolicy shop/web".into(),
    };
    Flow { kind, count: 1, bytes: None, first: 1, last: 2 }
}

fn flows(numbers: std::ops::Range<u16>) -> Arc<Vec<Flow>> {
    Arc::new(numbers.map(flow).collect())
}

/// A collector that keeps what it is told, and is away while somebody says so.
#[derive(Clone, Default)]
struct Collector {
    bodies: Arc<Mutex<Vec<String>>>,
    is_away: Arc<AtomicBool>,
}

impl NamedService for Collector {
    const NAME: &'static str = "opentelemetry.proto.collector.logs.v1.LogsService";
}

type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl Service<http::Request<Body>> for Collector {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let collector = self.clone();
        assert_eq!(request.uri().path(), otlp::METHOD);
        Box::pin(async move {
            let codec = ProstCodec::<ExportLogsResponse, ExportLogsRequest>::default();
            Ok(Grpc::new(codec).unary(collector, request).await)
        })
    }
}

impl UnaryService<ExportLogsRequest> for Collector {
    type Response = ExportLogsResponse;
    type Future = Answer<Result<Response<ExportLogsResponse>, Status>>;

    fn call(&mut self, request: Request<ExportLogsRequest>) -> Self::Future {
        let collector = self.clone();
        Box::pin(async move {
            if collector.is_away.load(Relaxed) {
                return Err(Status::unavailable("later"));
            }
            for logs in request.into_inner().resource_logs {
                for record in logs.scope_logs.into_iter().flat_map(|scope| scope.log_records) {
                    let Some(otlp::Value::Text(body)) = record.body.and_then(|body| body.value) else {
                        panic!("a record has a text")
                    };
                    collector.bodies.lock().push(body);
                }
            }
            Ok(Response::new(ExportLogsResponse::default()))
        })
    }
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = timeout(Duration::from_secs(60), async {
        while !is_so() {
            sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}");
}

fn started(config: ExportConfig) -> (Exports, Life) {
    let life = Life::default();
    (Exports::start(&[config], &life).unwrap(), life)
}

fn figures(exports: &Exports) -> (u64, u64) {
    (exports.figures.told.load(Relaxed), exports.figures.lost.load(Relaxed))
}

#[tokio::test]
async fn a_collector_that_is_away_is_told_later_and_what_finds_no_room_is_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let collector = Collector::default();
    collector.is_away.store(true, Relaxed);
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(Server::builder().add_service(collector.clone()).serve_with_incoming(incoming));
    let (exports, _life) = started(ExportConfig { otlp: Some(url), ..ExportConfig::default() });
    for _ in 0..10 {
        exports.offer(&flows(0..10_000));
    }
    assert_eq!(figures(&exports), (0, 40_000), "six reports find room, whatever comes");
    until("it was tried", || exports.figures.failures.load(Relaxed) > 0).await;
    collector.is_away.store(false, Relaxed);
    until("all that waited is told", || figures(&exports) == (60_000, 40_000)).await;
    let bodies = std::mem::take(&mut *collector.bodies.lock());
    assert_eq!(bodies.len(), 60_000);
    assert_eq!(bodies[5], "denied shop/a -> 10.0.0.2 tcp/5");
    // There is room again.
    exports.offer(&flows(0..3));
    until("and goes on", || figures(&exports) == (60_003, 40_000)).await;
}

#[tokio::test]
async fn ipfix_over_tcp_begins_anew_with_each_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let (exports, _life) = started(ExportConfig { ipfix: Some(url), ..ExportConfig::default() });
    exports.offer(&flows(0..2_000));
    for _ in 0..2 {
        let (mut stream, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
        let mut header = [0; 20];
        stream.read_exact(&mut header).await.unwrap();
        assert_eq!(
            (header[..2].to_vec(), header[16..18].to_vec()),
            (vec![0, 10], vec![0, 2]),
            "templates first"
        );
        assert_eq!(header[8..12], [0; 4]);
        drop(stream);
        // What a connection was told that has gone is told to the next one.
        let more = async {
            loop {
                exports.offer(&flows(0..1));
                sleep(Duration::from_millis(50)).await;
            }
        };
        let next = async {
            while exports.figures.failures.load(Relaxed) == 0 {
                sleep(PAUSE / 10).await
            }
        };
        tokio::select! { () = more => {}, () = next => {}, () = sleep(PATIENCE) => panic!("nobody noticed") }
    }
}

#[tokio::test]
async fn ipfix_over_udp_is_sent_in_datagrams() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let url = format!("udp://{}", socket.local_addr().unwrap());
    let (exports, _life) = started(ExportConfig { ipfix: Some(url), ..ExportConfig::default() });
    exports.offer(&flows(0..40));
    let mut told = 0;
    let mut bytes = [0; 2_000];
    let mut first = true;
    while told < 40 {
        let length = timeout(PATIENCE, socket.recv(&mut bytes)).await.unwrap().unwrap();
        assert!(length <= DATAGRAM && usize::from(u16::from_be_bytes([bytes[2], bytes[3]])) == length);
        let set = u16::from_be_bytes([bytes[16], bytes[17]]);
        assert_eq!(set == 2, first);
        first = false;
        // Each of these is as long as any other: fixed elements, and two texts.
        told += if set == 2 { 0 } else { (length - 20) / (47 + 1 + 34 + 1 + 2) };
    }
    until("they are counted", || figures(&exports) == (40, 0)).await;
}

#[test]
fn what_is_no_collector_is_refused_before_anything_starts() {
    let of = |otlp: Option<&str>, ipfix: Option<&str>, ca: Option<&str>| {
        let [otlp, ipfix] = [otlp, ipfix].map(|text| text.map(str::to_owned));
        ExportConfig { otlp, ipfix, ca: ca.map(PathBuf::from) }.check().is_ok()
    };
    assert!(of(Some("http://c:4317"), None, None) && of(Some("https://c:4317"), None, Some("ca.pem")));
    assert!(of(None, Some("udp://10.0.0.1:4739"), None) && of(None, Some("tcp://[::1]:4739"), None));
    for (otlp, ipfix, ca) in [
        (None, None, None),
        (Some("http://c"), Some("udp://c:1"), None),
        (Some("c:4317"), None, None),
        (Some("https://c:4317"), None, None),
        (Some("http://c:4317"), None, Some("ca.pem")),
        (None, Some("udp://c"), None),
        (None, Some("udp://:4739"), None),
        (None, Some("sctp://c:4739"), None),
        (None, Some("udp://c:x"), None),
    ] {
        assert!(!of(otlp, ipfix, ca), "{otlp:?} {ipfix:?} {ca:?}");
    }
}
