//! The few messages of CRI (`runtime.v1`) that are spoken here, with the fields that are read. The rest of each is skipped by its tags.

use std::collections::HashMap;

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct ListSandboxes {
    #[prost(message, optional, tag = "1")]
    pub filter: Option<Filter>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Filter {
    #[prost(message, optional, tag = "2")]
    pub state: Option<State>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct State {
    /// Zero: it is ready.
    #[prost(int32, tag = "1")]
    pub ready: i32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sandboxes {
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<Sandbox>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sandbox {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Metadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct StatusRequest {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(bool, tag = "2")]
    pub verbose: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct SandboxStatusReply {
    #[prost(message, optional, tag = "1")]
    pub status: Option<SandboxStatus>,
    /// JSON, as each runtime likes; containerd and CRI-O have `runtimeSpec` in `info`.
    #[prost(map = "string, string", tag = "2")]
    pub info: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SandboxStatus {
    #[prost(message, optional, tag = "5")]
    pub network: Option<Network>,
    #[prost(message, optional, tag = "6")]
    pub linux: Option<Linux>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Network {
    #[prost(string, tag = "1")]
    pub address: String,
    #[prost(message, repeated, tag = "2")]
    pub more: Vec<Address>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Address {
    #[prost(string, tag = "1")]
    pub address: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Linux {
    #[prost(message, optional, tag = "1")]
    pub namespaces: Option<Namespaces>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Namespaces {
    #[prost(message, optional, tag = "2")]
    pub options: Option<Options>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Options {
    /// Two: the node's.
    #[prost(int32, tag = "1")]
    pub network: i32,
}
