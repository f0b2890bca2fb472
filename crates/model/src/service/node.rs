//! What the controller knows about a node that its proxy must know too.

use std::net::IpAddr;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    pub zone: Option<String>,
    /// Its own addresses, the first of each family first.
    pub addresses: Vec<IpAddr>,
    /// It is about to go: balancers outside should send nothing more.
    pub leaving: bool,
}
