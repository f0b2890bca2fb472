//! Compiles `proto/` with a protobuf compiler written in Rust, so that `cargo build` needs no protoc.

use std::{env, fs, path::PathBuf};

use prost::Message as _;

const ROOT: &str = "../../proto";
const FILES: [&str; 10] = [
    "tagservicepb/tagservice.proto",
    "invisinetspb/invisinets.proto",
    "pb/transport.proto",
    "provider/provider.proto",
    "trestle/v1/access.proto",
    "trestle/v1/admin.proto",
    "trestle/v1/cloud.proto",
    "trestle/v1/namespaces.proto",
    "trestle/v1/orchestrator.proto",
    "trestle/v1/tags.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={ROOT}");
    let descriptors = protox::compile(FILES, [ROOT])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Kept for gRPC reflection and for the test that every method has an access rule.
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // No `connect` constructors: callers bring a channel, and the seed has a method of that name.
    tonic_prost_build::configure().build_transport(false).compile_fds(descriptors)?;
    Ok(())
}
