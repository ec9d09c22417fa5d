//! Values as people write them.

use std::time::Duration;

use rustix::process::Signal;

/// Reads a duration as people write it.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{error}; write for example 15s or 2m"))
}

/// Reads how long a task may take.
pub(super) fn task_timeout(text: &str) -> Result<Duration, String> {
    let span = duration(text)?;
    match span.is_zero() || span > tenure::MAX_TTL {
        true => Err("expected more than nothing and at most 24h".to_owned()),
        false => Ok(span),
    }
}

/// Reads a signal's name, with or without SIG, or its number.
pub(super) fn signal(text: &str) -> Result<Signal, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = STOPS.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal);
    let numbered = text.parse().ok().and_then(Signal::from_named_raw);
    named.or(numbered.filter(|signal| STOPS.iter().any(|(_, known)| known == signal))).ok_or_else(
        || {
            let known: Vec<&str> = STOPS.iter().map(|(name, _)| *name).collect();
            format!("not a signal that stops a program; known: {}", known.join(", "))
        },
    )
}

/// The signals that may tell a program to stop.
const STOPS: [(&str, Signal); 7] = [
    ("TERM", Signal::TERM),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("HUP", Signal::HUP),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("KILL", Signal::KILL),
];
