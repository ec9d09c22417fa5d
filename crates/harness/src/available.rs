use crate::Failure;
use std::io::Write;

/// What was started, or nothing where the server cannot be had; use it through
/// [`require!`](crate::require).
///
/// # Panics
/// When the server was there and did not start; when it cannot be had and `CI` is `true`, because
/// there every test is expected to run.
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

/// Gives what was started; ends the test, saying so, where the server cannot be had.
///
/// Prints `SKIPPED server: reason`. With `CI=true` a server that cannot be had is a failure of the
/// test.
#[macro_export]
macro_rules! require {
    ($started:expr) => {
        match $crate::available($started) {
            Some(started) => started,
            None => return,
        }
    };
}
