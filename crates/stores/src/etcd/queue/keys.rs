//! The keys of queues in etcd; docs/keys.md documents them.

use std::sync::Arc;

use bytes::Bytes;
use tenure::Key;

use super::super::keys::Keys;
use super::super::waits::Topic;

/// Turns elections into keys of etcd.
///
/// Entries are where etcd's own clients put them, `<prefix>/<name>/<lease>`. Keys that these
/// clients do not know are under `<prefix>//`, where no entry can be.
#[derive(Clone, Debug)]
pub(super) struct QueueKeys {
    prefix: Arc<str>,
}

impl QueueKeys {
    pub(super) fn new(keys: &Keys) -> QueueKeys {
        QueueKeys { prefix: keys.prefix().into() }
    }

    /// The key of a candidate's entry at this seat.
    pub(super) fn entry(&self, election: &Key, seat: i64) -> Bytes {
        format!("{}/{}/{seat:x}", self.prefix, name(election)).into()
    }

    /// The range of all entries of an election, and of keys nested deeper.
    pub(super) fn entries(&self, election: &Key) -> Topic {
        self.below(&format!("{}/{}", self.prefix, name(election)))
    }

    /// The key of the record beside an entry: its holder.
    pub(super) fn holder(&self, election: &Key, seat: i64) -> Bytes {
        format!("{}//holders/{}/{seat:x}", self.prefix, name(election)).into()
    }

    pub(super) fn holders(&self, election: &Key) -> Topic {
        self.below(&format!("{}//holders/{}", self.prefix, name(election)))
    }

    /// The key of the record beside the entry at this key.
    pub(super) fn holder_of(&self, election: &Key, entry: &[u8]) -> Option<Bytes> {
        let entries = self.entries(election);
        let suffix = std::str::from_utf8(entry.strip_prefix(&entries.key[..])?).ok()?;
        Some(format!("{}//holders/{}/{suffix}", self.prefix, name(election)).into())
    }

    /// The key of the mark: open or ended.
    pub(super) fn mark(&self, election: &Key) -> Bytes {
        format!("{}//lines/{}", self.prefix, name(election)).into()
    }

    /// The key of the tenure that was not left cleanly.
    pub(super) fn tenure(&self, election: &Key) -> Bytes {
        format!("{}//tenures/{}", self.prefix, name(election)).into()
    }

    /// The key that stands for the lease of a seat, as long as the lease lives.
    pub(super) fn session(&self, seat: i64) -> Bytes {
        format!("{}//sessions/{seat:x}", self.prefix).into()
    }

    /// The election and the seat of an entry.
    pub(super) fn parse(&self, entry: &[u8]) -> Option<(Key, i64)> {
        let text = std::str::from_utf8(entry).ok()?;
        let (election, seat) =
            text.strip_prefix(&*self.prefix)?.strip_prefix('/')?.rsplit_once('/')?;
        let seat = i64::from_str_radix(seat, 16).ok()?;
        Some((Key::parse(&format!("{}/{election}", Key::elections())).ok()?, seat))
    }

    fn below(&self, key: &str) -> Topic {
        // `0` is the byte after the slash, so all keys that begin with the key and a slash are
        // below.
        Topic { key: format!("{key}/").into(), end: format!("{key}0").into() }
    }
}

/// Returns true if a key is an entry. Keys nested deeper are not.
pub(super) fn is_entry(entries: &Topic, key: &[u8]) -> bool {
    key.strip_prefix(&entries.key[..]).is_some_and(|rest| !rest.contains(&b'/'))
}

/// The key of an entry as text. A key that is not UTF-8 is written in hexadecimal after a NUL.
pub(super) fn to_name(key: &[u8]) -> Arc<str> {
    match std::str::from_utf8(key) {
        Ok(text) if !text.starts_with('\0') => text.into(),
        Ok(_) | Err(_) => {
            let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("\0{digits}").into()
        }
    }
}

pub(super) fn of_name(name: &str) -> Bytes {
    let Some(digits) = name.strip_prefix('\0') else { return name.to_owned().into() };
    let byte = |at: usize| digits.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    (0..digits.len()).step_by(2).filter_map(byte).collect()
}

/// The election's name: the rest of its key after `elections/`.
fn name(election: &Key) -> &str {
    election.below(&Key::elections()).unwrap_or(election.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> (QueueKeys, Key) {
        let election = Key::parse("elections/billing/primary").expect("a good key");
        (QueueKeys::new(&Keys::new("tenure")), election)
    }

    #[test]
    fn queues_are_where_the_documentation_says() {
        let (keys, election) = keys();
        let seat = 0x694d_8f03;
        for (key, stored) in [
            (keys.entry(&election, seat), "tenure/billing/primary/694d8f03"),
            (keys.holder(&election, seat), "tenure//holders/billing/primary/694d8f03"),
            (keys.mark(&election), "tenure//lines/billing/primary"),
            (keys.tenure(&election), "tenure//tenures/billing/primary"),
            (keys.session(seat), "tenure//sessions/694d8f03"),
        ] {
            assert_eq!(key, stored.as_bytes());
            let documented = include_str!("../../../../../docs/keys.md");
            assert!(documented.contains(&format!("`{stored}`")), "{stored}");
        }
        assert_eq!(keys.parse(b"tenure/billing/primary/694d8f03"), Some((election.clone(), seat)));
        assert_eq!(
            keys.holder_of(&election, b"tenure/billing/primary/694d8f03"),
            Some(keys.holder(&election, seat))
        );
    }

    #[test]
    fn what_is_nested_deeper_is_no_entry() {
        let (keys, election) = keys();
        let entries = keys.entries(&election);
        assert!(is_entry(&entries, b"tenure/billing/primary/694d8f03"));
        assert!(is_entry(&entries, b"tenure/billing/primary/by hand"));
        assert!(!is_entry(&entries, b"tenure/billing/primary/deeper/694d8f03"));
        assert!(!is_entry(&entries, b"tenure/billing/primary"));
        assert!(!is_entry(&entries, b"tenure/billing/primarys/1"));
        assert!(*entries.end > b"tenure/billing/primary/\xff"[..]);
    }

    #[test]
    fn names_of_entries_are_text_whatever_the_key_is() {
        for key in [&b"tenure/a/1"[..], b"tenure/a/\xff\x00", b"\0x"] {
            assert_eq!(of_name(&to_name(key)), key);
        }
    }
}
