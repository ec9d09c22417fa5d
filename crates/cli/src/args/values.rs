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

/// Reads a number of bytes: 1048576, 512MiB, 2GiB or 2GB.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) =
        text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let unit: u64 = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "tib" | "t" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err("expected a size such as 512MiB or 2GiB".to_owned()),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "expected a size such as 512MiB or 2GiB".to_owned())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("1", 1),
            ("2048", 2048),
            ("512MiB", 512 << 20),
            ("1 gib", 1 << 30),
            ("3GB", 3_000_000_000),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "0", "GiB", "-1", "1.5GiB", "1XB", "99999999TiB"] {
            assert!(size(text).is_err(), "{text}");
        }
    }
}
