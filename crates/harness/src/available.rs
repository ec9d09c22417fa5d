use crate::Failure;
use std::io::Write;

/// The started server; none if it is not available. Use it through [`require!`](crate::require).
///
/// # Panics
/// When the server is installed but did not start. Also when it is not available and `CI` is
/// `true`, because there every test is expected to run.
#[track_caller]
pub fn available<T>(started: Result<T, Failure>) -> Option<T> {
    match started {
        Ok(started) => Some(started),
        Err(Failure::Skipped(skipped)) => {
            let required = std::env::var("CI").is_ok_and(|value| value == "true");
            assert!(!required, "required, since CI=true: {skipped}");
            // Not eprintln!, which the test runner would hide: a skip is never silent.
            let _ = writeln!(std::io::stderr(), "SKIPPED {skipped}");
            None
        }
        Err(failure) => panic!("{failure}"),
    }
}

/// Returns the started server, or skips the test if the server is not available.
///
/// A skipped test prints `SKIPPED server: reason`. With `CI=true` it fails instead.
#[macro_export]
macro_rules! require {
    ($started:expr) => {
        match $crate::available($started) {
            Some(started) => started,
            None => return,
        }
    };
}
