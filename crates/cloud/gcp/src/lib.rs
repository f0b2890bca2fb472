//! The Google Cloud plugin: Compute Engine's networks, instances, firewalls and HA VPN.
//!
//! In: calls of the `Cloud` contract. Out: Compute Engine requests. Holds: nothing but locks; what is there is read
//! every time, and recognised by name and description. Not here: HTTP, credentials, retries (`cloud-http`).
//!
//! ```text
//!   network     one VPC per site, with a firewall that lets nothing out; one subnet per region
//!   resource    instance with a network tag of its own
//!   endpoint    reserved address and forwarding rule; closed at the senders ([`endpoints`])
//!   permit list firewalls for that tag, one per entry (more if it has more than 256 targets)
//!   peering     within a site nothing; between sites a VPC peering, and a disabled firewall that remembers who asked
//!   NAT         router with a NAT, per region
//!   gateway     HA VPN gateway and router
//!   link        external gateway, a tunnel per address, interfaces and BGP peers on the router
//! ```

mod api;
mod cloud;
mod connections;
mod description;
pub mod endpoints;
mod gateway;
mod kinds;
mod lists;
mod names;
mod networks;
mod peerings;
mod resources;
pub mod rules;

pub use api::GcpOptions;
pub use cloud::GcpCloud;
