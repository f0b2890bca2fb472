//! `trestle install csi`: the driver in a cluster that uses storage.

use std::{fs, path::PathBuf};

use anyhow::Context as _;
use kubernetes::{
    Access,
    install::{Csi, Installer},
};
use serde_json::json;

use super::{IMAGE, yamls};
use crate::{
    output::{Format, print},
    progress::during,
};

#[derive(Debug, clap::Args)]
pub struct CsiArgs {
    /// File with the ticket by which the cluster gets its storage; the same for all nodes
    #[arg(long, value_name = "FILE", required_unless_present = "uninstall")]
    ticket_file: Option<PathBuf>,
    /// Storage to ask for, e.g. 100Gi
    #[arg(long, required_unless_present = "uninstall")]
    capacity: Option<String>,
    /// The storage's controller as nodes reach it, https://HOST:PORT of its gRPC listener
    #[arg(long, value_name = "URL", required_unless_present = "uninstall")]
    controller: Option<String>,
    /// PEM file of the CA that its certificate is from
    #[arg(long, value_name = "FILE", required_unless_present = "uninstall")]
    controller_ca: Option<PathBuf>,
    /// Where it is made; it is the driver's own
    #[arg(long, value_name = "NAME", default_value = "trestle-csi")]
    into: String,
    /// Image with this program, e2fsprogs and xfsprogs, as nodes get it (`make image` makes one)
    #[arg(long, default_value = IMAGE)]
    image: String,
    /// What the class of volumes is called, and that of snapshots
    #[arg(long, value_name = "NAME", default_value = "trestle")]
    class: String,
    /// Claims that name no class get this one
    #[arg(long)]
    default_class: bool,
    /// The cluster has no kinds of volume snapshots: leave out what is about them
    #[arg(long)]
    no_snapshots: bool,
    /// What is deleted can be taken back for a day, and counts for as long
    #[arg(long)]
    keep_deleted: bool,
    /// Where kubelets keep what is theirs
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_dir: String,
    /// Make it, instead of printing it
    #[arg(long)]
    apply: bool,
    /// With --apply: take the driver away. Volumes stay, and what is attached on nodes stays until they are started anew
    #[arg(long, requires = "apply")]
    uninstall: bool,
    /// Whose cluster (default: as kubectl would)
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context in it (default: the current one)
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

impl CsiArgs {
    fn csi(&self) -> anyhow::Result<Csi> {
        let read = |path: &Option<PathBuf>| match path {
            Some(path) => fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display())),
            None => Ok(String::new()),
        };
        let csi = Csi {
            namespace: self.into.clone(),
            image: self.image.clone(),
            server: self.controller.clone().unwrap_or_default(),
            ca: read(&self.controller_ca)?,
            ticket: read(&self.ticket_file)?,
            capacity: self.capacity.clone().unwrap_or_default(),
            class: self.class.clone(),
            is_default: self.default_class,
            snapshots: !self.no_snapshots,
            keep_deleted: self.keep_deleted,
            kubelet_dir: self.kubelet_dir.clone(),
        };
        if !self.uninstall {
            csi.check()?;
        }
        Ok(csi)
    }
}

pub async fn run(args: CsiArgs, output: Format) -> anyhow::Result<()> {
    let documents = args.csi()?.documents();
    if !args.apply {
        return match output {
            Format::Table => print(&yamls(&documents)?),
            _ => output.data(&documents),
        };
    }
    let access = Access { kubeconfig: args.kubeconfig.clone(), context: args.context.clone() };
    let installer = Installer::connect(&access).await?;
    let server = &installer.server;
    if args.uninstall {
        for document in documents.iter().rev() {
            during("Taking away", installer.delete(document)).await?;
        }
        return output.done(&format!("The driver is taken away from {server}"), &json!({ "server": server }));
    }
    for document in &documents {
        during("Applying", installer.apply(document, false)).await?;
    }
    let sentence = format!("The driver is being started in {server}: kubectl -n {} get pods -w", args.into);
    output.done(&sentence, &json!({ "server": server, "objects": documents.len() }))
}
