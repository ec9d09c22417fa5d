//! Runs the commands of the documentation, and compares their output with the pages.
//!
//! A page's ```console blocks are one shell session in a directory of its own: `$ ` begins a
//! command, the lines after it are output that must appear in this order. `…` stands for any text
//! within a line.
#![allow(clippy::unwrap_used)]

mod support;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process_group};
use support::PATIENCE;

/// A command of a page with the output that the page shows.
struct Step {
    line: usize,
    command: String,
    expected: Vec<String>,
}

/// The steps of a page's console blocks.
fn steps(text: &str) -> Vec<Step> {
    let (mut steps, mut inside) = (Vec::<Step>::new(), false);
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            inside = line == "```console";
        } else if inside && let Some(command) = line.strip_prefix("$ ") {
            let (line, command) = (number + 1, command.to_owned());
            steps.push(Step { line, command, expected: Vec::new() });
        } else if inside && let Some(step) = steps.last_mut() {
            if step.expected.is_empty() && step.command.ends_with('\\') {
                write!(step.command, "\n{}", line.trim_start_matches("> ")).unwrap();
            } else if !line.is_empty() {
                step.expected.push(line.to_owned());
            }
        }
    }
    steps
}

/// Compares a line of output with a line of a page.
fn matches(shown: &str, expected: &str) -> bool {
    let mut rest = shown.trim_end();
    let parts: Vec<&str> = expected.trim_end().split('…').collect();
    for (index, part) in parts.iter().enumerate() {
        let found = match (index, index + 1 == parts.len()) {
            (0, true) => return rest == *part,
            (0, false) => rest.strip_prefix(part),
            (_, true) => return rest.ends_with(part),
            (_, false) => rest.split_once(part).map(|(_, after)| after),
        };
        let Some(after) = found else { return false };
        rest = after;
    }
    true
}

/// A shell in a directory of its own, killed with everything that it started.
struct Session {
    shell: Child,
    input: ChildStdin,
    output: Receiver<String>,
}

impl Session {
    fn start(directory: &Path) -> Session {
        let program = Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("TENURE_") {
                shell.env_remove(name);
            }
        }
        shell.arg("-c").arg("exec 2>&1; cd \"$1\" && exec bash").arg("docs").arg(directory);
        shell.env("PATH", path).env("HOME", directory).env("XDG_CONFIG_HOME", "/nonexistent");
        shell.env("XDG_STATE_HOME", directory.join("state")).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let (input, lines) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let (sender, output) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(lines).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Session { shell, input, output }
    }

    /// Runs one command until it has ended and everything that the page shows was printed.
    fn run(&mut self, step: &Step, page: &str) {
        let mark = format!("--- end of line {} ---", step.line);
        writeln!(self.input, "{}\necho '{mark}'", step.command).unwrap();
        let (mut seen, mut next, mut ended) = (Vec::new(), 0, false);
        let deadline = Instant::now() + PATIENCE * 2;
        while !(ended && next == step.expected.len()) {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.ends_with(&mark) => ended = true,
                Ok(line) => {
                    let expected = step.expected.get(next);
                    next += usize::from(expected.is_some_and(|text| matches(&line, text)));
                    seen.push(line);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => panic!(
                    "{page}:{}: `{}` did not print {:?}; it printed\n{}",
                    step.line,
                    step.command,
                    step.expected.get(next),
                    seen.join("\n")
                ),
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let group = Pid::from_raw(i32::try_from(self.shell.id()).unwrap()).unwrap();
        // The session may have ended already.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.shell.wait();
    }
}

/// Carries out a page. A page without commands is a mistake in this test.
fn carry_out(page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let steps = steps(&std::fs::read_to_string(&path).unwrap());
    assert!(!steps.is_empty(), "{page} shows no command");
    let directory = tempfile::TempDir::new().unwrap();
    let mut session = Session::start(directory.path());
    for step in &steps {
        session.run(step, page);
    }
}

#[test]
fn the_tutorial_shows_what_happens() {
    carry_out("docs/tutorial.md");
}

#[test]
fn the_guide_to_a_nightly_job_shows_what_happens() {
    carry_out("docs/how-to/nightly-job.md");
}

#[test]
fn the_guide_to_a_service_on_one_of_three_hosts_shows_what_happens() {
    carry_out("docs/how-to/service-on-one-host.md");
}

#[test]
fn the_guide_to_files_on_many_machines_shows_what_happens() {
    carry_out("docs/how-to/files-on-many-machines.md");
}

#[test]
fn a_page_that_shows_another_output_is_noticed() {
    assert!(matches("led by a, token 1, for another 13.0s", "led by a, token 1, for another …"));
    assert!(matches("{\"a\":1,\"b\":2}", "{\"a\":…,\"b\":2}"));
    assert!(!matches("led by b, token 1", "led by a, token …"));
    assert!(!matches("token 12", "token 1"));
    let page = "```console\n$ echo one \\\n> two\none two\n$ false\n```\n```text\n$ no\n```\n";
    let found: Vec<(String, usize)> =
        steps(page).into_iter().map(|step| (step.command, step.expected.len())).collect();
    assert_eq!(found, [("echo one \\\ntwo".to_owned(), 1), ("false".to_owned(), 0)]);
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The pages below a directory.
fn pages(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

/// The targets of a page's links, without code.
fn links(text: &str) -> Vec<String> {
    let (mut prose, mut fenced) = (String::new(), false);
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        if !fenced && !line.starts_with("    ") {
            // The odd parts between backticks are code.
            prose.extend(line.split('`').step_by(2));
            prose.push('\n');
        }
    }
    let targets = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.map(|target| target.split_whitespace().collect()).collect()
}

/// The anchors of a page's headings, as mdBook and GitHub name them.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let name = |heading: &str| {
        let title = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.collect::<String>().replace(' ', "-")
    };
    headings.map(name).collect()
}

#[test]
fn the_summary_names_every_page() {
    let summary = links(&std::fs::read_to_string(docs().join("SUMMARY.md")).unwrap());
    for page in pages(&docs()) {
        let name = page.strip_prefix(docs()).unwrap().to_str().unwrap().to_owned();
        assert!(name == "SUMMARY.md" || summary.contains(&name), "SUMMARY.md lacks {name}");
    }
}

#[test]
fn every_link_of_the_documentation_leads_to_a_page_or_a_heading() {
    let top = docs().join("..");
    let others = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(|name| top.join(name));
    let (mut checked, mut broken) = (0, Vec::new());
    for page in pages(&docs()).into_iter().chain(others) {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in links(&text).iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if file.is_empty() { page.clone() } else { page.with_file_name("").join(file) };
            let good = anchor.is_empty() && target.exists()
                || std::fs::read_to_string(&target)
                    .is_ok_and(|text| anchors(&text).iter().any(|name| name == anchor));
            checked += 1;
            if !good {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(checked > 50, "only {checked} links were found");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn a_broken_link_is_noticed() {
    let page =
        "[a](b.md#c) `[no](code)`\n\n    [no](block)\n```text\n[no](fence)\n```\n[x](\ny.md)";
    assert_eq!(links(page), ["b.md#c", "y.md"]);
    assert_eq!(anchors("# Where `it` is\n## A, B"), ["where-it-is", "a-b"]);
}
