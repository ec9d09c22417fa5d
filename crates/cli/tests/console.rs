//! `--backend console`: handlers tried out by hand, as with elector.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::Write;
use std::process::Stdio;

use support::{Ran, Running, bare, ran};

const BEGIN: &str = r#"echo "up $TENURE_TOKEN $TENURE_ELECTION""#;
const END: &str = r#"echo "down $TENURE_TOKEN ${TENURE_REASON%%:*}""#;

fn session(flags: &[&str], typed: &str) -> Ran {
    let handlers = ["--leader-begin-command", BEGIN, "--leader-end-command", END];
    let line = [&["run", "--backend", "console"], &handlers[..], flags].concat();
    let mut command = bare(&line);
    command.stdin(Stdio::piped());
    let mut running = Running::start(command);
    let mut input = running.child().stdin.take().unwrap();
    input.write_all(typed.as_bytes()).unwrap();
    drop(input);
    running.end()
}

#[test]
fn a_session_goes_line_by_line_in_any_case() {
    let session = session(
        &["--error-timeout", "10ms"],
        "LEADER\nleader\nwhat?\n\nNotLeader\nNOTLEADER\nleader\nERROR\nLEADER\nNOTLEADER\n",
    );
    let expected = "up 1 console\ndown 1 not-leader\nup 2 console\ndown 2 error\nup 3 console\n\
                    down 3 not-leader\n";
    assert_eq!((session.code, session.out.as_str()), (Some(0), expected), "{session:?}");
    let said: Vec<&str> = session.err.lines().filter(|line| line.starts_with("tenure: ")).collect();
    assert_eq!(
        said,
        [
            "tenure: type LEADER, NOTLEADER or ERROR; the end of input ends",
            "tenure: \"what?\" is none of them; type LEADER, NOTLEADER or ERROR; the end of input \
             ends",
        ]
    );
}

#[test]
fn the_end_of_input_runs_the_end_first() {
    let session = session(&[], "LEADER\n");
    let expected = "up 1 console\ndown 1 source-ended\n";
    assert_eq!((session.code, session.out.as_str()), (Some(0), expected), "{session:?}");
}

#[test]
fn the_error_command_runs_when_nothing_leads_any_more() {
    // The end of the input is read this long after the last error. It must come after the end
    // handler: an end of input during that handler leaves no time for the error command.
    let flags = ["--error-command", "echo \"error $TENURE_REASON\"", "--error-timeout", "1s"];
    let session = session(&flags, "ERROR\nLEADER\nERROR\n");
    let error = "error error: the console says so\n";
    let expected = format!("{error}up 1 console\ndown 1 error\n{error}");
    assert_eq!((session.code, session.out), (Some(0), expected));
}

#[test]
fn a_dry_run_says_what_would_run_and_runs_nothing() {
    let session = session(&["--dry-run"], "LEADER\nNOTLEADER\n");
    let expected = format!("would run (begin): {BEGIN}\nwould run (end): {END}\n");
    assert_eq!((session.code, session.out), (Some(0), expected));
}

#[test]
fn flags_may_stand_before_run_and_have_electors_names() {
    let mut command = bare(&[
        "--backend",
        "console",
        "--leader-start-command",
        "echo up",
        "--leader-end-command=echo down",
        "--instance-id",
        "me",
        "run",
        "--error-timeout",
        "1s",
    ]);
    command.stdin(Stdio::null());
    let ended = ran(command);
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), ""), "{ended:?}");
}

#[test]
fn the_console_refuses_a_command() {
    let refused = ran(bare(&["run", "--backend", "console", "--", "true"]));
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("CMD needs a store"), "{refused:?}");
}

#[test]
fn somebody_at_a_terminal_is_prompted() {
    let line = format!(
        "{} run --backend console --leader-begin-command 'echo up' --leader-end-command 'echo down'",
        env!("CARGO_BIN_EXE_tenure"),
    );
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut terminal) = command.spawn() else {
        eprintln!("SKIPPED somebody_at_a_terminal_is_prompted: no script(1)");
        return;
    };
    let mut keyboard = terminal.stdin.take().unwrap();
    keyboard.write_all(b"leader\n\x04").unwrap();
    let shown = String::from_utf8(terminal.wait_with_output().unwrap().stdout).unwrap();
    drop(keyboard);
    for expected in ["not leading> ", "up", "down"] {
        assert!(shown.contains(expected), "{shown:?}");
    }
}
