//! Compiles CSI's protocol, without an installed protobuf compiler.

const ROOT: &str = "../../../proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={ROOT}/csi");
    let descriptors = protox::compile(["csi/csi.proto"], [ROOT])?;
    tonic_prost_build::configure().build_transport(false).btree_map(".").compile_fds(descriptors)?;
    Ok(())
}
