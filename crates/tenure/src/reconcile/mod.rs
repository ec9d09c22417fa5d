//! Acts on becoming and ceasing to be leader, whatever happens.
//!
//! A [`Source`] says who leads; a [`Reconciler`] runs [`Handler`]s until the local system agrees:
//!
//! | what happens | where | what is done |
//! |---|---|---|
//! | leader | not leading | begin; success: leading; failure: error |
//! | not leader | beginning | begin is stopped, then end |
//! | not leader | leading | end; success: not leading; failure: error, and end is tried again |
//! | error | leading | end; success: the leadership is given up, error handler, error timeout, stand again |
//! | error | not leading | the candidacy is given up, error handler, error timeout, stand again |
//! | end fails for good | ending | stuck: last resort, nothing is released, the loop ends with an error |
//! | stop | anywhere | end if there is something to end, then leadership is given up |
//!
//! Handlers never overlap. What the source says while one runs is kept, and when it has finished
//! the newest word counts; only the end of a tenure that was begun is never skipped, nor an error.
//! A token tells one tenure from the next.
//!
//! Leadership is freed in the store only when nothing here acts as leader any more: an end
//! succeeded, or a begin failed by itself. A begin that was cut short may have started half of its
//! things, so an end follows it.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use tenure::reconcile::{ElectionSource, Finished, Handler, Reconciler};
//! use tenure::{Backend, Election};
//!
//! let backend = Backend::memory();
//! let election = Election::open(&backend, "billing/primary").await?;
//! let source = ElectionSource::new(election, "host-a".try_into()?);
//!
//! let reconciler = Reconciler::builder()
//!     .begin(Handler::closure(async |context| {
//!         println!("leading {} with token {:?}", context.election, context.token);
//!         Ok::<(), String>(())
//!     }))
//!     .end(Handler::shell("echo no longer leading: \"$TENURE_REASON\""))
//!     .build()?;
//!
//! let stopper = reconciler.stopper();
//! let mut states = reconciler.states();
//! let stop_when_leading = async {
//!     states.wait_for(|state| matches!(state, tenure::reconcile::State::Leading { .. })).await?;
//!     stopper.stop();
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! };
//! let (finished, stopped) = tokio::join!(reconciler.run(source), stop_when_leading);
//! assert_eq!(finished?, Finished::Stopped);
//! # stopped?; Ok(()) }
//! ```
//!
//! [`machine`] decides, pure; the rest carries it out.

mod credentials;
mod election;
mod handler;
pub mod machine;
#[cfg(all(feature = "process", unix))]
mod process;
mod reason;
mod reconciler;
mod run;
mod scripted;
mod source;

pub use credentials::holds_credentials;
pub use election::ElectionSource;
pub use handler::{Closure, Context, Handler};
pub use machine::{State, Step};
pub use reason::Reason;
pub use reconciler::{BuildError, Builder, Finished, ReconcileError, Reconciler, Stopper};
pub use scripted::{Script, ScriptedSource};
pub use source::{Event, Identity, Release, Source};
