//! The AWS plugin: EC2's VPCs, instances, security groups and site-to-site VPN.
//!
//! In: calls of the `Cloud` contract. Out: EC2 requests. Holds: nothing but locks; what is there is read from EC2 every
//! time and recognised by tags. Not here: HTTP, retries (`cloud-http`).
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
//!
//! To read it: `kinds` and `shapes` are what EC2 has and says, as tables; `account` finds, makes, waits for and ends any of
//! it; a module per line above says what of it a site needs; `cloud` is the contract, call by call.

mod account;
mod adopt;
mod attach;
mod attachments;
mod cloud;
mod connections;
mod credentials;
mod description;
mod ec2;
mod groups;
mod kinds;
mod lists;
mod marks;
mod nat;
mod networks;
mod peerings;
mod resources;
mod routes;
pub mod rules;
mod shapes;
mod sites;
mod subnets;
mod transit;

pub use cloud::AwsCloud;
pub use ec2::AwsOptions;
