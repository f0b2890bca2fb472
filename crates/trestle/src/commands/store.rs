//! `trestle store`: backup while the controller runs, restore while it does not.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use server::Config;
use wire::trestle::v1::{BackupRequest, admin_client::AdminClient};

use crate::{client::ConnectionArgs, config_file, context, output::Format, progress};

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  trestle store backup trestle.backup
  trestle store restore trestle.backup --data-dir /var/lib/trestle --replace")]
pub enum StoreCommand {
    /// Copy the running controller's store into a file
    Backup { file: PathBuf },
    /// Put a backup into the store of a controller that does not run
    Restore {
        file: PathBuf,
        /// Data directory of the controller (default: that of `trestle up`)
        #[arg(long, value_name = "DIR", conflicts_with = "config")]
        data_dir: Option<PathBuf>,
        /// Configuration of the controller, to restore into its store, also etcd
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Restore over what is there; otherwise only an empty store is filled
        #[arg(long)]
        replace: bool,
    },
}

pub async fn run(command: StoreCommand, output: Format, connection: ConnectionArgs) -> anyhow::Result<()> {
    match command {
        StoreCommand::Backup { file } => backup(&file, output, connection).await,
        StoreCommand::Restore { file, data_dir, config, replace } => {
            let config = match (config, data_dir) {
                (Some(path), _) => config_file::load(&path)?,
                (None, Some(dir)) => Config::in_dir(dir),
                (None, None) => Config::in_dir(context::default_data_dir()?),
            };
            let restored = server::restore_store(&config, &file, replace).await?;
            let text = format!("Restored {} entries from {}", restored.entries, file.display());
            output.done(
                &text,
                &serde_json::json!({ "entries": restored.entries, "revision": restored.revision.0 }),
            )
        }
    }
}

/// Writes beside the file and renames, so that a broken transfer leaves no file that looks like a backup.
async fn backup(file: &Path, output: Format, connection: ConnectionArgs) -> anyhow::Result<()> {
    if file.is_dir() {
        bail!("{} is a directory; name a file", file.display());
    }
    let mut admin = AdminClient::new(connection.connect().await?);
    let mut chunks = admin.backup(BackupRequest {}).await?.into_inner();
    let partial = file.with_added_extension("partial");
    let failed = || format!("cannot write {}", partial.display());
    let mut target = files::create(&partial).with_context(failed)?;
    let mut bytes = 0;
    while let Some(chunk) = chunks.message().await? {
        target.write_all(&chunk.data).with_context(failed)?;
        bytes += chunk.data.len();
        progress::note(format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)));
    }
    target.sync_all().with_context(failed)?;
    let verified = store::backup::BackupFile::verify(&partial).context("the backup did not arrive whole")?;
    let entries = verified.trailer.entries;
    let renamed = fs::rename(&partial, file).and_then(|()| files::sync_dir_of(file));
    renamed.with_context(|| format!("cannot rename it to {}", file.display()))?;
    let text = format!("Wrote {entries} entries ({bytes} bytes) to {}", file.display());
    output.done(&text, &serde_json::json!({ "file": file, "entries": entries, "bytes": bytes }))
}
