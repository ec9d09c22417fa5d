//! A source that can be asked to step down, and that updates the mandate file.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::Mandate;
use tenure::reconcile::{Event, Identity, Reason, Release, Source};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::mandate_file::MandateFile;

/// A source together with a receiver for requests to step down.
#[derive(Debug)]
pub(super) struct Steered<S> {
    inner: S,
    asked: mpsc::Receiver<()>,
    standing: Standing,
    file: Option<Arc<MandateFile>>,
    writer: Option<JoinHandle<()>>,
    /// How long to stay away after stepping down.
    keep_away: Duration,
}

/// Asks a source to step down.
#[derive(Debug)]
pub(super) struct Steering(mpsc::Sender<()>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    NotLeading,
    Leading,
    /// The loop was told that it does not lead, although it still does.
    SteppingDown,
}

impl<S> Steered<S> {
    pub(super) fn new(
        inner: S,
        file: Option<Arc<MandateFile>>,
        keep_away: Duration,
    ) -> (Steered<S>, Steering) {
        // Room for one request is enough: a second one changes nothing.
        let (ask, asked) = mpsc::channel(1);
        let standing = Standing::NotLeading;
        (Steered { inner, asked, standing, file, writer: None, keep_away }, Steering(ask))
    }

    /// Keeps the file up to date for as long as this mandate is renewed.
    fn write(&mut self, mandate: Mandate) {
        let Some(file) = self.file.clone() else { return };
        self.stop_writing();
        self.writer = Some(tokio::spawn(async move {
            loop {
                if let Err(error) = file.write(&mandate) {
                    tracing::warn!(%error, "writing the mandate's file");
                }
                if mandate.check().is_err() {
                    return;
                }
                mandate.renewed().await;
            }
        }));
    }

    fn stop_writing(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.abort();
        }
    }
}

impl Steering {
    /// Asks the source to step down and to stand again.
    pub(super) fn step_down(&self) {
        // If the channel is full, a request waits already. If it is closed, the source has ended.
        let _ = self.0.try_send(());
    }
}

#[async_trait]
impl<S: Source> Source for Steered<S> {
    fn identity(&self) -> Identity {
        self.inner.identity()
    }

    async fn next(&mut self) -> Option<Event> {
        tokio::select! {
            biased;
            Some(()) = self.asked.recv() => {
                if self.standing == Standing::Leading {
                    self.standing = Standing::SteppingDown;
                }
                let reason = Reason::NotLeader("asked to step down".to_owned());
                Some(Event::NotLeader { reason })
            }
            event = self.inner.next() => {
                match &event {
                    Some(Event::Leader { mandate, .. }) => {
                        self.standing = Standing::Leading;
                        if let Some(mandate) = mandate.clone() {
                            self.write(mandate);
                        }
                    }
                    Some(Event::NotLeader { .. }) => self.standing = Standing::NotLeading,
                    Some(_) | None => {}
                }
                event
            }
        }
    }

    async fn release(&mut self, how: Release) {
        let standing = std::mem::replace(&mut self.standing, Standing::NotLeading);
        match (how, standing) {
            (Release::StandAgain, Standing::SteppingDown) => {
                // This candidate still leads. Others come first, so it goes to the end of the
                // queue.
                self.inner.release(Release::GiveUp).await;
                tokio::time::sleep(self.keep_away).await;
                self.inner.release(Release::StandAgain).await;
            }
            (Release::StandAgain, Standing::Leading) => {
                self.standing = standing;
                self.inner.release(how).await;
            }
            (Release::StandAgain, Standing::NotLeading)
            | (Release::GiveUp | Release::Abandon, _) => self.inner.release(how).await,
        }
    }
}

impl<S> Drop for Steered<S> {
    fn drop(&mut self) {
        self.stop_writing();
    }
}
