//! The decisions by themselves.
