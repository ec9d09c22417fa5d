use std::io::Write;

use super::*;

fn source(content: &str) -> (tempfile::TempDir, LinesSource) {
    let root = tempfile::tempdir().expect("a directory");
    let file = root.path().join("f.jsonl");
    std::fs::write(&file, content).expect("a file");
    let mut source = LinesSource::new(file, Template::new("line"));
    source.name = "f.jsonl".into();
    (root, source)
}

fn append(source: &LinesSource, text: &str) {
    let mut file = File::options().append(true).open(&source.file).expect("the file");
    file.write_all(text.as_bytes()).expect("written");
}

fn items(window: &Window) -> Vec<(&str, &str)> {
    let text = |payload| std::str::from_utf8(payload).expect("text");
    window.orders.iter().map(|order| (order.id.as_str(), text(&order.payload))).collect()
}

#[tokio::test]
async fn lines_are_numbered_and_the_position_is_the_byte_after_them() {
    let (_root, source) = source("one\r\n\ntwo\nthree");
    let first = source.outstanding(None, 1).await.expect("a window");
    assert_eq!(items(&first), [("f.jsonl:1", "one")]);
    assert_eq!((first.position.as_deref(), first.drained), (Some("5:1"), false));
    let second = source.outstanding(Some("5:1"), 1).await.expect("a window");
    assert_eq!(items(&second), [("f.jsonl:3", "two")]);
    let third = source.outstanding(second.position.as_deref(), 5).await.expect("a window");
    assert_eq!(items(&third), [("f.jsonl:4", "three")]);
    assert_eq!((third.position.as_deref(), third.drained), (Some("15:4"), true));
    let none = source.outstanding(Some("15:4"), 5).await.expect("a window");
    assert_eq!(
        (none.orders.len(), none.position.as_deref(), none.drained),
        (0, Some("15:4"), true)
    );
}

#[tokio::test]
async fn whoever_follows_waits_for_the_end_of_a_line() {
    let (_root, source) = source("one\ntw");
    let source = source.polling(Duration::from_millis(10));
    let first = source.outstanding(None, 5).await.expect("a window");
    assert_eq!((items(&first), first.drained), (vec![("f.jsonl:1", "one")], false));
    let waiting = source.outstanding(first.position.as_deref(), 5);
    tokio::pin!(waiting);
    let early = tokio::time::timeout(Duration::from_millis(50), &mut waiting).await;
    assert!(early.is_err(), "it has no end yet");
    append(&source, "o\nthree\n");
    let second = waiting.await.expect("a window");
    assert_eq!(items(&second), [("f.jsonl:2", "two"), ("f.jsonl:3", "three")]);
}

#[tokio::test]
async fn a_file_that_became_shorter_or_changed_is_refused() {
    let (_root, source) = source("one\ntwo\n");
    for (content, says) in [("one\n", "has become shorter"), ("one two three\n", "has changed")] {
        std::fs::write(&source.file, content).expect("written");
        let error = source.outstanding(Some("8:2"), 5).await.expect_err("another file");
        assert!(error.0.contains(says), "{error}");
    }
    // No file has more lines than bytes: counting on from there would overflow.
    for position in ["from elsewhere", "4:18446744073709551615", "4:5", "-1:0", "../x"] {
        let error = source.outstanding(Some(position), 5).await.expect_err("no position");
        assert!(error.0.contains("is no position"), "{error}");
    }
}

/// Regression: reading never ended after a pipe had replaced the file.
#[cfg(unix)]
#[tokio::test]
async fn a_pipe_in_place_of_the_file_is_refused_and_not_waited_for() {
    let (_root, source) = source("one\n");
    std::fs::remove_file(&source.file).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&*source.file).status();
    assert!(made.expect("mkfifo runs").success());
    let error = source.outstanding(None, 5).await.expect_err("a pipe");
    assert!(error.0.contains("no file"), "{error}");
}

#[tokio::test]
async fn a_last_line_that_went_on_after_it_was_taken_is_refused() {
    let (_root, source) = source("one\ntwo");
    let window = source.outstanding(None, 5).await.expect("a window");
    append(&source, " and a half\n");
    let error = source.outstanding(window.position.as_deref(), 5).await.expect_err("it changed");
    assert!(error.0.contains("has changed"), "{error}");
}

#[tokio::test]
async fn a_line_that_is_too_long_is_one_that_the_cluster_refuses_and_the_next_is_whole() {
    let long = "x".repeat(100_000);
    let (_root, source) = source(&format!("{long}\nshort\n"));
    let window = source.outstanding(None, 5).await.expect("a window");
    assert_eq!(window.orders[0].payload.len(), MAX_TASK_BYTES + 1);
    assert!(window.orders[0].check().is_err());
    assert_eq!(window.orders[1].payload, "short");
    let just = "x".repeat(MAX_TASK_BYTES);
    std::fs::write(&source.file, format!("{just}\r\n")).expect("written");
    let window = source.outstanding(None, 5).await.expect("a window");
    assert_eq!(window.orders[0].check(), Ok(()));
}

#[tokio::test]
async fn windows_are_bounded_in_bytes() {
    let line = format!("{}\n", "x".repeat(10_000));
    let (_root, source) = source(&line.repeat(300));
    let window = source.outstanding(None, 4096).await.expect("a window");
    assert_eq!(window.orders.len(), 105);
    let next = source.outstanding(window.position.as_deref(), 4096).await.expect("a window");
    assert_eq!(next.orders[0].id, "f.jsonl:106");
}
