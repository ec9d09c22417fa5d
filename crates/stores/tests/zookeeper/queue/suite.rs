//! The whole suite, on queues: one server and three.

use std::sync::OnceLock;
use std::time::Duration;

use tenure::{Backend, Timing};
use tenure_conformance::suite::Subject;
use tenure_harness::{Failure, Skipped, Zookeeper};

use crate::world::{Program, options, url};

/// Servers that live as long as the test program.
struct Shared {
    name: &'static str,
    url: String,
}

#[async_trait::async_trait]
impl Subject for &'static Shared {
    fn name(&self) -> &str {
        self.name
    }

    async fn open(&self) -> Backend {
        // Longer than the cases need: with many of them at once on few cores, servers may not
        // answer in time.
        Program::of(&self.url, Duration::from_secs(7)).await.backend
    }

    fn timing(&self) -> Timing {
        Timing::new(Duration::from_secs(4)).expect("room for every part")
    }
}

fn keep(name: &'static str, count: usize) -> Result<Shared, Skipped> {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime can be started");
        let started = runtime.block_on(async {
            match count {
                1 => Zookeeper::single(options()).await,
                more => Zookeeper::ensemble(more, options()).await,
            }
        });
        let told = started.as_ref().map(|servers| url(&servers.addresses()));
        let _ = tell.send(
            told.map_err(ToString::to_string)
                .map(|url| Shared { name, url })
                .map_err(|says| (says, matches!(started, Err(Failure::Skipped(_))))),
        );
        // Never dropped: the kernel ends the servers with this program.
        loop {
            std::thread::park();
        }
    });
    match told.recv().expect("the thread answers") {
        Ok(shared) => Ok(shared),
        Err((reason, true)) => Err(Skipped { server: name.to_owned(), reason }),
        Err((says, false)) => panic!("{says}"),
    }
}

fn single() -> &'static Result<Shared, Skipped> {
    static SERVER: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVER.get_or_init(|| keep("zookeeper queue, one server", 1))
}

fn three() -> &'static Result<Shared, Skipped> {
    static SERVERS: OnceLock<Result<Shared, Skipped>> = OnceLock::new();
    SERVERS.get_or_init(|| keep("zookeeper queue, three servers", 3))
}

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

mod on_one {
    use super::*;
    suite!(single());
}

mod on_three {
    use super::*;
    suite!(three());
}
