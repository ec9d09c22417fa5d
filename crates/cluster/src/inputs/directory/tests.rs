use super::*;

fn source(files: &[&str]) -> (tempfile::TempDir, DirectorySource) {
    let root = tempfile::tempdir().expect("a directory");
    for file in files {
        std::fs::write(root.path().join(file), "x").expect("a file");
    }
    let source = DirectorySource::new(root.path(), Template::new("file"));
    (root, source)
}

fn ids(window: &Window) -> Vec<&str> {
    window.orders.iter().map(|order| order.id.as_str()).collect()
}

#[tokio::test]
async fn windows_follow_each_other_until_it_is_drained() {
    let (_root, source) = source(&["c", "a", "b", "d", "e"]);
    let first = source.outstanding(None, 2).await.expect("a window");
    assert_eq!(
        (ids(&first), first.position.as_deref(), first.drained),
        (vec!["a", "b"], Some("b"), false)
    );
    assert_eq!(first.orders[0].payload, "a");
    let second = source.outstanding(Some("b"), 2).await.expect("a window");
    assert_eq!((ids(&second), second.drained), (vec!["c", "d"], false));
    let last = source.outstanding(Some("d"), 2).await.expect("a window");
    assert_eq!((ids(&last), last.position.as_deref(), last.drained), (vec!["e"], Some("e"), true));
    let none = source.outstanding(Some("e"), 2).await.expect("a window");
    assert_eq!((ids(&none), none.position.as_deref(), none.drained), (vec![], Some("e"), true));
}

#[tokio::test]
async fn the_same_window_can_be_asked_for_again_and_a_smaller_one() {
    let (_root, source) = source(&["a", "b", "c", "d"]);
    for max in [3, 3, 1, 2] {
        let window = source.outstanding(None, max).await.expect("a window");
        assert_eq!(ids(&window), ["a", "b", "c"][..max]);
    }
    let window = source.outstanding(Some("a"), 2).await.expect("a window");
    assert_eq!(ids(&window), ["b", "c"]);
    // A new leader that starts from an earlier position.
    let window = source.outstanding(None, 9).await.expect("a window");
    assert_eq!((ids(&window), window.drained), (vec!["a", "b", "c", "d"], true));
}

#[tokio::test]
async fn an_empty_directory_is_drained_at_once() {
    let (_root, source) = source(&[]);
    let window = source.outstanding(None, 2).await.expect("a window");
    assert_eq!(window, Window { orders: vec![], position: None, drained: true });
}

#[tokio::test]
async fn whoever_follows_waits_for_a_name_after_the_last() {
    let (root, source) = source(&["1", "2"]);
    let source = source.polling(Duration::from_millis(10));
    let window = source.outstanding(None, 9).await.expect("a window");
    assert_eq!((ids(&window), window.drained), (vec!["1", "2"], false));
    let waiting = source.outstanding(Some("2"), 9);
    tokio::pin!(waiting);
    let early = tokio::time::timeout(Duration::from_millis(50), &mut waiting).await;
    assert!(early.is_err(), "there is nothing yet");
    std::fs::write(root.path().join(".3"), "x").expect("a file");
    std::fs::rename(root.path().join(".3"), root.path().join("3")).expect("renamed");
    assert_eq!(ids(&waiting.await.expect("a window")), ["3"]);
}

#[tokio::test]
async fn of_a_path_that_is_too_long_for_a_name_the_end_is_shown_and_the_item_is_whole() {
    let (root, source) = source(&["a", "z"]);
    let deep = (0..5).fold(PathBuf::new(), |path, _| path.join("m".repeat(250))).join("file");
    let there = root.path().join(&deep);
    std::fs::create_dir_all(there.parent().expect("below the root")).expect("directories");
    std::fs::write(&there, "x").expect("a file");
    let window = source.outstanding(None, 9).await.expect("a window");
    let orders = &window.orders;
    assert_eq!(
        (orders.len(), orders[1].payload.as_ref()),
        (3, deep.as_os_str().as_encoded_bytes())
    );
    assert!(orders[1].id.starts_with("…m") && orders[1].id.ends_with("mm/file"), "{orders:?}");
    assert_eq!(orders[1].check(), Ok(()));
    let rest = source.outstanding(deep.to_str(), 9).await.expect("a window");
    assert_eq!(ids(&rest), ["z"]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_name_that_is_no_text_is_given_out_byte_for_byte_and_gone_on_from() {
    let (root, source) = source(&["a", "z"]);
    std::fs::write(root.path().join(native(b"m\xff".to_vec())), "x").expect("a file");
    let window = source.outstanding(None, 2).await.expect("a window");
    assert_eq!(ids(&window), ["a", "m\u{fffd}"]);
    assert_eq!(window.orders[1].payload, b"m\xff".as_slice());
    // A source that has not seen the beginning gives out the rest, too.
    let other = DirectorySource::new(root.path(), Template::new("file")).removing();
    let rest = other.outstanding(window.position.as_deref(), 9).await.expect("a window");
    assert_eq!(ids(&rest), ["z"]);
    other.commit("m\u{fffd}", b"m\xff", End::Done).await.expect("taken note of");
    assert_eq!(std::fs::read_dir(root.path()).expect("a directory").count(), 2);
}

#[test]
fn every_position_leads_back_to_its_path() {
    for path in [b"a".as_slice(), b"a/b", "é".as_bytes(), b"\xff", b"a/\x80/b", b"%ff", b"a/b/"] {
        assert_eq!(path_of(&position_of(path)).expect("a path"), path);
    }
}

/// Regression: a forged cursor's position led the listing out of the directory.
#[tokio::test]
async fn a_position_that_is_no_plain_relative_path_is_refused() {
    let (root, _) = source(&["a", "b"]);
    for position in [
        "",
        "/",
        "/etc/",
        "/etc/passwd",
        "..",
        "../",
        "../x",
        "a/../../x",
        ".",
        "./a",
        "a//b",
        "a/./b",
        "a\0b",
        "\0",
        "\0f",
        "\0zz",
        "\0ffé",
        "\0+f",
        "\x002e2e2f78",
        "\0ff00",
        "\0ff2f2e2e2f78",
    ] {
        let source = DirectorySource::new(root.path(), Template::new("file"));
        let refused = source.outstanding(Some(position), 9).await.expect_err(position);
        assert!(refused.0.contains("is no path below the directory"), "{position:?}: {refused}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn nothing_behind_a_link_is_removed() {
    let (root, _) = source(&["outside"]);
    std::fs::create_dir(root.path().join("in")).expect("a directory");
    std::os::unix::fs::symlink("..", root.path().join("in/out")).expect("a link");
    let source = DirectorySource::new(root.path().join("in"), Template::new("file")).removing();
    source.commit("out/outside", b"out/outside", End::Done).await.expect("taken note of");
    assert!(root.path().join("outside").exists());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_directory_that_may_not_be_listed_is_accounted_for_and_holds_nothing_up() {
    use std::os::unix::fs::PermissionsExt as _;
    let (root, source) = source(&["a", "z"]);
    let closed = root.path().join("closed");
    std::fs::create_dir(&closed).expect("a directory");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).expect("closed");
    if std::fs::read_dir(&closed).is_ok() {
        println!("skipped: root may list everything");
        return;
    }
    let window = source.outstanding(None, 2).await.expect("a window");
    assert_eq!((ids(&window), window.drained), (vec!["a", "closed/"], false));
    let rest = source.outstanding(Some("closed/"), 9).await.expect("a window");
    assert_eq!((ids(&rest), rest.drained), (vec!["z"], true));
}

#[tokio::test]
async fn only_what_is_done_and_its_own_is_removed() {
    let (root, source) = source(&["a", "b", "c"]);
    let source = source.removing();
    let outside =
        root.path().parent().expect("a parent").join(format!("outside-{}", std::process::id()));
    std::fs::write(&outside, "x").expect("a file");
    let escape = format!("../outside-{}", std::process::id());
    for (id, payload, end) in [
        ("a", "a", End::Done),
        ("a", "a", End::Done),
        ("b", "b", End::Dead),
        ("b", "b", End::Cancelled),
        ("c", "another task of this name", End::Done),
        (&escape, &escape, End::Done),
        ("", "", End::Done),
        ("/", "/", End::Done),
    ] {
        source.commit(id, payload.as_bytes(), end).await.expect("taken note of");
    }
    let left = |name: &str| root.path().join(name).exists();
    assert_eq!(["a", "b", "c"].map(left), [false, true, true]);
    assert!(outside.exists());
    std::fs::remove_file(outside).expect("removed");
}

#[tokio::test]
async fn a_payload_can_be_made_of_the_path() {
    let (root, _) = source(&["a"]);
    let template = Template::new("file")
        .payload(|path| format!("{{\"path\":{:?}}}", String::from_utf8_lossy(path)).into());
    let source = DirectorySource::new(root.path(), template);
    let window = source.outstanding(None, 1).await.expect("a window");
    assert_eq!(window.orders[0].payload, "{\"path\":\"a\"}");
}
