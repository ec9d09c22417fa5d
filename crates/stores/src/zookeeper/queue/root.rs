//! An election's own node: its path, its end, and the prefix of its candidates.
//!
//! Its data has a few lines of ours: `tenure: ended <generation>`, the first line of an ended
//! election, and `tenure: prefix <prefix>`. Other lines belong to another client, and stay.
//!
//! The prefix is in this node and not in the election's document, because it must be as old as the
//! line. A process reads both together, and an election that is made anew may have another prefix.
//! (A document that is read before the join may belong to an earlier generation.)

use std::sync::Arc;

use tenure::Key;

use super::super::paths;
use super::super::wire::Stat;
use super::names::Recipe;

/// Marks an ended election. The generation follows it: an election made anew has another.
const ENDED: &str = "tenure: ended ";
/// Stands before the prefix of the candidates' nodes.
const PREFIX: &str = "tenure: prefix ";
/// The node above the records of tenures. No segment of a name has a `=`.
const TENURES: &str = "=tenures";

/// The paths of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Root {
    pub(super) path: Arc<str>,
    /// The record of its tenures. It is not in the queue, where other clients would take it for a
    /// candidate.
    pub(super) tenure: Arc<str>,
}

impl Root {
    pub(super) fn of(base: &str, election: &Key) -> Root {
        // An election is below the base by its name. The first segment of its document's key is not
        // for other clients.
        let name = election.below(&Key::elections()).unwrap_or(election.as_str());
        let mut path = base.to_owned();
        for segment in name.split('/') {
            path.push('/');
            paths::encode(segment, &mut path);
        }
        Root::at(base, &path)
    }

    /// The election of an entry.
    pub(super) fn of_entry(base: &str, entry: &str) -> Root {
        let (path, _) = entry.rsplit_once('/').unwrap_or((entry, ""));
        Root::at(base, path)
    }

    fn at(base: &str, path: &str) -> Root {
        let name = path.strip_prefix(base).unwrap_or(path).trim_start_matches('/');
        let tenure = format!("{}/{}", tenures(base), name.replace('/', "="));
        Root { path: path.into(), tenure: tenure.into() }
    }

    pub(super) fn child(&self, node: &str) -> String {
        format!("{}/{node}", self.path)
    }

    /// The nodes above the election's own, outermost first, and then its own.
    pub(super) fn levels(&self) -> impl Iterator<Item = &str> {
        let ends = self.path.match_indices('/').map(|(at, _)| at).skip(1);
        ends.chain([self.path.len()]).map(|end| &self.path[..end])
    }
}

/// The generation of an election, by its node.
pub(super) fn generation(stat: &Stat) -> u64 {
    number(stat.created)
}

/// Converts a transaction's number.
///
/// ZooKeeper counts from 1. A negative number is not ZooKeeper's, and becomes 0, before all others.
pub(super) fn number(zxid: i64) -> u64 {
    u64::try_from(zxid).unwrap_or(0)
}

/// The data of an election that is open to candidates of this recipe.
pub(super) fn open(recipe: &Recipe) -> String {
    format!("{PREFIX}{}", recipe.prefix())
}

/// The data of another client's election node, with our prefix recorded after it.
pub(super) fn recording(data: &[u8], recipe: &Recipe) -> Vec<u8> {
    let between = if data.is_empty() || data.ends_with(b"\n") { "" } else { "\n" };
    [data, between.as_bytes(), open(recipe).as_bytes()].concat()
}

/// The data of an ended generation.
///
/// It keeps the data until then: the prefix of its candidates, and the lines of other clients.
pub(super) fn mark(generation: u64, data: &[u8]) -> Vec<u8> {
    let between = if data.is_empty() { "" } else { "\n" };
    [ENDED.as_bytes(), generation.to_string().as_bytes(), between.as_bytes(), data].concat()
}

pub(super) fn has_ended(data: &[u8], stat: &Stat) -> bool {
    data.split(|byte| *byte == b'\n').next() == Some(&mark(generation(stat), b""))
}

/// The recorded prefix of the candidates.
pub(super) fn recorded(data: &[u8]) -> Option<Recipe> {
    let lines = data.split(|byte| *byte == b'\n');
    let mut prefixes = lines.filter_map(|line| line.strip_prefix(PREFIX.as_bytes()));
    prefixes.find_map(|prefix| Recipe::with_prefix(std::str::from_utf8(prefix).ok()?))
}

/// The node above the records of tenures.
pub(super) fn tenures(base: &str) -> String {
    format!("{base}/{TENURES}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../../../docs/keys.md");

    #[test]
    fn elections_are_where_the_documentation_says() {
        let key = Key::parse("elections/billing/primary é").expect("a good key");
        let root = Root::of("/tenure", &key);
        assert_eq!(&*root.path, "/tenure/billing/primary%20%C3%A9");
        assert_eq!(&*root.tenure, "/tenure/=tenures/billing=primary%20%C3%A9");
        let levels: Vec<_> = root.levels().collect();
        assert_eq!(levels, ["/tenure", "/tenure/billing", "/tenure/billing/primary%20%C3%A9"]);
        assert_eq!(Root::of_entry("/tenure", &root.child("n-1")), root);
        let top = Root::of("", &Key::parse("elections/a").expect("a good key"));
        assert_eq!((&*top.path, &*top.tenure), ("/a", "/=tenures/a"));
        assert!(PAGE.contains("`tenure: ended <generation>`"));
        assert!(PAGE.contains("`tenure: prefix <prefix>`"));
        assert!(PAGE.contains("`/tenure/=tenures/billing=primary`"));
    }

    /// Regression: another client's data was replaced merely because one of our candidates stood
    /// there.
    #[test]
    fn what_other_clients_keep_in_an_elections_node_stays() {
        let latch = Recipe::with_prefix("latch-").expect("a good prefix");
        let recorded = recording(b"10.0.0.7", &latch);
        assert_eq!(recorded, b"10.0.0.7\ntenure: prefix latch-");
        assert_eq!(recording(b"a\n", &latch), b"a\ntenure: prefix latch-");
        assert_eq!(mark(7, &recorded), b"tenure: ended 7\n10.0.0.7\ntenure: prefix latch-");
    }

    #[test]
    fn the_data_of_an_election_says_whose_candidates_stand_in_it_ended_or_not() {
        let stat = Stat {
            created: 7,
            modified: 9,
            version: 1,
            children_version: 0,
            owner: 0,
            children: 0,
        };
        let latch = Recipe::with_prefix("latch-").expect("a good prefix");
        let open = open(&latch).into_bytes();
        for (data, recipe, has) in [
            (open.clone(), Some(&latch), false),
            (mark(7, &open), Some(&latch), true),
            (mark(7, b""), None, true),
            (mark(8, &open), Some(&latch), false),
            (recording(b"", &latch), Some(&latch), false),
            (recording(b"10.0.0.7", &latch), Some(&latch), false),
            (recording(b"a\nb\n", &latch), Some(&latch), false),
            (mark(7, &recording(b"10.0.0.7", &latch)), Some(&latch), true),
            (b"".to_vec(), None, false),
            (b"10.0.0.7".to_vec(), None, false),
            (b"tenure: prefix a/b".to_vec(), None, false),
            (recording(b"tenure: prefix a/b", &latch), Some(&latch), false),
            (b"\xff\ntenure: prefix latch-".to_vec(), Some(&latch), false),
        ] {
            let data = data.as_slice();
            assert_eq!(recorded(data).as_ref(), recipe, "{data:?}");
            assert_eq!(has_ended(data, &stat), has, "{data:?}");
        }
    }
}
