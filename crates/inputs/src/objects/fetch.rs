//! Copies of objects that programs can open.

use std::path::Path;

use futures_util::TryStreamExt;
use object_store::ObjectStoreExt;
use tempfile::TempPath;
use tenure::cluster::input::InputError;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use super::Objects;

/// The most bytes of a name's ending that a copy keeps.
const MOST_ENDING_BYTES: usize = 32;

impl Objects {
    /// Copies an object into a temporary file, which goes when what is returned is dropped.
    ///
    /// The file's name ends as the key does (`.jpg`), for programs that go by that.
    ///
    /// # Errors
    /// When there is no such object, the store does not serve, or the file cannot be written.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is left behind.
    pub async fn fetch(&self, key: &str) -> Result<TempPath, InputError> {
        let says =
            |error: &dyn std::error::Error| InputError::new(format!("fetching {key:?}"), error);
        let Some(location) = self.location(key) else {
            return Err(InputError(format!("fetching {key:?}: this is no key")));
        };
        let got = self.store.get(&location).await.map_err(|error| says(&error))?;
        let expected = got.range.end - got.range.start;
        let mut builder = tempfile::Builder::new();
        let (ending, prefix) = (ending_of(key), "tenure-");
        let (file, path) = builder
            .prefix(prefix)
            .suffix(&ending)
            .tempfile()
            .map_err(|error| says(&error))?
            .into_parts();
        let mut file = File::from_std(file);
        let (mut body, mut written) = (got.into_stream(), 0);
        while let Some(bytes) = body.try_next().await.map_err(|error| says(&error))? {
            written += bytes.len() as u64;
            file.write_all(&bytes).await.map_err(|error| says(&error))?;
        }
        file.flush().await.map_err(|error| says(&error))?;
        if written != expected {
            return Err(InputError(format!(
                "fetching {key:?}: {written} bytes came instead of {expected}"
            )));
        }
        Ok(path)
    }
}

/// The ending of a key's name, with its dot, if it is short and plain.
fn ending_of(key: &str) -> String {
    let ending = Path::new(key).extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let is_plain = ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if ending.is_empty() || ending.len() > MOST_ENDING_BYTES || !is_plain {
        return String::new();
    }
    format!(".{ending}")
}
