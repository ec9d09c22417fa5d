//! The command line: raw arguments, checked where clap can.

mod elections;
mod feed;
mod run;
mod settings;
mod share;
mod tools;
mod values;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{Parser, Subcommand};

pub(crate) use self::elections::{Candidates, Create, Delete, End, List, Watch, Who};
pub(crate) use self::feed::Feed;
pub(crate) use self::run::{ElectorBackend, ElectorOptions, HandlerOptions, Run, RunOptions};
pub(crate) use self::settings::{LogFormat, Settings, WaitForStore};
pub(crate) use self::share::{Cancel, Drain, EachTask, Members, Retry, Share, Submit, Tasks};
pub(crate) use self::tools::{Completions, Config, Demo, Doctor};
use crate::exit;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default());

/// Leader election and work sharing on the store you already run.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, styles = STYLES, max_term_width = 100)]
#[command(after_help = exit::ALL, subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) settings: Settings,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<Run>),
    Who(Who),
    Watch(Watch),
    Feed(Feed),
    Share(Box<Share>),
    Tasks(Tasks),
    Members(Members),
    Submit(Submit),
    Retry(Retry),
    Cancel(Cancel),
    Drain(Drain),
    Candidates(Candidates),
    List(List),
    Create(Create),
    End(End),
    Delete(Delete),
    Doctor(Doctor),
    Demo(Demo),
    Config(Config),
    Completions(Completions),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_declaration_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example_and_its_exit_codes() {
        for command in Arguments::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{}", command.get_name());
            assert!(help.contains("Exit codes"), "{}", command.get_name());
        }
    }

    #[test]
    fn settings_may_stand_before_or_after_the_command() {
        for line in [
            ["tenure", "--ttl", "5s", "who", "a"],
            ["tenure", "who", "--ttl", "5s", "a"],
            ["tenure", "who", "a", "--ttl", "5s"],
        ] {
            let arguments = Arguments::try_parse_from(line).expect("understood");
            assert_eq!(arguments.settings.ttl, Duration::from_secs(5));
        }
    }
}
