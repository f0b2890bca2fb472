//! Clients nobody here wrote: libnbd's and qemu's tools, over TLS.

use crate::world::{MIB, must, noise, world};

#[tokio::test(flavor = "multi_thread")]
async fn nbdinfo_sees_the_volumes_and_what_they_can_do() {
    let world = world().await;
    let consumer = world.consumer(1, 64 * MIB).await;
    world.backend.create_volume(consumer, "logs", 5 * MIB).await.unwrap();
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
