//! From flags to what they mean.

use tenure::{Backend, Candidate, Election, Standing, Timing};
use tenure_stores::{Location, OpenOptions, Opened};

use crate::args::Settings;
use crate::exit::{Failure, REFUSED, USAGE};
use crate::show;

/// What every command works with.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) timing: Timing,
    pub(crate) json: bool,
    pub(crate) location: Location,
    /// Whether nobody said where, so that it is this user's own directory.
    pub(crate) embedded: bool,
    id: Option<String>,
}

impl Session {
    /// Checks the settings.
    ///
    /// # Errors
    /// A URL that makes no sense, times that do not fit.
    pub(crate) fn new(settings: Settings) -> Result<Session, Failure> {
        let refused = |error| Failure::new(REFUSED, error);
        let mut timing = Timing::new(settings.ttl).map_err(refused)?;
        if let Some(grace) = settings.grace {
            timing = timing.with_grace(grace).map_err(refused)?;
        }
        let location = match &settings.store {
            Some(url) => tenure_stores::parse(url).map_err(tenure_stores::OpenError::from)?,
            None => tenure_stores::embedded()?,
        };
        let embedded = settings.store.is_none();
        Ok(Session { timing, json: settings.json, location, embedded, id: settings.id })
    }

    /// Opens the store.
    ///
    /// # Errors
    /// When it does not serve, or is not built in.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn open(&self) -> Result<Opened, Failure> {
        let options = OpenOptions::default().with_request(self.timing.request());
        Ok(tenure_stores::open_at(&self.location, &options).await?)
    }

    /// Names an election without looking whether it exists.
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
        let name = self.id.clone().unwrap_or_else(host_name);
        Candidate::new(&name)
            .and_then(|candidate| candidate.with_value(value.to_owned()))
            .map_err(refused)
    }

    /// Prints what an election is in.
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
}

fn host_name() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    // A host may be called anything; a candidate is one printable segment.
    match Candidate::new(&host) {
        Ok(_) => host,
        Err(_) => "localhost".into(),
    }
}
