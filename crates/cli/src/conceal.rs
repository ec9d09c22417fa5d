//! Keeps passwords from CMD, and from any other process of this user.
//!
//! `/proc/PID/environ` shows the environment that a program was started with, also variables that
//! the program removed later. Any process of the same user may read that file, and the memory too.
//! Two measures protect a password:
//! - Only root can read a process that is not *dumpable*. `exec` makes a process dumpable again, so
//!   supervisor, guardian and stage each turn it off as their first action.
//! - `run`, `share`, `feed` and `watch` start themselves again without the variables that hold
//!   passwords. The passwords travel in a file that has no name, and that no other process has
//!   open.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::exit::{Failure, REFUSED};
use crate::secrets::{self, HANDED_OVER};
use crate::supervise::THIS_PROGRAM;

/// The name of that file in `/proc/PID/fd`.
const NAME: &str = "tenure-passwords";
/// The commands that start processes for the user, or that run for long.
const STARTERS: [&str; 4] = ["run", "share", "feed", "watch"];

/// The variables with passwords that this program was started with.
#[derive(Debug, Default)]
pub(crate) struct Concealed(BTreeMap<String, String>);

impl Concealed {
    /// The value of a variable that is no longer in the environment.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}

/// Keeps other processes of this user from reading our memory and environment.
pub(crate) fn from_others() {
    // This call can only fail for an invalid value.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Takes passwords out of the environment, by starting this program again once.
pub(crate) fn passwords() -> Concealed {
    if let Some(concealed) = env::var(HANDED_OVER).ok().and_then(|number| received(&number)) {
        // Otherwise `ps` would show the link that the program was started by.
        let _ = rustix::thread::set_name(c"tenure");
        return concealed;
    }
    let starts = env::args_os().any(|word| STARTERS.iter().any(|starter| word == *starter));
    let passwords: BTreeMap<String, String> = secrets::passwords()
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), env::var(name).ok()?)))
        .collect();
    if starts && !passwords.is_empty() {
        let Err(error) = start_again(&passwords);
        // The passwords stay in the environment, but this process is not dumpable.
        eprintln!("tenure: root can read passwords in this process's environment: {error}");
    }
    Concealed::default()
}

/// Refuses a password that is not text.
///
/// Such a password would reach no store, and it stays in the environment.
///
/// # Errors
/// The name of the variable.
pub(crate) fn check() -> Result<(), Failure> {
    let is_no_text = |name: &&str| env::var_os(name).is_some_and(|value| value.to_str().is_none());
    match secrets::passwords().into_iter().find(is_no_text) {
        Some(name) => {
            let refused = anyhow::anyhow!("the value of {name} is not valid UTF-8");
            Err(Failure::new(REFUSED, refused))
        }
        None => Ok(()),
    }
}

/// Starts this program again, in the same process, without these variables.
fn start_again(passwords: &BTreeMap<String, String>) -> io::Result<std::convert::Infallible> {
    // The descriptor stays open across the `exec`.
    let file = fs::File::from(memfd_create(NAME, MemfdFlags::empty())?);
    (&file).write_all(&serde_json::to_vec(passwords)?)?;
    let mut words = env::args_os();
    let mut command = Command::new(THIS_PROGRAM);
    command.arg0(words.next().unwrap_or_else(|| OsString::from("tenure"))).args(words);
    for name in passwords.keys() {
        command.env_remove(name);
    }
    Err(command.env(HANDED_OVER, file.as_raw_fd().to_string()).exec())
}

/// Reads the passwords that the first start left. `None` for a descriptor that is not ours.
fn received(number: &str) -> Option<Concealed> {
    let number: i32 = number.parse().ok()?;
    let path = format!("/proc/self/fd/{number}");
    let name = fs::read_link(&path).ok()?;
    if !name.to_str()?.starts_with(&format!("/memfd:{NAME}")) {
        return None;
    }
    let mut text = Vec::new();
    fs::File::open(&path).and_then(|mut file| file.read_to_end(&mut text)).ok()?;
    // No child of this process may inherit the descriptor.
    nix::unistd::close(number).ok()?;
    serde_json::from_slice(&text).ok().map(Concealed)
}
