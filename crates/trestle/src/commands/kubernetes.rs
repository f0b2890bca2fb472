//! `trestle kubernetes`.

use std::fmt::Write as _;

use clap::Subcommand;
use wire::{
    json::time_text,
    trestle::v1::{ClusterInfo, ListClustersRequest, kubernetes_client::KubernetesClient},
};

use crate::{
    client::{Connection, ConnectionArgs, MAX_MESSAGE},
    output::{Format, print},
    paint::{Tone, paint},
    progress::during,
};

#[derive(Debug, Subcommand)]
#[command(
    after_help = "Clusters are read by `trestle up --kubernetes NAME[=KUBECONFIG]`, or `kubernetes` in the configuration; see
docs/kubernetes.md.

Examples:
  trestle kubernetes status
  trestle kubernetes rbac | kubectl apply -f -
  trestle kubernetes status -o json | jq '.[].kinds[] | select(.state == \"failed\")'"
)]
pub enum KubernetesCommand {
    /// Clusters that are read: how far each is, kind by kind, since when, and why not further
    Status,
    /// Print what a cluster must allow whoever reads it, for kubectl: a service account, its role, and that it has it
    Rbac {
        /// Of all three
        #[arg(long, default_value = "trestle")]
        name: String,
        /// Where the service account is
        #[arg(long, default_value = "trestle")]
        namespace: String,
    },
}

pub async fn run(
    command: KubernetesCommand,
    output: Format,
    connection: ConnectionArgs,
) -> anyhow::Result<()> {
    match command {
        KubernetesCommand::Status => during("Reading", status(output, connection.connect().await?)).await,
        KubernetesCommand::Rbac { name, namespace } => {
            // JSON is YAML.
            let documents = kubernetes::rbac::documents(&name, &namespace);
            print(
                &documents.iter().map(|document| format!("{document:#}")).collect::<Vec<_>>().join("\n---\n"),
            )
        }
    }
}

async fn status(output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut kubernetes = KubernetesClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    let clusters = kubernetes.list_clusters(ListClustersRequest {}).await?.into_inner().clusters;
    if output != Format::Table {
        return output.data(&clusters);
    }
    if clusters.is_empty() {
        return print("No cluster is read: trestle up --kubernetes NAME[=KUBECONFIG]");
    }
    print(clusters.iter().map(told).collect::<Vec<_>>().join("\n\n").trim_end())
}

fn told(cluster: &ClusterInfo) -> String {
    let ClusterInfo { name, server, version, known, trouble, kinds } = cluster;
    let failed = kinds.iter().any(|kind| kind.state == "failed") || !trouble.is_empty();
    let (word, tone) = match (known, failed) {
        (true, false) => ("in sync", Tone::Good),
        (true, true) => ("what is known stays in force; not all that changes is heard", Tone::Bad),
        (false, _) => ("not known as a whole yet: nodes are told nothing", Tone::Bad),
    };
    let place = [server, version]
        .into_iter()
        .filter(|text| !text.is_empty())
        .cloned()
        .collect::<Vec<_>>()
        .join("   ");
    let mut text = format!("{name}   {}   {place}\n", paint(word, tone));
    if !trouble.is_empty() {
        let _ = writeln!(text, "  {} {trouble}", paint("!", Tone::Bad));
    }
    for kind in kinds {
        let objects = if kind.known && kind.state != "not installed" {
            kind.objects.to_string()
        } else {
            String::new()
        };
        let _ = write!(
            text,
            "\n  {:<26} {:>8}  {:<13} since {}",
            kind.kind,
            objects,
            kind.state,
            time_text(kind.since)
        );
        if !kind.message.is_empty() {
            let _ = write!(text, "\n    {}", paint(&kind.message, Tone::Bad));
        }
    }
    text
}
