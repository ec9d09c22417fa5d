//! `tenure submit`

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use serde::Serialize;
use tenure_cluster::input::Template;
use tenure_cluster::{ClusterClient, Order};

use super::group;
use super::lines::{self, Heard};
use crate::args::{EachTask, Submit};
use crate::exit::{Ending, Failure, USAGE};
use crate::session::Session;
use crate::show;

/// How many tasks are submitted together.
const TOGETHER: usize = 1000;

#[derive(Serialize)]
struct Submitted {
    group: String,
    accepted: u64,
}

pub(crate) async fn submit(session: &Session, wanted: &Submit) -> Ending {
    let opened = session.open().await?;
    let client = group::client(session, &opened.backend, &wanted.group.group)?;
    let template = template(&wanted.kind, wanted.each);
    let accepted = if wanted.items.iter().any(|item| item == "-") {
        if wanted.items.len() > 1 {
            let says = "- stands for all lines of standard input, and alone";
            return Err(Failure::new(USAGE, anyhow::anyhow!(says)));
        }
        read_and_submit(&client, &template).await?
    } else {
        let orders: Vec<Order> =
            wanted.items.iter().map(|item| order(&template, item.as_bytes())).collect();
        let accepted = orders.len() as u64;
        enter(&client, orders).await?;
        accepted
    };
    if session.json {
        show::print_json(&Submitted { group: client.name().to_string(), accepted })?;
    } else {
        show::print(format_args!("{} accepted", group::count(accepted, "task", "tasks")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The template of tasks of one kind.
pub(super) fn template(kind: &str, each: EachTask) -> Template {
    let template = Template::new(kind).attempts(each.attempts);
    match each.timeout {
        Some(timeout) => template.timeout(timeout),
        None => template,
    }
}

/// The task for one line.
pub(super) fn order(template: &Template, line: &[u8]) -> Order {
    template.order(lines::name(line), line.to_vec())
}

/// Submits tasks.
///
/// # Errors
/// When one is refused, or the store does not serve.
///
/// # Cancel safety
/// Not cancel safe: after a drop it is unknown which tasks were accepted.
pub(super) async fn enter(client: &ClusterClient, orders: Vec<Order>) -> Result<(), Failure> {
    Ok(client.submit(orders).await?)
}

async fn read_and_submit(client: &ClusterClient, template: &Template) -> Result<u64, Failure> {
    let mut heard = lines::read(std::io::stdin());
    let mut accepted = 0;
    loop {
        let mut together = Vec::new();
        if heard.recv_many(&mut together, TOGETHER).await == 0 {
            return Ok(accepted);
        }
        let (mut orders, mut failure) = (Vec::new(), None);
        for heard in together {
            match heard {
                Heard::Line(line) => orders.push(order(template, &line)),
                Heard::TooLong(number) => {
                    let says = format!("line {number} is too long; a task has at most 16 KiB");
                    failure = Some(Failure::new(USAGE, anyhow::anyhow!(says)));
                    break;
                }
                Heard::Failed(says) => {
                    let says = format!("reading standard input: {says}");
                    failure = Some(Failure::new(crate::exit::FAILURE, anyhow::anyhow!(says)));
                    break;
                }
            }
        }
        accepted += orders.len() as u64;
        enter(client, orders).await?;
        if let Some(failure) = failure {
            show::say(&format!("{} accepted before that", group::count(accepted, "task", "tasks")));
            return Err(failure);
        }
    }
}
