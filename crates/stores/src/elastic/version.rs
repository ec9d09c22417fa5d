//! The version of a document: its sequence number and its primary term.

use tenure::store::Version;

/// The pair of numbers by which both servers compare documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) number: i64,
    pub(super) term: i64,
}

impl Pair {
    /// The pair in an answer; none if one of the numbers is missing.
    pub(super) fn of(number: Option<i64>, term: Option<i64>) -> Option<Pair> {
        let (number, term) = (number?, term?);
        // The servers use negative numbers for operations without a number.
        (number >= 0 && term > 0).then_some(Pair { number, term })
    }

    /// The pair in a version; none if the version is not one of ours.
    pub(super) fn parse(version: &Version) -> Option<Pair> {
        let (number, term) = version.as_str().split_once(':')?;
        Pair::of(own(number), own(term))
    }

    pub(super) fn version(self) -> Version {
        Version::new(format!("{}:{}", self.number, self.term))
    }
}

/// Parses a number in the form that we write: not `+1`, and not `01`.
fn own(text: &str) -> Option<i64> {
    let as_written =
        text.bytes().all(|c| c.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| as_written)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_a_pair_and_nothing_else_is() {
        let pair = Pair { number: 7, term: 2 };
        assert_eq!(pair.version(), Version::new("7:2"));
        assert_eq!(Pair::parse(&Version::new("7:2")), Some(pair));
        assert_eq!(Pair::parse(&Version::new("0:1")), Some(Pair { number: 0, term: 1 }));
        for other in ["never", "7", "7:", ":2", "+7:2", "7:02", "00:1", "-1:2", "7:0", "7:2:1"] {
            assert_eq!(Pair::parse(&Version::new(other)), None, "{other}");
        }
    }
}
