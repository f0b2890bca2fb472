//! A bridge between the test, which is the kernel, and a real storage that restarts, grows and gives the volume to somebody else.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod support;

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    os::{fd::BorrowedFd, unix::net::UnixStream},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use storage_csi::{
    attach::{AttachError, Record, Records},
    bridge::{self, Ask, BridgeError, Link, State, ask, device::Devices},
    plan::{mark, node_id},
    proto::{
        CapacityRange, ControllerExpandVolumeRequest, ControllerPublishVolumeRequest,
        ControllerUnpublishVolumeRequest, volume_capability::access_mode::Mode,
    },
};
use support::{Lab, capability, controller, wish};
use tokio::{task::JoinHandle, time::sleep};

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const MIB: i64 = 1 << 20;

/// The kernel's end of the socket, and what it was told of the device.
#[derive(Default)]
struct Kernel {
    socket: Mutex<Option<UnixStream>>,
    size: Mutex<u64>,
}

impl Devices for Kernel {
    fn serve(&self, _: &str, size: u64, _: u16, socket: BorrowedFd<'_>) -> Result<u32, AttachError> {
        *self.size.lock().unwrap() = size;
        *self.socket.lock().unwrap() = Some(socket.try_clone_to_owned().unwrap().into());
        Ok(7)
    }

    fn resize(&self, _: u32, _: &str, size: u64) -> Result<(), AttachError> {
        *self.size.lock().unwrap() = size;
        Ok(())
    }

    fn disconnect(&self, _: u32) -> Result<(), AttachError> {
        *self.socket.lock().unwrap() = None;
        Ok(())
    }
}

impl Kernel {
    fn socket(&self) -> UnixStream {
        self.socket.lock().unwrap().as_ref().unwrap().try_clone().unwrap()
    }

    fn ask(&self, command: u16, cookie: u64, offset: u64, length: u32, data: &[u8]) {
        let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
        request.extend([0, 0]);
        request.extend(command.to_be_bytes());
        request.extend(cookie.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend(length.to_be_bytes());
        request.extend(data);
        self.socket().write_all(&request).unwrap();
    }

    /// Error and cookie of the next answer, with so many bytes if there is no error.
    fn answer(&self, bytes: usize) -> (u32, u64, Vec<u8>) {
        let mut socket = self.socket();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut head = [0; 16];
        socket.read_exact(&mut head).unwrap();
        let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
        let mut data = vec![0; if error == 0 { bytes } else { 0 }];
        socket.read_exact(&mut data).unwrap();
        (error, u64::from_be_bytes(head[8..].try_into().unwrap()), data)
    }

    fn does(&self, command: u16, offset: u64, data: &[u8], bytes: usize) -> (u32, Vec<u8>) {
        let length = if command == READ { bytes } else { data.len() };
        self.ask(command, offset + 1, offset, length as u32, data);
        let (error, cookie, data) = self.answer(bytes);
        assert_eq!(cookie, offset + 1);
        (error, data)
    }
}

struct Bridge {
    kernel: Arc<Kernel>,
    socket: PathBuf,
    running: JoinHandle<Result<(), BridgeError>>,
}

impl Bridge {
    async fn start(lab: &Lab, volume: &str, export: &str) -> Self {
        let records = Records::open(&lab.dir.path().join("state")).unwrap();
        let record = Record {
            volume: volume.to_owned(),
            backend: export.to_owned(),
            export: export.to_owned(),
            read_only: false,
            server: format!("https://{}", lab.fixture.controller.grpc_addr()),
            credentials: lab.dir.path().to_owned(),
        };
        records.write(&record).unwrap();
        let (kernel, socket, volume) =
            (Arc::new(Kernel::default()), records.socket(volume), volume.to_owned());
        let devices = Arc::clone(&kernel) as Arc<dyn Devices>;
        let running = tokio::spawn(async move { bridge::run(&records, &volume, devices).await });
        let bridge = Self { kernel, socket, running };
        bridge.until(|state| state.device.is_some() && state.link == Link::Up).await;
        bridge
    }

    async fn until(&self, enough: impl Fn(&State) -> bool) -> State {
        let mut last = None;
        for _ in 0..1200 {
            if let Ok(state) = ask(&self.socket, Ask::State).await {
                if enough(&state) {
                    return state;
                }
                last = Some(state);
            }
            sleep(Duration::from_millis(50)).await;
        }
        panic!("it is not so: {last:?}");
    }

    /// What blocks, on a thread that may.
    async fn kernel<T: Send + 'static>(&self, act: impl FnOnce(&Kernel) -> T + Send + 'static) -> T {
        let kernel = Arc::clone(&self.kernel);
        tokio::task::spawn_blocking(move || act(&kernel)).await.unwrap()
    }
}

fn this_node(lab: &Lab, name: &str) -> String {
    node_id(&mark(&std::fs::read_to_string(lab.dir.path().join("consumer-id")).unwrap()), name)
}

async fn publish(lab: &Lab, volume: &str, node: &str) -> String {
    let request = ControllerPublishVolumeRequest {
        volume_id: volume.to_owned(),
        node_id: this_node(lab, node),
        volume_capability: Some(capability(Mode::SingleNodeWriter, None)),
        ..ControllerPublishVolumeRequest::default()
    };
    let told = lab.controller().controller_publish_volume(request).await.unwrap().into_inner();
    told.publish_context["export"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_kernel_asks_outlives_the_storage_and_grows_with_it() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut lab = Lab::of(controller(tempfile::tempdir().unwrap(), port).await, "64Mi", None).await;
    lab.controller().create_volume(wish("v", 16 * MIB)).await.unwrap();
    let export = publish(&lab, "v", "node-1").await;
    let bridge = Bridge::start(&lab, "v", &export).await;
    assert_eq!(*bridge.kernel.size.lock().unwrap(), 16 << 20);
    let wrote = bridge.kernel(|kernel| {
        (
            kernel.does(WRITE, 4096, &[7; 8192], 0),
            kernel.does(FLUSH, 0, &[], 0),
            kernel.does(WRITE, 0, &[8; 4096], 0),
        )
    });
    assert_eq!(wrote.await, ((0, vec![]), (0, vec![]), (0, vec![])));
    let refused = bridge.kernel(|kernel| kernel.does(WRITE, 1 << 40, &[1; 4096], 0)).await;
    assert_ne!(refused.0, 0, "beyond the end is the server's to refuse, and told");

    // Another size is seen by connecting anew, while the kernel goes on.
    let grow = ControllerExpandVolumeRequest {
        volume_id: "v".to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: 32 * MIB, limit_bytes: 0 }),
        ..ControllerExpandVolumeRequest::default()
    };
    lab.controller().controller_expand_volume(grow).await.unwrap();
    ask(&bridge.socket, Ask::Renew).await.unwrap();
    bridge.until(|state| state.size == 32 << 20 && state.link == Link::Up).await;
    assert_eq!(*bridge.kernel.size.lock().unwrap(), 32 << 20);

    // The storage goes. What is asked meanwhile is answered when it is back, each once.
    let dir = lab.fixture.stop().await;
    bridge.until(|state| matches!(state.link, Link::Away { .. })).await;
    bridge
        .kernel(|kernel| {
            kernel.ask(WRITE, 100, 16384, 4096, &[9; 4096]);
            kernel.ask(READ, 101, 4096, 8192, &[]);
        })
        .await;
    lab.fixture = controller(dir, port).await;
    let answers = bridge.kernel(|kernel| {
        let first = kernel.answer(0);
        // The read's answer has its bytes; the write's has none.
        let second = kernel.answer(if first.1 == 100 { 8192 } else { 0 });
        [first, second]
    });
    let answers: [(u32, u64, Vec<u8>); 2] = answers.await;
    assert_eq!((answers[0].0, answers[0].1), (0, 100), "in their order on one connection");
    assert_eq!((answers[1].0, answers[1].1, answers[1].2.as_slice()), (0, 101, &[7; 8192][..]));
    let read = bridge.kernel(|kernel| (kernel.does(READ, 0, &[], 4096), kernel.does(READ, 16384, &[], 4096)));
    assert_eq!(read.await, ((0, vec![8; 4096]), (0, vec![9; 4096])));

    ask(&bridge.socket, Ask::End).await.unwrap();
    bridge.running.await.unwrap().unwrap();
    assert!(bridge.kernel.socket.lock().unwrap().is_none(), "the device is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_was_cut_off_gets_errors_for_good() {
    let lab = Lab::start("64Mi", None).await;
    lab.controller().create_volume(wish("v", 16 * MIB)).await.unwrap();
    let export = publish(&lab, "v", "node-1").await;
    let bridge = Bridge::start(&lab, "v", &export).await;
    assert_eq!(bridge.kernel(|kernel| kernel.does(WRITE, 0, &[1; 4096], 0)).await.0, 0);
    let taken = ControllerUnpublishVolumeRequest {
        volume_id: "v".to_owned(),
        node_id: this_node(&lab, "node-1"),
        ..ControllerUnpublishVolumeRequest::default()
    };
    lab.controller().controller_unpublish_volume(taken).await.unwrap();
    // This waits for an answer, and gets it when the bridge is sure.
    assert_ne!(bridge.kernel(|kernel| kernel.does(WRITE, 4096, &[2; 4096], 0)).await.0, 0);
    bridge.until(|state| matches!(state.link, Link::Refused { .. })).await;

    let export = publish(&lab, "v", "node-2").await;
    let second = Bridge::start(&lab, "v2", &export).await;
    let read = second.kernel(|kernel| kernel.does(READ, 0, &[], 8192)).await.1;
    assert_eq!(
        (&read[..4096], &read[4096..]),
        (&[1; 4096][..], &[0; 4096][..]),
        "what was answered is there, and no more"
    );
    for _ in 0..2 {
        assert_ne!(bridge.kernel(|kernel| kernel.does(READ, 0, &[], 4096)).await.0, 0);
    }
    for one in [&bridge, &second] {
        let _ = ask(&one.socket, Ask::End).await;
    }
}
