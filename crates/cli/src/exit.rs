//! All exit codes, defined in one place.

use std::process::ExitCode;

use tenure::Error;
use tenure::feed::FeedError;
use tenure::store::{Fault, StoreError};
use tenure_cluster::ClusterError;
use tenure_stores::OpenError;

/// No leader, or not everything was done. Also: not elected in time; the election has ended or does
/// not exist.
pub(crate) const NOT_LED: u8 = 1;
/// The command line makes no sense.
pub(crate) const USAGE: u8 = 2;
/// The store did not say whether it was done.
pub(crate) const UNKNOWN: u8 = 4;
/// The store cannot be reached.
pub(crate) const UNREACHABLE: u8 = 69;
/// The end command failed for good: this machine may still act as leader.
pub(crate) const STUCK: u8 = 70;
/// Leadership was lost, and CMD stopped because of it.
pub(crate) const LOST: u8 = 75;
/// The store, or the operating system, does not allow it.
pub(crate) const DENIED: u8 = 77;
/// The settings, or the state of the store, are refused.
pub(crate) const REFUSED: u8 = 78;
/// tenure itself failed.
pub(crate) const FAILURE: u8 = 125;
/// CMD was found but cannot be run.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// CMD was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// For the help of `tenure`.
pub(crate) const ALL: &str = "\
Exit codes:
    0  success
    1  nobody leads, not elected in time, the election has ended; or not everything was done
    2  the command line makes no sense
    4  unknown: the store did not say whether it was done
   69  the store cannot be reached
   70  the end command failed for good: this machine may still act as leader
   75  leadership was lost, and CMD was stopped because of it
   77  not allowed
   78  the settings, or what is in the store, are refused: also a configuration that others may change,
       another recorded node prefix, or a token that fell
  125  tenure itself failed, or work of an earlier leader still runs
  126  CMD cannot be run
  127  CMD was not found
    *  `run` exits as CMD did; 128 + n if signal n ended it, or interrupted `share`";

/// A failure with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) error: anyhow::Error,
}

/// The result of a command: an exit code, or a failure to report.
pub(crate) type Ending = Result<ExitCode, Failure>;

impl Failure {
    pub(crate) fn new(code: u8, error: impl Into<anyhow::Error>) -> Failure {
        Failure { code, error: error.into() }
    }

    /// Returns true if the reader of our standard output closed it.
    pub(crate) fn is_closed_output(&self) -> bool {
        let error = self.error.downcast_ref::<std::io::Error>();
        error.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(of_error(&error), error)
    }
}

impl From<ClusterError> for Failure {
    fn from(error: ClusterError) -> Failure {
        Failure::new(of_cluster(&error), error)
    }
}

impl From<FeedError> for Failure {
    fn from(error: FeedError) -> Failure {
        Failure::new(of_feed(&error), error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Failure {
        Failure::new(of_fault(error.fault), error)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Failure {
        let code = match &error {
            OpenError::Url(_) => USAGE,
            OpenError::Store(error) => of_fault(error.fault),
            OpenError::NotBuiltIn { .. } | OpenError::NoHome => REFUSED,
            // The library may learn of new errors before the program does.
            _ => FAILURE,
        };
        Failure::new(code, error)
    }
}

/// Failures of tenure itself: it could not start a process, or write its output.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        Failure::new(FAILURE, error)
    }
}

fn of_error(error: &Error) -> u8 {
    match error {
        Error::Name(_) | Error::Candidate(_) => USAGE,
        Error::Store(error) => of_fault(error.fault),
        Error::Missing { .. } | Error::Ended { .. } => NOT_LED,
        Error::Refused(fault) => of_fault(*fault),
        Error::Lost(_) => LOST,
        Error::Contended { .. } => UNREACHABLE,
        Error::Finished | Error::Stopped => FAILURE,
        Error::Timing(_)
        | Error::Record { .. }
        | Error::Nested { .. }
        | Error::Protocol { .. }
        | Error::Occupied { .. }
        | Error::Regressed { .. }
        | Error::Vanished
        | Error::Exhausted => REFUSED,
        // The library may learn of new errors before the program does.
        _ => FAILURE,
    }
}

fn of_cluster(error: &ClusterError) -> u8 {
    match error {
        ClusterError::Name(_) | ClusterError::Order { .. } | ClusterError::InputTwice { .. } => {
            USAGE
        }
        ClusterError::Store(error) => of_fault(error.fault),
        ClusterError::Election(error) => of_error(error),
        ClusterError::PartlyAccepted { source, .. } => of_cluster(source),
        ClusterError::Contended { .. } => UNREACHABLE,
        ClusterError::Overtaken { .. } => UNKNOWN,
        ClusterError::Document { .. }
        | ClusterError::Full { .. }
        | ClusterError::Vanished
        | ClusterError::Exhausted => REFUSED,
        ClusterError::Stopped => FAILURE,
        // The library may learn of new errors before the program does.
        _ => FAILURE,
    }
}

fn of_feed(error: &FeedError) -> u8 {
    match error {
        FeedError::Election(error) => of_error(error),
        FeedError::Table(_) => USAGE,
        FeedError::Intervals(_) | FeedError::NoFeed => REFUSED,
        FeedError::NotStarted => FAILURE,
        // The library may learn of new errors before the program does.
        _ => FAILURE,
    }
}

fn of_fault(fault: Fault) -> u8 {
    match fault {
        Fault::Permanent => REFUSED,
        Fault::Denied => DENIED,
        Fault::Unavailable => UNREACHABLE,
        Fault::Indeterminate => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_election_that_cannot_be_had_as_it_stands_is_refused_with_78() {
        let name: tenure::Name = "a/b".parse().expect("a good name");
        let (recorded, wanted) = (tenure::Protocol::Queue, tenure::Protocol::Lease);
        let other = Error::Protocol { name: name.clone(), recorded, wanted };
        assert_eq!(of_error(&other), 78);
        assert_eq!(of_error(&Error::Occupied { name, who: "host-a".into() }), 78);
    }
}
