//! Elasticsearch with users and TLS: one server for all these tests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use tenure::store::{Expect, Fault, Put, StoreExt};
use tenure::{Election, Key, Timing};
use tenure_harness::elastic::{Options, Product, User};
use tenure_harness::{Elastic, Failure, Skipped};
use tenure_stores::{OpenError, OpenOptions};

use crate::faults::{candidate, renewed_twice, soon};
use crate::support::{chain, open};

const REQUEST: Duration = Duration::from_secs(10);

/// The server's address, and the directory of its certificates.
struct Secured {
    address: String,
    directory: PathBuf,
}

impl Secured {
    fn url(&self, login: &str, index: &str) -> String {
        let ca = self.directory.join("ca.pem");
        format!("elasticsearch+https://{login}{}/{index}?ca={}", self.address, ca.display())
    }
}

/// The password of `root`, who may do everything; `guest` may do nothing.
const PASSWORD: &str = "canary:@/";
/// The same login in a URL.
const LOGIN: &str = "root:canary%3A%40%2F@";
/// The privileges that a user needs, from docs/operating.md.
const ROLES: &str = "tenure:
  indices:
    - names: ['tenure*']
      privileges: [create_index, view_index_metadata, read, write, maintenance]
guest:
  cluster: []
";

fn server() -> Option<&'static Secured> {
    static SERVER: OnceLock<Result<Secured, Skipped>> = OnceLock::new();
    let server = SERVER.get_or_init(keep);
    tenure_harness::available(server.as_ref().map_err(|skipped| skipped.clone().into()))
}

/// Starts the server on a thread that keeps it until the program ends.
fn keep() -> Result<Secured, Skipped> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime can be started");
        let directory = tempfile::tempdir().expect("a directory");
        let started = certificates(directory.path())
            .and_then(|()| runtime.block_on(Elastic::single(options(directory.path()))));
        match started {
            Ok(server) => {
                let address = server[0].address().to_string();
                let _ = tell.send(Ok(Secured { address, directory: directory.path().to_owned() }));
                // Never dropped: the kernel ends it with this program.
                loop {
                    std::thread::park();
                }
            }
            Err(failure) => {
                let _ = tell.send(Err(failure));
            }
        }
    });
    match told.recv().expect("the thread answers") {
        Ok(secured) => Ok(secured),
        Err(Failure::Skipped(skipped)) => Err(skipped),
        Err(failure) => panic!("{failure}"),
    }
}

fn options(directory: &Path) -> Options {
    let user = |name: &str, password: &str, role: &str| User {
        name: name.to_owned(),
        password: password.to_owned(),
        role: role.to_owned(),
    };
    let settings = [
        ("xpack.security.transport.ssl.enabled", "false".to_owned()),
        ("xpack.security.http.ssl.enabled", "true".to_owned()),
        ("xpack.security.http.ssl.key", "server.key".to_owned()),
        ("xpack.security.http.ssl.certificate", "server.pem".to_owned()),
    ];
    Options {
        settings: settings.map(|(name, value)| (name.to_owned(), value)).into(),
        users: vec![
            user("root", PASSWORD, "superuser"),
            user("worker", "worker-canary", "tenure"),
            user("guest", "guest-canary", "guest"),
        ],
        files: ["server.key", "server.pem"].map(|name| directory.join(name)).into(),
        roles: ROLES.to_owned(),
        ..Options::new(Product::Elasticsearch)
    }
}

/// An authority, and a certificate for 127.0.0.1.
fn certificates(directory: &Path) -> Result<(), Failure> {
    let openssl = |words: &str| {
        let output =
            Command::new("openssl").current_dir(directory).args(words.split_whitespace()).output();
        let output = output.map_err(|error| Skipped {
            server: "openssl".to_owned(),
            reason: format!("cannot be started: {error}"),
        })?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok::<(), Failure>(())
    };
    let make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(&format!("{make} -keyout ca.key -out ca.pem -subj /CN=tenure-test"))?;
    openssl(&format!(
        "{make} -keyout server.key -out server.pem -subj /CN=server -CA ca.pem -CAkey ca.key \
         -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
         -addext extendedKeyUsage=serverAuth"
    ))
}

fn key() -> Key {
    Key::parse("elections/secured").expect("a good key")
}

async fn refused(url: &str) -> (Fault, String) {
    match tenure_stores::open(url, &OpenOptions::default().with_request(REQUEST)).await {
        Err(OpenError::Store(error)) => (error.fault, chain(&error)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_is_held_over_tls_with_a_password() {
    let Some(server) = server() else { return };
    let backend = open(&server.url(LOGIN, "secured"), REQUEST).await;
    let timing = Timing::new(Duration::from_secs(10)).expect("room for every part");
    let election = Election::builder(&backend, "jobs/nightly").timing(timing).open().await;
    let election = election.expect("it opens");
    let leader = soon("elected", election.campaign(candidate("a"))).await.expect("elected");
    renewed_twice(&leader).await;
    assert!(leader.mandate().is_leader());
    leader.resign().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_may_be_in_a_file() {
    let Some(server) = server() else { return };
    let file = server.directory.join("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).expect("written");
    let url = format!("{}&password-file={}", server.url("root@", "in-a-file"), file.display());
    assert!(open(&url, REQUEST).await.store().get(&key()).await.is_ok());
}

/// The privileges that docs/operating.md names are enough, and only on their index.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_needs_no_more_than_the_documentation_says() {
    let documentation = include_str!("../../../../docs/operating.md");
    assert!(documentation.contains("create_index, view_index_metadata, read, write, maintenance"));
    let Some(server) = server() else { return };
    let backend = open(&server.url("worker:worker-canary@", "tenure-worker"), REQUEST).await;
    let put = backend.store().put(&key(), Expect::Absent, "1".into()).await;
    assert!(matches!(put, Ok(Put::Stored(_))), "{put:?}");
    let page = backend.store().list(&Key::elections(), None, 10).await.expect("a page");
    assert_eq!(page.documents.len(), 1);
    let (fault, told) = refused(&server.url("worker:worker-canary@", "other")).await;
    assert_eq!(fault, Fault::Denied, "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_are_denied_and_no_password_is_shown() {
    let Some(server) = server() else { return };
    for login in ["root:canary@", "nobody:canary@", "", "guest:guest-canary@"] {
        let (fault, told) = refused(&server.url(login, "strangers")).await;
        assert_eq!(fault, Fault::Denied, "{told}");
        assert!(!told.contains("canary"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_certificate_nobody_vouches_for_is_refused() {
    let Some(server) = server() else { return };
    let address = &server.address;
    for url in [
        format!("elasticsearch+https://{LOGIN}{address}/x"),
        format!("elasticsearch+http://{LOGIN}{address}/x"),
        server.url(LOGIN, "x").replace("127.0.0.1:", "localhost:"),
    ] {
        let (fault, told) = refused(&url).await;
        assert_eq!(fault, Fault::Unavailable, "{url}: {told}");
        assert!(!told.contains("canary"), "{told}");
    }
    let (fault, told) = refused(&format!("{}.missing", server.url(LOGIN, "x"))).await;
    assert_eq!(fault, Fault::Permanent, "{told}");
}
