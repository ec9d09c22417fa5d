use crate::Skipped;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The version of a server: Debian's, or the current one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// The current one if it is installed, else Debian's. The output mentions the latter.
    #[default]
    Newest,
    /// The version in Debian's package.
    Debian,
    /// The version that `scripts/servers` downloads.
    Current,
}

/// A version that is installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Installed {
    Debian,
    Current,
}

impl Version {
    /// Chooses among the installed versions of `server`.
    pub(crate) fn settle(
        self,
        server: &str,
        current: bool,
        debian: bool,
    ) -> Result<Installed, Skipped> {
        let missing = |what: &str| Skipped {
            server: server.to_owned(),
            reason: format!("{what} is not installed; scripts/servers does it"),
        };
        match self {
            Version::Newest if current => Ok(Installed::Current),
            Version::Newest if debian => {
                let _ = writeln!(
                    std::io::stderr(),
                    "{server}: Debian's, the current one is not installed"
                );
                Ok(Installed::Debian)
            }
            Version::Newest => Err(missing("neither the current one nor Debian's")),
            Version::Debian if debian => Ok(Installed::Debian),
            Version::Debian => Err(missing("Debian's")),
            Version::Current if current => Ok(Installed::Current),
            Version::Current => Err(missing("the current one")),
        }
    }
}

/// The directory of `scripts/servers`' downloads.
pub fn downloads() -> PathBuf {
    match std::env::var_os("TENURE_SERVERS") {
        Some(directory) => directory.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.servers"),
    }
}

/// A program on the search path.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_the_current_one_where_it_is_installed() {
        assert_eq!(Version::Newest.settle("x", true, true), Ok(Installed::Current));
        assert_eq!(Version::Newest.settle("x", false, true), Ok(Installed::Debian));
    }

    #[test]
    fn a_version_that_is_missing_is_skipped_by_name() {
        let skipped = Version::Current.settle("etcd 3.7.3", false, true);
        let skipped = skipped.expect_err("it is not installed").to_string();
        assert_eq!(
            skipped,
            "etcd 3.7.3: the current one is not installed; scripts/servers does it"
        );
    }
}
