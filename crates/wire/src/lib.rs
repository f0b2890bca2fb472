//! The wire: messages and services generated from `proto/`, and the only conversions between them and `model`.
//!
//! In: nothing but `proto/` at build time, and `shapes.rs` for what is also JSON. Out: one module per protobuf package, named as the package is.
//! Not here: what a message means (`model`), who may send it and what happens then (`server`).

pub mod access;
pub mod json;
pub mod namespaces;
pub mod node;
pub mod permit;
pub mod service;
pub mod tags;

/// `tagservicepb.TagService`: tags, in Paraglider's protocol.
pub mod tagservicepb {
    tonic::include_proto!("tagservicepb");
}

/// `invisinetspb.Controller` and `invisinetspb.CloudPlugin`: the orchestrator and its plugins, in Paraglider's protocol.
pub mod invisinetspb {
    tonic::include_proto!("invisinetspb");
}

/// `paragliderpb.Controller` and `paragliderpb.CloudPlugin`: the same, as Paraglider of today has them.
pub mod paragliderpb {
    tonic::include_proto!("paragliderpb");
}

/// What revisions of Paraglider's protocol between the two have under the first one's names.
pub mod revisions {
    pub mod second {
        include!(concat!(env!("OUT_DIR"), "/second/invisinetspb.rs"));
    }
    pub mod third {
        include!(concat!(env!("OUT_DIR"), "/third/invisinetspb.rs"));
    }
}

/// `pb.DataplaneEvents`: the node stream, in Azure NPM's protocol.
pub mod pb {
    tonic::include_proto!("pb");
}

/// `protos.DataplaneEvents`: the same stream as Azure NPM's later clients have it.
pub mod protos {
    tonic::include_proto!("protos");
}

/// `observer.Observer`: flows, for Hubble's clients.
#[allow(clippy::large_enum_variant, reason = "the messages are as their protocol has them")]
pub mod observer {
    tonic::include_proto!("observer");
}

/// What `observer` tells: flows and filters.
pub mod flow {
    tonic::include_proto!("flow");
}

/// What `observer` tells of nodes.
pub mod relay {
    tonic::include_proto!("relay");
}

/// `localv1.Sets`: services as one node sees them, on KPNG's wire.
pub mod localv1 {
    tonic::include_proto!("localv1");
}

/// `provider.OCSProvider`: storage for other clusters, in OCS's protocol.
pub mod provider {
    tonic::include_proto!("provider");
}

/// The same service with capacities as the bytes that came: a Quantity message or plain text.
pub mod provider_raw {
    include!(concat!(env!("OUT_DIR"), "/raw/provider.rs"));
}

/// The Kubernetes message that `provider` refers to, at the path the generated code expects.
pub mod k8s {
    pub mod io {
        pub mod apimachinery {
            pub mod pkg {
                pub mod api {
                    pub mod resource {
                        tonic::include_proto!("k8s.io.apimachinery.pkg.api.resource");
                    }
                }
            }
        }
    }
}

/// Trestle's own services.
pub mod trestle {
    pub mod v1 {
        tonic::include_proto!("trestle.v1");
    }
}

/// Every file of `proto/` as an encoded `FileDescriptorSet`, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
