//! What anybody can do with the books of a cluster, without being one of its nodes.

mod administration;
mod cancelling;
mod faulty;
mod leader;
mod lost_answers;
mod races;
mod stage;
mod submitting;
mod tasks;
mod views;
mod waiting;
