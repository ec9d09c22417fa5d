//! Detects credentials in a store's address.

/// Parts of the names of query keys that carry secrets, in any spelling.
const SECRET_PARTS: [&str; 7] =
    ["password", "passwd", "passphrase", "secret", "token", "apikey", "credential"];
/// Names of query keys that are secret only as a whole.
const SECRET_NAMES: [&str; 5] = ["pass", "pwd", "auth", "key", "accesskey"];

/// Returns true if a store's address holds credentials, and must not be passed on.
///
/// In doubt it returns true: a user before `@` or a query key that sounds like a secret is enough.
///
/// ```
/// use tenure::reconcile::holds_credentials;
/// assert!(holds_credentials("etcd://root:hunter2@127.0.0.1:2379/jobs"));
/// assert!(holds_credentials("https://search:9200/jobs?api_key=abc"));
/// assert!(!holds_credentials("file:///var/lib/a@b?ttl=5s"));
/// ```
#[must_use]
pub fn holds_credentials(address: &str) -> bool {
    let (place, query) = match address.split_once('?') {
        Some((place, query)) => (place, query),
        None => (address, ""),
    };
    // A path on this machine has no user. In other addresses a password may hold any character, `/`
    // too.
    let local = place.starts_with("file:///") || !place.contains("://") && place.starts_with('/');
    let user = !local && place.contains('@');
    user || query.split(['&', ';', '#', '?']).any(|pair| is_secret(pair) || pair.contains('@'))
}

fn is_secret(pair: &str) -> bool {
    let key = pair.split('=').next().unwrap_or_default();
    // A harmless key has no reason to be percent-encoded.
    if key.contains('%') {
        return true;
    }
    let plain: String =
        key.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    SECRET_PARTS.iter().any(|part| plain.contains(part)) || SECRET_NAMES.contains(&plain.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_or_a_secret_query_key_makes_an_address_a_secret() {
        for address in [
            "etcd://root:pw@host/jobs",
            "mongodb://user@a,b/db",
            "mongodb://u:p/w?x@host/db",
            "zk://host/jobs?auth=digest:u:p",
            "https://host/i?API-Key=1",
            "https://host/i?ttl=5s&sslPassword=x",
            "mongodb://host/?tlsCertificateKeyFilePassword=x",
            "https://host/i?pass%77ord=x",
        ] {
            assert!(holds_credentials(address), "{address}");
        }
    }

    #[test]
    fn an_address_without_credentials_may_be_handed_on() {
        for address in [
            "file:///tmp/tenure",
            "file:///tmp/a@b",
            "/tmp/a@b",
            "memory:",
            "etcd://127.0.0.1:2379,127.0.0.1:2380/jobs?ttl=5s&protocol=lease",
            "etcd://host/jobs?ca_file=/etc/ca.pem&key_file=/etc/key.pem",
        ] {
            assert!(!holds_credentials(address), "{address}");
        }
    }
}
