//! RethinkDB with users, TLS, and missing tables.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tenure::Key;
use tenure::store::{Expect, Fault, Put, StoreError, StoreExt};
use tenure_harness::{Failure, Rethinkdb, Skipped, require};
use tenure_stores::rethinkdb::{Connection, RethinkStore};
use tenure_stores::{Location, OpenError, OpenOptions, parse};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::support::{chain, open};

const REQUEST: Duration = Duration::from_secs(5);

fn key() -> Key {
    Key::parse("elections/secured").expect("a good key")
}

async fn refused(url: &str, options: OpenOptions) -> StoreError {
    match tenure_stores::open(url, &options.with_request(REQUEST)).await {
        Err(OpenError::Store(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn strangers_are_denied_and_no_password_is_shown() {
    let server = require!(Rethinkdb::single().await);
    let address = server[0].address();
    for user in ["admin", "nobody"] {
        let url = format!("rethinkdb://{user}:canary@{address}/d");
        let error = refused(&url, OpenOptions::default()).await;
        assert_eq!(error.fault, Fault::Denied, "{error:?}");
        println!("{}", chain(&error));
        assert!(!format!("{error:?} {}", chain(&error)).contains("canary"), "{error:?}");
    }
}

#[tokio::test]
async fn a_password_may_be_in_a_file() {
    let server = require!(Rethinkdb::single().await);
    let file = server[0].directory().join("password");
    std::fs::write(&file, "canary\n").expect("written");
    let url =
        format!("rethinkdb://admin@{}/d?password-file={}", server[0].address(), file.display());
    // The right password is empty. The refusal shows that this one was read.
    assert_eq!(refused(&url, OpenOptions::default()).await.fault, Fault::Denied);
}

#[tokio::test]
async fn what_is_missing_is_created_unless_that_is_forbidden() {
    let server = require!(Rethinkdb::single().await);
    let url = |name: &str| format!("rethinkdb://{}/{name}", server[0].address());
    let forbidden = || OpenOptions::default().with_create_if_missing(false);
    let error = refused(&url("d?table=t"), forbidden()).await;
    assert_eq!(error.fault, Fault::Permanent, "{error:?}");
    assert!(chain(&error).contains("the database `d` does not exist"), "{}", chain(&error));
    open(&url("d?table=other"), REQUEST).await;
    let error = refused(&url("d?table=t"), forbidden()).await;
    assert_eq!(error.fault, Fault::Permanent, "{error:?}");
    assert!(chain(&error).contains("the table `d.t` does not exist"), "{}", chain(&error));
    let backend = open(&url("d?table=t"), REQUEST).await;
    let put = backend.store().put(&key(), Expect::Absent, "1".into()).await;
    assert!(matches!(put, Ok(Put::Stored(_))), "{put:?}");
    let options = forbidden().with_request(REQUEST);
    let again = tenure_stores::open(&url("d?table=t"), &options).await.expect("it is there now");
    assert!(again.backend.store().get(&key()).await.expect("it answers").is_some());
}

#[tokio::test]
async fn stores_of_many_tables_share_one_connection() {
    let server = require!(Rethinkdb::single().await);
    let url = format!("rethinkdb://{}", server[0].address());
    let Ok(Location::Rethinkdb(servers)) = parse(&url) else { panic!("{url}") };
    let connection = Connection::new(&servers, REQUEST).expect("a connection");
    for table in ["one", "other"] {
        let store = RethinkStore::from_connection(connection.clone(), "d", table, true).await;
        let store = store.expect("it opens");
        let put = store.put(&key(), Expect::Absent, table.to_owned().into()).await;
        assert!(matches!(put, Ok(Put::Stored(_))), "{put:?}");
        let row = serde_json::json!([16, [[15, [[14, ["d"]], table]], "elections/secured"]]);
        let row = store.connection().run(&row).await.expect("an answer");
        assert_eq!(row["body"], table, "people can read it");
    }
}

/// An authority, and a certificate for 127.0.0.1.
fn certificates(directory: &Path) -> Result<(), Failure> {
    let make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    for words in [
        format!("{make} -keyout ca.key -out ca.pem -subj /CN=tenure-test"),
        format!(
            "{make} -keyout server.key -out server.pem -subj /CN=server -CA ca.pem -CAkey ca.key \
             -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
             -addext extendedKeyUsage=serverAuth"
        ),
    ] {
        let mut openssl = Command::new("openssl");
        let output = openssl.current_dir(directory).args(words.split_whitespace()).output();
        let output = output.map_err(|error| Skipped {
            server: "openssl".to_owned(),
            reason: format!("cannot be started: {error}"),
        })?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// A TLS proxy in front of a server, as with `--driver-tls-cert`.
async fn secured(directory: &Path, server: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
    let pem = |name: &str| directory.join(name);
    let certificate = CertificateDer::from_pem_file(pem("server.pem")).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(pem("server.key")).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they belong together");
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let serving = tokio::spawn(async move {
        while let Ok((plain, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // Clients that do not trust us end here.
                let Ok(mut secure) = acceptor.accept(plain).await else { return };
                let Ok(mut server) = TcpStream::connect(server).await else { return };
                let _ = tokio::io::copy_bidirectional(&mut secure, &mut server).await;
            });
        }
    });
    (address, serving)
}

#[tokio::test]
async fn tls_works_with_an_authority_that_is_trusted_and_only_then() {
    let server = require!(Rethinkdb::single().await);
    let directory = tempfile::tempdir().expect("a directory");
    require!(certificates(directory.path()));
    let (address, _serving) = secured(directory.path(), server[0].address()).await;
    let ca = directory.path().join("ca.pem");
    let url = format!("rethinkdb://{address}/d?ca={}", ca.display());
    let backend = open(&url, REQUEST).await;
    let put = backend.store().put(&key(), Expect::Absent, "1".into()).await;
    assert!(matches!(put, Ok(Put::Stored(_))), "{put:?}");
    for url in [
        format!("rethinkdb+tls://{address}/d"),
        format!("rethinkdb://{address}/d"),
        format!("rethinkdb://localhost:{}/d?ca={}", address.port(), ca.display()),
    ] {
        let error = refused(&url, OpenOptions::default()).await;
        println!("{url}: {}", chain(&error));
        assert_ne!(error.fault, Fault::Indeterminate, "{error:?}");
    }
}
