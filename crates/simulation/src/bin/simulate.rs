//! Simulates many seeds; exits with 1 for a broken promise.

use std::process::ExitCode;

use tenure_simulation::kernel;
use tenure_simulation::lease::Leases;

fn main() -> ExitCode {
    kernel::main::<Leases>()
}
