//! Operations on the cluster's records of a cluster that need no membership.
//!
//! Also nodes, for example on a store that hangs.

mod administration;
mod begun;
mod cancelling;
mod faulty;
mod floors;
mod holders;
mod hung;
mod idle;
mod leader;
mod leaving;
mod lost;
mod lost_answers;
mod planted;
mod races;
mod stage;
mod submitting;
mod tasks;
mod views;
mod waiting;
