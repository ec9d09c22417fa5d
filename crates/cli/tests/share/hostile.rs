//! Directories that other users write to, and items that other users submit.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::Signal;

use super::support::{Running, Scene, ran};
use super::{counts, done, told};

/// A directory `in` with `a`, `b` and `d/c`, and a secret beside it.
struct Attack {
    scene: Scene,
}

impl Attack {
    fn new() -> Attack {
        let scene = Scene::new();
        fs::create_dir_all(scene.path("in/d")).unwrap();
        for name in ["a", "b", "d/c"] {
            fs::write(scene.path("in").join(name), "ours").unwrap();
        }
        fs::create_dir(scene.path("elsewhere")).unwrap();
        fs::write(scene.path("elsewhere/c"), "a secret").unwrap();
        Attack { scene }
    }

    /// Shares the files, each on the standard input of CMD, or each as an argument.
    ///
    /// The first run for another item than the victim attacks. A run for the victim before that
    /// fails, and is tried again.
    fn share(&self, as_argument: bool, attack: &str, victim: &str) -> Command {
        let script = format!(
            "cat $1; [ ! -e $SCENE/attacked ] || exit 0
             [ $TENURE_TASK != {victim} ] || exit 7
             {attack}; touch $SCENE/attacked"
        );
        let mut line = vec!["share", "g", "--from", "in", "--workers", "1", "--attempts", "9"];
        line.extend(["--", "sh", "-c", &script, "sh"]);
        if as_argument {
            line.push("{}");
        }
        let mut command = self.scene.tenure(&line);
        command.current_dir(self.scene.path("")).env("SCENE", self.scene.path(""));
        command
    }

    /// Checks that the attack fails. The victim is a dead letter, and its reason has these words.
    fn fails(&self, as_argument: bool, attack: &str, victim: &str, words: &str) {
        let ran = Running::start(self.share(as_argument, attack, victim)).end();
        assert_eq!(ran.code, Some(1), "{ran:?}");
        let (lines, summary) = told(&ran);
        assert_eq!(counts(&summary), [3, 2, 1, 0, 0], "{ran:?}");
        assert!(!ran.out.contains("a secret"), "{ran:?}");
        assert_eq!(done(&lines)["a"], "ours");
        let dead = lines.iter().find(|line| line["state"] == "dead").unwrap();
        assert_eq!(dead["id"], victim);
        assert!(dead["error"].as_str().unwrap().contains(words), "{dead}");
    }
}

const NO_FILE: &str = "a link, a pipe or a device";

#[test]
fn a_file_that_a_link_has_replaced_is_not_read() {
    for as_argument in [false, true] {
        let attack = "ln -sf ../elsewhere/c $SCENE/in/b";
        Attack::new().fails(as_argument, attack, "b", NO_FILE);
    }
}

#[test]
fn a_directory_that_a_link_has_replaced_is_not_looked_into() {
    for as_argument in [false, true] {
        let attack = "mv $SCENE/in/d $SCENE/old; ln -s ../elsewhere $SCENE/in/d";
        Attack::new().fails(as_argument, attack, "d/c", "Not a directory");
    }
}

#[test]
fn a_pipe_in_place_of_a_file_blocks_nothing() {
    for as_argument in [false, true] {
        let attack = "rm $SCENE/in/b; mkfifo $SCENE/in/b";
        Attack::new().fails(as_argument, attack, "b", NO_FILE);
    }
}

/// Two files to share, and a plain item that names a file outside.
fn submitted() -> Scene {
    let scene = Scene::with_files(2);
    fs::write(scene.path("secret"), "a secret").unwrap();
    let secret = scene.path("secret");
    let ran = ran(scene.tenure(&["submit", "g", secret.to_str().unwrap()]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    scene
}

#[test]
fn beside_a_directory_no_submitted_item_is_run_and_that_is_told() {
    let scene = submitted();
    let mut running = Running::start(scene.share_files("g", &[], "cat \"$0\""));
    let stderr = BufReader::new(running.child().stderr.take().unwrap());
    let (lines, heard) = mpsc::channel();
    std::thread::spawn(move || stderr.lines().try_for_each(|line| lines.send(line.unwrap())));
    let told_of = loop {
        let line = heard.recv_timeout(Duration::from_secs(60)).expect("a word on what waits");
        if line.contains("1 task waits that this process does not run") {
            break line;
        }
    };
    assert!(told_of.contains("--accept-submitted"), "{told_of}");
    running.signal(Signal::TERM);
    let ran = running.end();
    assert_eq!(ran.code, Some(143), "{ran:?}");
    let results = scene.listed("g", "--results");
    assert_eq!(results.len(), 2, "{results:?}");
    assert!(!format!("{results:?}").contains("a secret"), "{results:?}");
}

#[test]
fn a_submitted_item_is_run_beside_a_directory_for_those_who_accept_it() {
    let scene = submitted();
    let ran = Running::start(scene.share_files("g", &["--accept-submitted"], "cat \"$0\"")).end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (lines, summary) = told(&ran);
    assert_eq!(counts(&summary), [3, 3, 0, 0, 0]);
    assert!(done(&lines).values().any(|result| result == "a secret"), "{lines:?}");
}

#[test]
fn a_place_where_an_item_may_be_a_flag_is_told_once_and_only_where_items_are_plain() {
    let scene = Scene::with_files(2);
    let warned = |line: &[&str]| {
        let mut command = scene.tenure(line);
        command.current_dir(scene.path("")).stdin(std::process::Stdio::null());
        let ran = ran(command);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.err.matches("may look like a flag").count()
    };
    assert_eq!(warned(&["share", "a", "--from", "-", "--", "echo", "{}"]), 1);
    assert_eq!(warned(&["share", "b", "--from", "-", "--", "cat", "--", "{}"]), 0);
    assert_eq!(warned(&["share", "c", "--from", "in", "--", "cat", "{}"]), 0);
    let accepting = ["share", "d", "--from", "in", "--accept-submitted", "--", "cat", "{}"];
    assert_eq!(warned(&accepting), 1);
}

/// Deceptive characters: U+202E, U+2066, U+200B and U+00AD. They turn text around, or take no room.
const DECEPTIVE: &str = "exe\u{202e}gpj\u{2066}a\u{200b}b\u{ad}";

#[test]
fn names_that_deceive_the_eye_are_shown_as_they_are_and_json_is_exact() {
    let scene = Scene::new();
    fs::create_dir(scene.path("in")).unwrap();
    fs::write(scene.path("in").join(DECEPTIVE), "x").unwrap();
    let script = "echo \"$0\" >&2; exit 3";
    let shared = Running::start(scene.share_files("g", &["--attempts", "1"], script)).end();
    let dead = ran(scene.tenure(&["tasks", "g", "--dead"]));
    let dead_json = ran(scene.tenure(&["tasks", "g", "--dead", "--json"]));
    for shown in [&shared.out, &shared.err, &dead.out, &dead_json.out] {
        let is_raw = |character: &char| DECEPTIVE.contains(*character) && !character.is_ascii();
        assert!(!shown.chars().any(|character| is_raw(&character)), "{shown:?}");
    }
    assert!(dead.out.contains("exe\\u{202e}gpj\\u{2066}a\\u{200b}b\\u{ad}"), "{dead:?}");
    assert_eq!(told(&shared).0[0]["id"], DECEPTIVE);
    let error = super::values(&dead_json.out)[0]["error"].as_str().unwrap().to_owned();
    assert!(error.contains(DECEPTIVE), "{error:?}");
}
