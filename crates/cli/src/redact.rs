//! The one way on which a URL, or text that may hold one, gets to be shown.
//!
//! A URL that parses is shown as its parsed location, which has no user and no password. One that
//! does not parse is not shown: a mistyped password may stand in any part of it.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue};

/// In the place of a secret.
const HIDDEN: &str = "***";

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
pub(crate) fn text(text: &str) -> String {
    text.split_inclusive('\n').map(line).collect()
}

/// A password may hold every character, even a space, a quote or `://`. So all is hidden from the
/// start of the first URL up to the last `@`.
fn line(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = url_start(rest) {
        let (before, after) = rest.split_at(start);
        shown.push_str(before);
        // A directory's name is no password.
        let hidden = if before.ends_with("file://") && after.starts_with('/') {
            None
        } else {
            after.rfind('@')
        };
        let after = match hidden {
            Some(at) => {
                shown.push_str(HIDDEN);
                &after[at..]
            }
            None => after,
        };
        let end = after.find(|c: char| c.is_whitespace() || "'\"`<>".contains(c));
        let (address, behind) = after.split_at(end.unwrap_or(after.len()));
        let (place, query) = match address.split_once('?') {
            Some((place, query)) => (place, Some(query)),
            None => (address, None),
        };
        shown.push_str(place);
        match query {
            Some(query) if tenure_stores::holds_credentials(&format!("etcd://x?{query}")) => {
                shown.push('?');
                shown.push_str(HIDDEN);
            }
            Some(query) => {
                shown.push('?');
                shown.push_str(query);
            }
            None => {}
        }
        rest = behind;
    }
    shown.push_str(rest);
    shown
}

/// Where the first URL goes on behind its scheme: `://`, or a store's scheme and a colon.
fn url_start(text: &str) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    let slashes = text.find("://").map(|at| at + "://".len());
    let schemes = tenure_stores::SCHEMES.into_iter().filter(|scheme| *scheme != "file:");
    let named = schemes.filter_map(|scheme| {
        // `etcd: reading a` is a sentence about etcd.
        let goes_on = |after: &usize| text[*after..].starts_with(|c: char| !c.is_whitespace());
        text.match_indices(scheme).map(|(at, _)| at + scheme.len()).find(goes_on)
    });
    let first = slashes.into_iter().chain(named).min()?;
    // The whole of `://`, whichever of the two came first.
    Some(if text[first..].starts_with("//") { first + "//".len() } else { first })
}

/// What clap says about a command line. It quotes words of it, and any of them may be a secret.
pub(crate) fn usage(error: &clap::Error, words: &[OsString], rendered: &str) -> String {
    let suspicious = |text: &str| text.contains('@') || text.contains("://");
    let ours = words.iter().take_while(|word| *word != "--");
    let on_the_line = ours.into_iter().any(|word| suspicious(&word.to_string_lossy()));
    if !on_the_line && !suspicious(rendered) {
        return rendered.to_owned();
    }
    let mut says = format!("error: {}", error.kind());
    // A flag by its declared name, such as `--ttl <DURATION>`; a word that was typed is not shown.
    if let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) {
        let typed = words.iter().any(|word| word.to_string_lossy().starts_with(argument.as_str()));
        if !typed && !suspicious(argument) {
            says.push_str(&format!(" ({argument})"));
        }
    }
    says.push_str("\n\nThe words are not shown: one of them may hold a password.\n");
    if let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) {
        says.push_str(&format!("\n{usage}\n"));
    }
    says.push_str("\nFor more information, try '--help'.\n");
    says
}

#[cfg(test)]
mod tests {
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
        for odd in
            ["'", "\"", "<", ">", "`", " ", "@", "/", "?", "#", ":", "://", ",", "&", "\\", "%"]
        {
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
