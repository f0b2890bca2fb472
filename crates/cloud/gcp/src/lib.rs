//! The Google Cloud plugin: Compute Engine's networks, instances, firewalls and HA VPN, and Kubernetes clusters.
//!
//! In: calls of the `Cloud` contract. Out: requests to Compute Engine, and for clusters to GKE and Cloud DNS. Holds: nothing but locks; what is there is read
//! every time, and recognised by name and description. Not here: HTTP, credentials, retries (`cloud-http`).
//!
//! ```text
//!   network     one VPC per site, with a firewall that lets nothing out; one subnet per region; or an adopted VPC
//!   resource    instance with a network tag of its own; or an existing one, closed by two firewalls for a tag of ours
//!   endpoint    reserved address and forwarding rule; closed at the senders ([`endpoints`])
//!   cluster     GKE cluster in a subnet of its own, behind firewalls for a tag that its nodes have ([`clusters`])
//!   permit list firewalls for that tag, one per entry (more if it has more than 256 targets)
//!   peering     within a VPC nothing; between two a VPC peering, and a disabled firewall that remembers who asked
//!   NAT         router with a NAT, per network
//!   gateway     HA VPN gateway and router
//!   link        external gateway, a tunnel per address, interfaces and BGP peers on the router
//! ```

mod adopt;
mod advertise;
mod attach;
mod cloud;
mod clusters;
mod compute;
mod connections;
mod container;
mod described;
mod description;
mod dns;
pub mod endpoints;
mod gateway;
mod google;
mod ground;
mod instances;
mod kinds;
mod link;
mod listing;
mod lists;
mod mark;
mod names;
mod nat;
mod networks;
mod peerings;
pub mod rules;
mod shapes;

pub use cloud::GcpCloud;
pub use google::GcpOptions;
