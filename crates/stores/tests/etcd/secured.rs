//! etcd with users and with TLS.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tenure::Key;
use tenure::store::{Expect, Fault, Put, StoreExt};
use tenure_harness::{Etcd, Failure, Skipped, Version, etcd, require};
use tenure_stores::{OpenError, OpenOptions};

use crate::support::open;

const REQUEST: Duration = Duration::from_secs(5);

fn key() -> Key {
    Key::parse("elections/secured").expect("a good key")
}

/// A server with users: `root` with the password `canary:@/`, and `guest` with these `grants`.
pub(crate) async fn with_users(
    version: Version,
    arguments: &[&str],
    grants: &[&[&str]],
) -> Result<Etcd, Failure> {
    let arguments = arguments.iter().map(ToString::to_string).collect();
    let options = etcd::Options { version, arguments, ..etcd::Options::default() };
    let server = Etcd::single(options).await?;
    let endpoint = format!("--endpoints={}", server[0].address());
    let users: [&[&str]; 3] = [
        &["user", "add", "root:canary:@/"],
        &["user", "grant-role", "root", "root"],
        &["user", "add", "guest:guest"],
    ];
    let enable: &[&str] = &["auth", "enable"];
    for words in users.iter().chain(grants).chain([&enable]) {
        run(Command::new("etcdctl").env("ETCDCTL_API", "3").arg(&endpoint).args(*words))?;
    }
    Ok(server)
}

fn run(command: &mut Command) -> Result<(), Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| Skipped {
        server: program.clone(),
        reason: format!("cannot be started: {error}; scripts/servers installs etcdctl"),
    })?;
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

async fn refused(url: &str) -> String {
    match tenure_stores::open(url, &OpenOptions::default().with_request(REQUEST)).await {
        Err(OpenError::Store(error)) => {
            assert_eq!(error.fault, Fault::Denied, "{error:?}");
            crate::support::chain(&error)
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_user_with_the_right_password_is_let_in() {
    let server = require!(with_users(Version::Newest, &[], &[]).await);
    let address = server[0].address();
    let backend = open(&format!("etcd://root:canary%3A%40%2F@{address}/s"), REQUEST).await;
    let put = backend.store().put(&key(), Expect::Absent, "1".into()).await;
    assert!(matches!(put, Ok(Put::Stored(_))), "{put:?}");
}

#[tokio::test]
async fn a_password_may_be_in_a_file() {
    let server = require!(with_users(Version::Newest, &[], &[]).await);
    let file = server[0].directory().join("password");
    std::fs::write(&file, "canary:@/\n").expect("written");
    let address = server[0].address();
    let url = format!("etcd://root@{address}/s?password-file={}", file.display());
    assert!(open(&url, REQUEST).await.store().get(&key()).await.is_ok());
}

#[tokio::test]
async fn strangers_are_denied_and_no_password_is_shown() {
    let server = require!(with_users(Version::Newest, &[], &[]).await);
    let address = server[0].address();
    for url in [
        format!("etcd://root:canary@{address}/s"),
        format!("etcd://nobody:canary@{address}/s"),
        format!("etcd://{address}/s"),
        format!("etcd://guest:guest@{address}/s"),
    ] {
        let says = refused(&url).await;
        assert!(!says.contains("canary"), "{says}");
    }
}

#[tokio::test]
async fn a_token_that_expired_is_renewed() {
    let server = require!(with_users(Version::Newest, &["--auth-token-ttl", "1"], &[]).await);
    let address = server[0].address();
    let backend = open(&format!("etcd://root:canary%3A%40%2F@{address}/s"), REQUEST).await;
    let mut version = None;
    for round in 0..3 {
        let expect = version.map_or(Expect::Absent, Expect::At);
        match backend.store().put(&key(), expect, round.to_string().into()).await {
            Ok(Put::Stored(stored)) => version = Some(stored),
            other => panic!("{other:?}"),
        }
        // Longer than a token lives, and than the server takes to notice.
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
}

/// An authority, a certificate for 127.0.0.1 and one for a client.
fn certificates(directory: &Path) -> Result<(), Failure> {
    let openssl = |words: &str| {
        run(Command::new("openssl").current_dir(directory).args(words.split_whitespace()))
    };
    let make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(&format!("{make} -keyout ca.key -out ca.pem -subj /CN=tenure-test"))?;
    for name in ["server", "client"] {
        openssl(&format!(
            "{make} -keyout {name}.key -out {name}.pem -subj /CN={name} -CA ca.pem -CAkey ca.key \
             -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
             -addext extendedKeyUsage=serverAuth,clientAuth"
        ))?;
    }
    Ok(())
}

async fn with_tls(directory: &Path) -> Result<Etcd, Failure> {
    certificates(directory)?;
    let file = |name: &str| directory.join(name).display().to_string();
    let arguments = [
        ("--cert-file", file("server.pem")),
        ("--key-file", file("server.key")),
        ("--trusted-ca-file", file("ca.pem")),
    ];
    let arguments = arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    let arguments = arguments.chain(["--client-cert-auth".to_owned()]).collect();
    Etcd::single(etcd::Options { arguments, secure: true, ..etcd::Options::default() }).await
}

#[tokio::test]
async fn tls_with_a_certificate_of_ours_works_and_without_does_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = require!(with_tls(directory.path()).await);
    let (address, at) = (server[0].address(), directory.path().display());
    let keys = format!("ca={at}/ca.pem&cert={at}/client.pem&key={at}/client.key");
    let backend = open(&format!("etcd://{address}/s?{keys}"), REQUEST).await;
    assert_eq!(backend.store().get(&key()).await.expect("it answers"), None);
    let options = OpenOptions::default().with_request(Duration::from_secs(2));
    for url in [
        format!("etcd+https://{address}/s"),
        format!("etcd://{address}/s?ca={at}/ca.pem"),
        format!("etcd://{address}/s"),
    ] {
        let error = tenure_stores::open(&url, &options).await.expect_err(&url);
        println!("{url}: {}", crate::support::chain(&error));
    }
}
