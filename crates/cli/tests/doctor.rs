//! `tenure doctor` on servers that are not what they seem.
#![cfg(feature = "etcd")]
#![allow(clippy::unwrap_used)]

mod support;

use support::{bare, ran};
use tenure_harness::{Etcd, Failure, GrpcProxy, etcd, require};
use tokio::runtime::Runtime;

fn behind_a_proxy() -> Result<(Runtime, Etcd, GrpcProxy), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let server = runtime.block_on(Etcd::single(etcd::Options::default()))?;
    let proxy = runtime.block_on(server.grpc_proxy())?;
    Ok((runtime, server, proxy))
}

/// Doctor said "ok", although no candidate would ever lead (issue 13, point 10).
#[test]
fn doctor_says_that_nobody_leads_behind_a_grpc_proxy() {
    let (_runtime, server, proxy) = require!(behind_a_proxy());
    let doctor = |address: std::net::SocketAddr| {
        let store = format!("etcd://{address}/doctor");
        ran(bare(&["doctor", "--store", &store, "--ttl", "10s"]))
    };
    let direct = doctor(server[0].address());
    assert_eq!(direct.code, Some(0), "{direct:?}");
    let proxied = doctor(proxy.address());
    assert_eq!(proxied.code, Some(78), "{proxied:?}");
    assert!(proxied.out.contains("KeepAlives of leases are not"), "{proxied:?}");
}

/// Issue 13, point 29: doctor showed the time-out of a lease with the asked ttl.
#[test]
fn doctor_shows_the_request_time_out_of_the_session_that_was_granted() {
    let (_runtime, server, _proxy) = require!(behind_a_proxy());
    let store = format!("etcd://{}/doctor", server[0].address());
    let doctor = ran(bare(&["doctor", "--store", &store, "--ttl", "40s"]));
    assert!(doctor.out.contains("requests given up after 4.0 s"), "{doctor:?}");
}
