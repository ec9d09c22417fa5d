//! The commands, one file each.

mod administer;
mod cancel;
mod candidates;
mod completions;
mod config;
mod demo;
mod doctor;
mod drain;
mod feed;
mod group;
mod lines;
mod list;
mod members;
mod retry;
mod run;
mod share;
mod submit;
mod tasks;
mod watch;
mod who;

use crate::args::{Arguments, Command};
use crate::config::Understood;
use crate::exit::Ending;
use crate::session::Session;
use crate::show;

/// Runs the command of the command line.
///
/// # Errors
/// A failure to report, with its exit code.
///
/// # Cancel safety
/// Not cancel safe: work may be left running.
pub(crate) async fn execute(understood: Understood) -> Ending {
    let Understood { arguments: Arguments { settings, command }, origins, hints } = understood;
    if !matches!(command, Command::Completions(_) | Command::Config(_)) {
        hints.iter().for_each(|hint| show::say(hint));
    }
    let session = || Session::new(settings.clone(), &origins);
    match command {
        Command::Run(wanted) => run::run(settings.clone(), &origins, *wanted).await,
        Command::Who(wanted) => who::who(&session()?, &wanted).await,
        Command::Watch(wanted) => watch::watch(&session()?, &wanted).await,
        Command::Feed(wanted) => feed::feed(&session()?, &wanted).await,
        Command::Share(wanted) => share::share(&session()?, *wanted).await,
        Command::Tasks(wanted) => tasks::tasks(&session()?, &wanted).await,
        Command::Members(wanted) => members::members(&session()?, &wanted).await,
        Command::Submit(wanted) => submit::submit(&session()?, &wanted).await,
        Command::Retry(wanted) => retry::retry(&session()?, &wanted).await,
        Command::Cancel(wanted) => cancel::cancel(&session()?, &wanted).await,
        Command::Drain(wanted) => drain::drain(&session()?, &wanted).await,
        Command::Candidates(wanted) => candidates::candidates(&session()?, &wanted).await,
        Command::List(_) => list::list(&session()?).await,
        Command::Create(wanted) => administer::create(&session()?, &wanted).await,
        Command::End(wanted) => administer::end(&session()?, &wanted).await,
        Command::Delete(wanted) => administer::delete(&session()?, &wanted).await,
        Command::Doctor(_) => doctor::doctor(&session()?).await,
        Command::Demo(wanted) => demo::demo(&session()?, &wanted).await,
        Command::Config(_) => config::show(&origins, settings.json),
        Command::Completions(wanted) => completions::completions(&wanted),
    }
}
