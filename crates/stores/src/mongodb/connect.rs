//! From a URL to a client.

use std::time::Duration;

use mongodb::Client;
use mongodb::options::{ClientOptions, DriverInfo};
use tenure::{Fault, StoreError};
use tokio::time::timeout;

use super::fault::{Failure, Kind};
use crate::mongodb_url::MongodbUrl;

/// How long a connection may take at least: a login costs both sides some computing.
const CONNECT: Duration = Duration::from_secs(2);
/// How often a server is asked how it is, unless it tells by itself; the sooner is a silent one
/// noticed.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// A client that finds the servers' primary by itself, and whose every wait is short.
pub(super) async fn client(url: &MongodbUrl, request: Duration) -> Result<Client, StoreError> {
    let doing = "reading the connection string";
    let parsing = ClientOptions::parse(url.connection_string());
    // Of a name in DNS the servers are asked for here.
    let parsed = timeout(request, async { parsing.await })
        .await
        .map_err(|_| Failure::late(Kind::Read, request).while_doing(doing))?;
    let mut options = parsed.map_err(|error| Failure::of(&error, Kind::Read).while_doing(doing))?;
    if let Some(credential) = options.credential.as_mut().filter(|_| needs_password(url)) {
        let password = crate::password::find(url.password.as_ref(), url.password_file.as_deref());
        let password = password.map_err(|says| {
            StoreError::new(Fault::Permanent, "mongodb", "finding the password", says)
        })?;
        credential.password = Some(password.reveal().to_owned());
    }
    options.server_selection_timeout = Some(request);
    options.connect_timeout.get_or_insert(request.max(CONNECT));
    options.heartbeat_freq.get_or_insert(HEARTBEAT);
    options.app_name.get_or_insert_with(|| "tenure".to_owned());
    options.driver_info = Some(
        DriverInfo::builder().name("tenure").version(env!("CARGO_PKG_VERSION").to_owned()).build(),
    );
    // With these, the driver would send a command again when a server says that it is overloaded.
    options.retry_writes = Some(false);
    options.retry_reads = Some(false);
    Client::with_options(options)
        .map_err(|error| Failure::of(&error, Kind::Read).while_doing("preparing to connect"))
}

/// A certificate is all that X.509 needs.
fn needs_password(url: &MongodbUrl) -> bool {
    let mechanism = url.settings.iter().find(|(key, _)| *key == "authMechanism");
    url.user.is_some()
        && mechanism.is_none_or(|(_, value)| !value.eq_ignore_ascii_case("MONGODB-X509"))
}
