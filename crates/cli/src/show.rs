//! Output for people and for programs.

use std::fmt;
use std::io::{self, IsTerminal, Write as _};
use std::sync::OnceLock;
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use tenure::{ElectionState, Leader, Standing};

use crate::args::LogFormat;
use crate::redact;

/// Longer values are cut short for people.
const MOST_SHOWN: usize = 80;

/// The format of the log, once the settings are known.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Prints a message to standard error, as text or, with the JSON log, as JSON.
pub(crate) fn say(text: &str) {
    let text = redact::text(text);
    let line = match FORMAT.get().copied().unwrap_or_default() {
        LogFormat::Text => format!("tenure: {}", escape(&text)),
        LogFormat::Json => {
            let timestamp = humantime::format_rfc3339_micros(std::time::SystemTime::now());
            serde_json::json!({
                "timestamp": timestamp.to_string(), "level": "WARN", "target": "tenure", "message": text,
            })
            .to_string()
        }
    };
    // Text is escaped already. Without a standard error the message is lost.
    let _ = writeln!(io::stderr(), "{}", crate::escape::json(&line));
}

/// Prints one line of data, on standard output.
///
/// # Errors
/// When standard output is closed or full.
pub(crate) fn print(line: impl fmt::Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", crate::escape::line(&line.to_string()))?;
    stdout.flush()
}

/// Prints one line of JSON, on standard output.
///
/// # Errors
/// When standard output is closed or full.
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    print(crate::escape::json(&serde_json::to_string(value)?))
}

/// An error and its causes, without repeating any text.
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.ends_with(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    text
}

/// Text from elsewhere, made harmless.
///
/// Control characters and hidden or direction-changing ones are escaped.
pub(crate) fn escape(text: &str) -> String {
    crate::escape::text(text)
}

/// A published value, for people.
pub(crate) fn value(bytes: &[u8]) -> String {
    let shown = escape(&String::from_utf8_lossy(bytes));
    match shown.char_indices().nth(MOST_SHOWN) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}

/// A duration, for people: three figures.
pub(crate) fn span(span: Duration) -> String {
    let milliseconds = span.as_secs_f64() * 1000.0;
    if milliseconds < 10.0 {
        format!("{milliseconds:.2} ms")
    } else if milliseconds < 1000.0 {
        format!("{milliseconds:.0} ms")
    } else {
        format!("{:.1} s", span.as_secs_f64())
    }
}

/// A time in milliseconds since 1970, for people. Empty beyond the calendar.
pub(crate) fn time(wall: u64) -> String {
    // The formatter fails for later times.
    let known = (wall < 250_000_000_000_000).then(|| Duration::from_millis(wall));
    let time = known.and_then(|since| UNIX_EPOCH.checked_add(since));
    time.map_or_else(String::new, |time| humantime::format_rfc3339_seconds(time).to_string())
}

/// An election as `--json` shows it; docs/json.md.
#[derive(Debug, Serialize)]
pub(crate) struct StandingJson {
    election: String,
    state: &'static str,
    leader: Option<LeaderJson>,
    token: u64,
    remaining_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seen_ms: Option<u64>,
}

#[derive(Debug, Serialize)]
struct LeaderJson {
    id: String,
    name: String,
    #[serde(flatten)]
    value: ValueJson,
}

/// Bytes as text where they are text, else as base64 beside a null.
#[derive(Debug, Serialize)]
pub(crate) struct ValueJson {
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_base64: Option<String>,
}

impl ValueJson {
    pub(crate) fn of(bytes: &[u8]) -> ValueJson {
        match std::str::from_utf8(bytes) {
            Ok(text) => ValueJson { value: Some(text.into()), value_base64: None },
            Err(_) => ValueJson { value: None, value_base64: Some(BASE64.encode(bytes)) },
        }
    }
}

impl StandingJson {
    pub(crate) fn of(standing: &Standing, wall: u64) -> StandingJson {
        let remaining = standing.remaining(wall).as_millis();
        StandingJson {
            election: standing.election.to_string(),
            state: state(standing.state),
            leader: standing.leader.as_ref().map(|leader| LeaderJson {
                id: leader.id.to_string(),
                name: leader.name.to_string(),
                value: ValueJson::of(&leader.value),
            }),
            token: standing.token,
            remaining_ms: (standing.state == ElectionState::Led && standing.expire > 0)
                .then(|| u64::try_from(remaining).unwrap_or(u64::MAX)),
            seen_ms: None,
        }
    }

    /// Adds the time at which the election was seen, in milliseconds since 1970.
    pub(crate) fn seen_at(self, wall: u64) -> StandingJson {
        StandingJson { seen_ms: Some(wall), ..self }
    }
}

fn state(state: ElectionState) -> &'static str {
    match state {
        ElectionState::Missing => "none",
        ElectionState::Free => "free",
        ElectionState::Led => "led",
        ElectionState::Lapsed => "lapsed",
        ElectionState::Ended => "ended",
        ElectionState::Unseen => "unseen",
        // States that the library may learn of before the program does.
        _ => "unknown",
    }
}

/// The status of an election in words.
pub(crate) fn standing(standing: &Standing, wall: u64) -> String {
    let token = standing.token;
    let name = |leader: &Leader| escape(&leader.name);
    let leader = standing.leader.as_ref().map_or_else(|| "somebody".into(), name);
    match standing.state {
        ElectionState::Missing => paint(Colour::Dim, "there is no such election"),
        ElectionState::Free if token == 0 => paint(Colour::Yellow, "free"),
        ElectionState::Free => format!("{}, last token {token}", paint(Colour::Yellow, "free")),
        ElectionState::Led => format!(
            "{} by {leader}, token {token}{}{}",
            paint(Colour::Green, "led"),
            lasting(standing, wall),
            published(standing),
        ),
        ElectionState::Lapsed => {
            format!("{}: {leader} led with token {token}", paint(Colour::Yellow, "lapsed"))
        }
        ElectionState::Ended if token == 0 => paint(Colour::Red, "ended"),
        ElectionState::Ended => format!("{}, last token {token}", paint(Colour::Red, "ended")),
        ElectionState::Unseen => {
            paint(Colour::Dim, "a queue, which can be seen without ?protocol=lease")
        }
        _ => format!("in a state this program does not know, token {token}"),
    }
}

/// How long the leader's lease lasts, where others can know its end.
fn lasting(standing: &Standing, wall: u64) -> String {
    match standing.expire {
        0 => String::new(),
        _ => format!(", for another {:.1}s", standing.remaining(wall).as_secs_f64()),
    }
}

fn published(standing: &Standing) -> String {
    match &standing.leader {
        Some(leader) if !leader.value.is_empty() => {
            format!(", publishing {}", value(&leader.value))
        }
        Some(_) | None => String::new(),
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Colour {
    Red,
    Green,
    Yellow,
    Dim,
}

/// Colours text if standard output is a terminal.
pub(crate) fn paint(colour: Colour, text: &str) -> String {
    if !colours(&io::stdout()) {
        return text.into();
    }
    let code = match colour {
        Colour::Red => "31",
        Colour::Green => "32",
        Colour::Yellow => "33",
        Colour::Dim => "2",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// Returns true if a stream wants colours.
pub(crate) fn colours(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !set("NO_COLOR") && !dumb
}

/// Shows the library's log.
///
/// It has warnings by default, more with `-v`, or as `RUST_LOG` says.
pub(crate) fn log_to_stderr(verbose: u8, format: LogFormat) {
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) if verbose == 0 => filter,
        Ok(_) | Err(_) => filter(verbose),
    };
    let _ = FORMAT.set(format);
    let log = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(move || {
            crate::escape::LogWriter::new(io::stderr(), format, colours(&io::stderr()))
        })
        .with_ansi(colours(&io::stderr()))
        .with_target(format == LogFormat::Json);
    // Fails only when there is a subscriber already, and there is none.
    let _ = match format {
        LogFormat::Text => log.compact().try_init(),
        LogFormat::Json => log.json().flatten_event(true).with_ansi(false).try_init(),
    };
}

/// The log filter for a verbosity.
///
/// Other crates, such as those that speak HTTP/2, log less than ours.
fn filter(verbose: u8) -> String {
    let (ours, others) = match verbose {
        0 => ("warn", "warn"),
        1 => ("info", "warn"),
        2 => ("debug", "warn"),
        3 => ("trace", "info"),
        _ => ("trace", "trace"),
    };
    // This program's own modules are called `tenure` as well.
    let each =
        ["tenure", "tenure_stores", "tenure_cluster::inputs"].map(|name| format!("{name}={ours}"));
    format!("{others},{}", each.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_shown_can_drive_a_terminal() {
        assert_eq!(
            escape("a\u{1b}[31mb\nc\u{202e}d\u{7f}é"),
            "a\\u{1b}[31mb\\nc\\u{202e}d\\u{7f}é"
        );
        assert_eq!(value(&[0xff, 0, b'x']), "\u{fffd}\\u{0}x");
        assert_eq!(value(&[b'y'; 200]).chars().count(), MOST_SHOWN + 1);
    }

    #[test]
    fn a_chain_of_errors_says_nothing_twice() {
        let error = anyhow::anyhow!("no space").context("writing").context("opening: writing");
        assert_eq!(chain(&error), "opening: writing: no space");
    }

    #[test]
    fn a_value_that_is_no_text_is_shown_as_base64() {
        let json = |bytes| serde_json::to_string(&ValueJson::of(bytes)).expect("JSON");
        assert_eq!(json(b"a\"b"), r#"{"value":"a\"b"}"#);
        assert_eq!(json(&[0xff]), r#"{"value":null,"value_base64":"/w=="}"#);
    }
}
