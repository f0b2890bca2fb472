//! `trestle rule`.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::Subcommand;
use model::{Direction, PermitRule, Ports, Protocol};
use serde::Deserialize;
use wire::{
    invisinetspb::{self, PermitListRule},
    trestle::v1::{
        DeleteRulesRequest, PutRulesRequest, ResourceRequest, RuleHolder, RuleInfo, RuleScope,
        orchestrator_client::OrchestratorClient, rule_holder::Holder, rule_scope::Scope,
    },
};

use super::{
    enforcement::{Changes, WaitArgs},
    job::{ChangeArgs, finish, said},
    resource,
};
use crate::{
    client::ConnectionArgs,
    output::{Format, Rows},
    progress::during,
};

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  trestle rule add a.web --ping b.db
  trestle rule add a.web --in --protocol tcp --port 80 --peer clients
  trestle rule add --tag web --ssh 198.51.100.0/24 --wait
  trestle rule list                                   all that is in force in this namespace, and from where
  trestle rule list a.web
  trestle rule list a.web --own -o json > rules.json
  trestle rule delete a.web --rule ping-in-default-b-db")]
pub enum RuleCommand {
    /// Permit traffic; a rule of the same name is replaced
    Add(Box<AddArgs>),
    /// What is in force and from where: at one resource, by one tag, or everywhere in the current namespace
    List(ListArgs),
    /// Delete rules
    Delete {
        #[command(flatten)]
        on: OnArgs,
        /// Names of rules
        #[arg(long = "rule", visible_alias = "rules", value_delimiter = ',', required = true)]
        rules: Vec<String>,
        #[command(flatten)]
        change: ChangeArgs,
        #[command(flatten)]
        wait: WaitArgs,
    },
}

/// Whose rules.
#[derive(Clone, Debug, clap::Args)]
pub struct OnArgs {
    /// A resource: CLOUD.NAME or NAMESPACE.CLOUD.NAME
    #[arg(required_unless_present = "tag", conflicts_with = "tag")]
    pub resource: Option<String>,
    /// A tag, instead of a resource: everything in it has the rules
    #[arg(long)]
    pub tag: Option<String>,
}

#[derive(Clone, Debug, clap::Args)]
pub struct ListArgs {
    /// At this resource: its rules, those of the tags it is in, what policies and permissions give it
    #[arg(conflicts_with_all = ["tag", "all"])]
    resource: Option<String>,
    /// The rules on this tag, with the resources that have them
    #[arg(long, conflicts_with = "all")]
    tag: Option<String>,
    /// In all namespaces
    #[arg(short = 'A', long, visible_alias = "all-namespaces")]
    all: bool,
    /// Only the rules that are written on the resource or tag, in the form that `rule add --file` reads
    #[arg(long, conflicts_with = "all")]
    own: bool,
}

#[derive(Clone, Debug, clap::Args)]
pub struct AddArgs {
    #[command(flatten)]
    wait: WaitArgs,
    #[command(flatten)]
    on: OnArgs,
    /// Permit ping with this peer, both ways
    #[arg(long, value_name = "PEER")]
    ping: Option<String>,
    /// Permit SSH from this peer
    #[arg(long, value_name = "PEER")]
    ssh: Option<String>,
    /// JSON or YAML file with a list of rules
    #[arg(long, value_name = "FILE", visible_alias = "rulefile")]
    file: Option<PathBuf>,
    /// Tags, resources, addresses or prefixes to permit
    #[arg(long, value_name = "PEER", value_delimiter = ',')]
    peer: Vec<String>,
    /// The rule's name (default: made from its content)
    #[arg(long)]
    name: Option<String>,
    /// Traffic that the peer starts (default)
    #[arg(long = "in", conflicts_with = "outbound")]
    inbound: bool,
    /// Traffic that the resource starts
    #[arg(long = "out")]
    outbound: bool,
    /// any, icmp, tcp, udp, … or an IANA number
    #[arg(long, default_value = "any")]
    protocol: Protocol,
    /// Destination port or range, e.g. 80 or 8000-8010
    #[arg(long, default_value = "any")]
    port: Ports,
    /// Source port or range
    #[arg(long, default_value = "any")]
    src_port: Ports,
    /// Build a link to another cloud for it now, whether or not the other end permits anything
    #[arg(long)]
    build: bool,
    #[command(flatten)]
    change: ChangeArgs,
}

/// A rule as files have it: the keys of the REST API.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct FileRule {
    name: String,
    direction: i32,
    src_port: i32,
    dst_port: i32,
    src_port_last: i32,
    dst_port_last: i32,
    protocol: i32,
    tags: Vec<String>,
    targets: Vec<String>,
}

impl Default for FileRule {
    fn default() -> Self {
        Self {
            name: String::new(),
            direction: 0,
            src_port: -1,
            dst_port: -1,
            src_port_last: 0,
            dst_port_last: 0,
            protocol: -1,
            tags: Vec::new(),
            targets: Vec::new(),
        }
    }
}

impl From<FileRule> for PermitListRule {
    fn from(rule: FileRule) -> Self {
        Self {
            id: rule.name,
            // What a rule permits is what its tags resolve to.
            targets: Vec::new(),
            direction: rule.direction,
            src_port: rule.src_port,
            dst_port: rule.dst_port,
            protocol: rule.protocol,
            tags: rule.tags,
            src_port_last: rule.src_port_last,
            dst_port_last: rule.dst_port_last,
        }
    }
}

impl ListArgs {
    fn scope(&self) -> anyhow::Result<RuleScope> {
        let scope = match (&self.resource, &self.tag, self.all) {
            (Some(name), ..) => Some(Scope::Resource(resource::full(name)?)),
            (None, Some(tag), _) => Some(Scope::Tag(tag.clone())),
            (None, None, true) => None,
            (None, None, false) => Some(Scope::Namespace(resource::namespace()?)),
        };
        Ok(RuleScope { scope })
    }
}

fn holder(on: &OnArgs) -> anyhow::Result<(RuleHolder, String)> {
    Ok(match (&on.resource, &on.tag) {
        (Some(name), _) => {
            let name = resource::full(name)?;
            (RuleHolder { holder: Some(Holder::Resource(name.clone())) }, name)
        }
        (None, Some(tag)) => (RuleHolder { holder: Some(Holder::Tag(tag.clone())) }, tag.clone()),
        (None, None) => bail!("name a resource, or a tag with --tag"),
    })
}

pub async fn run(command: RuleCommand, output: Format, connection: ConnectionArgs) -> anyhow::Result<()> {
    let connection = connection.connect().await?;
    let mut client = OrchestratorClient::new(connection.clone());
    match command {
        RuleCommand::Add(args) => {
            args.wait.check(args.change.detach || args.change.dry_run)?;
            let (on, name) = holder(&args.on)?;
            let rules = rules(&args)?;
            let (dry_run, build) = (args.change.dry_run, args.build);
            let request = PutRulesRequest { on: Some(on), rules, dry_run, build };
            let mut changes = Changes::default();
            let outcome = changes.of(client.put_rules(request).await?);
            if finish(outcome, &args.change, output, &connection).await? {
                said(output, &format!("Added rules to: {name}"), &name)?;
                tell_halves(&mut client, &args.on, name, output).await?;
                during("Waiting", args.wait.until_in_force(&connection, changes, output)).await?;
            }
            Ok(())
        }
        RuleCommand::List(ListArgs { resource, tag, own: true, .. }) => {
            let rules = client.list_rules(holder(&OnArgs { resource, tag })?.0).await?.into_inner().rules;
            output.list(&rules)
        }
        RuleCommand::List(args) => {
            let rules = client.list_rules_in_force(args.scope()?).await?.into_inner().rules;
            output.list(&rules)
        }
        RuleCommand::Delete { on, rules, change, wait } => {
            wait.check(change.detach || change.dry_run)?;
            let (on, name) = holder(&on)?;
            let request = DeleteRulesRequest { on: Some(on), names: rules, dry_run: change.dry_run };
            let mut changes = Changes::default();
            let outcome = changes.of(client.delete_rules(request).await?);
            if finish(outcome, &change, output, &connection).await? {
                said(output, &format!("Deleted rules of: {name}"), &name)?;
                during("Waiting", wait.until_in_force(&connection, changes, output)).await?;
            }
            Ok(())
        }
    }
}

/// Says what the other ends do not permit yet. Of a tag it is the resources that say it.
async fn tell_halves(
    client: &mut OrchestratorClient<crate::client::Connection>,
    on: &OnArgs,
    name: String,
    output: Format,
) -> anyhow::Result<()> {
    if on.resource.is_some() {
        let request = ResourceRequest { name, dry_run: false };
        resource::tell_notes(&client.get_resource(request).await?.into_inner(), output);
    }
    Ok(())
}

fn rules(args: &AddArgs) -> anyhow::Result<Vec<PermitListRule>> {
    let mut rules = Vec::new();
    if let Some(path) = &args.file {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let list: Vec<FileRule> = serde_saphyr::from_str(&text)
            .with_context(|| format!("{} is not a list of rules", path.display()))?;
        rules.extend(list.into_iter().map(PermitListRule::from));
    }
    if let Some(peer) = &args.ping {
        let peer = peer_name(peer)?;
        let suffix = suffix(&peer);
        let both = [("in", Direction::Inbound), ("out", Direction::Outbound)];
        let ping = |(way, direction)| {
            rule(format!("ping-{way}-{suffix}"), direction, Protocol::ICMP, Ports::Any, Ports::Any, &peer)
        };
        rules.extend(both.map(ping));
    }
    if let Some(peer) = &args.ssh {
        let peer = peer_name(peer)?;
        let name = format!("ssh-in-{}", suffix(&peer));
        rules.push(rule(name, Direction::Inbound, Protocol::TCP, Ports::Any, Ports::one(22), &peer));
    }
    if !args.peer.is_empty() {
        let direction = if args.outbound { Direction::Outbound } else { Direction::Inbound };
        let mut rule = rule(
            args.name.clone().unwrap_or_default(),
            direction,
            args.protocol,
            args.src_port,
            args.port,
            "",
        );
        rule.tags = args.peer.iter().map(|peer| peer_name(peer)).collect::<Result<_, _>>()?;
        rules.push(rule);
    }
    if rules.is_empty() {
        bail!("say what to permit: --ping, --ssh, --peer or --file");
    }
    Ok(rules)
}

/// A peer with one dot, `CLOUD.NAME`, is a resource of the current namespace; everything else is as written.
fn peer_name(peer: &str) -> anyhow::Result<String> {
    let is_address = peer.parse::<model::Address>().is_ok();
    if !is_address && peer.split('.').count() == 2 { resource::full(peer) } else { Ok(peer.to_owned()) }
}

fn suffix(peer: &str) -> String {
    peer.replace(['.', '/', ':'], "-")
}

fn rule(
    name: String,
    direction: Direction,
    protocol: Protocol,
    src: Ports,
    dst: Ports,
    peer: &str,
) -> PermitListRule {
    let ports = |ports: Ports| match ports {
        Ports::Any => (-1, 0),
        Ports::Range { first, last } => (i32::from(first), if first == last { 0 } else { i32::from(last) }),
    };
    let ((src_port, src_port_last), (dst_port, dst_port_last)) = (ports(src), ports(dst));
    PermitListRule {
        id: name,
        targets: Vec::new(),
        direction: match direction {
            Direction::Inbound => invisinetspb::Direction::Inbound.into(),
            Direction::Outbound => invisinetspb::Direction::Outbound.into(),
        },
        src_port,
        dst_port,
        protocol: match protocol {
            Protocol::Any => -1,
            Protocol::Number(number) => number.into(),
        },
        tags: vec![peer.to_owned()],
        src_port_last,
        dst_port_last,
    }
}

impl Rows for RuleInfo {
    const HEADER: &'static [&'static str] =
        &["from", "name", "direction", "protocol", "src", "dst", "peers", "state", "at", "why not"];

    fn row(&self) -> Vec<String> {
        let rule = self.rule.clone().unwrap_or_default();
        // What policies permit was written as no peer.
        let peers = if rule.tags.is_empty() { rule.targets.join(" ") } else { rule.tags.join(" ") };
        let [name, direction, protocol, src, dst, _] = cells(&rule);
        let at = match self.in_force.as_slice() {
            [one] => one.clone(),
            some => some.len().to_string(),
        };
        let (from, state, why) = (self.from.clone(), self.state.clone(), self.message.clone());
        vec![from, name, direction, protocol, src, dst, peers, state, at, why]
    }
}

impl Rows for PermitListRule {
    const HEADER: &'static [&'static str] = &["name", "direction", "protocol", "src", "dst", "peers"];

    fn row(&self) -> Vec<String> {
        cells(self).into()
    }
}

/// A rule in words.
fn cells(rule: &PermitListRule) -> [String; 6] {
    let [direction, protocol, src, dst] = match wire::permit::permit_rule(rule) {
        Ok(PermitRule { traffic, .. }) => [
            traffic.direction.to_string(),
            traffic.protocol.to_string(),
            traffic.src_ports.to_string(),
            traffic.dst_ports.to_string(),
        ],
        Err(_) => ["?"; 4].map(str::to_owned),
    };
    [rule.id.clone(), direction, protocol, src, dst, rule.tags.join(" ")]
}
