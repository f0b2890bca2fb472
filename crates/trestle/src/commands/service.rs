//! `trestle service`.

use anyhow::{Context as _, bail};
use clap::Subcommand;
use wire::trestle::v1::{
    ExplainServiceRequest, ExplainServiceResponse, GetServiceRequest, ListServicesRequest,
    ServiceEndpointState, ServiceState, explain_service_response::Outcome, services_client::ServicesClient,
};

use crate::{
    client::{Connection, MAX_MESSAGE},
    output::{Format, Rows},
};

#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  trestle apply -f docs/examples/services.yaml
  trestle service list
  trestle service get shop/web
  trestle service explain 10.96.0.10:80 --node node-1")]
pub enum ServiceCommand {
    /// Services that nodes balance, with their addresses and how many endpoints are ready
    List {
        /// Only this namespace (default: all)
        #[arg(short, long)]
        namespace: Option<String>,
    },
    /// One service with its endpoints
    Get {
        name: String,
        #[arg(short, long, default_value = "default")]
        namespace: String,
    },
    /// Where a packet to a service goes from a node, and why
    Explain(ExplainArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  trestle service explain 10.96.0.10:53 --proto udp
  trestle service explain 10.96.0.10:80 --node node-1 --pods 10.244.0.0/16
  trestle service explain 192.168.0.2:30080 --node node-1 --from 203.0.113.7
  trestle service explain [fd00::10]:80 --plane ipvs")]
pub struct ExplainArgs {
    /// Address and port of a service, or of a node for its node ports
    #[arg(value_name = "ADDRESS:PORT")]
    to: String,
    /// tcp, udp or sctp
    #[arg(long, visible_alias = "protocol", default_value = "tcp")]
    proto: String,
    /// The node that the packet passes (default: one without endpoints, in no zone)
    #[arg(long)]
    node: Option<String>,
    /// Address of the sender (default: a Pod)
    #[arg(long, value_name = "ADDRESS")]
    from: Option<String>,
    /// nftables or ipvs, as the node's agent runs with
    #[arg(long, default_value = "nftables")]
    plane: String,
    /// Addresses of Pods, as the node's agent was told; may be given several times
    #[arg(long, value_name = "PREFIX")]
    pods: Vec<String>,
    /// Addresses out of which services get theirs, as the node's agent was told; may be given several times
    #[arg(long, value_name = "PREFIX")]
    service_prefix: Vec<String>,
    /// Addresses that the node's agent leaves alone; may be given several times
    #[arg(long, value_name = "PREFIX")]
    exclude: Vec<String>,
    /// The node's agent hides the source of all traffic to cluster addresses
    #[arg(long)]
    masquerade_all: bool,
    /// The node's agent does not serve external addresses that services claim
    #[arg(long)]
    refuse_external_ips: bool,
}

pub async fn run(command: ServiceCommand, output: Format, connection: Connection) -> anyhow::Result<()> {
    let mut services = ServicesClient::new(connection).max_decoding_message_size(MAX_MESSAGE);
    match command {
        ServiceCommand::List { namespace } => {
            let request = ListServicesRequest { namespace: namespace.unwrap_or_default() };
            let reply = services.list_services(request).await?.into_inner();
            output.list(&reply.services)
        }
        ServiceCommand::Get { name, namespace } => {
            let service = services.get_service(GetServiceRequest { namespace, name }).await?.into_inner();
            if !output.is_for_people() {
                return output.data(&service);
            }
            output.one(&service)?;
            output.list(&service.endpoints)
        }
        ServiceCommand::Explain(args) => {
            let reply = services.explain_service(args.request()?).await?.into_inner();
            output.done(&text(&reply), &reply)
        }
    }
}

impl ExplainArgs {
    fn request(self) -> anyhow::Result<ExplainServiceRequest> {
        let (address, port) = self.to.rsplit_once(':').context("give ADDRESS:PORT, as in 10.96.0.10:80")?;
        let address = address.trim_start_matches('[').trim_end_matches(']');
        if address.is_empty() {
            bail!("give ADDRESS:PORT, as in 10.96.0.10:80");
        }
        Ok(ExplainServiceRequest {
            address: address.to_owned(),
            port: port.parse().with_context(|| format!("{port:?} is not a port"))?,
            protocol: self.proto,
            node: self.node.unwrap_or_default(),
            from: self.from.unwrap_or_default(),
            plane: self.plane,
            pod_prefixes: self.pods,
            service_prefixes: self.service_prefix,
            exclude: self.exclude,
            masquerade_all: self.masquerade_all,
            refuse_external_ips: self.refuse_external_ips,
        })
    }
}

impl Rows for ServiceState {
    const HEADER: &'static [&'static str] =
        &["namespace", "name", "type", "cluster address", "other addresses", "ports", "ready", "traits"];

    fn row(&self) -> Vec<String> {
        let others: Vec<_> = self.external_ips.iter().chain(&self.load_balancers).cloned().collect();
        let ports = self.ports.iter().map(|port| match port.node_port {
            0 => format!("{}/{}", port.port, port.protocol),
            node_port => format!("{}:{node_port}/{}", port.port, port.protocol),
        });
        let source = if self.from_pods { " Pods" } else { "" };
        vec![
            self.namespace.clone(),
            self.name.clone(),
            self.r#type.clone(),
            self.cluster_ips.join(","),
            others.join(","),
            ports.collect::<Vec<_>>().join(","),
            format!("{}/{}{source}", self.ready, self.total),
            self.traits.join("; "),
        ]
    }
}

impl Rows for ServiceEndpointState {
    const HEADER: &'static [&'static str] = &["endpoint", "port", "node", "state", "hints", "slice"];

    fn row(&self) -> Vec<String> {
        let state = match (self.ready, self.serving, self.terminating) {
            (true, _, false) => "ready",
            (true, _, true) => "published, terminating",
            (false, true, true) => "terminating, serving",
            (false, false, true) => "terminating",
            (false, _, false) => "not ready",
        };
        vec![
            self.endpoint.clone(),
            self.port_name.clone(),
            self.node.clone(),
            state.to_owned(),
            self.hints.join(", "),
            self.slice.clone(),
        ]
    }
}

fn text(reply: &ExplainServiceResponse) -> String {
    let mut lines = vec![match reply.outcome() {
        Outcome::Balanced => format!("balanced to {}", reply.endpoints.join(", ")),
        outcome => outcome.word().to_owned(),
    }];
    lines.extend(reply.reasons.iter().map(|reason| format!("  {reason}")));
    if !reply.judged.is_empty() {
        lines.push("endpoints:".to_owned());
    }
    for one in &reply.judged {
        let mark = if one.used { "*" } else { " " };
        let node = if one.node.is_empty() { "-" } else { &one.node };
        lines.push(format!("  {mark} {:<24} {node:<16} {}", one.endpoint, one.reason));
    }
    lines.join("\n")
}
