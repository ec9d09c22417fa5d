//! Simulates many seeds; exits with 1 for a broken promise.

use std::process::ExitCode;

use tenure_simulation::kernel;
use tenure_simulation::leader::Leaders;

fn main() -> ExitCode {
    kernel::main::<Leaders>()
}
