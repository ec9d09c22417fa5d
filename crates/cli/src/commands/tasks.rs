//! `tenure tasks`

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde::Serialize;
use tenure_cluster::ClusterError;
use tenure_cluster::documents::{Letter, OutcomeState, Report};
use tenure_cluster::{ClusterClient, MemberId, Stage, TaskView, Totals};

use super::group::{self, first_line};
use crate::args::Tasks;
use crate::exit::{Ending, Failure};
use crate::session::Session;
use crate::show::{self, Colour, ValueJson, paint};

/// How many submitted items that the leader has not taken in are shown.
const MOST_WAITING: usize = 20;
/// How many dead letters are read at a time.
const LETTERS: usize = 256;

#[derive(Serialize)]
struct Listed {
    group: String,
    #[serde(flatten)]
    totals: TotalsJson,
    /// Open tasks without documents: another program overwrote or deleted these. `None` when the
    /// cluster changes during the count.
    lost: Option<u64>,
    tasks: Vec<TaskJson>,
    inbox: InboxJson,
}

/// The group's totals as `--json` shows them.
#[derive(Debug, Serialize)]
pub(super) struct TotalsJson {
    accepted: u64,
    done: u64,
    dead: u64,
    cancelled: u64,
    open: u64,
    drained: bool,
    paused: bool,
}

impl TotalsJson {
    pub(super) fn of(totals: &Totals) -> TotalsJson {
        let Totals { accepted, done, dead, cancelled, open, drained, paused, .. } = *totals;
        TotalsJson { accepted, done, dead, cancelled, open, drained, paused }
    }
}

#[derive(Serialize)]
struct TaskJson {
    serial: u64,
    id: String,
    kind: String,
    state: &'static str,
    attempt: u32,
    attempts: u32,
    member: Option<String>,
    status: Option<String>,
    error: Option<String>,
    cancelled: bool,
}

#[derive(Serialize)]
struct InboxJson {
    tasks: u64,
    retries: u64,
    next: Vec<WaitingJson>,
}

#[derive(Serialize)]
struct WaitingJson {
    id: String,
    kind: String,
}

#[derive(Serialize)]
struct LetterJson<'a> {
    serial: u64,
    id: &'a str,
    kind: &'a str,
    attempt: u32,
    attempts: u32,
    error: &'a str,
    at_ms: u64,
    #[serde(flatten)]
    item: ValueJson,
}

#[derive(Serialize)]
struct RefusedJson<'a> {
    serial: u64,
    id: &'a str,
    attempt: u32,
    error: &'a str,
}

#[derive(Serialize)]
struct ReportJson<'a> {
    serial: u64,
    id: &'a str,
    state: &'static str,
    attempt: u32,
    result: Option<&'a str>,
    error: Option<&'a str>,
}

pub(crate) async fn tasks(session: &Session, wanted: &Tasks) -> Ending {
    let opened = session.open().await?;
    let (client, totals) = group::existing(session, &opened.backend, &wanted.group.group).await?;
    if wanted.dead {
        dead(session, &client, &totals).await?;
    } else if wanted.results {
        results(session, &client).await?;
    } else {
        live(session, &client, &totals).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the tasks that have not ended.
async fn live(session: &Session, client: &ClusterClient, totals: &Totals) -> Result<(), Failure> {
    let work = client.tasks(MOST_WAITING).await?;
    group::mention(&work.garbled);
    // Tasks in slots are not lost, and usually those are all open tasks.
    let seen = totals.running + totals.outstanding;
    let lost = if totals.open > seen { client.lost().await? } else { Some(0) };
    if session.json {
        let tasks = work.live.into_iter().map(TaskJson::of).collect();
        let next = work.next.into_iter();
        let next = next.map(|order| WaitingJson { id: order.id, kind: order.kind }).collect();
        let inbox = InboxJson { tasks: work.waiting, retries: work.retries, next };
        let (group, totals) = (client.name().to_string(), TotalsJson::of(totals));
        show::print_json(&Listed { group, totals, lost, tasks, inbox })?;
        return Ok(());
    }
    let Totals { accepted, done, dead, cancelled, open, paused, .. } = *totals;
    let paused = if paused { paint(Colour::Yellow, "; paused") } else { String::new() };
    show::print(format_args!(
        "{accepted} accepted: {done} done, {dead} dead, {cancelled} cancelled, {open} open{paused}"
    ))?;
    let names = names(client).await?;
    for task in &work.live {
        show::print(line(task, &names))?;
    }
    let waiting = work.waiting.saturating_sub(work.next.len() as u64);
    for order in &work.next {
        show::print(format_args!("  next  {}", show::value(order.id.as_bytes())))?;
    }
    if waiting > 0 {
        show::print(format_args!("  and {waiting} more that wait to be taken in"))?;
    }
    if let Some(lost) = lost.filter(|lost| *lost > 0) {
        let (tasks, group) =
            (group::count(lost, "task", "tasks"), show::escape(client.name().as_str()));
        let lost = paint(Colour::Red, "lost");
        show::print(format_args!(
            "  {tasks} {lost}: somebody overwrote or deleted the documents; to give up on them: tenure cancel {group} --lost"
        ))?;
    }
    if work.retries > 0 {
        let retries = group::count(work.retries, "dead letter", "dead letters");
        show::print(format_args!("  and {retries} about to come back"))?;
    }
    Ok(())
}

/// The names of the members; empty where the node list makes no sense.
async fn names(client: &ClusterClient) -> Result<BTreeMap<MemberId, String>, Failure> {
    let members = match client.members().await {
        Ok(members) => members.items.into_iter(),
        Err(ClusterError::Document { key, source }) => {
            group::mention(&[(key, source)]);
            return Ok(BTreeMap::new());
        }
        Err(error) => return Err(error.into()),
    };
    Ok(members
        .filter(|member| !member.name.is_empty())
        .map(|member| (member.id, member.name))
        .collect())
}

fn line(task: &TaskView, names: &BTreeMap<MemberId, String>) -> String {
    let TaskView { serial, id, attempt, attempts, .. } = task;
    let id = show::value(id.as_bytes());
    let (word, more) = match &task.stage {
        Stage::Running { member, status, .. } => {
            let name = names.get(member).map_or(member.as_str(), String::as_str);
            let status =
                status.as_ref().map_or_else(String::new, |says| format!(": {}", first_line(says)));
            let asked = if task.cancelled { ", to be cancelled" } else { "" };
            let word = paint(Colour::Green, "running");
            (
                word,
                format!("attempt {attempt} of {attempts}, {}{asked}{status}", show::escape(name)),
            )
        }
        Stage::Outstanding { error: Some(error) } => {
            let says = format!("attempt {attempt} of {attempts} failed: {}", first_line(error));
            (paint(Colour::Yellow, "waiting"), says)
        }
        Stage::Outstanding { error: None } => ("waiting".to_owned(), String::new()),
    };
    format!("{serial:>8}  {word}  {id}  {more}").trim_end().to_owned()
}

impl TaskJson {
    fn of(task: TaskView) -> TaskJson {
        let TaskView { serial, id, kind, attempt, attempts, stage, cancelled, .. } = task;
        let (state, member, status, error) = match stage {
            Stage::Running { member, status, .. } => {
                ("running", Some(member.to_string()), status, None)
            }
            Stage::Outstanding { error } => ("waiting", None, None, error),
        };
        TaskJson { serial, id, kind, state, attempt, attempts, member, status, error, cancelled }
    }
}

async fn dead(session: &Session, client: &ClusterClient, totals: &Totals) -> Result<(), Failure> {
    let (mut after, mut count) = (None, 0);
    loop {
        let letters = client.letters(after.as_ref(), LETTERS).await?;
        group::mention(&letters.garbled);
        count += letters.items.len() as u64;
        for letter in &letters.items {
            print_letter(session, letter)?;
        }
        match letters.next {
            Some(next) => after = Some(next),
            None if totals.dead > count => return refused(session, client).await,
            None => return Ok(()),
        }
    }
}

/// Prints items that cannot become tasks.
///
/// A source gave them. They were never begun, have no letter, and cannot be retried.
async fn refused(session: &Session, client: &ClusterClient) -> Result<(), Failure> {
    let mut from = 0;
    loop {
        let results = client.results(from).await?;
        group::mention(&results.garbled);
        let never_begun =
            |report: &&Report| report.state == OutcomeState::Dead && report.attempt == 0;
        for report in results.reports.iter().filter(never_begun) {
            print_refused(session, report)?;
        }
        if !results.more {
            return Ok(());
        }
        from = results.next;
    }
}

fn print_refused(session: &Session, report: &Report) -> std::io::Result<()> {
    let Report { serial, id, note, .. } = report;
    let error = note.as_deref().unwrap_or_default();
    if !session.json {
        let (id, why) = (show::value(id.as_bytes()), first_line(error));
        return show::print(format_args!("{serial:>8}  {id}  refused: {why}"));
    }
    show::print_json(&RefusedJson { serial: *serial, id, attempt: 0, error })
}

fn print_letter(session: &Session, letter: &Letter) -> std::io::Result<()> {
    let Letter { task, attempt, error, at, .. } = letter;
    if !session.json {
        let (serial, id) = (task.serial, show::value(task.id.as_bytes()));
        let (attempts, why) = (task.attempts, first_line(error));
        return show::print(format_args!(
            "{serial:>8}  {id}  attempt {attempt} of {attempts} failed: {why}"
        ));
    }
    show::print_json(&LetterJson {
        serial: task.serial,
        id: &task.id,
        kind: &task.kind,
        attempt: *attempt,
        attempts: task.attempts,
        error,
        at_ms: *at,
        item: ValueJson::of(&task.payload),
    })
}

async fn results(session: &Session, client: &ClusterClient) -> Result<(), Failure> {
    let mut from = 0;
    loop {
        let results = client.results(from).await?;
        group::mention(&results.garbled);
        for report in &results.reports {
            print_report(session, report)?;
        }
        if !results.more {
            return Ok(());
        }
        from = results.next;
    }
}

fn print_report(session: &Session, report: &Report) -> std::io::Result<()> {
    let Report { serial, id, state, attempt, note } = report;
    let (word, colour) = match state {
        OutcomeState::Done => ("done", Colour::Green),
        OutcomeState::Dead => ("dead", Colour::Red),
        OutcomeState::Cancelled => ("cancelled", Colour::Yellow),
    };
    if !session.json {
        let (id, note) = (show::value(id.as_bytes()), note.as_deref().map(first_line));
        let (gap, note) = (if note.is_some() { "  " } else { "" }, note.unwrap_or_default());
        return show::print(format_args!("{serial:>8}  {}  {id}{gap}{note}", paint(colour, word)));
    }
    let (result, error) = match state {
        OutcomeState::Done => (note.as_deref(), None),
        OutcomeState::Dead | OutcomeState::Cancelled => (None, note.as_deref()),
    };
    let (serial, attempt) = (*serial, *attempt);
    show::print_json(&ReportJson { serial, id, state: word, attempt, result, error })
}
