//! What anybody can do with the books of a cluster, without being one of its nodes; and nodes whose
//! store hangs.

mod administration;
mod begun;
mod cancelling;
mod faulty;
mod floors;
mod holders;
mod hung;
mod idle;
mod leader;
mod lost;
mod lost_answers;
mod planted;
mod races;
mod stage;
mod submitting;
mod tasks;
mod views;
mod waiting;
