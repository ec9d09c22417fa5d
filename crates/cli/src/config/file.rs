//! The configuration file: TOML, with the names of the flags.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Command};
use toml::de::{DeTable, DeValue};

use super::hoist::is_called;
use super::trust::{readable, writable};
use super::{Layer, Origin, is_setting};
use crate::exit::{Failure, REFUSED};

/// The configuration file of the whole machine.
const OF_THE_MACHINE: &str = "/etc/tenure/config.toml";
/// The most bytes of a configuration file that are read; longer files are mistakes.
const MOST_BYTES: u64 = 1 << 20;

/// The file that was found, and its settings.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) path: Option<PathBuf>,
    pub(super) layers: Vec<Layer>,
    /// A warning for people about the file.
    pub(super) warning: Option<String>,
}

/// Reads the configuration file.
///
/// That is the one that the command line or the environment names, or else the first that exists.
pub(super) fn read(command: &Command, words: &[OsString]) -> Result<Found, Failure> {
    let Some((path, text)) = find(words)? else { return Ok(Found::default()) };
    let layers = parse(command, &path, &text)?;
    let warning = layers.iter().any(holds_password).then(|| readable(&path)).flatten();
    Ok(Found { path: Some(path), layers, warning })
}

/// Refuses, for root, a file that another user may change.
///
/// Root does everything the file says, and runs its commands.
fn check_writers(path: &Path) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    match writable(path) {
        Ok(None) => Ok(()),
        Ok(Some(why)) => {
            let remedy = "give it to root alone (chown root, chmod go-w), or name another file \
                          with --config";
            let what = format!("root does not go by a file that another user may change: {why}");
            Err(refused(path, None, &format!("{what}; {remedy}")))
        }
        Err(error) => Err(refused(path, None, &error.to_string())),
    }
}

fn holds_password(layer: &Layer) -> bool {
    match layer.id.as_str() {
        "store" => layer.value.contains('@') && tenure_stores::holds_credentials(&layer.value),
        "etcd_members" => layer.value.contains('@'),
        _ => false,
    }
}

fn find(words: &[OsString]) -> Result<Option<(PathBuf, String)>, Failure> {
    let variable = || std::env::var_os("TENURE_CONFIG").filter(|path| !path.is_empty());
    if let Some(path) = named(words).or_else(variable).map(PathBuf::from) {
        let text = load(&path)?;
        return Ok(Some((path, text)));
    }
    let absolute = |name: &str| {
        std::env::var_os(name).map(PathBuf::from).filter(|directory| directory.is_absolute())
    };
    let home = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    let own = home.map(|home| home.join("tenure/config.toml"));
    for path in own.into_iter().chain([PathBuf::from(OF_THE_MACHINE)]) {
        // Skip a file that we may not even see, in another user's home.
        if path.metadata().is_ok() {
            let text = load(&path)?;
            return Ok(Some((path, text)));
        }
    }
    Ok(None)
}

/// The file named by `--config`. It must be known before clap can parse the command line.
fn named(words: &[OsString]) -> Option<OsString> {
    let mut ours = words.iter().take_while(|word| *word != "--");
    let mut found = None;
    while let Some(word) = ours.next() {
        if word == "--config" {
            found = ours.next().cloned();
        } else if let Some(path) = word.to_str().and_then(|word| word.strip_prefix("--config=")) {
            found = Some(path.into());
        }
    }
    found
}

/// Reads a file after checking that it can be trusted.
///
/// The check comes first: root must not even open another user's pipe, and wait for that user to
/// write. After the check no other user can put another file there.
fn load(path: &Path) -> Result<String, Failure> {
    check_writers(path)?;
    let mut text = String::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_string(&mut text));
    read.map_err(|error| refused(path, None, &error.to_string()))?;
    Ok(text)
}

fn parse(command: &Command, path: &Path, text: &str) -> Result<Vec<Layer>, Failure> {
    let line_of = |at: usize| text.get(..at).map_or(1, |before| before.matches('\n').count() + 1);
    // Do not show the parser's full text: it quotes the line, which may hold a password.
    let table = DeTable::parse(text).map_err(|error| {
        refused(path, error.span().map(|span| line_of(span.start)), error.message())
    })?;
    let declared = declared(command);
    let mut layers = Vec::new();
    for (key, value) in table.get_ref() {
        let line = line_of(key.span().start);
        let name = key.get_ref().replace('_', "-");
        let wrong = |what: &str| refused(path, Some(line), &format!("{name}: {what}"));
        let Some(argument) = declared.iter().find(|argument| is_called(argument, &name)) else {
            return Err(wrong("there is no such setting"));
        };
        let value = said(argument, value.get_ref()).map_err(|what| wrong(&what))?;
        check(argument, &value).map_err(|what| wrong(&what))?;
        let id = argument.get_id().to_string();
        layers.push(Layer { id, value, origin: Origin::File(path.to_owned(), line) });
    }
    Ok(layers)
}

/// The settings a file may hold.
pub(super) fn declared(command: &Command) -> Vec<&Arg> {
    let commands =
        ["run", "feed", "share"].into_iter().filter_map(|name| command.find_subcommand(name));
    let of_commands = commands.flat_map(Command::get_arguments);
    command.get_arguments().chain(of_commands).filter(|argument| is_setting(argument)).collect()
}

/// Converts a value into the text that the command line would have.
fn said(argument: &Arg, value: &DeValue<'_>) -> Result<String, String> {
    let flag = matches!(argument.get_action(), ArgAction::SetTrue);
    let count = matches!(argument.get_action(), ArgAction::Count);
    let expected = match (flag, count) {
        (true, _) => "true or false",
        (false, true) => "a number",
        (false, false) => "a text in quotes",
    };
    match value {
        DeValue::String(text) if !flag && !count => Ok(text.to_string()),
        DeValue::Boolean(yes) if flag => Ok(yes.to_string()),
        // Integers are exit codes and numbers of attempts; `check` refuses a duration without a
        // unit.
        DeValue::Integer(number) if !flag => Ok(number.to_string()),
        DeValue::Array(items) if argument.get_id() == "etcd_members" => {
            let texts: Option<Vec<&str>> =
                items.iter().map(|item| item.get_ref().as_str()).collect();
            texts.map(|texts| texts.join(",")).ok_or_else(|| "expected texts in quotes".to_owned())
        }
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => Err(format!("expected {expected}, found {}", kind(value))),
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Checks that the command line would accept the value. The error must not show the value.
fn check(argument: &Arg, value: &str) -> Result<(), String> {
    if matches!(argument.get_action(), ArgAction::SetTrue | ArgAction::Count) {
        return Ok(());
    }
    let long = argument.get_long().unwrap_or_default();
    let alone = argument.clone().env(None::<&str>).global(false);
    let line = [format!("--{long}={value}")];
    let tried = Command::new("tenure").no_binary_name(true).arg(alone).try_get_matches_from(line);
    match tried {
        Ok(_) => Ok(()),
        Err(error) => {
            let why = std::error::Error::source(&error).map(ToString::to_string);
            let choices = argument.get_possible_values();
            let choices: Vec<&str> = choices.iter().map(|choice| choice.get_name()).collect();
            // The reason may quote a part of the value, which may be a URL in the wrong place.
            let why = why.filter(|_| !value.contains(['@', ':']));
            Err(match why {
                Some(why) => why,
                None if choices.is_empty() => "the value is refused".to_owned(),
                None => format!("expected one of {}", choices.join(", ")),
            })
        }
    }
}

fn refused(path: &Path, line: Option<usize>, what: &str) -> Failure {
    let line = line.map_or(String::new(), |line| format!(":{line}"));
    Failure::new(REFUSED, anyhow::anyhow!("{}{line}: {what}", path.display()))
}
