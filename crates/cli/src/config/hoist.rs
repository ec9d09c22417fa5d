//! Lets flags of `run` come before the word `run`, as users of elector write them.

use std::ffi::OsString;

use clap::{Arg, Command};

/// Moves `run` to the front, past flags that are its own.
pub(super) fn hoist(command: &Command, mut words: Vec<OsString>) -> Vec<OsString> {
    let Some(run) = command.find_subcommand("run") else { return words };
    let flags: Vec<&Arg> = command.get_arguments().chain(run.get_arguments()).collect();
    let mut at = 0;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        if word == "run" {
            let word = words.remove(at);
            words.insert(0, word);
            return words;
        }
        match takes_next(&flags, word) {
            Some(true) => at += 2,
            Some(false) => at += 1,
            // Another command, or an unknown word: clap reports the error.
            None => return words,
        }
    }
    words
}

/// Returns true if the next word is this flag's value; `None` for no flag of ours.
fn takes_next(flags: &[&Arg], word: &str) -> Option<bool> {
    let takes = |flag: &Arg| flag.get_action().takes_values() && !flag.is_require_equals_set();
    if let Some(long) = word.strip_prefix("--").filter(|long| !long.is_empty()) {
        let (name, inline) = match long.split_once('=') {
            Some((name, _)) => (name, true),
            None => (long, false),
        };
        let flag = flags.iter().find(|flag| is_called(flag, name))?;
        return Some(takes(flag) && !inline);
    }
    let mut letters = word.strip_prefix('-')?.chars();
    while let Some(letter) = letters.next() {
        let flag = flags.iter().find(|flag| flag.get_short() == Some(letter))?;
        if takes(flag) {
            return Some(letters.next().is_none());
        }
    }
    Some(false)
}

/// Returns true if the flag has this name.
pub(super) fn is_called(flag: &Arg, name: &str) -> bool {
    let aliases = flag.get_all_aliases().unwrap_or_default();
    flag.get_long() == Some(name) || aliases.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Arguments;
    use clap::CommandFactory;

    fn hoisted(line: &str) -> String {
        let mut command = Arguments::command();
        command.build();
        let words = hoist(&command, line.split(' ').map(OsString::from).collect());
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn run_is_found_behind_flags_of_its_own_and_nowhere_else() {
        for (line, expected) in [
            ("--backend console run -v", "run --backend console -v"),
            ("--backend=console --keep run", "run --backend=console --keep"),
            ("-vE 3 -n run x", "run -vE 3 -n x"),
            ("--leader-start-command run --id a run", "run --leader-start-command run --id a"),
            ("--wait-for-store run", "run --wait-for-store"),
            ("who run", "who run"),
            ("--id run who x", "--id run who x"),
            ("--unknown run", "--unknown run"),
            ("run --id run", "run --id run"),
        ] {
            assert_eq!(hoisted(line), expected);
        }
    }
}
