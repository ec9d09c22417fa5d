//! Watches all mandates of a world, and reports when two are valid at once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure::Mandate;
use tokio::sync::watch;
use tokio::time::Instant;

use super::Rare;
use crate::kernel::{Breach, Log, Promise, Run};

/// The referee of a world. Simulated time stands still while it checks.
#[derive(Debug)]
pub(super) struct Referee {
    began: Instant,
    book: Mutex<Book>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Book {
    log: Log<Rare>,
    mandates: Vec<(u64, Mandate)>,
    highest: u64,
}

impl Referee {
    pub(super) fn new(seed: u64) -> Referee {
        // A seed of a feed does not give exactly the same run again, so every run has its trace.
        let book = Book { log: Log::new(seed, true), mandates: Vec::new(), highest: 0 };
        Referee { began: Instant::now(), book: Mutex::new(book), changed: watch::Sender::new(()) }
    }

    pub(super) fn note(&self, line: String) {
        let at = self.began.elapsed();
        let log = &mut self.lock().log;
        log.count();
        log.note(|| format!("{:>12} µs  {line}", at.as_micros()));
    }

    pub(super) fn breach(&self, breach: Breach) {
        self.note(breach.to_string());
        self.lock().log.check(Err(breach));
        self.changed.send_replace(());
    }

    pub(super) fn is_broken(&self) -> bool {
        self.lock().log.is_broken()
    }

    /// Checks a new tenure: no other node may lead, and the token must be new.
    ///
    /// A tenure never comes back once it is over, so it is enough to check the beginnings.
    pub(super) fn elected(&self, node: u64, mandate: &Mandate) {
        let token = mandate.token();
        self.note(format!("node {node} leads with token {token}"));
        let (rival, highest) = {
            let mut book = self.lock();
            book.log.saw(Rare::Tenure);
            book.mandates.retain(|(_, mandate)| mandate.is_leader());
            let rival = book.mandates.first().map(|(other, mandate)| (*other, mandate.token()));
            let highest = book.highest;
            book.highest = highest.max(token);
            book.mandates.push((node, mandate.clone()));
            (rival, highest)
        };
        // The tenure may have been won and lost before this check.
        if let Some((other, theirs)) = rival.filter(|_| mandate.is_leader()) {
            let how = format!(
                "node {node} leads with token {token} while node {other} leads with token {theirs}"
            );
            self.breach(Breach::new(Promise::OneLeader, how));
        }
        if token <= highest {
            let how = format!("token {token} follows token {highest}");
            self.breach(Breach::new(Promise::Fencing, how));
        }
        self.changed.send_replace(());
    }

    pub(super) fn lost(&self, node: u64, mandate: &Mandate, why: &tenure::Loss) {
        self.note(format!("node {node} must stop with token {}: {why:?}", mandate.token()));
        self.lock().log.saw(Rare::Loss);
    }

    /// Removes the mandates of a process that is gone.
    pub(super) fn buried(&self, node: u64) {
        self.note(format!("node {node} is killed"));
        self.lock().mandates.retain(|(holder, _)| *holder != node);
    }

    pub(super) async fn somebody_leads(&self) {
        let mut changed = self.changed.subscribe();
        loop {
            let led = self.lock().mandates.iter().any(|(_, mandate)| mandate.is_leader());
            if led || self.is_broken() {
                return;
            }
            // The sender is ours, so this cannot fail.
            let _ = changed.changed().await;
        }
    }

    pub(super) fn finish(&self) -> Run<Rare> {
        self.lock().log.finish()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
