//! Rounds on a sound store.
