//! Clients nobody here wrote: libnbd's and qemu's tools, over TLS.

use storage_backend::Backend as _;
use storage_provider::VolumeStep;

use crate::world::{MIB, OpenClient, create, must, must_not, noise, world};

#[tokio::test(flavor = "multi_thread")]
async fn nbdinfo_sees_the_volumes_and_what_they_can_do() {
    let world = world().await;
    let consumer = world.consumer(1, 64 * MIB).await;
    world.backend.change_volume(consumer, create("logs", 5 * MIB)).await.unwrap();
    let certificates = world.certificates(consumer).await;
    let info = must("nbdinfo", &[world.uri(&certificates, "data")]).await;
    for line in [
        "protocol: newstyle-fixed with TLS, using structured packets",
        "export-size: 67108864",
        "base:allocation",
        "can_flush: true",
        "can_fua: true",
        "can_trim: true",
        "can_zero: true",
        "can_fast_zero: true",
        "can_multi_conn: true",
        "can_cache: true",
        "can_df: true",
        "is_read_only: false",
        "block_size_preferred: 4096",
    ] {
        assert!(info.contains(line), "{line} is missing in {info}");
    }
    let list = must("nbdinfo", &["--list".to_owned(), world.uri(&certificates, "")]).await;
    assert!(list.contains("export=\"data\"") && list.contains("export=\"logs\""), "{list}");
    assert!(
        must("nbdinfo", &["--size".to_owned(), world.uri(&certificates, "logs")])
            .await
            .starts_with("5242880")
    );
    assert!(
        must("nbdinfo", &["--size".to_owned(), world.uri(&certificates, "")]).await.starts_with("67108864")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nbdcopy_brings_back_what_it_took() {
    let world = world().await;
    let consumer = world.consumer(1, 48 * MIB).await;
    let certificates = world.certificates(consumer).await;
    let (there, back) = (world.dir.path().join("there"), world.dir.path().join("back"));
    let mut image = noise(1, 40 << 20);
    image[5 << 20..17 << 20].fill(0);
    image.resize(48 << 20, 0);
    std::fs::write(&there, &image).unwrap();
    let uri = world.uri(&certificates, "data");
    must("nbdcopy", &["--flush", "--connections=4", there.to_str().unwrap(), &uri]).await;
    must("nbdcopy", &["--connections=4", &uri, back.to_str().unwrap()]).await;
    assert!(std::fs::read(&back).unwrap() == image);
    assert_eq!(world.used(consumer).await, 28 * MIB, "zeroes take no room");
    let map = must("nbdinfo", &["--map", &uri]).await;
    let holes: u64 = map.lines().filter(|line| line.contains("hole")).map(|line| field(line, 1)).sum();
    assert_eq!(holes, 20 * MIB, "{map}");
}

fn field(line: &str, index: usize) -> u64 {
    line.split_whitespace().nth(index).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn qemu_img_converts_to_and_compares_with_a_volume() {
    let world = world().await;
    let consumer = world.consumer(1, 32 * MIB).await;
    let certificates = world.certificates(consumer).await;
    let source = world.dir.path().join("source");
    let mut image = noise(2, 8 << 20);
    image.resize(32 << 20, 0);
    std::fs::write(&source, &image).unwrap();
    let device = world.qemu(&certificates, "data");
    let source = source.to_str().unwrap();
    let mut convert: Vec<&str> =
        vec!["convert", "-n", "-f", "raw", "--target-image-opts", "--object", &device[1], source, &device[3]];
    must("qemu-img", &convert).await;
    let file = format!("driver=raw,file.filename={source}");
    must("qemu-img", &["compare", "--object", &device[1], "--image-opts", &file, &device[3]]).await;
    assert_eq!(world.used(consumer).await, 8 * MIB);
    // Again, over what is there, with many requests in flight and out of order.
    convert.splice(1..1, ["-W", "-m", "16"]);
    must("qemu-img", &convert).await;
    must("qemu-img", &["compare", "--object", &device[1], "--image-opts", &file, &device[3]]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn qemu_io_writes_reads_zeroes_and_discards() {
    let world = world().await;
    let consumer = world.consumer(1, 16 * MIB).await;
    let certificates = world.certificates(consumer).await;
    let device = world.qemu(&certificates, "data");
    let io = |commands: &[&str]| {
        let mut args = device.clone();
        args.extend(commands.iter().flat_map(|command| ["-c".to_owned(), (*command).to_owned()]));
        args
    };
    let said = must(
        "qemu-io",
        &io(&[
            "write -P 0xaa 0 2M",
            "write -f -P 0xbb 1M 64k",
            "write -P 0xcc 5000 777",
            "read -P 0xaa 0 4096",
            "read -P 0xbb 1M 64k",
            "read -P 0xcc 5000 777",
            "read -P 0xaa 5777 1000",
            "flush",
            "discard 0 1M",
            "read -P 0 0 1M",
            "write -z -u 1M 1M",
            "read -P 0 1M 1M",
            "write -z 4M 1M",
            "read -P 0 4M 1M",
        ]),
    )
    .await;
    assert!(!said.contains("failed"), "{said}");
    assert_eq!(world.used(consumer).await, MIB, "only the zeroes that were not to be a hole are stored");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_was_silent_for_a_while_is_served_as_before() {
    let world = world().await;
    let consumer = world.consumer(1, 16 * MIB).await;
    let certificates = world.certificates(consumer).await;
    let mut args = world.qemu(&certificates, "data");
    let commands = [
        "write -P 1 0 3M",
        "sleep 500",
        "read -P 1 0 3M",
        "sleep 500",
        "flush",
        "sleep 500",
        "read -P 0 3M 1M",
    ];
    args.extend(commands.iter().flat_map(|command| ["-c".to_owned(), (*command).to_owned()]));
    let said = must("qemu-io", &args).await;
    assert!(!said.contains("failed"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_read_by_anybody_and_written_by_nobody() {
    let world = world().await;
    let consumer = world.consumer(1, 8 * MIB).await;
    let certificates = world.certificates(consumer).await;
    let write = |pattern: &str| {
        let mut args = world.qemu(&certificates, "data");
        args.extend(["-c".to_owned(), format!("write -P {pattern} 0 1M")]);
        args
    };
    must("qemu-io", &write("1")).await;
    let snapshot = VolumeStep::Snapshot { volume: "data".to_owned(), name: "data@one".to_owned() };
    world.backend.change_volume(consumer, snapshot).await.unwrap();
    must("qemu-io", &write("2")).await;
    let list = must("nbdinfo", &["--list".to_owned(), world.uri(&certificates, "")]).await;
    assert!(list.contains("\"data@one\""), "{list}");
    let info = must("nbdinfo", &[world.uri(&certificates, "data@one")]).await;
    assert!(info.contains("is_read_only: true") && info.contains("export-size: 8388608"), "{info}");
    for (export, pattern) in [("data@one", "1"), ("data", "2")] {
        let mut args = world.qemu(&certificates, export);
        args.extend(
            ["-r", "-c", &format!("read -P {pattern} 0 1M"), "-c", "read -P 0 1M 7M"].map(str::to_owned),
        );
        let read = must("qemu-io", &args).await;
        assert!(!read.contains("failed") && read.contains("read 7340032/7340032"), "{export}: {read}");
    }
    let mut args = world.qemu(&certificates, "data@one");
    args.extend(["-c", "write -P 3 0 4k"].map(str::to_owned));
    must_not("qemu-io", &args).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_whose_epoch_is_over_writes_nothing_any_more() {
    let world = world().await;
    let consumer = world.consumer(1, 8 * MIB).await;
    let certificates = world.certificates(consumer).await;
    let publish = |writer: &str| {
        let step = VolumeStep::Publish { name: "data".to_owned(), writer: writer.to_owned() };
        world.backend.change_volume(consumer, step)
    };
    let mut unfenced = OpenClient::start(&world.qemu(&certificates, "data"));
    assert!(unfenced.ask("write -P 1 0 64k").await.contains("wrote"));
    publish("a").await.unwrap();
    let refused = unfenced.ask("write -P 9 0 64k").await;
    assert!(!refused.contains("wrote"), "{refused}");
    let mut first = OpenClient::start(&world.qemu(&certificates, "data:1"));
    assert!(first.ask("write -P 2 0 64k").await.contains("wrote"));
    // Others read, as many as like, and as who only wants to read is told.
    for reader in ["data", "data:read"] {
        let info = must("nbdinfo", &[world.uri(&certificates, reader)]).await;
        assert!(info.contains("is_read_only: true"), "{info}");
    }
    publish("b").await.unwrap();
    let refused = first.ask("write -P 9 0 64k").await;
    assert!(!refused.contains("wrote"), "{refused}");
    for over in ["data:1", "data:3", "data:", "data:01", "data:2:2", "data:+2"] {
        must_not("nbdinfo", &[world.uri(&certificates, over)]).await;
    }
    let mut second = OpenClient::start(&world.qemu(&certificates, "data:2"));
    assert!(
        second.ask("read -P 2 0 64k").await.contains("read 65536"),
        "nothing of what was refused is there"
    );
    assert!(second.ask("write -P 3 0 64k").await.contains("wrote"));
    // Given back, it is everybody's again, but not by an old epoch.
    world.backend.change_volume(consumer, VolumeStep::Unpublish { name: "data".to_owned() }).await.unwrap();
    must_not("nbdinfo", &[world.uri(&certificates, "data:2")]).await;
    let info = must("nbdinfo", &[world.uri(&certificates, "data")]).await;
    assert!(info.contains("is_read_only: false"), "{info}");
    let status = world.backend.volumes(consumer).await.unwrap().remove("data").unwrap();
    assert_eq!((status.epoch, status.writer), (2, None));
}
