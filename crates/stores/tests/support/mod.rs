//! Servers that the cases of the suite share.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use tenure::store::Fault;
use tenure::{Backend, Timing};
use tenure_conformance::suite::Subject;
use tenure_harness::{Failure, Skipped, Version};
use tenure_stores::{OpenError, OpenOptions};

use crate::faults::Servers;

/// Servers that live as long as the test program, and their URL.
pub(crate) struct Shared {
    name: &'static str,
    pub(crate) url: String,
    ttl: Duration,
}

impl Shared {
    /// Servers that were started outside of the tests.
    #[allow(dead_code, reason = "only some servers may be somebody else's")]
    pub(crate) fn elsewhere(name: &'static str, url: String) -> Shared {
        Shared { name, url, ttl: Duration::from_secs(2) }
    }

    /// Their URL.
    #[allow(dead_code, reason = "only some servers have feeds")]
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

/// Starts servers on a thread that keeps them until the program ends.
///
/// Returns the reason if they cannot be started here.
pub(crate) fn keep<S: Servers + 'static>(
    name: &'static str,
    count: usize,
) -> Result<Shared, Skipped> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime can be started");
        match runtime.block_on(S::start(count, Version::Newest)) {
            Ok(servers) => {
                let url = S::url(&servers.addresses(), "suite");
                let _ = tell.send(Ok(Shared { name, url, ttl: S::TTL }));
                // Never dropped: the kernel ends them with this program, and their logs stay until
                // then.
                loop {
                    std::thread::park();
                }
            }
            Err(failure) => {
                let _ = tell.send(Err(failure));
            }
        }
    });
    match told.recv().expect("the thread answers") {
        Ok(shared) => Ok(shared),
        Err(Failure::Skipped(skipped)) => Err(skipped),
        Err(failure) => panic!("{failure}"),
    }
}

#[async_trait::async_trait]
impl Subject for &'static Shared {
    fn name(&self) -> &str {
        self.name
    }

    async fn open(&self) -> Backend {
        // Many cases run at once on few cores, and none of them is about slow answers.
        open(&self.url, Duration::from_secs(20)).await
    }

    fn timing(&self) -> Timing {
        Timing::new(self.ttl).expect("seconds leave room for every part")
    }
}

/// Makes the suite's cases tests on shared servers.
macro_rules! suite {
    ($servers:expr) => {
        tenure_conformance::conformance!(match $servers {
            Ok(shared) => shared,
            Err(skipped) => {
                tenure_harness::available::<()>(Err(skipped.clone().into()));
                return;
            }
        });
    };
}
pub(crate) use suite;

/// Makes the cases of the cluster's suite tests on shared servers.
#[allow(unused_macros, reason = "not every store's tests share work")]
macro_rules! cluster_suite {
    ($servers:expr) => {
        tenure_conformance::cluster_conformance!(match $servers {
            Ok(shared) => shared,
            Err(skipped) => {
                tenure_harness::available::<()>(Err(skipped.clone().into()));
                return;
            }
        });
    };
}
#[allow(unused_imports, reason = "the same")]
pub(crate) use cluster_suite;

/// A handle as a program of its own would have it.
pub(crate) async fn open(url: &str, request: Duration) -> Backend {
    open_with(url, &OpenOptions::default().with_request(request)).await
}

/// The same with options. Servers that just started on a busy machine are given a minute to answer
/// in time.
pub(crate) async fn open_with(url: &str, options: &OpenOptions) -> Backend {
    let began = Instant::now();
    loop {
        match tenure_stores::open(url, options).await {
            Ok(opened) => return opened.backend,
            Err(OpenError::Store(error))
                if error.fault == Fault::Unavailable && began.elapsed().as_secs() < 60 =>
            {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => panic!("{url} does not open: {}", chain(&error)),
        }
    }
}

/// An error with its causes.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source())
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(": ")
}
