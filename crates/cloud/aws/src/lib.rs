//! The AWS plugin: EC2's VPCs, instances, security groups and site-to-site VPN.
//!
//! In: calls of the `Cloud` contract. Out: EC2 requests. Holds: nothing but locks; what is there is read from EC2 every
//! time and recognised by tags. Not here: HTTP, credentials, retries (`cloud-http`).
//!
//! ```text
//!   network     VPC, a subnet for resources per zone; main route table
//!   resource    instance + its own security group, closed before the instance exists
//!   attached    an existing instance in an existing VPC (adopted): its groups make way for one of ours
//!   permit list rules of that group, and of further ones when they are many; entry names and tags in the rules' descriptions
//!   peering     VPC peering connection + one route per side
//!   NAT         internet gateway, public subnet and table, Elastic IP, NAT gateway, default route
//!   gateway     transit gateway (the hub); in further regions another one (a spoke) peered with it
//!   link        customer gateway per peer address, VPN connection per customer gateway, two tunnels each
//! ```

mod adopt;
mod api;
mod attach;
mod cloud;
mod connections;
mod description;
mod gateway;
mod groups;
mod lists;
mod marks;
mod nat;
mod networks;
mod peerings;
mod resources;
pub mod rules;
mod subnets;
mod xml;

pub use api::AwsOptions;
pub use cloud::AwsCloud;
