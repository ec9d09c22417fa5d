//! The server's answers to the writes of one command.

use mongodb::bson::{Bson, Document as Bsons};
use tenure::store::{Fault, Put, Version};

use super::fault::{Failure, brief};

/// A document with that id exists.
const DUPLICATE_KEY: i64 = 11000;
/// The version differs: see `table::replacement`.
const CONVERSION_FAILURE: i64 = 241;

/// The outcome of each write of a command. `versions` are the new versions.
pub(super) fn outcomes(answer: &Bsons, versions: Vec<Version>) -> Vec<Result<Put, Failure>> {
    let errors: Vec<WriteError> = match answer.get_array("writeErrors") {
        Ok(errors) => errors.iter().filter_map(WriteError::read).collect(),
        Err(_) => Vec::new(),
    };
    // A write that is neither an error nor counted as done is unknown.
    let done = answer.get("n").and_then(integer);
    let counted = usize::try_from(done.unwrap_or(-1)).ok();
    let asked = versions.len();
    let complete = counted == asked.checked_sub(errors.len());
    let concern = answer.get_document("writeConcernError").ok().map(concern);
    let outcome = |(index, version): (usize, Version)| {
        match (errors.iter().find(|error| error.index == index), &concern) {
            (Some(error), _) if error.is_conflict() => Ok(Put::Conflict),
            (Some(error), _) => Err(Failure::new(Fault::Indeterminate, error.says.clone())),
            // The write was applied, but may still be rolled back.
            (None, Some(says)) => Err(Failure::new(Fault::Indeterminate, says.clone())),
            (None, None) if complete => Ok(Put::Stored(version)),
            (None, None) => Err(Failure::new(
                Fault::Indeterminate,
                format!(
                    "the server reports {done:?} writes and {} errors for {asked}",
                    errors.len()
                ),
            )),
        }
    };
    versions.into_iter().enumerate().map(outcome).collect()
}

/// The outcome of a deletion.
pub(super) fn deletion(answer: &Bsons) -> Result<Put, Failure> {
    if let Ok(error) = answer.get_document("writeConcernError") {
        return Err(Failure::new(Fault::Indeterminate, concern(error)));
    }
    let error = answer.get_array("writeErrors").ok().and_then(|errors| errors.first());
    if let Some(error) = error.and_then(WriteError::read) {
        return Err(Failure::new(Fault::Indeterminate, error.says));
    }
    match answer.get("n").and_then(integer) {
        Some(0) => Ok(Put::Conflict),
        // The version of a deleted document has no meaning.
        Some(1) => Ok(Put::Stored(Version::new("deleted"))),
        other => {
            let says = format!("{other:?} documents are said to be deleted");
            Err(Failure::new(Fault::Indeterminate, says))
        }
    }
}

struct WriteError {
    index: usize,
    code: i64,
    says: String,
}

impl WriteError {
    fn read(error: &Bson) -> Option<WriteError> {
        let error = error.as_document()?;
        let index = usize::try_from(integer(error.get("index")?)?).ok()?;
        let code = error.get("code").and_then(integer).unwrap_or_default();
        let says = brief(error.get_str("errmsg").unwrap_or("no reason given"));
        Some(WriteError { index, code, says: format!("{says} ({code})") })
    }

    fn is_conflict(&self) -> bool {
        [DUPLICATE_KEY, CONVERSION_FAILURE].contains(&self.code)
    }
}

fn concern(error: &Bsons) -> String {
    let says = brief(error.get_str("errmsg").unwrap_or("no reason given"));
    format!("the majority has not confirmed it: {says}")
}

pub(super) fn integer(number: &Bson) -> Option<i64> {
    match number {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        Bson::Double(number) if number.fract() == 0.0 => Some(*number as i64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mongodb::bson::doc;

    fn versions(count: usize) -> Vec<Version> {
        (0..count).map(|number| Version::new(number.to_string())).collect()
    }

    fn shown(outcomes: Vec<Result<Put, Failure>>) -> Vec<String> {
        let show = |outcome| match outcome {
            Ok(Put::Stored(version)) => version.as_str().to_owned(),
            Ok(Put::Conflict) => "conflict".to_owned(),
            Err(Failure { fault, .. }) => format!("{fault:?}"),
        };
        outcomes.into_iter().map(show).collect()
    }

    #[test]
    fn each_write_has_its_own_outcome() {
        let errors = [doc! { "index": 1, "code": 241 }, doc! { "index": 2, "code": 11000 }];
        let answer = doc! { "n": 2, "writeErrors": errors.to_vec(), "ok": 1 };
        let outcomes = shown(outcomes(&answer, versions(4)));
        assert_eq!(outcomes, ["0", "conflict", "conflict", "3"]);
    }

    #[test]
    fn an_error_that_is_no_conflict_is_in_doubt() {
        let errors = vec![doc! { "index": 0, "code": 112 }];
        let answer = doc! { "n": 1, "writeErrors": errors };
        assert_eq!(shown(outcomes(&answer, versions(2))), ["Indeterminate", "1"]);
    }

    #[test]
    fn what_the_majority_has_not_confirmed_is_in_doubt() {
        let answer = doc! {
            "n": 1,
            "writeErrors": [{ "index": 1, "code": 241 }],
            "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" },
        };
        assert_eq!(shown(outcomes(&answer, versions(2))), ["Indeterminate", "conflict"]);
        assert!(deletion(&answer).is_err());
    }

    #[test]
    fn an_answer_that_counts_otherwise_is_in_doubt() {
        for answer in [doc! { "n": 1 }, doc! { "n": 3 }, doc! {}, doc! { "n": "2" }] {
            let outcomes = shown(outcomes(&answer, versions(2)));
            assert_eq!(outcomes, ["Indeterminate", "Indeterminate"], "{answer}");
        }
    }

    #[test]
    fn a_deletion_that_found_nothing_is_a_conflict() {
        assert!(matches!(deletion(&doc! { "n": 0 }), Ok(Put::Conflict)));
        assert!(matches!(deletion(&doc! { "n": 1 }), Ok(Put::Stored(_))));
        assert!(deletion(&doc! {}).is_err());
    }
}
