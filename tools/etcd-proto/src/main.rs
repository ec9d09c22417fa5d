//! Generates the code of etcd's API from `etcd.proto`. No build of tenure needs protoc.
//!
//!     cargo run --manifest-path tools/etcd-proto/Cargo.toml

use std::error::Error;
use std::path::Path;
use std::process::Command;

fn main() -> Result<(), Box<dyn Error>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = here.join("../../crates/stores/src/etcd/proto.rs");
    let scratch = here.join("target/generated");
    std::fs::create_dir_all(&scratch)?;
    let files = protox::compile([here.join("etcd.proto")], [here])?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .bytes(".")
        .emit_rerun_if_changed(false)
        .out_dir(&scratch)
        .compile_fds(files)?;
    std::fs::copy(scratch.join("etcdserverpb.rs"), &target)?;
    let formatted = Command::new("rustfmt").args(["--edition", "2024"]).arg(&target).status()?;
    if !formatted.success() {
        return Err("rustfmt refuses what was generated".into());
    }
    println!("wrote {}", target.display());
    Ok(())
}
