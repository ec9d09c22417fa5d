//! An HTTP service with one leading instance.
//!
//! The leader serves `POST /orders`, and the other instances name the leader.
//!
//! `cargo run -p tenure-stores --example axum_service [STORE] [ADDRESS] [NAME]`, on several hosts
//! or ports:
//!
//! ```console
//! $ cargo run -p tenure-stores --example axum_service etcd://10.0.0.5/shop 10.0.0.7:8080 host-a
//! $ curl -X POST 10.0.0.7:8080/orders
//! accepted under token 8214
//! ```
//!
//! TERM or Ctrl-C ends it gracefully: no new requests, requests in flight are answered, then the
//! leadership is given up, and the next instance leads at once.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tenure::{Candidacy, Candidate, Election, Leadership, Mandate};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The mandate while this instance leads.
type Leading = watch::Receiver<Option<Mandate>>;

#[derive(Clone)]
struct Service {
    election: Arc<Election>,
    leading: Leading,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let store = arguments.next().unwrap_or_else(|| "file:///tmp/tenure-axum".into());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".into());
    let name = arguments.next().unwrap_or_else(|| format!("instance-{}", std::process::id()));

    let backend = tenure_stores::open(&store, &Default::default()).await?.backend;
    let election =
        Election::builder(&backend, "shop/orders").create_if_missing(true).open().await?;
    let listener = tokio::net::TcpListener::bind(&address).await?;
    let address = listener.local_addr()?.to_string();
    println!("{name} serves on {address}");

    let (mandates, leading) = watch::channel(None);
    let service = Service { election: Arc::new(election.clone()), leading };
    let routes = Router::new()
        .route("/orders", post(order))
        .route("/leader", get(leader))
        .with_state(service);

    // The leader publishes its address, so that the others can name it.
    let candidacy = election.stand(Candidate::new(&name)?.with_value(address)?)?;
    let (stop, stopped) = watch::channel(false);
    let standing = tokio::spawn(lead(candidacy, mandates, stopped));
    axum::serve(listener, routes).with_graceful_shutdown(told_to_stop()).await?;
    // Every request has been answered: only now may another instance lead.
    stop.send_replace(true);
    standing.await??;
    backend.close().await;
    println!("{name} has left");
    Ok(())
}

/// Leads whenever this instance is elected, until it is told to stop.
async fn lead(
    mut candidacy: Candidacy,
    mandates: watch::Sender<Option<Mandate>>,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), tenure::Error> {
    let mut leadership: Leadership = tokio::select! {
        elected = candidacy.elected() => elected?,
        () = until_stopped(&mut stopped) => {
            candidacy.withdraw().await;
            return Ok(());
        }
    };
    loop {
        mandates.send_replace(Some(leadership.mandate()));
        println!("leads with token {}", leadership.mandate().token());
        tokio::select! {
            loss = leadership.lost() => {
                mandates.send_replace(None);
                println!("leads no more: {loss}");
            }
            () = until_stopped(&mut stopped) => {
                leadership.resign().await;
                return Ok(());
            }
        }
        leadership = tokio::select! {
            again = leadership.regain() => again?,
            () = until_stopped(&mut stopped) => return Ok(()),
        };
    }
}

async fn until_stopped(stopped: &mut watch::Receiver<bool>) {
    // An error means that `main` has ended, which is as good.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

/// Accepts an order, if this instance leads.
async fn order(State(service): State<Service>) -> Response {
    let mandate = service.leading.borrow().clone();
    match mandate.filter(Mandate::is_leader) {
        // A real service hands the token to its database, which refuses smaller ones.
        Some(mandate) => format!("accepted under token {}\n", mandate.token()).into_response(),
        None => {
            let leader = leader(State(service)).await;
            (StatusCode::SERVICE_UNAVAILABLE, leader).into_response()
        }
    }
}

/// Names the leader and its address.
async fn leader(State(service): State<Service>) -> Result<String, (StatusCode, String)> {
    match service.election.standing().await {
        Ok(standing) => Ok(match standing.leader {
            Some(leader) => {
                format!("{} leads at {}\n", leader.name, String::from_utf8_lossy(&leader.value))
            }
            None => "no instance leads\n".into(),
        }),
        Err(error) => Err((StatusCode::BAD_GATEWAY, format!("{error}\n"))),
    }
}

async fn told_to_stop() {
    let signals = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    let (Ok(mut terminate), Ok(mut interrupt)) = signals else {
        eprintln!("signals cannot be heard: end this with KILL");
        return std::future::pending().await;
    };
    tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
}
