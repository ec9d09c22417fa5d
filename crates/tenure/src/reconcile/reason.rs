//! Why a handler runs.

use std::fmt;

use crate::Loss;

/// Why a handler runs, as given in `TENURE_REASON`.
///
/// The text is one word, followed by a colon and details if there are any. A script gets at the
/// word with `${TENURE_REASON%%:*}`.
///
/// ```
/// use tenure::{Loss, reconcile::Reason};
/// let reason = Reason::Lost(Loss::Deposed);
/// assert_eq!(reason.word(), "deposed");
/// assert_eq!(reason.to_string(), "deposed: the store shows another leader");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The election was won.
    Elected,
    /// Leadership was lost.
    Lost(Loss),
    /// The source says that this candidate does not lead.
    NotLeader(String),
    /// The source reports a new tenure, so the one before is over.
    Superseded,
    /// The source reported an error.
    Error(String),
    /// The begin handler failed.
    BeginFailed(String),
    /// The end handler failed.
    EndFailed(String),
    /// A stop was requested.
    Stop,
    /// The source has no more events.
    SourceEnded,
}

impl Reason {
    /// The reason as one word that never changes.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Reason::Elected => "elected",
            Reason::Lost(loss) => word_of(loss),
            Reason::NotLeader(_) => "not-leader",
            Reason::Superseded => "superseded",
            Reason::Error(_) => "error",
            Reason::BeginFailed(_) => "begin-failed",
            Reason::EndFailed(_) => "end-failed",
            Reason::Stop => "stop",
            Reason::SourceEnded => "source-ended",
        }
    }
}

fn word_of(loss: &Loss) -> &'static str {
    match loss {
        Loss::Expired => "expired",
        Loss::Deposed => "deposed",
        Loss::Ended => "ended",
        Loss::Vanished => "vanished",
        Loss::Regressed => "regressed",
        Loss::Forced => "forced",
        Loss::Resigned => "resigned",
        Loss::OtherProcess => "other-process",
        Loss::Stopped => "stopped",
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())?;
        match self {
            Reason::Lost(loss) => write!(f, ": {loss}"),
            Reason::NotLeader(detail)
            | Reason::Error(detail)
            | Reason::BeginFailed(detail)
            | Reason::EndFailed(detail) => {
                if detail.is_empty() {
                    return Ok(());
                }
                write!(f, ": {detail}")
            }
            Reason::Elected | Reason::Superseded | Reason::Stop | Reason::SourceEnded => Ok(()),
        }
    }
}
