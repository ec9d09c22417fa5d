//! Bad input, with its exit code and its message.

use super::support::{Scene, ran};

#[test]
fn bad_input_is_refused_with_a_reason() {
    let scene = Scene::with_files(1);
    std::fs::create_dir(scene.path("plain")).unwrap();
    let long = "x".repeat(17_000);
    let deep = "a/b/c/d/e/f";
    for (line, code, says) in [
        (vec!["share", "g", "--from", "in"], 2, "required arguments were not provided"),
        (vec!["share", "--from", "in", "--", "true"], 2, "<GROUP>"),
        (vec!["share", "g", "--from", "nowhere", "--", "true"], 78, "--from nowhere: No such file"),
        (
            vec!["share", "g", "--from", "/dev/null", "--", "true"],
            78,
            "neither a file nor a directory",
        ),
        (vec!["share", "g", "--from", "cmd:", "--", "true"], 2, "--from cmd: needs a command"),
        (vec!["share", "g", "--workers", "0", "--", "true"], 2, "--workers"),
        (vec!["share", "g", "--attempts", "0", "--", "true"], 2, "--attempts"),
        (vec!["share", "g", "--timeout", "0s", "--", "true"], 2, "at most 24h"),
        (vec!["share", deep, "--", "true"], 2, "segments"),
        (vec!["share", "", "--", "true"], 2, "the group's name is refused"),
        (vec!["share", "g", "--", "/usr"], 126, "running /usr: Is a directory"),
        (vec!["share", "g", "--", "./nothing"], 127, "running ./nothing: No such file"),
        (vec!["cancel", "g", "1"], 1, "there is no group g"),
        (vec!["cancel", "g"], 2, "required arguments were not provided"),
        (vec!["cancel", "g", "--lost", "1"], 2, "cannot be used with"),
        (vec!["tasks", "g"], 1, "there is no group g"),
        (vec!["tasks", "g", "--dead", "--results"], 2, "cannot be used with"),
        (vec!["members", "g"], 1, "there is no group g"),
        (vec!["retry", "g", "1"], 1, "there is no group g"),
        (vec!["retry", "g"], 2, "required arguments were not provided"),
        (vec!["retry", "g", "--all", "1"], 2, "cannot be used with"),
        (vec!["drain", "g"], 1, "there is no group g"),
        (vec!["drain", "g", "x", "--resume"], 2, "cannot be used with"),
        (vec!["submit", "g"], 2, "required arguments were not provided"),
        (vec!["submit", "g", "-", "x"], 2, "- stands for all lines"),
        (vec!["submit", "g", long.as_str()], 2, "the task at place 0"),
        (vec!["submit", "g", "--kind", "", "x"], 2, "the task at place 0"),
    ] {
        let mut command = scene.tenure(&line);
        command.current_dir(scene.path(""));
        let ran = ran(command);
        assert_eq!(ran.code, Some(code), "{line:?} {ran:?}");
        assert!(ran.err.contains(says), "{line:?}: {says:?} is not in {ran:?}");
        assert!(!ran.err.contains("panicked"), "{ran:?}");
        assert_eq!(ran.out, "", "errors are no data: {line:?}");
    }
}

#[test]
fn a_member_that_is_none_is_told() {
    let scene = Scene::new();
    ran(scene.tenure(&["submit", "g", "x"]));
    let drained = ran(scene.tenure(&["drain", "g", "nobody"]));
    assert_eq!(drained.code, Some(1), "{drained:?}");
    assert!(drained.err.contains("\"nobody\" is no member of the group g"), "{drained:?}");
}
