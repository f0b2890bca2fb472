//! From connection details to files and commands that can be pasted.
//!
//! In: the JSON a provider hands out. Out: the files its clients look for, and commands for those clients, which run as
//! they stand. Not here: getting the details.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::output::Format;

/// One item of the connection details.
#[derive(Debug, Serialize, Deserialize)]
struct Item {
    name: String,
    kind: String,
    data: BTreeMap<String, String>,
}

/// Commands under a heading.
#[derive(Debug, Serialize)]
struct Recipe {
    title: &'static str,
    commands: Vec<String>,
}

#[derive(Debug, Serialize)]
struct MountInfo {
    #[serde(skip_serializing_if = "Option::is_none")]
    uri: Option<String>,
    /// To try the storage at once.
    commands: Vec<String>,
    /// What takes more than a moment, or changes the machine.
    recipes: Vec<Recipe>,
}

/// The file that says how much was granted when the consumer was onboarded.
pub(super) const GRANTED: &str = "granted";

fn parse(details: &str) -> anyhow::Result<Vec<Item>> {
    serde_json::from_str(details).context("the provider sent no usable connection details")
}

fn find<'a>(items: &'a [Item], key: &str) -> Option<&'a str> {
    items.iter().find_map(|item| item.data.get(key)).map(String::as_str)
}

/// The files that clients look for, with their names and texts.
pub(super) fn files(details: &str) -> anyhow::Result<Vec<(&'static str, String)>> {
    let items = parse(details)?;
    let pems = [("ca", "ca-cert.pem"), ("cert", "client-cert.pem"), ("key", "client-key.pem")];
    let mut files: Vec<_> =
        pems.iter().filter_map(|(key, file)| Some((*file, find(&items, key)?.to_owned()))).collect();
    if let Some(ceph) = Ceph::of(&items) {
        let Ceph { fsid, monitors, user, key, .. } = ceph;
        // An address without a port is tried at the ports of both protocols; with one, at that of the older only.
        let hosts = monitors.replace(":6789", "");
        files.push(("ceph.conf", format!("[global]\nfsid = {fsid}\nmon_host = {hosts}\n")));
        files.push(("keyring", format!("[client.{user}]\nkey = {key}\n")));
    }
    Ok(files)
}

/// Says how to use the storage whose files are in a directory.
pub(super) fn info(dir: &Path, output: Format) -> anyhow::Result<()> {
    let path = dir.join("connection.json");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let items = parse(&text).with_context(|| format!("cannot understand {}", path.display()))?;
    // Whole paths: commands are pasted elsewhere.
    let dir = fs::canonicalize(dir).with_context(|| format!("cannot find {}", dir.display()))?;
    let dir = dir.to_str().context("the directory's name is not text")?;
    let info = match (Ceph::of(&items), find(&items, "uri")) {
        (Some(ceph), _) => {
            let granted = fs::read_to_string(format!("{dir}/{GRANTED}")).unwrap_or_default();
            ceph.info(dir, megabytes(granted.trim()).unwrap_or(1024))
        }
        (None, Some(uri)) => nbd(&items, uri, dir),
        (None, None) => return output.done("Storage is ready; connection.json says how to reach it", &items),
    };
    let mut text = format!("Storage is ready. For example:\n\n  {}", info.commands.join("\n  "));
    for Recipe { title, commands } in &info.recipes {
        write!(text, "\n\n{title}:\n\n  {}", commands.join("\n  "))?;
    }
    output.done(&text, &info)
}

/// A server that restarts is waited for, two minutes long: without this a mounted file system sees errors, and goes
/// read-only.
const RETRY: &str = "--filter=retry";
const PATIENCE: &str = "retries=120 retry-delay=1 retry-exponential=no";

/// A granted quantity in whole MiB, as `rbd` takes sizes.
fn megabytes(quantity: &str) -> Option<u64> {
    let digits = quantity.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &quantity[digits.len()..] {
        "" => 1,
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1_u64 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).map(|bytes| bytes >> 20).filter(|size| *size > 0)
}

fn nbd(items: &[Item], uri: &str, dir: &str) -> MountInfo {
    let value = |key| find(items, key).unwrap_or_default();
    let (host, port, export) = (value("address"), value("port"), value("export"));
    let uri = format!("{uri}?tls-certificates={}", escape(dir));
    let quoted = quote(&uri);
    let object = quote(&format!("tls-creds-x509,id=tls0,endpoint=client,dir={}", dir.replace(',', ",,")));
    let options = quote(&format!("driver=nbd,host={host},port={port},export={export},tls-creds=tls0"));
    let (volume, file) = (quote(&format!("{dir}/volume")), quote(&format!("{dir}/volume/nbd")));
    let socket = quote(&format!("{dir}/bridge"));
    MountInfo {
        commands: vec![
            format!("nbdinfo {quoted}"),
            format!("nbdcopy image.raw {quoted}"),
            format!("qemu-img info --object {object} --image-opts {options}"),
        ],
        recipes: vec![
            Recipe {
                title: "A file system, without a kernel module (Debian: libnbd-bin and nbdkit; as root)",
                commands: vec![
                    // nbdfuse takes no certificates from a URI, so nbdkit speaks TLS for it.
                    format!(
                        "mkdir -p {volume} && nbdfuse {volume} --command nbdkit -s --exit-with-parent {RETRY} nbd \
                         hostname={host} port={port} export={export} tls=require tls-certificates={} {PATIENCE} &",
                        quote(dir)
                    ),
                    format!(
                        "until [ -e {file} ]; do sleep 0.1; done; mkfs.ext4 {file} && mount -o loop {file} /mnt"
                    ),
                    format!("umount /mnt && umount {volume}    # when done"),
                ],
            },
            Recipe {
                title: "A block device, with the kernel's nbd module, through a bridge that outlives restarts of the \
                        server (Debian: nbdkit and nbd-client; as root)",
                commands: vec![
                    format!(
                        "nbdkit -U {socket} {RETRY} nbd hostname={host} port={port} export={export} tls=require \
                         tls-certificates={} {PATIENCE}",
                        quote(dir)
                    ),
                    format!("nbd-client -unix {socket} -timeout 0 /dev/nbd0"),
                    "mkfs.ext4 /dev/nbd0 && mount /dev/nbd0 /mnt".to_owned(),
                ],
            },
        ],
        uri: Some(uri),
    }
}

/// A pool of a Ceph cluster, as its connection details name it.
struct Ceph<'a> {
    fsid: &'a str,
    monitors: String,
    user: &'a str,
    key: &'a str,
    pool: &'a str,
}

impl<'a> Ceph<'a> {
    fn of(items: &'a [Item]) -> Option<Self> {
        let item = |name: &str| items.iter().find(|item| item.name == name).map(|item| &item.data);
        let monitors = item("rook-ceph-mon-endpoints")?.get("data")?.split(',');
        let monitors: Vec<&str> = monitors.filter_map(|one| Some(one.split_once('=')?.1)).collect();
        let user = item("rook-csi-rbd-node")?;
        Some(Self {
            fsid: item("rook-ceph-mon")?.get("fsid")?,
            monitors: monitors.join(","),
            user: user.get("userID")?,
            key: user.get("userKey")?,
            pool: item("ceph-rbd")?.get("pool")?,
        })
    }

    /// `size` is in MiB.
    fn info(&self, dir: &str, size: u64) -> MountInfo {
        let (conf, keyring) = (quote(&format!("{dir}/ceph.conf")), quote(&format!("{dir}/keyring")));
        let who = format!("-n client.{} -c {conf} -k {keyring}", self.user);
        let pool = self.pool;
        MountInfo {
            uri: None,
            commands: vec![
                format!("rados {who} -p {pool} ls"),
                format!("rbd {who} create --size {size}M {pool}/disk"),
                format!("rbd {who} info {pool}/disk"),
            ],
            recipes: vec![Recipe {
                title: "A block device, with the kernel's rbd module (as root)",
                commands: vec![
                    format!("rbd {who} map {pool}/disk"),
                    format!("mkfs.ext4 /dev/rbd/{pool}/disk && mount /dev/rbd/{pool}/disk /mnt"),
                ],
            }],
        }
    }
}

/// As one word of a shell.
fn quote(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=,:".contains(c);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// As a value in a URI.
fn escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte);
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if plain(byte) {
            escaped.push(char::from(byte));
        } else {
            write!(escaped, "%{byte:02X}").expect("writing to a String cannot fail");
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_directories_survive_the_shell_and_the_uri() {
        assert_eq!(quote("/a/b-c.pem"), "/a/b-c.pem");
        assert_eq!(quote("/it's here"), r"'/it'\''s here'");
        assert_eq!(escape("/a b&c"), "/a%20b%26c");
    }

    #[test]
    fn a_grant_becomes_the_size_of_an_image() {
        let sizes =
            [("10Gi", Some(10240)), ("1536Mi", Some(1536)), ("3G", Some(2861)), ("1Ki", None), ("x", None)];
        for (granted, size) in sizes {
            assert_eq!(megabytes(granted), size, "{granted}");
        }
    }

    #[test]
    fn mounts_go_through_a_bridge_that_waits_for_the_server() {
        let items: Vec<Item> = serde_json::from_str(
            r#"[{"name":"e","kind":"k","data":{"address":"h","port":"1","export":"data","uri":"nbds://h:1/data"}}]"#,
        )
        .unwrap();
        let info = nbd(&items, "nbds://h:1/data", "/d");
        for recipe in &info.recipes {
            assert!(recipe.commands[0].contains("--filter=retry nbd hostname=h"), "{:?}", recipe.commands);
            assert!(recipe.commands[0].contains("retries=120"), "{:?}", recipe.commands);
        }
    }

    #[test]
    fn ceph_details_become_files_and_commands() {
        let details = r#"[
            {"name":"rook-ceph-mon-endpoints","kind":"ConfigMap","data":{"data":"a=10.0.0.1:3300,b=10.0.0.2:3300"}},
            {"name":"rook-ceph-mon","kind":"Secret","data":{"fsid":"f"}},
            {"name":"rook-csi-rbd-node","kind":"Secret","data":{"userID":"u","userKey":"k"}},
            {"name":"ceph-rbd","kind":"StorageClass","data":{"pool":"p"}}]"#;
        let files = files(details).unwrap();
        assert_eq!(
            files[0],
            ("ceph.conf", "[global]\nfsid = f\nmon_host = 10.0.0.1:3300,10.0.0.2:3300\n".into())
        );
        assert_eq!(files[1], ("keyring", "[client.u]\nkey = k\n".into()));
        let items = parse(details).unwrap();
        let info = Ceph::of(&items).unwrap().info("/d", 1024);
        assert_eq!(info.commands[0], "rados -n client.u -c /d/ceph.conf -k /d/keyring -p p ls");
    }
}
