//! An election's own node: where it is, and whether it has ended.

use std::sync::Arc;

use tenure::Key;

use super::super::paths;
use super::super::wire::Stat;

/// Marks an election that has ended, with the generation that has: one made anew has another.
const ENDED: &str = "tenure: ended ";
/// The node with the tenure that was not left cleanly. After all digits, so that nobody takes it for a candidate.
const UNCLEAN: &str = "=unclean";

/// Where an election is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Root {
    pub(super) path: Arc<str>,
}

impl Root {
    pub(super) fn of(base: &str, election: &Key) -> Root {
        // Elections are below the base by their names; what distinguishes their documents is not for other clients.
        let name = election.below(&Key::elections()).unwrap_or(election.as_str());
        let mut path = base.to_owned();
        for segment in name.split('/') {
            path.push('/');
            paths::encode(segment, &mut path);
        }
        Root { path: path.into() }
    }

    /// The election that an entry stands in.
    pub(super) fn of_entry(entry: &str) -> Root {
        let (path, _) = entry.rsplit_once('/').unwrap_or((entry, ""));
        Root { path: path.into() }
    }

    pub(super) fn child(&self, node: &str) -> String {
        format!("{}/{node}", self.path)
    }

    pub(super) fn unclean(&self) -> String {
        self.child(UNCLEAN)
    }

    /// The nodes above, outermost first, and the election's own.
    pub(super) fn levels(&self) -> impl Iterator<Item = &str> {
        let ends = self.path.match_indices('/').map(|(at, _)| at).skip(1);
        ends.chain([self.path.len()]).map(|end| &self.path[..end])
    }
}

/// Which creation of the election a node is.
pub(super) fn generation(stat: &Stat) -> u64 {
    number(stat.created)
}

/// Transactions are counted from 1; what claims otherwise is no ZooKeeper, and comes before everything.
pub(super) fn number(zxid: i64) -> u64 {
    u64::try_from(zxid).unwrap_or(0)
}

pub(super) fn mark(generation: u64) -> String {
    format!("{ENDED}{generation}")
}

pub(super) fn has_ended(data: &[u8], stat: &Stat) -> bool {
    data == mark(generation(stat)).as_bytes()
}

pub(super) fn is_unclean(node: &str) -> bool {
    node == UNCLEAN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elections_are_where_the_documentation_says() {
        let key = Key::parse("elections/billing/primary é").expect("a good key");
        let root = Root::of("/tenure", &key);
        assert_eq!(&*root.path, "/tenure/billing/primary%20%C3%A9");
        let levels: Vec<_> = root.levels().collect();
        assert_eq!(levels, ["/tenure", "/tenure/billing", "/tenure/billing/primary%20%C3%A9"]);
        assert_eq!(Root::of_entry(&root.child("n-1")), root);
        assert!(
            include_str!("../../../../../docs/keys.md").contains("`tenure: ended <generation>`")
        );
    }
}
