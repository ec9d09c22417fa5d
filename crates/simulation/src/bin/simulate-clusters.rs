//! Simulates many seeds; exits with 1 for a broken promise.

use std::process::ExitCode;

use tenure_simulation::driven::clusters::Clusters;
use tenure_simulation::kernel;

fn main() -> ExitCode {
    kernel::main::<Clusters>()
}
