//! The only way in which a URL, or text that may hold one, gets shown.
//!
//! A URL that parses is shown as its parsed location, which has no user and no password. A URL that
//! does not parse is not shown: any part of it may be a mistyped password.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};
use tenure_stores::Location;

/// Replaces a secret.
const HIDDEN: &str = "***";
/// Replaces an unknown scheme.
const UNKNOWN: &str = "***://";
/// Schemes that belong to no store, but may be shown.
const OTHER_SCHEMES: [&str; 10] =
    ["http", "https", "s3", "s3a", "gs", "az", "adl", "azure", "abfs", "abfss"];

/// The URL of a store, without user and password.
pub(crate) fn url(text: &str) -> String {
    tenure_stores::parse(text).map_or_else(|_| HIDDEN.to_owned(), |location| location.to_string())
}

/// The members of an etcd cluster, `host:port` or URLs, with commas between.
///
/// A password may hold a comma, so a list with an `@` anywhere is not shown at all.
pub(crate) fn members(text: &str) -> String {
    let plain = |member: &str| {
        let bare = member.strip_prefix("https://").or_else(|| member.strip_prefix("http://"));
        let url = format!("etcd://{}", bare.unwrap_or(member).trim_end_matches('/'));
        tenure_stores::parse(&url).is_ok()
    };
    let shown = !text.contains('@') && text.split(',').all(|member| plain(member.trim()));
    if shown { text.to_owned() } else { HIDDEN.to_owned() }
}

/// Text that may hold URLs, without user, password and query of any of them.
///
/// A password may hold every character, even a space, a quote, a line feed or `://`. So all is
/// hidden from the start of the first URL up to the last `@`: that of its line if the URL is whole
/// there, and that of the text if not. Without an `@` a URL is shown if it parses.
pub(crate) fn text(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((begin, start)) = url_start(rest) {
        let (scheme, after) = (&rest[begin..start], &rest[start..]);
        shown.push_str(&rest[..begin]);
        shown.push_str(if is_known(scheme) { scheme } else { UNKNOWN });
        // A directory's name is no password.
        let directory = scheme.eq_ignore_ascii_case("file://") && after.starts_with('/');
        let at = if directory { None } else { last_at(scheme, after) };
        if let Some(at) = at {
            shown.push_str(HIDDEN);
            shown.push('@');
            rest = unqueried(&after[at + 1..], &mut shown);
            continue;
        }
        let token = &after[..token_end(after)];
        let address = token.trim_end_matches([':', ',', ';', '.', ')']);
        rest = &after[address.len()..];
        if is_sound(scheme, address) {
            shown.push_str(address);
        } else if directory || !is_of_a_store(scheme) && has_plain_host(address) {
            let behind = unqueried(address, &mut shown);
            shown.push_str(behind);
        } else {
            shown.push_str(HIDDEN);
        }
    }
    shown.push_str(rest);
    shown
}

/// Applies [`text`] to each string of a JSON document. The result is still JSON.
pub(crate) fn json(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    let mut rest = json;
    while let Some(start) = rest.find('"') {
        let mut escaped = false;
        let end = rest[start + 1..].find(|c: char| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let Some(end) = end.map(|end| start + 1 + end + 1) else { break };
        let literal = &rest[start..end];
        let string = serde_json::from_str::<String>(literal).unwrap_or_default();
        let redacted = text(&string);
        shown.push_str(&rest[..start]);
        if redacted == string {
            shown.push_str(literal);
        } else {
            shown.push_str(&serde_json::Value::String(redacted).to_string());
        }
        rest = &rest[end..];
    }
    shown.push_str(rest);
    shown
}

/// The end of a URL: a space, a quote, or the start of a colour code of the log.
fn token_end(text: &str) -> usize {
    let ends = |c: char| c.is_whitespace() || c == '\u{1b}' || "'\"`<>".contains(c);
    text.find(ends).unwrap_or(text.len())
}

/// The `@` up to which a URL is hidden.
fn last_at(scheme: &str, after: &str) -> Option<usize> {
    let (line, others) = after.split_once('\n').unwrap_or((after, ""));
    let address = &line[..token_end(line)];
    let is_whole = match address.rsplit_once('@') {
        Some((_, host)) => !host.is_empty() && has_plain_host(host),
        // `u:1` may be a host and a port, or a user and the first line of a password.
        None => !address.contains(':') && is_shown(scheme, address),
    };
    // The rest of a password with a line feed in it: scripts have a command in front of an `@`.
    let mut first_words = others.lines().filter_map(|line| line.split_whitespace().next());
    let goes_on = first_words.any(|word| word.contains('@'));
    if is_whole && !goes_on { line.rfind('@') } else { after.rfind('@') }
}

/// Shows an address without its query, unless that has known settings only; what follows is
/// returned.
fn unqueried<'a>(text: &'a str, shown: &mut String) -> &'a str {
    let (address, behind) = text.split_at(token_end(text));
    let (place, query) = address.split_once('?').unwrap_or((address, ""));
    shown.push_str(place);
    if place.len() < address.len() {
        let known = tenure_stores::parse(&format!("etcd://x?{query}")).is_ok();
        shown.push('?');
        shown.push_str(if known { query } else { HIDDEN });
    }
    behind
}

/// Whether a URL without an `@` is shown, at least without its query.
fn is_shown(scheme: &str, address: &str) -> bool {
    is_sound(scheme, address) || !is_of_a_store(scheme) && has_plain_host(address)
}

/// Whether this is the URL of a store that parses, and has no user.
fn is_sound(scheme: &str, address: &str) -> bool {
    match tenure_stores::parse(&format!("{scheme}{address}")) {
        Ok(Location::File { .. }) => true,
        Ok(_) => !address.contains('@'),
        Err(_) => false,
    }
}

/// Returns true if a scheme may be shown. An unknown scheme may really be a password.
fn is_known(scheme: &str) -> bool {
    let name = scheme.trim_end_matches(['/', ':']).to_ascii_lowercase();
    is_of_a_store(scheme) || OTHER_SCHEMES.contains(&name.as_str())
}

fn is_of_a_store(scheme: &str) -> bool {
    let scheme = scheme.trim_end_matches('/').to_ascii_lowercase();
    tenure_stores::SCHEMES.contains(&scheme.as_str())
}

/// Returns true if an address begins with hosts and ports.
///
/// Otherwise it may begin with a password that lacks its `@`.
fn has_plain_host(address: &str) -> bool {
    let host = address.split(['/', '?', '#']).next().unwrap_or_default();
    tenure_stores::parse(&format!("etcd://{host}")).is_ok()
}

/// The start of the first URL, and the end of its scheme.
///
/// A scheme ends with `://`; a store's scheme may also end with a colon alone.
fn url_start(text: &str) -> Option<(usize, usize)> {
    let text = text.to_ascii_lowercase();
    let slashes = text.find("://").map(|at| {
        let in_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
        let before = text[..at].trim_end_matches(in_scheme).len();
        (before, at + "://".len())
    });
    let schemes = tenure_stores::SCHEMES.into_iter().filter(|scheme| *scheme != "file:");
    let named = schemes.filter_map(|scheme| {
        let starts = text.match_indices(scheme).map(|(at, _)| (at, at + scheme.len()));
        starts.filter(|(at, after)| is_url(&text[..*at], &text[*after..])).min()
    });
    let (begin, after) = slashes.into_iter().chain(named).min_by_key(|(_, after)| *after)?;
    // Skip the whole of `://`, even if the match ended at the colon.
    Some((begin, if text[after..].starts_with("//") { after + "//".len() } else { after }))
}

/// Returns true if a store's scheme between these two texts begins a URL.
fn is_url(before: &str, after: &str) -> bool {
    let token = after[..token_end(after)].trim_end_matches([':', ',', ';', '.', ')']);
    // `etcd: reading a` is a sentence about etcd, `etcd:2379` a host, and `stores::etcd::client` a
    // module.
    let is_port =
        !token.is_empty() && token.len() <= 5 && token.bytes().all(|b| b.is_ascii_digit());
    let is_module = before.ends_with("::") || before.ends_with('_');
    !token.is_empty() && !is_port && !is_module
}

/// Returns true if a word may hold a secret.
///
/// That is a URL that does not parse, or one with a user.
fn is_suspicious(word: &str) -> bool {
    let flag = word.starts_with('-').then(|| word.split_once('=')).flatten();
    let value = flag.map_or(word, |(_, value)| value);
    let is_directory = is_directory(value);
    let is_broken = value.to_ascii_lowercase().starts_with("file:") && !is_directory;
    is_broken || (value.contains('@') && !is_directory) || text(value) != value
}

fn is_directory(url: &str) -> bool {
    matches!(tenure_stores::parse(url), Ok(Location::File { .. }))
}

/// Clap's message about a command line, without words that may be secrets.
///
/// Clap quotes words of the command line, and any of them may be a secret. A quoted word is shown
/// only if it is no part of a word that may hold a secret. The shell splits a password with spaces
/// into several words, so all words up to the one with the `@` may be parts of one password.
pub(crate) fn usage(error: &clap::Error, words: &[OsString], rendered: &str) -> String {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (ours, others) = words.split_at(end);
    let last = ours.iter().rposition(|word| word.contains('@') && is_suspicious(word));
    let first = ours.iter().position(|word| {
        is_suspicious(word) || last.is_some() && url_start(word).is_some() && !is_directory(word)
    });
    let hidden = first.map_or(end..end, |first| first..last.unwrap_or(first).max(first) + 1);
    let secret: Vec<&str> = (ours[hidden.clone()].iter())
        .chain(others.iter().filter(|word| is_suspicious(word)))
        .map(AsRef::as_ref)
        .collect();
    let is_plain = |quoted: &str| {
        let same = |word: &str| {
            word == quoted || word.split_once('=').is_some_and(|(_, value)| value == quoted)
        };
        let open = ours[..hidden.start].iter().chain(&ours[hidden.end..]);
        let is_open = open.into_iter().any(|word| same(word));
        let is_part = !quoted.is_empty() && secret.iter().any(|word| word.contains(quoted));
        !is_suspicious(quoted) && (is_open || !is_part)
    };
    let quotes_plain_words = error.context().all(|(_, value)| {
        // Other context values are texts of ours, and numbers.
        if let ContextValue::String(quoted) = value {
            is_plain(quoted)
        } else if let ContextValue::Strings(quoted) = value {
            quoted.iter().all(|quoted| is_plain(quoted))
        } else {
            true
        }
    });
    let holds_secret = secret.iter().any(|word| word.len() > 1 && rendered.contains(word));
    if quotes_plain_words && !holds_secret {
        return rendered.to_owned();
    }
    let mut says = format!("error: {}", error.kind());
    // Name a flag as it is declared, such as `--ttl <DURATION>`. Do not show a typed word.
    if let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) {
        let typed = words.iter().any(|word| word.starts_with(argument.as_str()));
        if !typed && !is_suspicious(argument) {
            says.push_str(&format!(" ({argument})"));
        }
    }
    says.push_str("\n\nThe word is not shown: it may hold a password.\n");
    if let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) {
        says.push_str(&format!("\n{usage}\n"));
    }
    says.push_str("\nFor more information, try '--help'.\n");
    says
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    const CANARY: &str = "C4N4RY";

    #[test]
    fn passwords_are_not_shown_in_text() {
        for (given, shown) in [
            ("at etcd://u:p@h:1/x: no", "at etcd://***@h:1/x: no"),
            ("'mongodb://u:p/w@q@h/x'", "'mongodb://***@h/x'"),
            ("https://h/x?api_key=1 y", "https://h/x?*** y"),
            ("a file:///srv/a@b c", "a file:///srv/a@b c"),
            ("two etcd://a@b etcd://c@d", "two etcd://***@d"),
            ("one etcd://a@b\ntwo etcd://c@d", "one etcd://***@b\ntwo etcd://***@d"),
            ("one etcd://a@b\netcd://c@d", "one etcd://***@d"),
            ("at etcd:u:p: no", "at etcd:***: no"),
            ("at etcd://u:p: no", "at etcd://***: no"),
            ("at https://u:p: no", "at https://***: no"),
            ("at https://h:8/a?b=c: no", "at https://h:8/a?***: no"),
            ("(etcd://h:2379,i/x?ttl=5s) no", "(etcd://h:2379,i/x?ttl=5s) no"),
            ("file:///a?force=true, no", "file:///a?force=true, no"),
            ("file:///a?b=c no", "file:///a?*** no"),
            ("at x://h/a: no", "at ***://h/a: no"),
            ("no etcd:2379, a@b", "no etcd:2379, a@b"),
            ("tenure_stores::etcd::client: a@b", "tenure_stores::etcd::client: a@b"),
            ("no URL: a@b", "no URL: a@b"),
            ("etcd: reading a@b", "etcd: reading a@b"),
            ("etcd: at ETCD:u:p@h", "etcd: at ETCD:***@h"),
            ("at etcd:u:p@h", "at etcd:***@h"),
            ("at etcd:///u:p@h", "at etcd://***@h"),
        ] {
            assert_eq!(text(given), shown);
        }
    }

    #[test]
    fn no_character_of_a_password_ends_its_hiding() {
        for odd in [
            "'", "\"", "<", ">", "`", " ", "\n", "\u{1b}", "@", "/", "?", "#", ":", "://", ",",
            "&", "\\", "%",
        ] {
            for url in [
                format!("etcd://u:{odd}{CANARY}@h/x"),
                format!("etcd://u:{CANARY}{odd}@h/x"),
                format!("etcd://u:a{odd}{CANARY}{odd}b@h/x"),
                format!("etcd:///u:{odd}{CANARY}@h"),
                format!("etcd:u:{odd}{CANARY}@h"),
                format!("mongodb://u:1{odd}{CANARY}@h"),
            ] {
                for shown in [text(&format!("at {url}: no")), self::url(&url), members(&url)] {
                    assert!(!shown.contains(CANARY), "{url}: {shown}");
                }
            }
        }
    }

    /// Everything between the first URL of a script and the last `@` in it was hidden.
    #[test]
    fn a_line_with_a_whole_url_hides_no_other_line() {
        let script = |password: &str| {
            format!(
                "set -e\ncurl -f 'https://u:{password}@h:8/x?key=1' -d 'by a@b'\n\
                 curl https://h/x\n\tmail admin@example.com\necho done"
            )
        };
        assert_eq!(
            text(&script(CANARY)),
            script("").replace("u:@h:8/x?key=1' -d 'by a@b", "***@b")
        );
        for odd in
            ["'", "\"", "`", " ", "@", "/", "?", "#", ":", "\\", "\n", "\n\n", "@h\n", "@h/x\n"]
        {
            for password in [
                format!("{odd}{CANARY}"),
                format!("{CANARY}{odd}"),
                format!("a{odd}{CANARY}{odd}b"),
                format!("{CANARY}@a{odd}"),
            ] {
                let shown = text(&script(&password));
                assert!(!shown.contains(CANARY), "{password}: {shown}");
            }
        }
        // A token that was read from a file together with its line feed.
        for url in [format!("https://{CANARY}\n@h"), format!("https://u:p@{CANARY}\n@h/x")] {
            assert_eq!(text(&format!("curl {url}\nmail a@b")), "curl https://***@b");
        }
    }

    #[test]
    fn a_url_without_its_at_sign_is_hidden_unless_it_parses() {
        for scheme in tenure_stores::SCHEMES.into_iter().chain(["https:", "s3:"]) {
            for url in [format!("{scheme}//u:{CANARY}"), format!("{scheme}//u:{CANARY}/x")] {
                let shown = text(&format!("at {url}: no"));
                assert!(!shown.contains(CANARY), "{url}: {shown}");
            }
        }
    }

    #[test]
    fn the_strings_of_json_are_redacted_and_it_stays_json() {
        let value = serde_json::json!({
            "a": "at etcd://u:\"C4N4RY\\\n@h/x", "b": ["x@y", "\u{202e}", 1], "etcd:C4N4RY": null,
        });
        let shown = json(&value.to_string());
        let again: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
        assert!(!shown.contains(CANARY), "{shown}");
        assert_eq!((&again["a"], &again["b"]), (&"at etcd://***@h/x".into(), &value["b"]));
        assert_eq!(json("{\"a\":\"b"), "{\"a\":\"b");
    }

    /// The message for an invalid command line.
    fn said(words: &[&str]) -> String {
        let line = std::iter::once("tenure").chain(words.iter().copied());
        let error = crate::args::Arguments::try_parse_from(line).expect_err("no sense");
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        usage(&error, &words, &error.render().to_string())
    }

    #[test]
    fn a_mistake_beside_a_url_is_explained() {
        for url in ["file:///srv/a@b", "etcd://h/x", "etcd://u:15@h/x", "etcd://u:C4N4RY", "a@b"] {
            for line in [
                vec!["who", "a", "--store", url, "--ttl", "15"],
                vec!["who", "a", "--ttl=15", "--store", url],
                vec!["run", "a", "--ttl", "15", "--", "curl", url],
                vec!["run", "a", "--store", "etcd://h", "--ttl", "15", "--", "mail", "a@b", url],
            ] {
                let said = said(&line);
                assert!(said.contains("'15'") && said.contains("for example 15s"), "{said}");
            }
        }
        let said = said(&["who", "a", "file:///srv"]);
        assert!(said.contains("'file:///srv'"), "{said}");
    }

    #[test]
    fn a_word_that_may_hold_a_secret_is_not_quoted() {
        for url in [
            "etcd://u:C4N4RY@h",
            "etcd:u:C4N4RY",
            "etcd://u:C4N4RY",
            "file:u:C4N4RY",
            "https://u:C4N4RY",
            "s3://u:a@C4N4RY@b",
            "C4N4RY://u:p@h",
            "etcd://h/x?C4N4RY=1",
            "u:C4N4RY@h",
            "etcd://u:1\nC4N4RY@h",
            "15sC4N4RY@h",
        ] {
            let flag = format!("--stoer={url}");
            for line in [
                vec!["who", "a", url],
                vec!["who", "a", "--", url],
                vec!["who", "a", &flag],
                vec!["who", "a", "--ttl", url],
                vec!["run", "a", "--backend", url],
                vec!["run", "a", "-E", url],
                vec![url],
            ] {
                let said = said(&line);
                assert!(!said.contains(CANARY), "{line:?}: {said}");
            }
        }
        let apart = said(&["who", "--store", "etcd://u:1", "a", CANARY, "2@h"]);
        assert!(!apart.contains(CANARY), "{apart}");
    }

    #[test]
    fn a_url_is_shown_as_it_was_understood() {
        assert_eq!(url("etcd://u:p@h/x"), "etcd://h:2379/x");
        assert_eq!(url("file:///srv/a%40b"), "file:///srv/a%40b");
        assert_eq!(url("no url"), HIDDEN);
        assert_eq!(members("a:1, http://b:2/,https://c"), "a:1, http://b:2/,https://c");
        for hidden in ["a:1,u:p", "https://u:p@c", "etcd://u:1,2,3@c", "a:1,u:1@2,3@c"] {
            assert_eq!(members(hidden), HIDDEN);
        }
    }
}
