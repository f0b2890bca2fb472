//! Compiles the part of etcd's API that the store calls, without an installed protobuf compiler.

const ROOT: &str = "../../proto";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed={ROOT}/etcd");
    let descriptors = protox::compile(["etcd/kv.proto", "etcd/rpc.proto"], [ROOT])?;
    tonic_prost_build::configure()
        .build_transport(false)
        .build_server(false)
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
