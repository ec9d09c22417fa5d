//! URLs in the form that errors and the log show.

use url::Url;

/// The text in place of a secret.
const HIDDEN: &str = "***";
/// The schemes of URLs that can be polled, or hold objects. Another scheme may be a password.
const SCHEMES: [&str; 11] =
    ["abfs", "abfss", "adl", "az", "azure", "file", "gs", "http", "https", "s3", "s3a"];

/// The URL without user, password, query and fragment. Any of them may be a secret.
///
/// A URL that does not parse is not shown, since a password may be in any part of it.
pub(crate) fn shown(url: &str) -> String {
    let Ok(mut url) = Url::parse(url) else { return HIDDEN.to_owned() };
    let has_place = url.host().is_some() || url.scheme() == "file";
    if !has_place || !SCHEMES.contains(&url.scheme()) {
        return HIDDEN.to_owned();
    }
    // These fail only if the URL cannot have a user.
    let _ = (url.set_username(""), url.set_password(None));
    let had_query = url.query().is_some();
    url.set_query(None);
    url.set_fragment(None);
    if url.as_str().contains('@') {
        // Most likely a password with a slash in it.
        return HIDDEN.to_owned();
    }
    if had_query { format!("{url}?{HIDDEN}") } else { url.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_may_be_a_secret_is_shown() {
        for (url, said) in [
            ("s3://bucket/a/b", "s3://bucket/a/b"),
            ("https://h:8/a?token=canary#canary", "https://h:8/a?***"),
            ("s3://canary@bucket/x", "s3://bucket/x"),
            ("s3://u:a@canary@bucket/x", "s3://bucket/x"),
            ("s3://u:1/canary@bucket", "***"),
            ("s3://u:1?canary@bucket", "s3://u:1?***"),
            ("s3:u:canary@bucket", "***"),
            ("u:canary@bucket", "***"),
            ("canary", "***"),
            ("canary://h/x", "***"),
            ("http://u:canary", "***"),
            ("file:///a/b", "file:///a/b"),
        ] {
            assert_eq!(shown(url), said, "{url}");
        }
    }
}
