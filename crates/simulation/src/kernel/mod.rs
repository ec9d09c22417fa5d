//! The part that all simulators share: simulated time, random numbers, seeds, and the runner.
//!
//! One seed is one world. Nothing in a world reads a clock, starts a thread or depends on the order
//! of a hash map, so a seed replays byte for byte.
//!
//! # A new simulator
//! 1. List its rare paths and the parts of its swarm with [`listed!`](crate::listed). A simulator
//!    that has only one kind of world uses [`Whole`].
//! 2. Write the world: a struct with a [`Kernel`] and the simulated parts, and an enum of the
//!    events that can be scheduled. The world's code draws from `kernel.rng`, calls
//!    [`Kernel::schedule`], [`Kernel::note`], [`Kernel::saw`] and [`Kernel::breaks`], and in the
//!    end [`Kernel::end`]. [`World::happen`] carries one event out.
//! 3. Implement [`Simulator`] for a unit struct: its `simulate` makes the world of a seed and calls
//!    [`run`].
//! 4. Its program is `fn main() -> ExitCode { kernel::main::<Mine>() }`. Its tests call
//!    [`search`], [`hunt`] and [`report`].
//!
//! ```
//! use tenure_simulation::kernel::{
//!     Kernel, Listed, Options, Promise, Run, Simulator, Whole, World, run, search,
//! };
//!
//! tenure_simulation::listed! {
//!     /// Rare paths of a token that is passed around.
//!     pub enum Rare {
//!         /// It was passed late.
//!         Late,
//!     }
//! }
//!
//! tenure_simulation::listed! {
//!     /// Rules that can be broken.
//!     pub enum Mutant {
//!         /// The token stays where it is.
//!         Kept,
//!     }
//! }
//!
//! enum Happening {
//!     Pass,
//!     End,
//! }
//!
//! struct Ring {
//!     kernel: Kernel<Happening, Rare>,
//!     mutant: Option<Mutant>,
//!     passed: u64,
//! }
//!
//! impl World for Ring {
//!     type Happening = Happening;
//!     type Rare = Rare;
//!
//!     fn kernel(&mut self) -> &mut Kernel<Happening, Rare> {
//!         &mut self.kernel
//!     }
//!
//!     fn happen(&mut self, happening: Happening) {
//!         match happening {
//!             Happening::Pass => {
//!                 self.passed += u64::from(self.mutant != Some(Mutant::Kept));
//!                 let delay = self.kernel.rng.between(1, 100);
//!                 if delay > 90 {
//!                     self.kernel.saw(Rare::Late);
//!                 }
//!                 self.kernel.schedule(delay, Happening::Pass);
//!             }
//!             Happening::End => {
//!                 if self.passed == 0 {
//!                     self.kernel.breaks(Promise::Recovery, "the token stands still");
//!                 }
//!                 self.kernel.end();
//!             }
//!         }
//!     }
//! }
//!
//! #[derive(Clone, Copy, Debug)]
//! struct Rings;
//!
//! impl Simulator for Rings {
//!     const PROGRAM: &'static str = "simulate-rings";
//!     const MUTANTS: &'static [Mutant] = Mutant::ALL;
//!     type Mutant = Mutant;
//!     type Profile = Whole;
//!     type Rare = Rare;
//!
//!     fn simulate(seed: u64, options: Options<Rings>) -> Run<Rare> {
//!         let kernel = Kernel::new(seed, options.trace);
//!         let mut world = Ring { kernel, mutant: options.mutant, passed: 0 };
//!         world.kernel.schedule(0, Happening::Pass);
//!         world.kernel.schedule(1000, Happening::End);
//!         run(world)
//!     }
//! }
//!
//! let sound = search::<Rings>(0..100, 1, Options::default());
//! assert!(sound.broken.is_empty() && sound.sometimes.count(Rare::Late) > 0);
//! let caught = search::<Rings>(0..100, 1, Options::hunting(Mutant::Kept));
//! assert_eq!(caught.broken.len(), 100);
//! ```

mod breach;
mod clock;
mod command_line;
mod listed;
mod log;
mod rng;
mod runner;
mod simulator;
mod sometimes;
mod world;

pub use breach::{Breach, Promise};
pub use clock::{Instant, LocalClock, REAL_RATE, Rates, Term, nanos};
pub use command_line::main;
pub use listed::{Listed, Whole};
pub use log::Log;
pub use rng::Rng;
pub use runner::{Found, hunt, report, search};
pub use simulator::{Options, Run, Simulator};
pub use sometimes::Sometimes;
pub use world::{Kernel, Spin, Timer, World, run};
