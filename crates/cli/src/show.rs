//! What people and programs get to see.

use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write as _};
use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Serialize;
use tenure::{ElectionState, Leader, Standing};

use crate::args::LogFormat;

/// Longer values are cut short for people.
const MOST_SHOWN: usize = 80;

/// How the log looks, once that is known.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Says something to people, on standard error; to programs, if the log is for them.
pub(crate) fn say(text: &str) {
    let text = redact(text);
    let line = match FORMAT.get().copied().unwrap_or_default() {
        LogFormat::Text => format!("tenure: {}", escape(&text)),
        LogFormat::Json => {
            let timestamp = humantime::format_rfc3339_micros(std::time::SystemTime::now());
            serde_json::json!({
                "timestamp": timestamp.to_string(), "level": "WARN", "message": text,
            })
            .to_string()
        }
    };
    // Without a standard error there is nobody to tell.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Text without the passwords of the URLs in it: what is before an `@`, and any query.
pub(crate) fn redact(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let end = after.find(|c: char| c.is_whitespace() || "'\"`<>".contains(c));
        let (address, behind) = after.split_at(end.unwrap_or(after.len()));
        let (place, query) = match address.split_once('?') {
            Some((place, query)) => (place, Some(query)),
            None => (address, None),
        };
        // A password may hold any character, an `@` too; a directory's name is no password.
        match place.rsplit_once('@').filter(|_| !place.starts_with('/')) {
            Some((_, host)) => shown.push_str(&format!("***@{host}")),
            None => shown.push_str(place),
        }
        match query {
            Some(query) if tenure_stores::holds_credentials(&format!("etcd://x?{query}")) => {
                shown.push_str("?***");
            }
            Some(query) => shown.push_str(&format!("?{query}")),
            None => {}
        }
        rest = behind;
    }
    shown.push_str(rest);
    shown
}

/// Prints one line of data, on standard output.
///
/// # Errors
/// When standard output is closed or full.
pub(crate) fn print(line: impl fmt::Display) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}

/// Prints one line of JSON, on standard output.
///
/// # Errors
/// When standard output is closed or full.
pub(crate) fn print_json(value: &impl Serialize) -> io::Result<()> {
    print(serde_json::to_string(value)?)
}

/// An error and its causes, without saying anything twice.
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

/// Text from elsewhere, made harmless: no control characters, nothing that turns the line around.
pub(crate) fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let invisible = matches!(character,
            '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
        if character.is_control() || invisible {
            // Writing to a string cannot fail.
            let _ = write!(shown, "{}", character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
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

/// An election as `--json` shows it; docs/json.md.
#[derive(Debug, Serialize)]
pub(crate) struct StandingJson {
    election: String,
    state: &'static str,
    leader: Option<LeaderJson>,
    token: u64,
    remaining_ms: Option<u64>,
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
        }
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

/// An election in words.
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

/// How long the leader's lease lasts, where others can know that.
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

/// Colours text for a terminal, and only for one.
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

/// Whether a stream wants colours.
pub(crate) fn colours(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    stream.is_terminal() && !set("NO_COLOR") && !dumb
}

/// Shows the library's log: warnings, and more with `-v` or what RUST_LOG says.
pub(crate) fn log_to_stderr(verbose: u8, format: LogFormat) {
    let level = match verbose {
        0 => "warn",
        1 => "info",
        2 => "debug",
        _ => "trace",
    };
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) if verbose == 0 => filter,
        Ok(_) | Err(_) => level.to_owned(),
    };
    let _ = FORMAT.set(format);
    let log = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(io::stderr)
        .with_ansi(colours(&io::stderr()))
        .with_target(false);
    // Fails only when there is a subscriber already, and there is none.
    let _ = match format {
        LogFormat::Text => log.compact().try_init(),
        LogFormat::Json => log.json().flatten_event(true).with_ansi(false).try_init(),
    };
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
    fn passwords_are_not_shown() {
        for (text, shown) in [
            ("at etcd://u:p@h:1/x: no", "at etcd://***@h:1/x: no"),
            ("'mongodb://u:p/w@q@h/x'", "'mongodb://***@h/x'"),
            ("https://h/x?api_key=1 y", "https://h/x?*** y"),
            ("a file:///srv/a@b c", "a file:///srv/a@b c"),
            ("two etcd://a@b etcd://c@d", "two etcd://***@b etcd://***@d"),
            ("no URL: a@b", "no URL: a@b"),
        ] {
            assert_eq!(redact(text), shown);
        }
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
