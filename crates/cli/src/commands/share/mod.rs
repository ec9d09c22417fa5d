//! `tenure share`: CMD, once for each item, on as many machines as run this.

mod errand;
mod finder;
mod from;
mod handler;
mod item;
mod others;
mod pool;
mod printer;
mod progress;
mod reader;
mod report;
mod run;
mod tail;

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use rustix::fs::{Access, access};
use tenure_cluster::input::Inputs;
use tenure_cluster::inputs::{DirectorySource, LinesSource};
use tenure_cluster::{Cluster, ClusterClient, Member, Tasks};

use self::from::From;
use self::handler::RunsCommand;
use self::item::Sort;
use self::pool::GuardianPool;
use self::reader::Reader;
use self::run::{Before, Run};
use super::group;
use super::submit::template;
use crate::args::{EachTask, Share};
use crate::exit::{Ending, FAILURE, Failure, NOT_EXECUTABLE, NOT_FOUND, REFUSED};
use crate::opening::{self, Opening};
use crate::secrets::secrets;
use crate::session::{self, Session};
use crate::supervise::Privileges;
use crate::systemd::Systemd;

pub(crate) async fn share(session: &Session, wanted: Share) -> Ending {
    let Share { group, from, options, each, command } = wanted;
    let from = from.as_deref().map(From::parse).transpose()?;
    if let Some(program) = command.first() {
        check(program)?;
    }
    let Listed { inputs, sort } = listed(from.as_ref(), each, options.follow).await?;
    let attempt = async || session.open_with(session.timing.request(), None, true).await;
    let opening = opening::open(attempt, options.opening.wait_for_store, true).await?;
    let (opened, mut signals) = match opening {
        Opening::Opened(opened, signals) => (*opened, signals),
        // The exit codes are the same as for an interrupt before the end.
        Opening::Interrupted(_) if from.is_none() || options.follow => {
            return Ok(ExitCode::SUCCESS);
        }
        Opening::Interrupted(signal) => {
            let code = u8::try_from(128 + signal.as_raw()).unwrap_or(FAILURE);
            return Ok(ExitCode::from(code));
        }
    };
    session.mention_embedded("sharing");
    let client = group::client(session, &opened.backend, &group.group)?;
    let before = before(&client, from.as_ref(), options.follow).await?;
    let (as_argument, may_be_a_flag) = (item::has_place(&command), item::may_be_a_flag(&command));
    let failed = |error| Failure::new(FAILURE, error);
    // Make the pool before this process joins the group: this process counts as dead only when
    // everything that CMD started is dead, too.
    let (presence, grace) = (opened.presence.clone(), session.timing.grace());
    let privileges = Privileges::of(options.no_new_privs);
    let pool =
        GuardianPool::new(command, secrets(), presence, grace, privileges).map_err(failed)?;
    let pool = Arc::new(pool);
    let handler = |sort: Sort| {
        let (pool, group) = (Arc::clone(&pool), group.group.clone());
        Arc::new(RunsCommand { pool, group, sort, as_argument })
    };
    // A plain item is any text that any user submitted. Beside a source that confines its items,
    // CMD runs for plain items only on request.
    let plain = sort.is_none() || options.accept_submitted;
    let (mut tasks, mut kinds) = (Tasks::new(), Vec::new());
    if let Some((kind, sort)) = sort {
        tasks = tasks.handling(kind, handler(sort.with_copies_of_at_most(options.copy_limit)));
        kinds.push(kind);
    }
    if plain {
        tasks = tasks.handling(item::LINE, handler(Sort::Line));
        kinds.push(item::LINE);
    }
    if plain && may_be_a_flag {
        crate::show::say(
            "an item that begins with a dash may look like a flag to CMD: write -- before {}, or leave {} out and \
             read the item on standard input",
        );
    }
    let name = session::name(session.id.as_ref());
    let joining = Cluster::builder(&opened.backend, &group.group)
        .member(Member::new(workers(options.workers)).named(name.clone()))
        .timing(session.timing)
        .tasks(tasks)
        .inputs(inputs)
        .join();
    let Ok(cluster) = signals.unless_interrupted(joining).await else {
        // Nothing has begun.
        return Ok(ExitCode::SUCCESS);
    };
    let cluster = cluster?;
    let systemd = Systemd::of_this_process();
    systemd.ready();
    systemd.status(&format!("shares the work of {}", group.group));
    let reader = match &from {
        Some(from) if from.is_own() => {
            Some(Reader::open(from, &pool, cluster.client(), template(item::LINE, each))?)
        }
        Some(_) | None => None,
    };
    let json = session.json || !io::stdout().is_terminal() || !io::stderr().is_terminal();
    let run = Run {
        cluster,
        pool,
        signals,
        systemd,
        name,
        weak: opened.backend.store().reads() == tenure::store::Reads::Weak,
        ends: from.is_some() && !options.follow,
        before,
        timing: session.timing,
        json,
        kinds,
    };
    let ending = run.run(reader).await;
    // If this process led, it hands the leadership over before it exits.
    opened.backend.close().await;
    ending
}

/// The state of the group before this process came.
///
/// # Errors
/// When this process is to follow a source that was read to its end: it would wait for ever.
async fn before(
    client: &ClusterClient,
    from: Option<&From>,
    follow: bool,
) -> Result<Before, Failure> {
    // Ignore an error: the leader reports unreadable documents, and mends them.
    let Ok(totals) = client.totals().await else { return Ok(Before::default()) };
    let is_listed = from.is_some_and(|from| !from.is_own());
    if is_listed && follow && totals.drained {
        let says = format!(
            "{} had been read to the end of its source without --follow, and is not read on; take another name",
            client.name()
        );
        return Err(Failure::new(REFUSED, anyhow::anyhow!(says)));
    }
    Ok(Before { accepted: totals.accepted, finished: is_listed && totals.is_finished() })
}

/// The sources that the leader lists, and the kind and sort of their items.
///
/// `sort` is `None` for lines, which need no source to be understood.
struct Listed {
    inputs: Inputs,
    sort: Option<(&'static str, Sort)>,
}

async fn listed(from: Option<&From>, each: EachTask, follow: bool) -> Result<Listed, Failure> {
    match from {
        Some(From::Directory(root)) => {
            let source = DirectorySource::new(root, template(item::FILE, each));
            let source = if follow { source.following() } else { source };
            let sort = Some((item::FILE, Sort::File(root.clone())));
            Ok(Listed { inputs: Inputs::new().windowed(source), sort })
        }
        Some(From::Lines(file)) => {
            let source = LinesSource::new(file, template(item::LINE, each));
            let source = if follow { source.following() } else { source };
            Ok(Listed { inputs: Inputs::new().windowed(source), sort: None })
        }
        Some(From::Objects(url)) => objects(url, each, follow).await,
        Some(From::Input | From::Command(_)) | None => {
            Ok(Listed { inputs: Inputs::new(), sort: None })
        }
    }
}

#[cfg(feature = "objects")]
async fn objects(url: &str, each: EachTask, follow: bool) -> Result<Listed, Failure> {
    let refused = |error| Failure::new(REFUSED, anyhow::anyhow!("--from: {error}"));
    let objects = tenure_cluster::inputs::Objects::open(url).map_err(refused)?;
    // A bucket that fails later is tried again. A bucket that is missing, or denies access, is a
    // typing error.
    objects.check().await.map_err(refused)?;
    let source = objects.source(template(item::OBJECT, each));
    let source = if follow { source.following() } else { source };
    let sort = Some((item::OBJECT, Sort::Object(objects)));
    Ok(Listed { inputs: Inputs::new().windowed(source), sort })
}

#[cfg(not(feature = "objects"))]
async fn objects(_: &str, _: EachTask, _: bool) -> Result<Listed, Failure> {
    let says = "--from: this program was built without objects";
    Err(Failure::new(REFUSED, anyhow::anyhow!(says)))
}

fn workers(wanted: Option<u16>) -> usize {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    wanted.map_or_else(processors, usize::from)
}

/// Checks that CMD can be run at all: otherwise every item would fail.
fn check(program: &OsStr) -> Result<(), Failure> {
    let found = |path: &Path| path.metadata().is_ok_and(|found| found.is_file());
    let may_run = |path: &Path| access(path, Access::EXEC_OK).is_ok();
    let candidates: Vec<PathBuf> = if program.as_encoded_bytes().contains(&b'/') {
        vec![program.into()]
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        std::env::split_paths(&path).map(|directory| directory.join(program)).collect()
    };
    let name = program.to_string_lossy();
    if candidates.iter().any(|path| found(path) && may_run(path)) {
        Ok(())
    } else if candidates.iter().any(|path| found(path)) {
        Err(Failure::new(NOT_EXECUTABLE, anyhow::anyhow!("running {name}: Permission denied")))
    } else if program.as_encoded_bytes().contains(&b'/') && Path::new(program).is_dir() {
        Err(Failure::new(NOT_EXECUTABLE, anyhow::anyhow!("running {name}: Is a directory")))
    } else {
        let says = "No such file or directory";
        Err(Failure::new(NOT_FOUND, anyhow::anyhow!("running {name}: {says}")))
    }
}
