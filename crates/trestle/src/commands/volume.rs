//! `trestle volume`: volumes of consumers, by name; called by administrators, and by consumers with their certificate.

use std::{
    fs::{File, OpenOptions},
    io::{self, IsTerminal as _, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use model::{CONTENT_BLOCK, ContentDigest};
use tokio::sync::mpsc;
use wire::trestle::v1::{
    AdoptVolumeRequest, CreateVolumeRequest, DeleteVolumeRequest, ExportVolumeRequest, ImportVolumeRequest,
    ImportedVolume, KeepVolumeRequest, ListVolumesRequest, PublishVolumeRequest, RecreateVolumeRequest,
    ResizeVolumeRequest, RestoreVolumeRequest, SnapshotVolumeRequest, UnpublishVolumeRequest, Volume,
    VolumeContent, import_volume_request::Part, storage_client::StorageClient, volume_part,
};

use crate::{client::Connection, output::Format};

/// Bytes that are read of a file and sent at once.
const PIECE: usize = 1 << 20;

#[derive(Debug, Args)]
pub struct Whose {
    /// The consumer's id or name; a consumer that calls with its own certificate leaves it out
    #[arg(long, short, value_name = "CONSUMER", default_value = "", hide_default_value = true)]
    consumer: String,
}

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  trestle volume create logs --size 10Gi -c CONSUMER
  trestle volume snapshot logs@monday -c CONSUMER
  trestle volume create copy --from logs@monday -c CONSUMER
  trestle volume export logs -c CONSUMER > logs.img
  # the consumer itself, with what `consumer onboard` wrote:
  trestle --server URL --ca s/ca-cert.pem --cert s/client-cert.pem --key s/client-key.pem volume list
  trestle volume adopt CONSUMER                     # the right data is there, under another mark or none
  trestle volume recreate CONSUMER --data-is-lost   # it is gone: empty storage, new credentials")]
pub enum VolumeCommand {
    /// The volumes of a consumer, its snapshots, and what was deleted and is kept
    List {
        #[command(flatten)]
        whose: Whose,
    },
    /// Make a volume: an empty one, or a copy of another or of a snapshot
    Create {
        name: String,
        /// Its size, e.g. 10Gi; of a copy by default that of what it is made of
        #[arg(long, default_value = "", hide_default_value = true, required_unless_present = "from")]
        size: String,
        /// A volume, or a snapshot VOLUME@SNAPSHOT, to be a copy of
        #[arg(long, value_name = "VOLUME", default_value = "", hide_default_value = true)]
        from: String,
        /// Encrypt what it holds; a copy is encrypted if what it is made of is
        #[arg(long)]
        encrypted: bool,
        #[command(flatten)]
        whose: Whose,
    },
    /// Make a volume larger, or smaller where no data is and no client has it open
    Resize {
        name: String,
        size: String,
        #[command(flatten)]
        whose: Whose,
    },
    /// Delete a volume or a snapshot; it can be taken back until its grace time is over
    Delete {
        name: String,
        /// Delete its data at once; there is no way back
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        whose: Whose,
    },
    /// Take back a volume or a snapshot that was deleted
    Keep {
        name: String,
        #[command(flatten)]
        whose: Whose,
    },
    /// Keep what is in a volume at this moment
    Snapshot {
        /// VOLUME@SNAPSHOT
        name: String,
        #[command(flatten)]
        whose: Whose,
    },
    /// Put a volume back to one of its snapshots, while no client has it open
    Restore {
        name: String,
        /// VOLUME@SNAPSHOT
        #[arg(long)]
        from: String,
        #[command(flatten)]
        whose: Whose,
    },
    /// Give a volume to one writer: nobody else writes to it from then on, and whoever had it open is refused
    Publish {
        name: String,
        /// A name for the writer, that of its machine, say
        #[arg(long)]
        to: String,
        /// Also if it is another writer's now
        #[arg(long)]
        take_over: bool,
        #[command(flatten)]
        whose: Whose,
    },
    /// Take a volume back from its writer, who is refused from then on
    Unpublish {
        name: String,
        /// Only if it is this writer's
        #[arg(long, value_name = "WRITER", default_value = "", hide_default_value = true)]
        from: String,
        #[command(flatten)]
        whose: Whose,
    },
    /// Write what is in a volume at this moment as a raw image, and check it against its digest
    Export {
        name: String,
        /// The file to make, with holes where the volume has some; default: standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        #[command(flatten)]
        whose: Whose,
    },
    /// Make a volume of a raw image, and check what is stored against its digest
    Import {
        name: String,
        /// The image; its size is a multiple of 4096 bytes, or is filled up to one with zeroes
        file: PathBuf,
        /// Encrypt what it holds
        #[arg(long)]
        encrypted: bool,
        #[command(flatten)]
        whose: Whose,
    },
    /// Take what is there as a Failed consumer's data
    Adopt { consumer: String },
    /// Give up a Failed consumer's data: it gets empty storage and new credentials
    Recreate {
        consumer: String,
        /// What the consumer stored is given up
        #[arg(long, required = true)]
        data_is_lost: bool,
    },
}

type Client = StorageClient<Connection>;

pub async fn run(command: VolumeCommand, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut storage = StorageClient::new(connection);
    let volume = match command {
        VolumeCommand::List { whose: Whose { consumer } } => {
            let reply = storage.list_volumes(ListVolumesRequest { consumer }).await?;
            return output.list(&reply.into_inner().volumes);
        }
        VolumeCommand::Delete { name, now, whose: Whose { consumer } } => {
            storage.delete_volume(DeleteVolumeRequest { consumer, name: name.clone(), now }).await?;
            return output.done(&format!("Deleted: {name}"), &serde_json::json!({ "name": name }));
        }
        VolumeCommand::Export { name, out, whose: Whose { consumer } } => {
            return export(&mut storage, ExportVolumeRequest { consumer, name }, out.as_deref(), output)
                .await;
        }
        VolumeCommand::Adopt { consumer } => {
            return output.one(&storage.adopt_volume(AdoptVolumeRequest { consumer }).await?.into_inner());
        }
        VolumeCommand::Recreate { consumer, data_is_lost } => {
            let request = RecreateVolumeRequest { consumer, data_is_lost };
            return output.one(&storage.recreate_volume(request).await?.into_inner());
        }
        VolumeCommand::Create { name, size, from, encrypted, whose: Whose { consumer } } => {
            let request = CreateVolumeRequest { consumer, name, size, from, importing: false, encrypted };
            storage.create_volume(request).await?.into_inner()
        }
        VolumeCommand::Resize { name, size, whose: Whose { consumer } } => {
            storage.resize_volume(ResizeVolumeRequest { consumer, name, size }).await?.into_inner()
        }
        VolumeCommand::Keep { name, whose: Whose { consumer } } => {
            storage.keep_volume(KeepVolumeRequest { consumer, name }).await?.into_inner()
        }
        VolumeCommand::Snapshot { name, whose: Whose { consumer } } => {
            storage.snapshot_volume(SnapshotVolumeRequest { consumer, name }).await?.into_inner()
        }
        VolumeCommand::Restore { name, from, whose: Whose { consumer } } => {
            storage.restore_volume(RestoreVolumeRequest { consumer, name, from }).await?.into_inner()
        }
        VolumeCommand::Publish { name, to: writer, take_over, whose: Whose { consumer } } => {
            let request = PublishVolumeRequest { consumer, name, writer, take_over };
            storage.publish_volume(request).await?.into_inner()
        }
        VolumeCommand::Unpublish { name, from: writer, whose: Whose { consumer } } => {
            storage.unpublish_volume(UnpublishVolumeRequest { consumer, name, writer }).await?.into_inner()
        }
        VolumeCommand::Import { name, file, encrypted, whose: Whose { consumer } } => {
            let volume = CreateVolumeRequest { consumer, name, encrypted, ..CreateVolumeRequest::default() };
            import(&mut storage, volume, &file).await?
        }
    };
    output.one(&volume)
}

/// Writes a raw image. What does not agree with its digest is not left behind as if it were whole.
async fn export(
    storage: &mut Client,
    request: ExportVolumeRequest,
    out: Option<&Path>,
    output: Format,
) -> anyhow::Result<()> {
    if out.is_none() && io::stdout().is_terminal() {
        bail!("an image is no text for a terminal; give --out FILE, or send it to a file or a program");
    }
    let mut image = match out {
        Some(path) => {
            let file = OpenOptions::new().write(true).create_new(true).open(path);
            Image::File(file.with_context(|| format!("cannot make {}", path.display()))?)
        }
        None => Image::Pipe { out: io::stdout(), at: 0 },
    };
    let name = request.name.clone();
    let exported = receive(storage, request, &mut image).await;
    if let (Err(_), Some(path)) = (&exported, out) {
        let _ = std::fs::remove_file(path);
    }
    let (size, digest) = exported?;
    match out {
        Some(path) => {
            let told = format!("Exported {name} to {}: {size} bytes, digest {digest}", path.display());
            output.done(&told, &serde_json::json!({ "name": name, "size_bytes": size, "digest": digest }))
        }
        None => {
            // Standard output is the image.
            writeln!(io::stderr(), "Exported {name}: {size} bytes, digest {digest}")?;
            Ok(())
        }
    }
}

async fn receive(
    storage: &mut Client,
    request: ExportVolumeRequest,
    image: &mut Image,
) -> anyhow::Result<(u64, String)> {
    let mut parts = storage.export_volume(request).await?.into_inner();
    let (mut size, mut digest) = (0, ContentDigest::default());
    while let Some(next) = parts.message().await? {
        match next.part {
            Some(volume_part::Part::SizeBytes(bytes)) => size = bytes,
            Some(volume_part::Part::Content(VolumeContent { offset, data })) => {
                digest.update(offset, &data)?;
                image.put(offset, &data).context("cannot write the image")?;
            }
            Some(volume_part::Part::Digest(sent)) => {
                let received = digest.finish(size);
                if received[..] != sent[..] {
                    bail!(
                        "what was received is not what was sent: its digest is another one; export it again"
                    );
                }
                image.end(size).context("cannot write the image")?;
                return Ok((size, hex(&received)));
            }
            None => bail!("the server sent a part that this version does not know"),
        }
    }
    bail!("the export broke off before its end")
}

/// Where an image goes.
enum Image {
    File(File),
    /// Zeroes are written too.
    Pipe {
        out: io::Stdout,
        at: u64,
    },
}

impl Image {
    fn put(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => {
                file.seek(SeekFrom::Start(offset))?;
                file.write_all(data)
            }
            Self::Pipe { out, at } => {
                io::copy(&mut io::repeat(0).take(offset - *at), out)?;
                out.write_all(data)?;
                *at = offset + data.len() as u64;
                Ok(())
            }
        }
    }

    fn end(&mut self, size: u64) -> io::Result<()> {
        match self {
            Self::File(file) => {
                file.set_len(size)?;
                file.sync_all()
            }
            Self::Pipe { out, at } => {
                io::copy(&mut io::repeat(0).take(size - *at), out)?;
                out.flush()
            }
        }
    }
}

async fn import(storage: &mut Client, volume: CreateVolumeRequest, file: &Path) -> anyhow::Result<Volume> {
    let shown = file.display().to_string();
    let image = File::open(file).with_context(|| format!("cannot open {shown}"))?;
    let size = image.metadata().with_context(|| format!("cannot look at {shown}"))?.len();
    let size = size.next_multiple_of(CONTENT_BLOCK as u64);
    let (consumer, name) = (volume.consumer.clone(), volume.name.clone());
    let request = CreateVolumeRequest { size: size.to_string(), importing: true, ..volume };
    storage.create_volume(request).await?;
    let (parts, sent) = mpsc::channel(4);
    let reading = tokio::task::spawn_blocking(move || {
        let first = Part::Volume(ImportedVolume { consumer, name });
        send(image, size, |part| parts.blocking_send(ImportVolumeRequest { part: Some(part) }).is_ok(), first)
    });
    let imported = async {
        let sent = tokio_stream::wrappers::ReceiverStream::new(sent);
        storage.import_volume(sent).await?.into_inner().message().await
    };
    let imported = imported.await;
    // Why the file could not be read says more than that the stream broke off.
    reading.await.context("reading the image")?.with_context(|| format!("cannot read {shown}"))?;
    imported?.context("the import broke off before its end; begin it again")
}

/// Sends an image, without its zeroes, until nobody takes it any more.
fn send(mut image: File, size: u64, mut put: impl FnMut(Part) -> bool, first: Part) -> io::Result<()> {
    let (mut digest, mut at) = (ContentDigest::default(), 0);
    if !put(first) {
        return Ok(());
    }
    while at < size {
        let want = (size - at).min(PIECE as u64);
        let mut data = Vec::new();
        (&mut image).take(want).read_to_end(&mut data)?;
        data.resize(usize::try_from(want).expect("a piece fits in memory"), 0);
        if data.iter().any(|byte| *byte != 0) {
            digest.update(at, &data).map_err(io::Error::other)?;
            if !put(Part::Content(VolumeContent { offset: at, data })) {
                return Ok(());
            }
        }
        at += want;
    }
    put(Part::Digest(digest.finish(size).to_vec()));
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
