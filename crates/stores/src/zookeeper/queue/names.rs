//! The names of a queue's nodes; docs/keys.md documents them.
//!
//! The form is `_c_<guid>-<prefix><sequence>`, that of Curator's protected nodes. The guid is the
//! candidacy's own id, so that an entry is found again if its creation was never answered. From the
//! second attempt on, the attempt's number follows the guid.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use tenure::CandidateId;
use tenure::queue::Ticket;

/// The number of digits in ZooKeeper's sequence numbers.
const DIGITS: usize = 10;
const PROTECTED: &str = "_c_";
/// The length of a guid with its dashes.
const GUID: usize = 36;

/// The clients that our candidates share a queue with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Recipe {
    /// Only our own candidates.
    #[default]
    Own,
    /// Curator's `LeaderLatch`.
    CuratorLatch,
    /// kazoo's `Lock` and `Election`.
    Kazoo,
    /// Any client that has this prefix before a node's number.
    Prefix(Arc<str>),
}

impl Recipe {
    /// The prefix before a node's number.
    #[must_use]
    pub fn prefix(&self) -> &str {
        match self {
            Recipe::Own => "n-",
            Recipe::CuratorLatch => "latch-",
            Recipe::Kazoo => "__lock__",
            Recipe::Prefix(prefix) => prefix,
        }
    }

    /// Checks a custom prefix: 1 to 64 characters of ASCII, no slash, no `=` and no space.
    #[must_use]
    pub fn with_prefix(prefix: &str) -> Option<Recipe> {
        let good = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b'=';
        let fits = (1..=64).contains(&prefix.len()) && prefix.bytes().all(good);
        fits.then(|| Recipe::Prefix(prefix.into()))
    }

    /// Returns true if candidates of both recipes take each other for candidates.
    pub(super) fn is_like(&self, other: &Recipe) -> bool {
        self.prefix() == other.prefix()
    }

    /// The URL option that selects this prefix.
    pub(super) fn option(prefix: &str) -> String {
        let named = [(Recipe::CuratorLatch, "curator-latch"), (Recipe::Kazoo, "kazoo")];
        match named.iter().find(|(recipe, _)| recipe.prefix() == prefix) {
            _ if prefix == Recipe::Own.prefix() => "no `recipe` and no `node-prefix`".to_owned(),
            Some((_, name)) => format!("`recipe={name}`"),
            None => format!("`node-prefix={prefix}`"),
        }
    }

    /// The name of a new entry, to which the server adds its number.
    pub(super) fn name(&self, ticket: &Ticket) -> String {
        let Stem(stem) = Stem::of(&ticket.candidate);
        match ticket.attempt {
            1 => format!("{stem}{}", self.prefix()),
            attempt => format!("{stem}{attempt}-{}", self.prefix()),
        }
    }

    /// The number by which a node stands in the queue; `None` if it is no entry.
    pub(super) fn sequence(&self, node: &str) -> Option<u64> {
        let (_, number) = self.split(node)?;
        number.parse().ok()
    }

    /// The attempt of this candidacy that made a node; `None` if it is another's.
    pub(super) fn attempt(&self, node: &str, candidate: &Stem) -> Option<u64> {
        // Most nodes belong to others.
        let rest = node.strip_prefix(candidate.0.as_str())?;
        match self.split(rest)?.0 {
            "" => Some(1),
            attempt => attempt.strip_suffix('-')?.parse().ok(),
        }
    }

    /// The candidacy of a node, or at least an id that no other node shares.
    pub(super) fn owner(&self, node: &str) -> CandidateId {
        let ours = node.strip_prefix(PROTECTED).and_then(|rest| rest.get(..GUID)).and_then(bits);
        match ours {
            Some(bits) => CandidateId::from_bits(bits),
            None => CandidateId::parse(node).unwrap_or_else(|_| CandidateId::from_bits(hash(node))),
        }
    }

    fn split<'a>(&self, node: &'a str) -> Option<(&'a str, &'a str)> {
        let at = node.len().checked_sub(DIGITS)?;
        let (front, number) = node.split_at_checked(at)?;
        let digits = number.bytes().all(|byte| byte.is_ascii_digit());
        front.strip_suffix(self.prefix()).filter(|_| digits).map(|front| (front, number))
    }
}

/// The beginning of the names of a candidacy's nodes.
#[derive(Clone, Debug)]
pub(super) struct Stem(String);

impl Stem {
    pub(super) fn of(candidate: &CandidateId) -> Stem {
        Stem(format!("{PROTECTED}{}-", guid(candidate)))
    }
}

/// A candidacy's id in the form of a guid.
fn guid(candidate: &CandidateId) -> String {
    let text = candidate.as_str();
    let own = (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok()).flatten();
    // An id of another form is known to this process alone.
    let bits = own.unwrap_or_else(|| hash(text));
    let hex = format!("{bits:032x}");
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    parts.join("-")
}

fn bits(guid: &str) -> Option<u128> {
    let dashed = guid.bytes().enumerate().all(|(at, byte)| {
        if matches!(at, 8 | 13 | 18 | 23) { byte == b'-' } else { byte.is_ascii_hexdigit() }
    });
    let hex: String = guid.chars().filter(|character| *character != '-').collect();
    dashed.then(|| u128::from_str_radix(&hex, 16).ok()).flatten()
}

fn hash(text: &str) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, text).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(attempt: u64) -> Ticket {
        Ticket {
            candidate: CandidateId::from_bits(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef),
            attempt,
        }
    }

    #[test]
    fn entries_are_called_as_the_documentation_says() {
        let page = include_str!("../../../../../docs/keys.md");
        let node = Recipe::Own.name(&ticket(1)) + "0000000007";
        assert_eq!(node, "_c_01234567-89ab-cdef-0123-456789abcdef-n-0000000007");
        assert!(page.contains("`_c_<guid>-n-<number>`"));
        assert!(Recipe::CuratorLatch.name(&ticket(2)).ends_with("cdef-2-latch-"));
    }

    #[test]
    fn an_entry_is_known_again_by_its_candidacy_and_attempt() {
        for recipe in [Recipe::Own, Recipe::CuratorLatch, Recipe::Kazoo] {
            for attempt in [1, 2, 17] {
                let node = recipe.name(&ticket(attempt)) + "0000000007";
                assert_eq!(recipe.sequence(&node), Some(7));
                assert_eq!(recipe.attempt(&node, &Stem::of(&ticket(1).candidate)), Some(attempt));
                assert_eq!(recipe.attempt(&node, &Stem::of(&CandidateId::from_bits(1))), None);
                assert_eq!(recipe.owner(&node), ticket(1).candidate);
            }
        }
    }

    #[test]
    fn nodes_of_other_recipes_stand_in_queue_and_others_do_not() {
        let latch = "_c_8a3ba1b2-8fcb-4b1c-b0f1-0e4f0f6f4f60-latch-0000000012";
        assert_eq!(Recipe::CuratorLatch.sequence(latch), Some(12));
        assert_eq!(Recipe::Own.sequence(latch), None);
        let lock = "b9ba6b8a9d1f4b3db5f3d0c51e0a1ac5__lock__0000000003";
        assert_eq!(Recipe::Kazoo.sequence(lock), Some(3));
        for other in ["=unclean", "latch-", "latch-12", "latch--2147483648", "é", ""] {
            assert_eq!(Recipe::CuratorLatch.sequence(other), None, "{other}");
        }
    }
}
