//! Users, permissions and TLS.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tenure::Error;
use tenure::store::Fault;
use tenure_harness::{Failure, Zookeeper, require};
use tenure_stores::zookeeper::{Client, ClientOptions};

use crate::world::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_user_creates_is_its_own_unless_the_url_says_otherwise() {
    let server = require!(single().await);
    let address = server[0].address();
    let own = Program::of(&format!("zookeeper://ann:canary@{address}/tests"), CALM).await;
    let leader = own.lead("a").await;
    let operator = operator(address).await;
    let denied = operator.children(NODE).await.expect_err("it is not theirs");
    assert_eq!(denied, tenure_stores::zookeeper::Error::Denied);
    let stranger = Program::of(&format!("zookeeper://bob:canary@{address}/tests"), CALM).await;
    let refused = tenure::Election::open(&stranger.backend, NAME).await.expect_err("not theirs");
    let Error::Store(refused) = refused else { panic!("{refused:?}") };
    assert_eq!(refused.fault, Fault::Denied);
    assert!(!format!("{refused:?}").contains("canary"));
    // The same user in another program stands in the same queue.
    let same = Program::of(&format!("zookeeper://ann:canary@{address}/tests"), CALM).await;
    let mut waiting = same.stand("b", 1).await;
    leader.resign().await;
    let _leader = soon("elected", waiting.elected()).await.expect("elected");
    // Everyone may read, and only the creator may do more.
    let shown = Program::of(
        &format!("zookeeper://ann:canary@{address}/shown?acl=creator-and-readers"),
        CALM,
    )
    .await;
    let leader = shown.lead("c").await;
    let (names, _) = operator.children("/shown/jobs/nightly").await.expect("it may be read");
    let node = format!("/shown/jobs/nightly/{}", names[0]);
    operator.data(&node).await.expect("it may be read");
    let denied = operator.set_data(&node, "theirs", None).await.expect_err("no more than that");
    assert_eq!(denied, tenure_stores::zookeeper::Error::Denied);
    // Open, although there is a user.
    let open = Program::of(&format!("zookeeper://ann:canary@{address}/open?acl=open"), CALM).await;
    let _leader = open.lead("d").await;
    operator.set_data("/open/jobs/nightly", "theirs", None).await.expect("everyone may");
    drop(leader);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_a_certificate_of_ours_works_and_without_does_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = require!(with_tls(directory.path()).await);
    let address = server.secure_address(0).expect("it speaks TLS");
    let at = directory.path().display();
    let keys = format!("ca={at}/ca.pem&cert={at}/client.pem&key={at}/client.key");
    let program = Program::of(&format!("zookeeper+tls://{address}/tests?{keys}"), CALM).await;
    let leader = program.lead("a").await;
    assert!(leader.mandate().is_leader());
    soon("extended", leader.mandate().renewed()).await;
    let options = open_options(CALM).with_request(Duration::from_secs(2));
    for url in [
        format!("zookeeper+tls://{address}/tests"),
        format!("zookeeper://{address}/tests?ca={at}/ca.pem"),
        format!("zookeeper://{address}/tests"),
    ] {
        let error = tenure_stores::open(&url, &options).await.expect_err(&url);
        println!(
            "{url}: {error}: {:?}",
            std::error::Error::source(&error).map(ToString::to_string)
        );
    }
    leader.resign().await;
    let plain = Client::new(ClientOptions::new([server[0].address().to_string()]));
    plain.connected(Duration::from_secs(30)).await.expect("the other port is as it was");
}

async fn with_tls(directory: &Path) -> Result<Zookeeper, Failure> {
    certificates(directory);
    let file = |name: &str| directory.join(name).display().to_string();
    let mut options = options();
    options.secure = true;
    for (key, value) in [
        ("serverCnxnFactory", "org.apache.zookeeper.server.NettyServerCnxnFactory".to_owned()),
        ("ssl.keyStore.location", file("server-with-key.pem")),
        ("ssl.keyStore.type", "PEM".to_owned()),
        ("ssl.trustStore.location", file("ca.pem")),
        ("ssl.trustStore.type", "PEM".to_owned()),
        ("ssl.clientAuth", "need".to_owned()),
    ] {
        options.settings.push((key.to_owned(), value));
    }
    Zookeeper::single(options).await
}

/// An authority, a certificate for 127.0.0.1 and one for a client.
fn certificates(directory: &Path) {
    let openssl = |words: &str| {
        let words = words.split_whitespace();
        let ran = Command::new("openssl").current_dir(directory).args(words).output();
        let ran = ran.expect("openssl is on this machine");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    let make = "req -x509 -newkey rsa:2048 -nodes -days 2";
    openssl(&format!("{make} -keyout ca.key -out ca.pem -subj /CN=tenure-test"));
    for name in ["server", "client"] {
        openssl(&format!(
            "{make} -keyout {name}.key -out {name}.pem -subj /CN={name} -CA ca.pem -CAkey ca.key \
             -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE \
             -addext extendedKeyUsage=serverAuth,clientAuth"
        ));
    }
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).expect("just made");
    let both = read("server.pem") + &read("server.key");
    std::fs::write(directory.join("server-with-key.pem"), both).expect("written");
}
