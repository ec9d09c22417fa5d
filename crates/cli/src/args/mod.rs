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

/// The help's list of variables that have no flag.
const VARIABLES: &str = "\
Variables without a flag:
  TENURE_STORE_PASSWORD  the password of the user in the store's URL
  TENURE_STORE_API_KEY   the API key for Elasticsearch and OpenSearch
  TENURE_TRUST_PARENTS   true: a directory store whose parents another user could rename is not refused, like
                         ?trust-parents=true in its URL";

/// Leader election and work sharing on the store you already run.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, styles = STYLES, max_term_width = 100)]
#[command(after_help = format!("{VARIABLES}\n\n{}", exit::ALL), subcommand_required = true, arg_required_else_help = true)]
#[command(mut_args = without_value, mut_subcommands = without_values)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) settings: Settings,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Shows the variable of a setting in the help, but not its value, which may be a secret.
fn without_value(argument: clap::Arg) -> clap::Arg {
    argument.hide_env_values(true)
}

fn without_values(command: clap::Command) -> clap::Command {
    command.mut_args(without_value).mut_subcommands(without_values)
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
    fn help_shows_the_value_of_no_variable() {
        fn check(command: &clap::Command) {
            for argument in command.get_arguments() {
                let shown = argument.get_env().is_some() && !argument.is_hide_env_values_set();
                assert!(!shown, "{} {argument}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Arguments::command());
    }

    #[test]
    fn the_guarantees_name_every_store() {
        let guarantees = include_str!("../../../../docs/guarantees.md");
        let (_, table) = guarantees.split_once("## What each store gives").expect("its heading");
        for scheme in tenure_stores::SCHEMES {
            // With and without TLS it is the same store.
            let bare = scheme.split(['+', ':']).next().unwrap_or(scheme);
            let forms = [format!("`{bare}:"), format!("`{bare}+http://")];
            assert!(forms.iter().any(|form| table.contains(form)), "{scheme}");
        }
    }

    #[test]
    fn help_names_the_variables_that_no_flag_has() {
        let help = Arguments::command().render_long_help().to_string();
        for name in [
            tenure_stores::PASSWORD_VARIABLE,
            tenure_stores::API_KEY_VARIABLE,
            "TENURE_TRUST_PARENTS",
            "?trust-parents=true",
        ] {
            assert!(help.contains(name), "{name}: {help}");
        }
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
