//! The sources of settings.
//!
//! Flags come first, then the environment, then a file, then built-in defaults.
//!
//! The declaration of the command line is the only list of settings. A value from a file, or from a
//! variable of elector, becomes a default of that declaration. So the layers cannot disagree about
//! names.

mod elector;
mod file;
mod hoist;
mod trust;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};

pub(crate) use self::trust::readable;
use crate::args::Arguments;
use crate::conceal::Concealed;
use crate::exit::Failure;

/// The command line, completed with settings from all other sources.
#[derive(Debug)]
pub(crate) struct Understood {
    pub(crate) arguments: Arguments,
    pub(crate) origins: Origins,
    /// Messages for people, to print before the command starts.
    pub(crate) hints: Vec<String>,
}

/// The reasons why a command line cannot be used.
#[derive(Debug)]
pub(crate) enum Misunderstood {
    /// The command line makes no sense, or only asks for help.
    Line(clap::Error),
    /// The file is refused.
    File(Failure),
}

/// The source of a value, the weakest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    BuiltIn,
    /// A file, and the line in it.
    File(PathBuf, usize),
    /// A variable of elector.
    Elector(&'static str),
    /// A variable.
    Variable(String),
    Flag,
}

impl Origin {
    /// Returns true if this origin is stronger, so that its value counts.
    pub(crate) fn beats(&self, other: &Origin) -> bool {
        let rank = |origin: &Origin| match origin {
            Origin::BuiltIn => 0,
            Origin::File(..) => 1,
            Origin::Elector(_) => 2,
            Origin::Variable(_) => 3,
            Origin::Flag => 4,
        };
        rank(self) > rank(other)
    }
}

/// The final value of one setting.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The name of its flag.
    pub(crate) name: String,
    /// `None`: not set, and there is no default.
    pub(crate) value: Option<String>,
    pub(crate) origin: Origin,
}

/// The origin of each setting.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    pub(crate) settings: Vec<Setting>,
    /// The configuration file that was read.
    pub(crate) file: Option<PathBuf>,
}

impl Origins {
    /// The origin of the setting with this flag name.
    pub(crate) fn of(&self, name: &str) -> Origin {
        let found = self.settings.iter().find(|setting| setting.name == name);
        found.map_or(Origin::BuiltIn, |setting| setting.origin.clone())
    }
}

/// A value from outside the command line.
#[derive(Debug)]
struct Layer {
    /// The id of the argument in the declaration.
    id: String,
    value: String,
    origin: Origin,
}

/// Parses a command line without the program's name.
///
/// # Errors
/// The error in the command line or in the file.
pub(crate) fn understand(
    words: Vec<OsString>,
    concealed: &Concealed,
) -> Result<Understood, Misunderstood> {
    let mut command = Arguments::command();
    command.build();
    let words = hoist::hoist(&command, words);
    let read = file::read(&command, &words).map_err(Misunderstood::File)?;
    let (elector, mut hints) = elector::layers(concealed);
    hints.extend(read.warning);
    // Later layers are stronger.
    let layers: Vec<Layer> =
        read.layers.into_iter().chain(elector).chain(taken_out(concealed)).collect();
    let mut command = Arguments::command();
    for layer in &layers {
        command = with_default(command, &layer.id, &layer.value);
    }
    let line = std::iter::once(OsString::from("tenure")).chain(words);
    let matches = command.clone().try_get_matches_from(line).map_err(Misunderstood::Line)?;
    let arguments = Arguments::from_arg_matches(&matches)
        .map_err(|error| Misunderstood::Line(error.format(&mut command)))?;
    command.build();
    let settings = settings(&command, &matches, &layers);
    Ok(Understood { arguments, origins: Origins { settings, file: read.path }, hints })
}

/// Values of variables that were taken out of the environment.
///
/// These variables hold passwords.
fn taken_out(concealed: &Concealed) -> impl Iterator<Item = Layer> {
    let variables = [("TENURE_STORE", "store"), ("TENURE_ETCD_MEMBERS", "etcd_members")];
    variables.into_iter().filter_map(|(variable, id)| {
        let value = concealed.get(variable)?.to_owned();
        Some(Layer { id: id.to_owned(), value, origin: Origin::Variable(variable.to_owned()) })
    })
}

/// Sets a default in every command that declares the argument.
fn with_default(command: Command, id: &str, value: &str) -> Command {
    let has = |command: &Command| command.get_arguments().any(|argument| argument.get_id() == id);
    // Help shows defaults, and some values are secret.
    let set = |argument: Arg| {
        let takes_value = argument.get_action().takes_values();
        argument.default_value(value.to_owned()).hide_default_value(takes_value)
    };
    if has(&command) {
        return command.mut_arg(id, set);
    }
    command
        .mut_subcommand("run", |run| if has(&run) { run.mut_arg(id, set) } else { run })
        .mut_subcommand("feed", |feed| if has(&feed) { feed.mut_arg(id, set) } else { feed })
        .mut_subcommand("share", |share| if has(&share) { share.mut_arg(id, set) } else { share })
        .mut_subcommand("config", |config| {
            config.mut_subcommand(
                "show",
                |show| if has(&show) { show.mut_arg(id, set) } else { show },
            )
        })
}

/// The final value of each setting of the chosen command.
fn settings(command: &Command, matches: &ArgMatches, layers: &[Layer]) -> Vec<Setting> {
    let root = command;
    let (mut command, mut matches) = (command, matches);
    let mut declared: BTreeMap<String, &Arg> = BTreeMap::new();
    let mut order = Vec::new();
    loop {
        for argument in command.get_arguments().filter(|argument| is_setting(argument)) {
            let id = argument.get_id().to_string();
            if declared.insert(id.clone(), argument).is_none() {
                order.push(id);
            }
        }
        let Some((name, inner)) = matches.subcommand() else { break };
        let Some(next) = command.find_subcommand(name) else { break };
        (command, matches) = (next, inner);
    }
    let mut found: Vec<Setting> = order
        .iter()
        .filter_map(|id| declared.remove(id).map(|argument| setting(argument, matches, layers)))
        .collect();
    if command.get_name() == "show" {
        let others = file::declared(root).into_iter();
        let others = others.filter(|other| !order.iter().any(|id| other.get_id() == id.as_str()));
        let mut known: Vec<&str> = Vec::new();
        for other in others {
            if !known.contains(&other.get_id().as_str()) {
                known.push(other.get_id().as_str());
                found.push(unparsed(other, layers));
            }
        }
    }
    found
}

/// The value of a setting of another command. No flag can set it.
fn unparsed(argument: &Arg, layers: &[Layer]) -> Setting {
    let variable = argument.get_env().and_then(|name| Some((name, std::env::var_os(name)?)));
    let layer = layers.iter().rev().find(|layer| argument.get_id() == layer.id.as_str());
    let built_in = || argument.get_default_values().first().map(|value| value.to_string_lossy());
    let (value, origin) = match (variable, layer) {
        (Some((name, value)), _) => {
            let name = name.to_string_lossy().into_owned();
            (Some(value.to_string_lossy().into_owned()), Origin::Variable(name))
        }
        (None, Some(layer)) => (Some(layer.value.clone()), layer.origin.clone()),
        (None, None) => (built_in().map(Into::into), Origin::BuiltIn),
    };
    let value = if matches!(argument.get_action(), clap::ArgAction::SetTrue) {
        // These texts mean no, and all others yes, as in clap.
        let no = ["", "n", "no", "f", "false", "off", "0"];
        Some(value.is_some_and(|text| !no.contains(&&*text.to_lowercase())).to_string())
    } else {
        value
    };
    Setting { name: argument.get_long().unwrap_or_default().to_owned(), value, origin }
}

fn setting(argument: &Arg, matches: &ArgMatches, layers: &[Layer]) -> Setting {
    let id = argument.get_id().as_str();
    let source = matches.try_contains_id(id).ok().and_then(|_| matches.value_source(id));
    let layer = layers.iter().rev().find(|layer| layer.id == id);
    let origin = match (source, layer) {
        (Some(ValueSource::CommandLine), _) => Origin::Flag,
        (Some(ValueSource::EnvVariable), _) => {
            let name = argument.get_env().map(|name| name.to_string_lossy().into_owned());
            Origin::Variable(name.unwrap_or_default())
        }
        (Some(_), Some(layer)) => layer.origin.clone(),
        (Some(_) | None, _) => Origin::BuiltIn,
    };
    let raw = matches.try_get_raw(id).ok().flatten().map(|values| {
        let texts: Vec<_> = values.map(|value| value.to_string_lossy().into_owned()).collect();
        texts.join(",")
    });
    let value = if matches!(argument.get_action(), clap::ArgAction::Count) {
        Some(matches.get_count(id).to_string())
    } else if matches!(argument.get_action(), clap::ArgAction::SetTrue) {
        Some(matches.get_flag(id).to_string())
    } else {
        raw
    };
    Setting { name: argument.get_long().unwrap_or(id).to_owned(), value, origin }
}

/// Returns true if an argument can also be set outside the command line.
fn is_setting(argument: &Arg) -> bool {
    let told_otherwise = ["help", "version", "config", "dry_run", "from"];
    argument.get_long().is_some() && !told_otherwise.contains(&argument.get_id().as_str())
}
