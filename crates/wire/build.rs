//! Compiles `proto/` with a protobuf compiler written in Rust, so that `cargo build` needs no protoc.

mod shapes;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use prost::Message as _;
use prost_types::{
    FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};

const ROOT: &str = "../../proto";
const FILES: &[&str] = &[
    "flow/flow.proto",
    "observer/observer.proto",
    "relay/relay.proto",
    "tagservicepb/tagservice.proto",
    "invisinetspb/invisinets.proto",
    "localv1/sets.proto",
    "paragliderpb/paraglider.proto",
    "pb/transport.proto",
    "protos/transport.proto",
    "provider/provider.proto",
    "trestle/v1/access.proto",
    "trestle/v1/admin.proto",
    "trestle/v1/cloud.proto",
    "trestle/v1/enforcement.proto",
    "trestle/v1/flows.proto",
    "trestle/v1/hosts.proto",
    "trestle/v1/kubernetes.proto",
    "trestle/v1/namespaces.proto",
    "trestle/v1/node.proto",
    "trestle/v1/orchestrator.proto",
    "trestle/v1/objects.proto",
    "trestle/v1/permissions.proto",
    "trestle/v1/policies.proto",
    "trestle/v1/services.proto",
    "trestle/v1/storage.proto",
    "trestle/v1/tags.proto",
];

const REVISIONS: &[&str] = &["second", "third"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={ROOT}");
    let descriptors = protox::compile(FILES, [ROOT])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Kept for gRPC reflection and for the test that every method has an access rule.
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // No `connect` constructors: callers bring a channel, and Azure NPM's service has a method of that name.
    shapes::shaped(tonic_prost_build::configure())
        .build_transport(false)
        // JSON in one order.
        .btree_map(".trestle.v1")
        // The largest body by far; all others stay small.
        .boxed("trestle.v1.NodeApply.body.service")
        .compile_fds(descriptors)?;
    compile_revisions(&out)?;
    compile_raw_provider(protox::compile(["provider/provider.proto"], [ROOT])?, &out)
}

/// What later revisions of Paraglider's protocol have under the first one's names, each in a module of its own.
fn compile_revisions(out: &Path) -> Result<(), Box<dyn std::error::Error>> {
    for revision in REVISIONS {
        let descriptors = protox::compile(["invisinets.proto"], [format!("{ROOT}/revisions/{revision}")])?;
        let out = out.join(revision);
        fs::create_dir_all(&out)?;
        tonic_prost_build::configure().build_transport(false).out_dir(out).compile_fds(descriptors)?;
    }
    Ok(())
}

/// The provider's contract once more, with capacities as raw bytes: clients of the OCS design send a message there, those of
/// the first code plain text, and the server must tell which. Connection details are one document to the former and items
/// to later ones, in the same field.
fn compile_raw_provider(
    mut descriptors: FileDescriptorSet,
    out: &Path,
) -> Result<(), Box<dyn std::error::Error>> {
    descriptors.file.retain(|file| file.package() == "provider");
    for file in &mut descriptors.file {
        file.dependency.clear();
        for field in file.message_type.iter_mut().flat_map(|message| &mut message.field) {
            if field.type_name().ends_with(".Quantity") {
                field.type_name = None;
                field.set_type(Type::Bytes);
            }
            if field.name() == "data" {
                field.set_label(Label::Repeated);
            }
        }
    }
    let out = out.join("raw");
    fs::create_dir_all(&out)?;
    let codegen = tonic_prost_build::configure().build_transport(false).build_client(false);
    codegen.out_dir(out).compile_fds(descriptors)?;
    Ok(())
}
