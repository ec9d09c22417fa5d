//! Makes text from elsewhere harmless before people see it.
//!
//! Ids, names, values, errors and the output of CMD may hold anything. Control characters drive a
//! terminal or forge a line of the log; characters that turn text around, or that take no room,
//! make one name look like another. All output of this program goes through here. JSON stays exact:
//! there the same characters are written as `\uXXXX`.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use crate::args::LogFormat;
use crate::redact;

/// Text for people, with control, hidden and direction-changing characters escaped.
pub(crate) fn text(text: &str) -> String {
    escaped(text, |character| character.is_control() || is_hidden(character)).into_owned()
}

/// A finished line with colours, in which only hidden characters are escaped.
pub(crate) fn line(line: &str) -> Cow<'_, str> {
    escaped(line, is_hidden)
}

/// Equivalent JSON with hidden characters escaped.
pub(crate) fn json(json: &str) -> Cow<'_, str> {
    // Outside of strings JSON has none of these characters; in strings it escapes the first 32
    // itself.
    let is_shown =
        |character: char| !is_hidden(character) && !matches!(character, '\u{7f}'..='\u{9f}');
    if json.chars().all(is_shown) {
        return Cow::Borrowed(json);
    }
    let mut shown = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if is_shown(character) {
            shown.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    Cow::Owned(shown)
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_escaped(character) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "{}", character.escape_default());
        } else {
            shown.push(character);
        }
    }
    Cow::Owned(shown)
}

/// Returns true if a character takes no room, or changes the direction of text.
///
/// These are Unicode's `Bidi_Control` and `Default_Ignorable_Code_Point`, and its separators of
/// lines and paragraphs.
fn is_hidden(character: char) -> bool {
    matches!(character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// The writer of the library's log.
///
/// Each event becomes one line, with hidden characters escaped and passwords in URLs removed.
#[derive(Debug)]
pub(crate) struct LogWriter<W> {
    inner: W,
    format: LogFormat,
    colours: bool,
}

impl<W: Write> LogWriter<W> {
    pub(crate) fn new(inner: W, format: LogFormat, colours: bool) -> LogWriter<W> {
        LogWriter { inner, format, colours }
    }
}

/// Escapes an event of the log, and keeps only plain colours.
///
/// The log adds colours of its own between texts from elsewhere.
fn event(line: &str, colours: bool) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('\u{1b}') {
        let (before, after) = rest.split_at(at);
        shown.push_str(&text(before));
        let length = colour(after).filter(|_| colours);
        match length {
            Some(length) => shown.push_str(&after[..length]),
            None => shown.push_str("\\u{1b}"),
        }
        rest = &after[length.unwrap_or(1)..];
    }
    shown.push_str(&text(rest));
    shown
}

/// The length of the colour code at the start of this text.
///
/// Known codes are bold, dim, italic, the six colours, and the reset.
fn colour(text: &str) -> Option<usize> {
    let numbers = text.strip_prefix("\u{1b}[")?;
    let end = numbers.find('m')?;
    let is_plain = |number: &str| {
        matches!(number, "0" | "1" | "2" | "3" | "31" | "32" | "33" | "34" | "35" | "36")
    };
    numbers[..end].split(';').all(is_plain).then_some(end + 3)
}

impl<W: Write> Write for LogWriter<W> {
    /// Takes a whole event: the log hands over one event in each call.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let said = String::from_utf8_lossy(bytes);
        let line = said.trim_end_matches('\n');
        let shown = match self.format {
            LogFormat::Text => event(&redact::text(line), self.colours),
            LogFormat::Json => json(&redact::json(line)).into_owned(),
        };
        self.inner.write_all(format!("{shown}\n").as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// One of each sort. They are bidirectional, zero-width, ignorable, separators, and beyond the
    /// first plane.
    const HIDDEN: [char; 20] = [
        '\u{202e}',
        '\u{2066}',
        '\u{2069}',
        '\u{61c}',
        '\u{200e}',
        '\u{200b}',
        '\u{200d}',
        '\u{feff}',
        '\u{2060}',
        '\u{ad}',
        '\u{34f}',
        '\u{3164}',
        '\u{180e}',
        '\u{fe0f}',
        '\u{2028}',
        '\u{2029}',
        '\u{206a}',
        '\u{fff9}',
        '\u{e0041}',
        '\u{1d173}',
    ];

    #[test]
    fn what_is_hidden_or_turns_text_around_is_shown_by_its_number() {
        for character in HIDDEN {
            let number = format!("a\\u{{{:x}}}b", u32::from(character));
            let raw = format!("a{character}b");
            assert_eq!(text(&raw), number);
            assert_eq!(line(&raw), number);
            let mut log = Vec::new();
            LogWriter::new(&mut log, LogFormat::Text, true)
                .write_all(raw.as_bytes())
                .expect("written");
            assert_eq!(log, format!("{number}\n").into_bytes());
        }
        assert_eq!(text("a\u{1b}[31mb\nc\u{7f}é"), "a\\u{1b}[31mb\\nc\\u{7f}é");
        for plain in ["", "ü ß 漢字 עברית 😀", "a b\u{a0}c"] {
            assert_eq!(text(plain), plain);
        }
    }

    #[test]
    fn json_means_the_same_and_hides_nothing() {
        let hidden: String =
            HIDDEN.iter().chain(&['\u{7f}', '\u{85}', '"', '\\', '\n', 'é']).collect();
        let raw = serde_json::json!({ "a": hidden, hidden.clone(): 1 }).to_string();
        let shown = json(&raw);
        assert!(shown.chars().all(|character| !is_hidden(character) && !character.is_control()));
        let (one, other): (serde_json::Value, serde_json::Value) = (
            serde_json::from_str(&raw).expect("JSON"),
            serde_json::from_str(&shown).expect("JSON"),
        );
        assert_eq!(one, other);
        assert!(shown.contains("\\u202e") && shown.contains("\\udb40\\udc41"), "{shown}");
    }

    #[test]
    fn an_event_of_the_log_is_one_line() {
        let shown = |format, event: &str| {
            let mut log = Vec::new();
            LogWriter::new(&mut log, format, true).write_all(event.as_bytes()).expect("written");
            String::from_utf8(log).expect("text")
        };
        assert_eq!(shown(LogFormat::Text, "WARN a\nWARN forged\r\n"), "WARN a\\nWARN forged\\r\n");
        assert_eq!(
            shown(LogFormat::Text, "\u{1b}[33mWARN\u{1b}[0m x\n"),
            "\u{1b}[33mWARN\u{1b}[0m x\n"
        );
        assert_eq!(shown(LogFormat::Json, "{\"a\":\"\u{202e}\"}\n"), "{\"a\":\"\\u202e\"}\n");
        assert_eq!(shown(LogFormat::Text, "at http://u:p@h/\n"), "at http://***@h/\n");
        let json = "{\"a\":\"http://u:p@h/\",\"b\":\"x@y\"}\n";
        assert_eq!(shown(LogFormat::Json, json), json.replace("u:p", "***"));
    }

    /// A log kept in memory.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn errors_and_names_in_the_log_hide_nothing_and_forge_no_line() {
        let name = "a\u{202e}b\u{200b}c\nWARN forged\u{1b}[2J\u{1b}[8m\u{1b}";
        for colours in [false, true] {
            let kept = Kept::default();
            let made = kept.clone();
            let log = tracing_subscriber::fmt()
                .with_writer(move || LogWriter::new(made.clone(), LogFormat::Text, colours))
                .with_ansi(colours)
                .compact()
                .finish();
            tracing::subscriber::with_default(log, || {
                tracing::warn!(name, error = %name, "opening {name}");
            });
            let said = String::from_utf8(kept.0.lock().expect("no panic").clone()).expect("text");
            assert_eq!(said.lines().count(), 1, "{said:?}");
            assert_eq!(said.matches("a\\u{202e}b\\u{200b}c\\nWARN forged").count(), 3, "{said:?}");
            assert!(!said.contains("\u{1b}[2J") && !said.contains("\u{1b}[8m"), "{said:?}");
            assert_eq!(said.contains('\u{1b}'), colours, "{said:?}");
        }
    }
}
