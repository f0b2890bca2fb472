//! `trestle host`.

use clap::Subcommand;
use wire::{
    json::time_text,
    trestle::v1::{GetHostRequest, HostInfo, ListHostsRequest, RemoveHostRequest, hosts_client::HostsClient},
};

use crate::{
    client::{Connection, MAX_MESSAGE},
    output::{Format, Rows},
};

#[derive(Debug, Subcommand)]
#[command(
    after_help = "A host joins with `trestle join`, run on it, and leaves with `trestle leave`; see docs/hosts.md. Rules name it by
its tag, host.NAME, or by the tags it joined with.

Examples:
  trestle host list
  trestle host get web-1
  trestle host remove web-1      it is nobody from now on, and cannot come back with the key it had"
)]
pub enum HostCommand {
    /// All hosts that have joined
    List,
    /// One host
    Get { name: String },
    /// Take a host's certificates, its tag and its record away, at once
    #[command(visible_alias = "delete")]
    Remove { name: String },
}

pub async fn run(command: HostCommand, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut hosts = HostsClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    match command {
        HostCommand::List => {
            let reply = hosts.list_hosts(ListHostsRequest {}).await?.into_inner();
            output.list(&reply.hosts)
        }
        HostCommand::Get { name } => output.one(&hosts.get_host(GetHostRequest { name }).await?.into_inner()),
        HostCommand::Remove { name } => {
            let reply = hosts.remove_host(RemoveHostRequest { name: name.clone() }).await?.into_inner();
            let notice = if reply.notice.is_empty() { String::new() } else { format!("\n{}", reply.notice) };
            let data = serde_json::json!({ "name": name, "notice": reply.notice });
            output.done(&format!("Removed host: {name}{notice}"), &data)
        }
    }
}

impl Rows for HostInfo {
    const HEADER: &'static [&'static str] =
        &["name", "tags", "labels", "addresses", "joined", "by", "certificate until"];

    fn row(&self) -> Vec<String> {
        let labels: Vec<_> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        vec![
            self.name.clone(),
            self.tags.join(" "),
            labels.join(" "),
            self.addresses.join(" "),
            time_text(self.joined_at),
            self.joined_by.clone(),
            time_text(self.certificate_until),
        ]
    }
}
