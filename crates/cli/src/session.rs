//! Turns flags into the settings and the store that a command works with.

use std::sync::Once;
use std::time::Duration;

use tenure::{Backend, Candidate, Election, Standing, Timing};
use tenure_stores::{Location, OpenOptions, Opened};

use crate::args::Settings;
use crate::config::{Origin, Origins, readable};
use crate::exit::{Failure, REFUSED, USAGE};
use crate::show;

/// The settings that every command works with.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) timing: Timing,
    pub(crate) json: bool,
    pub(crate) location: Location,
    /// Whether no store was named, so that the location is this user's own directory.
    pub(crate) embedded: bool,
    pub(crate) id: Option<String>,
    /// Warns once that a password goes over the network in plain text.
    plain_text: Once,
}

impl Session {
    /// Checks the settings.
    ///
    /// # Errors
    /// A URL that makes no sense, times that do not fit.
    pub(crate) fn new(settings: Settings, origins: &Origins) -> Result<Session, Failure> {
        let timing = timing(&settings)?;
        let url = store(&settings, origins)?;
        let location = match &url {
            Some(url) => tenure_stores::parse(url).map_err(tenure_stores::OpenError::from)?,
            None => tenure_stores::embedded()?,
        };
        let embedded = url.is_none();
        let (json, id) = (settings.json, settings.id);
        Ok(Session { timing, json, location, embedded, id, plain_text: Once::new() })
    }

    /// Opens the store.
    ///
    /// # Errors
    /// When it does not serve, or is not built in.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn open(&self) -> Result<Opened, Failure> {
        // An answer about the wrong place looks like any other, so name the place.
        self.mention_embedded("looking");
        self.open_with(self.timing.request(), None, true).await
    }

    /// Says that the store is this user's own directory, if no store was named.
    pub(crate) fn mention_embedded(&self, doing: &str) {
        if self.embedded {
            show::say(&format!(
                "no --store given: {doing} among this machine's processes only, in {}",
                self.location
            ));
        }
    }

    /// Opens the store with a limit on each request.
    ///
    /// `table` replaces the table of the URL. With `create` false nothing is created.
    ///
    /// # Errors
    /// When it does not serve, or is not built in.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn open_with(
        &self,
        request: Duration,
        table: Option<&str>,
        create: bool,
    ) -> Result<Opened, Failure> {
        let options = OpenOptions::default()
            .with_request(request)
            .with_session(self.timing.ttl())
            .with_create_if_missing(create);
        let location = match table {
            Some(table) => &self.location.clone().with_table(table),
            None => &self.location,
        };
        // The program opens a store that it waits for again and again, but warns only once.
        self.plain_text.call_once(|| mention_plain_text(location));
        Ok(tenure_stores::open_at(location, &options).await?)
    }

    /// The reason why the store's servers should be upgraded, if there is one.
    ///
    /// # Errors
    /// When they do not answer.
    pub(crate) async fn advice(&self) -> Result<Option<String>, Failure> {
        let options = OpenOptions::default().with_request(self.timing.request());
        Ok(tenure_stores::advice(&self.location, &options).await?)
    }

    /// The session time to ask the servers for; `None` where elections are leases.
    pub(crate) fn asked(&self) -> Option<Duration> {
        self.location.session(self.timing.ttl())
    }

    /// How long work may take to stop, if the servers grant the requested session time.
    pub(crate) fn grace(&self) -> Duration {
        match self.asked() {
            Some(ttl) => self.timing.chosen_grace().unwrap_or(ttl / 10),
            None => self.timing.grace(),
        }
    }

    /// Says so, once it is known, if the servers grant another session time.
    pub(crate) fn mention_granted(&self, backend: &Backend) {
        let (Some(queue), Some(asked)) = (backend.queue(), self.asked()) else { return };
        let mut sessions = queue.session();
        tokio::spawn(async move {
            let Ok(granted) =
                sessions.wait_for(|session| session.number > 0).await.map(|it| it.ttl)
            else {
                return;
            };
            if granted != asked {
                show::say(&format!(
                    "the ttl is {}, as the server granted; {} were asked for",
                    show::span(granted),
                    show::span(asked)
                ));
            }
        });
    }

    /// Names an election without checking that it exists.
    ///
    /// # Errors
    /// When the name is refused.
    pub(crate) fn election(&self, backend: &Backend, name: &str) -> Result<Election, Failure> {
        Ok(Election::builder(backend, name).timing(self.timing).build()?)
    }

    /// This process as a candidate.
    ///
    /// # Errors
    /// When its name or value is refused.
    pub(crate) fn candidate(&self, value: &str) -> Result<Candidate, Failure> {
        let refused = |error| Failure::new(USAGE, error);
        let name = name(self.id.as_ref());
        Candidate::new(&name)
            .and_then(|candidate| candidate.with_value(value.to_owned()))
            .map_err(refused)
    }

    /// Prints the status of an election.
    ///
    /// # Errors
    /// When standard output is closed or full.
    pub(crate) fn print(&self, standing: &Standing, backend: &Backend) -> std::io::Result<()> {
        let wall = backend.clock().wall();
        if self.json {
            show::print_json(&show::StandingJson::of(standing, wall))
        } else {
            show::print(show::standing(standing, wall))
        }
    }

    /// Prints the status of an election, and the time at which it was seen.
    ///
    /// # Errors
    /// When standard output is closed or full.
    pub(crate) fn print_with_time(
        &self,
        standing: &Standing,
        backend: &Backend,
    ) -> std::io::Result<()> {
        let wall = backend.clock().wall();
        if self.json {
            show::print_json(&show::StandingJson::of(standing, wall).seen_at(wall))
        } else {
            let (time, standing) = (show::time(wall), show::standing(standing, wall));
            show::print(format_args!("{time}  {standing}"))
        }
    }
}

/// Warns when others can read the password on its way to the store.
fn mention_plain_text(location: &Location) {
    let hosts = location.hosts_that_passwords_reach_in_plain_text();
    if !hosts.is_empty() {
        show::say(&format!(
            "the password goes to {} in plain text, where others can read it on the way; use TLS",
            show::escape(&hosts.join(", "))
        ));
    }
}

/// Builds the timing from the settings.
///
/// # Errors
/// When the times do not fit together.
pub(crate) fn timing(settings: &Settings) -> Result<Timing, Failure> {
    let refused = |error| Failure::new(REFUSED, error);
    let timing = Timing::new(settings.ttl).map_err(refused)?;
    match settings.grace {
        Some(grace) => timing.with_grace(grace).map_err(refused),
        None => Ok(timing),
    }
}

/// The name of this process: `--id`, or else the host name.
pub(crate) fn name(id: Option<&String>) -> String {
    id.cloned().unwrap_or_else(host_name)
}

/// The store's URL, if one was given. Of two, the one from the stronger origin counts.
fn store(settings: &Settings, origins: &Origins) -> Result<Option<String>, Failure> {
    let (direct, by_file) = (origins.of("store"), origins.of("store-file"));
    let file = settings
        .store_file
        .as_deref()
        .filter(|_| settings.store.is_none() || by_file.beats(&direct));
    if let (Some(_), Some(_), Origin::Flag, Origin::Flag) =
        (&settings.store, &settings.store_file, &direct, &by_file)
    {
        let twice = anyhow::anyhow!("--store and --store-file name the store twice");
        return Err(Failure::new(USAGE, twice));
    }
    let Some(file) = file else {
        // A URL that does not parse may hold a password too. Without an `@` or a query there is no
        // place for one.
        let secret = settings
            .store
            .as_deref()
            .is_some_and(|url| url.contains(['@', '?']) && tenure_stores::holds_credentials(url));
        if secret && direct == Origin::Flag {
            show::say(
                "the password in --store can be seen by everybody on this machine; \
                 TENURE_STORE and --store-file keep it",
            );
        }
        return Ok(settings.store.clone());
    };
    match std::fs::read_to_string(file) {
        Ok(url) => {
            if url.contains('@') && tenure_stores::holds_credentials(url.trim_end()) {
                readable(file).iter().for_each(|warning| show::say(warning));
            }
            Ok(Some(url.trim_end().to_owned()))
        }
        Err(error) => {
            let reading = format!("reading --store-file {}", file.display());
            Err(Failure::new(REFUSED, anyhow::Error::from(error).context(reading)))
        }
    }
}

fn host_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // A host may have any name; a candidate's name is one printable segment.
    match Candidate::new(&host) {
        Ok(_) => host,
        Err(_) => "localhost".into(),
    }
}
