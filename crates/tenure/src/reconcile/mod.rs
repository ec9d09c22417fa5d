//! Runs handlers when a candidate becomes leader and when it ceases to be leader.
//!
//! A [`Source`] says who leads. A [`Reconciler`] runs [`Handler`]s until the local system agrees:
//!
//! | event | local state | action |
//! |---|---|---|
//! | leader | not leading | begin; success: leading; failure: error |
//! | not leader | beginning | begin is stopped, then end |
//! | not leader | leading | end; success: not leading; failure: error, and end is tried again |
//! | error | leading | end; success: the leadership is given up, error handler, error timeout, stand again |
//! | error | not leading | the candidacy is given up, error handler, error timeout, stand again |
//! | end fails for good | ending | stuck: last resort, nothing is released, the loop ends with an error |
//! | stop | any | end if a tenure was begun, then the leadership is given up |
//!
//! Handlers never overlap. The reconciler remembers the source's events while a handler runs, and
//! acts on the newest one when the handler has finished. It skips the older ones, with two
//! exceptions: a tenure that was begun is always ended, and an error is always handled. A token
//! tells one tenure from the next.
//!
//! The reconciler frees the leadership in the store only when the local system no longer acts as
//! leader: an end succeeded, or a begin failed by itself. A begin that was cut short may have
//! started half of its work, so an end follows it.
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
//! `machine` is pure and decides; the other modules do the I/O.

mod credentials;
mod election;
mod handler;
#[cfg(not(feature = "unstable"))]
pub(crate) mod machine;
#[cfg(feature = "unstable")]
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
