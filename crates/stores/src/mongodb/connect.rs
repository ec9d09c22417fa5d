//! Builds a client from a URL.

use std::time::Duration;

use mongodb::Client;
use mongodb::options::{ClientOptions, DriverInfo};
use tenure::store::{Fault, StoreError};
use tokio::time::timeout;

use super::fault::{Failure, Kind};
use crate::mongodb_url::MongodbUrl;

/// The least time allowed for connecting: a login costs both sides some computing.
const CONNECT: Duration = Duration::from_secs(2);
/// How often a server is asked for its state if it does not report it by itself. A shorter time
/// detects a silent server sooner.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Builds a client that finds the primary by itself, with short time-outs.
pub(super) async fn client(url: &MongodbUrl, request: Duration) -> Result<Client, StoreError> {
    let doing = "reading the connection string";
    let parsing = ClientOptions::parse(url.connection_string());
    // This asks DNS for the servers behind a name.
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
    // With retries, the driver would send a command again when a server reports that it is
    // overloaded.
    options.retry_writes = Some(false);
    options.retry_reads = Some(false);
    Client::with_options(options)
        .map_err(|error| Failure::of(&error, Kind::Read).while_doing("preparing to connect"))
}

/// Returns true if the login needs a password. X.509 needs only a certificate.
fn needs_password(url: &MongodbUrl) -> bool {
    let mechanism = url.settings.iter().find(|(key, _)| *key == "authMechanism");
    url.user.is_some()
        && mechanism.is_none_or(|(_, value)| !value.eq_ignore_ascii_case("MONGODB-X509"))
}
