//! MongoDB with users and with TLS.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mongodb::bson::doc;
use tenure::Key;
use tenure::store::{Expect, Fault, Put, StoreExt};
use tenure_harness::mongodb::Options;
use tenure_harness::{Failure, Mongodb, Skipped, require};
use tenure_stores::{OpenError, OpenOptions};

use crate::kind::client;
use crate::support::{chain, open};

const REQUEST: Duration = Duration::from_secs(10);

fn key() -> Key {
    Key::parse("elections/secured").expect("a good key")
}

/// A server with three users.
///
/// They are `root` (password `canary:@/`), `app`, who may use one database, and `guest`, who has no
/// permissions.
async fn with_users(directory: &Path, arguments: &[String]) -> Result<Mongodb, Failure> {
    // With a key file the members of a set know each other, and all other clients must log in.
    let file = directory.join("keyfile");
    std::fs::write(&file, "tenuretenure").expect("written");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o400)).expect("permitted");
    let arguments = ["--keyFile".to_owned(), file.display().to_string()]
        .into_iter()
        .chain(arguments.iter().cloned())
        .collect();
    let server = Mongodb::single(Options { arguments, ..Options::default() }).await?;
    // A client on the machine may create the first user.
    let address = server[0].address();
    let local = client(&format!("mongodb://{address}/?directConnection=true")).await;
    let root = doc! { "createUser": "root", "pwd": "canary:@/", "roles": ["root"] };
    local.database("admin").run_command(root).await.expect("created");
    let url = format!("mongodb://root:canary%3A%40%2F@{address}/?directConnection=true");
    let root = client(&url).await;
    let app = doc! { "role": "readWrite", "db": "s" };
    for user in [
        doc! { "createUser": "app", "pwd": "app", "roles": [app.clone()] },
        doc! { "createUser": "guest", "pwd": "guest", "roles": [] },
    ] {
        root.database("admin").run_command(user).await.expect("created");
    }
    let external = doc! { "createUser": "CN=client", "roles": [app] };
    root.database("$external").run_command(external).await.expect("created");
    Ok(server)
}

async fn refused(url: &str) -> String {
    match tenure_stores::open(url, &OpenOptions::default().with_request(REQUEST)).await {
        Err(OpenError::Store(error)) => {
            assert_eq!(error.fault, Fault::Denied, "{url}: {error:?}");
            chain(&error)
        }
        other => panic!("{url}: {other:?}"),
    }
}

async fn serves(url: &str) {
    let backend = open(url, REQUEST).await;
    match backend.store().put(&key(), Expect::Absent, "1".into()).await {
        Ok(Put::Stored(version)) => {
            let deleted = backend.store().delete(&key(), version).await;
            assert!(matches!(deleted, Ok(Put::Stored(_))), "{deleted:?}");
        }
        other => panic!("{url}: {other:?}"),
    }
}

#[tokio::test]
async fn users_with_the_right_password_are_let_in_and_strangers_are_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = require!(with_users(directory.path(), &[]).await);
    let address = server[0].address();
    let place = format!("{address}/s?directConnection=true&authSource=admin");
    serves(&format!("mongodb://root:canary%3A%40%2F@{place}")).await;
    // A user need not be an administrator: checks without permission are skipped.
    serves(&format!("mongodb://app:app@{place}")).await;
    serves(&format!("mongodb://app:app@{place}&authMechanism=SCRAM-SHA-1")).await;
    let file = directory.path().join("password");
    std::fs::write(&file, "canary:@/\n").expect("written");
    serves(&format!("mongodb://root@{place}&password-file={}", file.display())).await;

    for login in ["root:canary@", "nobody:canary@", "guest:guest@", ""] {
        let says = refused(&format!("mongodb://{login}{place}")).await;
        assert!(!says.contains("canary"), "{says}");
        println!("{login}: {says}");
    }
    let elsewhere = place.replace("/s?", "/t?");
    refused(&format!("mongodb://app:app@{elsewhere}")).await;
}

/// An authority, and certificates for 127.0.0.1 and for a client.
///
/// Each has its key in the same file, as MongoDB needs it.
fn certificates(directory: &Path) -> Result<(), Failure> {
    let openssl = |words: &str| {
        let mut command = Command::new("openssl");
        let output = command.current_dir(directory).args(words.split_whitespace()).output();
        let output = output.map_err(|error| Skipped {
            server: "openssl".to_owned(),
            reason: format!("cannot be started: {error}"),
        })?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok::<(), Failure>(())
    };
    let make = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(&format!("{make} -keyout ca.key -out ca.pem -subj /CN=tenure-test"))?;
    for name in ["server", "client"] {
        openssl(&format!(
            "{make} -keyout {name}.key -out {name}.crt -subj /CN={name} -CA ca.pem -CAkey ca.key \
             -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
             -addext extendedKeyUsage=serverAuth,clientAuth"
        ))?;
        let read = |kind: &str| std::fs::read_to_string(directory.join(format!("{name}.{kind}")));
        let both = read("crt").expect("made") + &read("key").expect("made");
        std::fs::write(directory.join(format!("{name}.pem")), both).expect("written");
    }
    Ok(())
}

#[tokio::test]
async fn tls_with_our_authority_works_also_as_a_login_and_with_strangers_it_does_not() {
    let directory = tempfile::tempdir().expect("a directory");
    require!(certificates(directory.path()));
    let file = |name: &str| directory.path().join(name).display().to_string();
    let arguments = [
        // The harness does not use TLS. A client that begins with TLS has to go on with it.
        ("--tlsMode", "preferTLS".to_owned()),
        ("--tlsCertificateKeyFile", file("server.pem")),
        ("--tlsCAFile", file("ca.pem")),
    ];
    let arguments: Vec<String> =
        arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
    let allow = ["--tlsAllowConnectionsWithoutCertificates".to_owned()];
    let arguments = [&arguments[..], &allow].concat();
    let server = require!(with_users(directory.path(), &arguments).await);
    let place = format!("{}/s?directConnection=true&tls=true", server[0].address());
    let ca = format!("tlsCAFile={}", file("ca.pem"));
    serves(&format!("mongodb://app:app@{place}&{ca}&authSource=admin")).await;
    let certificate = format!("tlsCertificateKeyFile={}", file("client.pem"));
    serves(&format!("mongodb://{place}&{ca}&{certificate}&authMechanism=MONGODB-X509")).await;
    // The server's own certificate belongs to no user.
    let other = format!("tlsCertificateKeyFile={}", file("server.pem"));
    refused(&format!("mongodb://{place}&{ca}&{other}&authMechanism=MONGODB-X509")).await;
    let options = OpenOptions::default().with_request(Duration::from_secs(2));
    let url = format!("mongodb://app:app@{place}&authSource=admin");
    let error = tenure_stores::open(&url, &options).await.expect_err("an unknown authority");
    println!("{}", chain(&error));
}
