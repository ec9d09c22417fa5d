//! One file a command.

mod administer;
mod candidates;
mod completions;
mod demo;
mod doctor;
mod list;
mod run;
mod watch;
mod who;

use crate::args::{Arguments, Command};
use crate::exit::Ending;
use crate::session::Session;

/// Does what the command line says.
///
/// # Errors
/// A failure to be told, with its exit code.
///
/// # Cancel safety
/// Not cancel safe: work may be left running.
pub(crate) async fn execute(arguments: Arguments) -> Ending {
    let Arguments { settings, command } = arguments;
    if let Command::Completions(wanted) = &command {
        return completions::completions(wanted);
    }
    let session = Session::new(settings)?;
    match command {
        Command::Run(wanted) => run::run(&session, wanted).await,
        Command::Who(wanted) => who::who(&session, &wanted).await,
        Command::Watch(wanted) => watch::watch(&session, &wanted).await,
        Command::Candidates(wanted) => candidates::candidates(&session, &wanted).await,
        Command::List(_) => list::list(&session).await,
        Command::Create(wanted) => administer::create(&session, &wanted).await,
        Command::End(wanted) => administer::end(&session, &wanted).await,
        Command::Delete(wanted) => administer::delete(&session, &wanted).await,
        Command::Doctor(_) => doctor::doctor(&session).await,
        Command::Demo(wanted) => demo::demo(&session, &wanted).await,
        Command::Completions(wanted) => completions::completions(&wanted),
    }
}
