//! The arguments, input and environment of CMD, and the results that are kept.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::support::{Running, Scene, bare, ran};
use super::{counts, done, fed, told};

#[test]
fn one_process_works_through_a_directory_without_any_server_or_setting() {
    let scene = Scene::with_files(50);
    let mut command = bare(&["share", "first", "--from", "in", "--", "cat", "{}"]);
    command.current_dir(scene.path("")).env("XDG_STATE_HOME", scene.path("state"));
    let ran = Running::start(command).end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("no --store given: sharing among this machine's processes only"));
    let (lines, summary) = told(&ran);
    assert_eq!(counts(&summary), [50, 50, 0, 0, 0]);
    let done = done(&lines);
    assert_eq!(done.len(), 50);
    for (id, result) in done {
        assert_eq!(id.parse::<u32>().unwrap(), result.parse::<u32>().unwrap());
    }
}

#[test]
fn directories_below_are_listed_too_and_the_item_is_a_path_that_can_be_opened() {
    let scene = Scene::new();
    fs::create_dir_all(scene.path("in/a b/c")).unwrap();
    fs::write(scene.path("in/a b/c/x y"), "deep").unwrap();
    fs::write(scene.path("in/-dash"), "dashed").unwrap();
    fs::write(scene.path("in/'quoted\"; $(touch oops)"), "quoted").unwrap();
    let ran = Running::start(scene.share_files("g", &[], "cat \"$0\"")).end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let found = done(&told(&ran).0);
    assert_eq!(found["a b/c/x y"], "deep");
    assert_eq!(found["-dash"], "dashed");
    assert_eq!(found["'quoted\"; $(touch oops)"], "quoted");
    assert!(!scene.path("oops").exists(), "no shell reads an item");
}

#[test]
fn a_file_whose_name_is_no_text_is_worked_on_as_any_other() {
    use std::os::unix::ffi::OsStrExt;
    let scene = Scene::with_files(1);
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9");
    fs::write(scene.path("in").join(name), "latin").unwrap();
    let ran = Running::start(scene.share_files("g", &[], "cat \"$0\"")).end();
    assert_eq!((ran.code, counts(&told(&ran).1)), (Some(0), [2, 2, 0, 0, 0]), "{ran:?}");
    assert_eq!(done(&told(&ran).0)["caf\u{fffd}"], "latin");
}

#[test]
fn without_a_place_for_it_the_item_is_read() {
    let scene = Scene::with_files(3);
    let arguments = ["share", "files", "--from", "in", "--", "cat"];
    let ran = Running::start({
        let mut command = scene.tenure(&arguments);
        command.current_dir(scene.path(""));
        command
    })
    .end();
    assert_eq!(done(&told(&ran).0)["0002"], "2", "a file's content");
    let ran = fed(scene.tenure(&["share", "lines", "--from", "-", "--", "wc", "-c"]), b"abc\n");
    assert_eq!(done(&told(&ran).0)["abc"].trim(), "4", "a line, with its end");
}

#[test]
fn lines_are_read_from_standard_input_a_command_and_a_file() {
    let scene = Scene::new();
    let script = "echo \"<$0>\"";
    let input = b"one\n\ntwo words\r\n{\"json\": 3}\nlast";
    let expected = ["<one>", "<two words>", "<{\"json\": 3}>", "<last>"];
    let results = |ran: &super::Ran| {
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let (mut lines, summary) = told(ran);
        assert_eq!(counts(&summary), [4, 4, 0, 0, 0]);
        lines.sort_by_key(|line| line["serial"].as_u64());
        let result = |line: &super::Value| line["result"].as_str().unwrap().to_owned();
        assert_eq!(lines.iter().map(result).collect::<Vec<_>>(), expected, "in their order");
    };
    results(&fed(scene.share("stdin", &["--from", "-"], script), input));
    fs::write(scene.path("items.jsonl"), input).unwrap();
    results(&Running::start(scene.share("file", &["--from", "items.jsonl"], script)).end());
    let command = scene.share("command", &["--from", "cmd:cat items.jsonl"], script);
    results(&Running::start(command).end());
}

#[test]
fn a_command_that_fails_to_find_items_is_told_and_what_it_found_is_done() {
    let scene = Scene::new();
    let ran = Running::start(scene.share("g", &["--from", "cmd:echo a; exit 3"], "true")).end();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("the command of --from failed: exit code 3"), "{ran:?}");
    assert_eq!(counts(&told(&ran).1), [1, 1, 0, 0, 0]);
}

#[test]
fn a_line_that_is_too_long_is_left_out_and_told() {
    let scene = Scene::new();
    let mut input = vec![b'x'; 20_000];
    input.extend_from_slice(b"\nshort\n");
    let ran = fed(scene.share("g", &["--from", "-"], "true"), &input);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.err.contains("line 1 is left out: it has more than 16 KiB"), "{ran:?}");
    assert_eq!(counts(&told(&ran).1), [1, 1, 0, 0, 0]);
}

#[test]
fn cmd_knows_its_task_and_its_token() {
    let scene = Scene::with_files(1);
    let script = r#"echo "$TENURE_GROUP $TENURE_TASK $TENURE_SERIAL $TENURE_ATTEMPT $TENURE_TOKEN"
        [ "$TENURE_ATTEMPT" = 2 ]"#;
    let mut command = scene.share_files("a/b", &[], script);
    // CMD must not see variables that may hold a password.
    command.env("TENURE_PASSWORD", "secret").env("NOTIFY_SOCKET", "/nonexistent");
    let ran = Running::start(command).end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let result = done(&told(&ran).0)["0000"].clone();
    let words: Vec<&str> = result.split(' ').collect();
    assert_eq!(words[..4], ["a/b", "0000", "1", "2"]);
    // The tokens of a task lie between those of its number and the next one's, and rise with each
    // claim.
    let token: u64 = words[4].parse().unwrap();
    assert!((1025..2048).contains(&token), "{token}");
}

#[test]
fn the_end_of_what_it_printed_is_kept_and_no_more() {
    let scene = Scene::with_files(1);
    let script = "seq 100000; seq 100000 >&2; [ $TENURE_ATTEMPT = 2 ]";
    let ran = Running::start(scene.share_files("g", &[], script)).end();
    let (lines, _) = told(&ran);
    let error = lines[0]["error"].as_str().unwrap();
    let result = lines[1]["result"].as_str().unwrap();
    assert!(error.starts_with("exit code 1: …") && error.ends_with("\n99999\n100000"), "{error}");
    assert!(result.starts_with('…') && result.ends_with("\n99999\n100000"), "{result}");
    assert!(error.len() <= 4096 && result.len() <= 4096, "{} {}", error.len(), result.len());
    assert_eq!(scene.listed("g", "--results")[0]["result"], *result);
}

#[test]
fn what_cmd_leaves_behind_ends_with_it() {
    let scene = Scene::with_files(4);
    let script = "setsid sleep 600 >/dev/null 2>&1 & echo $! >> $SCENE/pids";
    let ran = Running::start(scene.share_files("g", &[], script)).end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for pid in scene.lines("pids", 4) {
        assert!(!super::support::alive(pid.parse().unwrap()), "{pid} lives");
    }
}

#[test]
fn attempts_that_take_too_long_are_stopped_with_all_they_started() {
    let scene = Scene::with_files(1);
    let script =
        r#"trap "" TERM; echo $$ >> $SCENE/pids; sleep 600 & echo $! >> $SCENE/pids; wait"#;
    let flags = ["--timeout", "1500ms", "--attempts", "2", "--ttl", "2s"];
    let ran = Running::start(scene.share_files("g", &flags, script)).end();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let (lines, summary) = told(&ran);
    assert_eq!(counts(&summary), [1, 0, 1, 0, 0]);
    let states: Vec<_> = lines.iter().map(|line| line["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["failed", "dead"]);
    assert!(lines[1]["error"].as_str().unwrap().contains("longer than 1.5s"), "{lines:?}");
    // On a busy machine an attempt may end before it wrote anything.
    let pids = scene.read("pids");
    assert_ne!(pids, "");
    for pid in pids.lines() {
        assert!(!super::support::alive(pid.parse().unwrap()), "{pid} lives");
    }
}

#[test]
fn failures_are_tried_again_and_dead_letters_are_1_until_somebody_brings_them_back() {
    let scene = Scene::with_files(10);
    // One fails once, one always, and one is killed each time.
    let script = r#"case $0 in
        */0003) [ $TENURE_ATTEMPT -gt 1 ] || { echo "not yet" >&2; exit 9; } ;;
        */0005) [ -e $SCENE/mended ] || { echo "no good" >&2; exit 3; } ;;
        */0007) [ -e $SCENE/mended ] || kill -9 $$ ;;
        esac"#;
    let ran1 = Running::start(scene.share_files("g", &[], script)).end();
    assert_eq!(ran1.code, Some(1), "{ran1:?}");
    let (lines, summary) = told(&ran1);
    assert_eq!(counts(&summary), [10, 8, 2, 0, 0]);
    let of = |id: &str| -> Vec<(u64, String, String)> {
        let of = lines.iter().filter(|line| line["id"] == id);
        of.map(|line| {
            let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
            (line["attempt"].as_u64().unwrap(), text("state"), text("error"))
        })
        .collect()
    };
    let entry = |attempt, state: &str, error: &str| (attempt, state.to_owned(), error.to_owned());
    assert_eq!(of("0003"), [entry(1, "failed", "exit code 9: not yet"), entry(2, "done", "")]);
    let no_good = "exit code 3: no good";
    assert_eq!(
        of("0005"),
        [entry(1, "failed", no_good), entry(2, "failed", no_good), entry(3, "dead", no_good)]
    );
    assert_eq!(of("0007").last(), Some(&entry(3, "dead", "killed by signal 9 (SIGKILL)")));
    let dead = scene.listed("g", "--dead");
    assert_eq!(
        dead.iter().map(|letter| letter["id"].clone()).collect::<Vec<_>>(),
        ["0005", "0007"]
    );

    // Nothing is left to do, but there still are dead letters.
    assert_eq!(Running::start(scene.share_files("g", &[], script)).end().code, Some(1));

    fs::write(scene.path("mended"), "").unwrap();
    let serial = dead[1]["serial"].to_string();
    let retried = ran(scene.tenure(&["retry", "g", "0005", &serial]));
    assert_eq!((retried.code, retried.out.as_str()), (Some(0), "2 dead letters come back\n"));
    let ran2 = Running::start(scene.share_files("g", &[], script)).end();
    assert_eq!(ran2.code, Some(0), "{ran2:?}");
    let (lines, summary) = told(&ran2);
    assert_eq!(counts(&summary), [10, 10, 0, 0, 0]);
    assert_eq!(done(&lines).keys().collect::<Vec<_>>(), ["0005", "0007"]);
    assert_eq!(scene.listed("g", "--dead").len(), 0);
}

#[test]
fn what_is_in_the_store_cannot_lead_cmd_out_of_its_directory() {
    let scene = Scene::with_files(1);
    fs::write(scene.path("secret"), "s").unwrap();
    for bad in ["../secret", "/etc/passwd", "a/../../secret"] {
        let submitted =
            ran(scene.tenure(&["submit", "g", "--kind", "file", "--attempts", "1", bad]));
        assert_eq!(submitted.code, Some(0), "{submitted:?}");
    }
    let ran = Running::start(scene.share_files("g", &[], "echo \"$0\" >> $SCENE/seen")).end();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(counts(&told(&ran).1), [4, 1, 3, 0, 0]);
    assert_eq!(scene.read("seen"), "in/0000\n");
    for letter in scene.listed("g", "--dead") {
        assert_eq!(letter["error"], "this is no path below the directory");
    }
}

#[test]
fn an_item_that_no_command_line_holds_fails_alone() {
    let scene = Scene::new();
    // Ten times 16,000 bytes do not fit into one argument.
    let mut input = "x".repeat(16_000).into_bytes();
    input.extend_from_slice(b"\nsmall\n");
    let place = "{}".repeat(10);
    let arguments = ["share", "g", "--from", "-", "--attempts", "1", "--", "true", &place];
    let ran = fed(scene.tenure(&arguments), &input);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let (lines, summary) = told(&ran);
    assert_eq!(counts(&summary), [2, 1, 1, 0, 0]);
    let dead = lines.iter().find(|line| line["state"] == "dead").unwrap();
    assert!(dead["error"].as_str().unwrap().contains("CMD cannot be run"), "{dead}");
}

#[test]
fn cmd_that_cannot_be_run_is_noticed_before_anything_is_accepted() {
    let scene = Scene::with_files(1);
    fs::write(scene.path("text"), "no program").unwrap();
    fs::set_permissions(scene.path("text"), fs::Permissions::from_mode(0o644)).unwrap();
    let text = scene.path("text");
    for (program, code) in [("no-such-program", 127), (text.to_str().unwrap(), 126)] {
        let mut command = scene.tenure(&["share", "g", "--from", "in", "--", program]);
        command.current_dir(scene.path(""));
        let ran = ran(command);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert!(ran.err.contains(&format!("running {program}: ")), "{ran:?}");
    }
    assert!(!scene.path("store").exists());
}
