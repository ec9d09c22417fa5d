//! Tests of good and bad URLs, and of the secrets that no message may show.

use super::*;
use crate::url::SCHEMES;

#[test]
fn a_password_in_plain_text_to_another_machine_is_noticed() {
    let with_key = |url: &str, has_api_key| {
        parse(url).expect("a good URL").in_plain_text(has_api_key).join(" ")
    };
    let hosts = |url: &str| with_key(url, false);
    assert_eq!(hosts("etcd://u:p@10.0.0.5,localhost,[fd00::1]:7/x"), "10.0.0.5:2379 [fd00::1]:7");
    assert_eq!(hosts("zookeeper://u:p@zk.example/x"), "zk.example:2181");
    assert_eq!(hosts("elasticsearch+http://u@es:9200/i"), "es:9200");
    assert_eq!(with_key("elasticsearch+http://es:9200/i", true), "es:9200");
    assert_eq!(with_key("etcd://10.0.0.5/x", true), "", "etcd has no API keys");
    assert_eq!(hosts("mongodb://u:p@m/x?authMechanism=PLAIN&authSource=$external"), "m:27017");
    for silent in [
        "etcd://10.0.0.5/x",
        "elasticsearch+http://es:9200/i",
        "mongodb://u:p@m/x?authMechanism=PLAIN&tls=true",
        "mongodb://u:p@m/x?authMechanism=SCRAM-SHA-256",
        "mongodb+srv://u:p@m/x?authMechanism=PLAIN",
        "etcd+https://u:p@10.0.0.5/x",
        "etcd://u:p@127.0.0.1,127.9.9.9:7,[::1]:7,localhost:7/x",
        "rethinkdb://u:p@10.0.0.5/x",
        "mongodb://u:p@10.0.0.5/x",
        "file:///srv/tenure",
        "memory:",
    ] {
        assert_eq!(hosts(silent), "", "{silent}");
    }
}

fn file(directory: &str, force: bool) -> Location {
    Location::File { directory: directory.into(), force, trust_parents: false }
}

#[test]
fn good_urls_are_read() {
    for (url, location) in [
        ("memory:", Location::Memory),
        ("file:///var/lib/tenure", file("/var/lib/tenure", false)),
        ("FILE:///a", file("/a", false)),
        ("file:///a%20b/%C3%A9", file("/a b/é", false)),
        ("file:///a?force=true", file("/a", true)),
        ("file:///a?force=false", file("/a", false)),
    ] {
        assert_eq!(parse(url).as_ref(), Ok(&location), "{url}");
    }
}

#[test]
fn a_location_shows_as_the_url_it_came_from() {
    for url in [
        "memory:",
        "file:///a%20b%25/c%3Fd%23",
        "file:///a?force=true",
        "file:///a?trust-parents=true",
        "file:///a?force=true&trust-parents=true",
        "etcd://h:2379/a/b",
        "etcd+https://h:2379/a?ca=/a%25",
        "etcd+https://h:1,[::1]:2?ca=/b",
        "etcd://h:2379/x?protocol=lease",
        "etcd://h:2379/x?ttl=5000ms",
        "rethinkdb://h:28015",
        "rethinkdb://h:1,h:2/d?table=t",
        "rethinkdb+tls://h:28015/d?table=t&ca=/a",
        "mongodb://h:27017",
        "mongodb://h:1,[::1]:2/d?collection=a%26b&replicaSet=r",
        "mongodb+srv://h.example/d?tls=true",
        "zookeeper://h:2181//x",
        "zookeeper+tls://h:2181/x?ca=/a&ttl=4000ms&node-prefix=latch-&acl=open",
        "zookeeper://h:2181/x?protocol=lease&reconnect=never",
        "elasticsearch+http://h:9200/tenure",
        "elasticsearch+https://h:9200,i:9201/x?ca=/ca.pem",
        "opensearch+http://h:9200",
        "opensearch+https://h:9200/x",
    ] {
        assert_eq!(parse(url).expect("a URL").to_string(), url);
    }
}

#[test]
fn each_bad_url_says_what_is_wrong() {
    let long = format!("file:///{}", "x".repeat(5000));
    for (url, says) in [
        ("", "it is empty"),
        (long.as_str(), "has 5008 bytes"),
        ("/var/lib", "does not begin with a scheme"),
        ("1file:///a", "does not begin with a scheme"),
        (":", "does not begin with a scheme"),
        ("redis://h", "unknown scheme; known are elasticsearch+http:"),
        ("elasticsearch://h", "unknown scheme"),
        ("elasticsearch+http://h/x?ca=/ca.pem", "unknown setting; known: api-key-file"),
        ("elasticsearch+https://u:p@h/x?api-key-file=/k", "an API key and a user"),
        ("file:///a\0b", "control character at byte 9"),
        ("file:///a%00b", "control character"),
        ("file:///a%1", "`%` at byte 2"),
        ("file:///%zz", "`%` at byte 1"),
        ("file:///%é", "`%` at byte 1"),
        ("file:///%FF", "not UTF-8"),
        ("file:a/b", "not absolute"),
        ("file:/a/b", "not absolute"),
        ("file://./a", "not absolute"),
        ("file://host/a", "names a host"),
        ("file://user:secret@host/a", "a user or a password"),
        ("file://", "names no directory"),
        ("file:///", "names no directory"),
        ("file:///%2F/", "names no directory"),
        ("file:///a#b", "a fragment"),
        ("rethinkdb://h/a/b", "letters, digits"),
        ("rethinkdb://h/a?table=x.y", "letters, digits"),
        ("rethinkdb://h/a?table=x&table=x", "`table` twice"),
        ("rethinkdb://h/a?prefix=x", "unknown setting; known: table"),
        ("etcd://h/a?table=x", "unknown setting; known: ca"),
        ("memory:x", "nothing may follow"),
        ("memory://", "nothing may follow"),
        ("file:///a?", "unknown setting; known: force"),
        ("file:///a?fsync=no", "unknown setting; known: force"),
        ("file:///a?force", "neither `true` nor `false`"),
        ("file:///a?force=true&force=true", "`force` twice"),
        ("file:///a?trust-parents=1", "neither `true` nor `false`"),
    ] {
        let error = parse(url).expect_err(url);
        assert!(error.to_string().contains(says), "{url:?}: {error}");
    }
}

#[test]
fn no_error_shows_a_password() {
    for url in [
        "file://u:canary@h/a",
        "nope://u:canary@h",
        "canary@:x",
        "canary:p@h",
        "file:///a?force=canary",
        "file:///a?canary@h",
        "mongodb://u:1?canary@h",
        "mongodb://u:1?canary&x@h",
        "etcd://u:1?canary@h",
        "etcd://u:1?ca=canary@h",
        "zookeeper://u:1?x&canary@h",
        "canary://u:p@h",
        "canary://h",
    ] {
        let error = parse(url).expect_err(url);
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
}

#[test]
fn no_error_shows_a_part_of_the_url_wherever_the_secret_stands() {
    for scheme in SCHEMES {
        for rest in [
            "canary",
            "u:canary",
            "//u:canary",
            "//u:canary@",
            "//u:p@canary@h,,",
            "//h:canary",
            "//h/x//canary",
            "//h/x?canary",
            "//h/x?canary=1",
            "//h/x?ca=1&canary=1",
            "//h/x?tls=canary&tls=canary",
            "//h/x?ttl=canary",
            "//h/x#canary",
            "//u:1\ncanary@h",
        ] {
            let url = format!("{scheme}{rest}");
            if let Err(error) = parse(&url) {
                let said = format!("{error} {error:?}");
                assert!(!said.contains("canary"), "{url:?}: {said}");
            }
        }
    }
}

#[test]
fn credentials_are_suspected_when_in_doubt() {
    assert!(!holds_credentials("file:///a"));
    assert!(!holds_credentials("etcd://h:2379/x"));
    assert!(holds_credentials("etcd://u:p@h/x"));
    assert!(holds_credentials("mongodb://h/x?password=y"));
    assert!(holds_credentials("mongodb://u:p@h/x"));
    assert!(!holds_credentials("mongodb://h/x?tls=true"));
    assert!(holds_credentials("not a url"));
}

#[test]
fn no_prefix_of_any_of_them_panics() {
    let url = "file:///a%20b%C3%A9/c?force=true&x#é\u{0}";
    for end in (0..=url.len()).filter(|end| url.is_char_boundary(*end)) {
        let _ = parse(&url[..end]);
    }
}

proptest::proptest! {
    #[test]
    fn no_text_panics_the_parser(text in ".{0,64}") {
        let _ = parse(&text);
        let _ = parse(&format!("file:///{text}"));
    }

    #[test]
    fn every_directory_survives_the_way_to_its_url_and_back(
        directory in "/[^\\x00-\\x1f\\x7f-\\x9f/]{1,20}",
        force: bool,
        trust_parents: bool,
    ) {
        let location = Location::File { directory: directory.into(), force, trust_parents };
        proptest::prop_assert_eq!(parse(&location.to_string()), Ok(location));
    }
}
