//! Leading a cluster: stands for leadership, and plans for all nodes while leading.

use std::time::Duration;

use tenure::{Candidate, Election};
use tokio::sync::watch;

use super::event::Event;
use super::planner::Planner;
use super::source_owners::SourceOwners;
use crate::error::ClusterError;

/// How long a node waits before it stands again.
const PAUSE: Duration = Duration::from_secs(1);

/// Stands for leadership, plans while it leads, and stands again; until it is dropped.
pub(super) async fn lead(
    election: Election,
    candidate: Candidate,
    mut planner: Planner,
    leading: watch::Sender<bool>,
) {
    let mut source_owners = SourceOwners::new(&planner);
    loop {
        source_owners.gone().await;
        if let Err(error) = planner.client.uphold_succession().await {
            // If the store does not serve, the campaign below reports it.
            tracing::debug!(%error, "the leaders' token could not be looked at");
        }
        if let Err(error) =
            tenure(&election, &candidate, &mut planner, &leading, &mut source_owners).await
        {
            tracing::warn!(%error, "this node cannot stand for the cluster's leadership just now");
        }
        planner.client.sleep(PAUSE).await;
    }
}

async fn tenure(
    election: &Election,
    candidate: &Candidate,
    planner: &mut Planner,
    leading: &watch::Sender<bool>,
    source_owners: &mut SourceOwners,
) -> Result<(), ClusterError> {
    let mut leadership = election.campaign(candidate.clone()).await?;
    loop {
        let mandate = leadership.mandate();
        tell(planner, leading, true);
        // Planning may be dropped at any point: every step of it can be cut off anywhere.
        let planned = tokio::select! {
            planned = mandate.scope(planner.run(&mandate)) => Some(planned),
            () = source_owners.come() => None,
        };
        tell(planner, leading, false);
        let Some(planned) = planned else {
            tracing::info!("somebody who can list the source is there, and shall lead");
            leadership.resign().await;
            return Ok(());
        };
        match planned {
            Ok(Ok(deposed)) => {
                tracing::info!(by = deposed.by, "somebody else plans for this cluster");
            }
            Ok(Err(error)) => tracing::warn!(%error, "planning was given up"),
            Err(lost) => {
                tracing::info!(%lost, "this node does not plan any more; its workers go on");
                leadership = leadership.regain().await?;
                continue;
            }
        }
        // Give other nodes the chance to plan.
        leadership.resign().await;
        return Ok(());
    }
}

fn tell(planner: &Planner, leading: &watch::Sender<bool>, leads: bool) {
    leading.send_replace(leads);
    // An error means that there is no listener, which is fine.
    let _ = planner.events.send(Event::Leading(leads));
}
