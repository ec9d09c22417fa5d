//! Objects in a bucket as items, on a server with the S3 protocol.

use std::io::{Read, Write};
use std::net::TcpStream;

use tenure_harness::{S3, require};

use super::support::{Running, Scene};
use super::{counts, done, told};

/// Sends one minimal request.
fn put(server: &str, path: &str, body: &str) {
    let address = server.strip_prefix("http://").unwrap();
    let mut connection = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        connection,
        "PUT {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn objects_are_copied_for_cmd_and_the_copies_do_not_stay() {
    let server = require!(S3::single().await);
    let url = server.url();
    put(&url, "/bucket", "");
    for number in 0..5 {
        put(&url, &format!("/bucket/in/{number}.txt"), &format!("object {number}"));
    }
    put(&url, "/bucket/elsewhere/x", "not ours");
    let scene = Scene::new();
    std::fs::create_dir(scene.path("tmp")).unwrap();
    let share = |group: &str, script: &[&str]| {
        let from = ["share", group, "--from", "s3://bucket/in", "--"];
        let mut command = scene.tenure(&[&from, script].concat());
        command
            .env("AWS_ENDPOINT_URL", &url)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "anybody")
            .env("AWS_SECRET_ACCESS_KEY", "anything")
            .env("TMPDIR", scene.path("tmp"));
        Running::start(command).end()
    };
    for (group, script) in [
        ("argument", &["sh", "-c", "cat \"$0\"; echo \" $0\"", "{}"][..]),
        ("input", &["sh", "-c", "cat"][..]),
    ] {
        let ran = share(group, script);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let (lines, summary) = told(&ran);
        assert_eq!(counts(&summary), [5, 5, 0, 0, 0]);
        for (id, result) in done(&lines) {
            let number = id.strip_suffix(".txt").unwrap();
            assert!(result.starts_with(&format!("object {number}")), "{id}: {result}");
            assert!(group == "input" || result.ends_with(".txt"), "its name ends alike: {result}");
        }
    }
    assert_eq!(std::fs::read_dir(scene.path("tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_bucket_that_is_not_there_is_refused_at_the_start_and_not_asked_for_ever() {
    let server = require!(S3::single().await);
    let scene = Scene::new();
    let mut command =
        scene.tenure(&["share", "g", "--from", "s3://missing-bucket/in", "--", "true"]);
    command
        .env("AWS_ENDPOINT_URL", server.url())
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "anybody")
        .env("AWS_SECRET_ACCESS_KEY", "anything");
    let ran = Running::start(command).end();
    assert_eq!(ran.code, Some(78), "{ran:?}");
    assert!(
        ran.err.contains("--from: listing objects: ") && ran.err.contains("NoSuchBucket"),
        "{ran:?}"
    );
}

#[tokio::test]
async fn an_object_beyond_the_limit_of_copies_fails_and_the_others_are_done() {
    let server = require!(S3::single().await);
    let url = server.url();
    put(&url, "/bucket", "");
    put(&url, "/bucket/in/large", &"x".repeat(20_000));
    for number in 0..4 {
        put(&url, &format!("/bucket/in/{number}"), &"x".repeat(6000));
    }
    for script in [&["wc", "-c", "--", "{}"][..], &["wc", "-c"][..]] {
        let scene = Scene::new();
        std::fs::create_dir(scene.path("tmp")).unwrap();
        let flags = ["--copy-limit", "8KiB", "--workers", "3", "--attempts", "1", "--"];
        let line = [&["share", "g", "--from", "s3://bucket/in"], &flags[..], script].concat();
        let mut command = scene.tenure(&line);
        command
            .env("AWS_ENDPOINT_URL", &url)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "anybody")
            .env("AWS_SECRET_ACCESS_KEY", "anything")
            .env("TMPDIR", scene.path("tmp"));
        let ran = Running::start(command).end();
        assert_eq!(ran.code, Some(1), "{ran:?}");
        let (lines, summary) = told(&ran);
        assert_eq!(counts(&summary), [5, 4, 1, 0, 0], "{ran:?}");
        let dead = lines.iter().find(|line| line["state"] == "dead").unwrap();
        assert_eq!(dead["id"], "large");
        let error = dead["error"].as_str().unwrap();
        assert!(error.contains("20000 bytes") && error.contains("--copy-limit"), "{error}");
    }
}

#[test]
fn a_bucket_that_cannot_be_is_refused() {
    let scene = Scene::new();
    for (url, says) in [
        ("ftp://host/x", "this names no store of objects"),
        ("s3://user:secret@bucket/x", "a password belongs into the environment"),
    ] {
        let ran = super::ran(scene.tenure(&["share", "g", "--from", url, "--", "true"]));
        assert_eq!(ran.code, Some(78), "{ran:?}");
        assert!(ran.err.contains(says) && !ran.err.contains("secret"), "{ran:?}");
    }
}
