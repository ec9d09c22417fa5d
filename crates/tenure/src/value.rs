//! A candidate's value inside JSON: UTF-8 values as text, others in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;

use crate::candidate::MAX_VALUE_BYTES;

/// The fields `value` and `value_base64` of a document; both are absent for an empty value.
pub(crate) fn encode(value: &Bytes) -> (Option<String>, Option<String>) {
    if value.is_empty() {
        return (None, None);
    }
    match std::str::from_utf8(value) {
        Ok(text) => (Some(text.into()), None),
        Err(_) => (None, Some(BASE64.encode(value))),
    }
}

/// Reads those fields back; the error names the bad field and the reason.
pub(crate) fn decode(
    text: Option<String>,
    encoded: Option<String>,
) -> Result<Bytes, (&'static str, String)> {
    let value = match (text, encoded) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(encoded)) => {
            BASE64.decode(encoded).map_err(|error| ("value_base64", error.to_string()))?
        }
        (None, None) => Vec::new(),
        (Some(_), Some(_)) => return Err(("value", "given twice".into())),
    };
    if value.len() > MAX_VALUE_BYTES {
        return Err(("value", "too long".into()));
    }
    Ok(value.into())
}
