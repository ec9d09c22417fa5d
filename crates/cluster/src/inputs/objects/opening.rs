//! Opens a store of objects by its URL.

use std::sync::Arc;

use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreScheme};
use url::Url;

use super::fetch::Copies;
use super::{Objects, USUAL_COPIES};
use crate::input::InputError;
use crate::inputs::shown::shown;

impl Objects {
    /// Opens the objects at a URL.
    ///
    /// It is `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or
    /// `file:///directory`.
    ///
    /// Credentials, regions and endpoints come from the environment variables that the clouds' own
    /// tools use: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`,
    /// `AWS_ENDPOINT_URL` and others; `GOOGLE_APPLICATION_CREDENTIALS`;
    /// `AZURE_STORAGE_ACCOUNT_NAME`, `AZURE_STORAGE_ACCOUNT_KEY`. On a machine of the cloud none
    /// may be needed.
    ///
    /// Listing a directory follows the links in it. For a directory that others write to, use
    /// `DirectorySource` of `crate::inputs`, which follows none.
    ///
    /// # Errors
    /// When the URL names no store of this build, or a variable is invalid. No request is sent yet.
    pub fn open(url: &str) -> Result<Objects, InputError> {
        // No setting has a value that is not UTF-8.
        let variables = std::env::vars_os();
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Objects::open_with(url, variables.filter_map(text))
    }

    /// Opens the objects at a URL with these variables instead of the environment's.
    ///
    /// # Errors
    /// As for [`Objects::open`].
    pub fn open_with(
        url: &str,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Objects, InputError> {
        let parsed = Url::parse(url).map_err(|error| InputError::new(doing(url), &error))?;
        if parsed.password().is_some() {
            // Later errors and logs would show the password.
            let doing = doing(url);
            return Err(InputError(format!("{doing}: a password belongs into the environment")));
        }
        let Ok((scheme, prefix)) = ObjectStoreScheme::parse(&parsed) else {
            return Err(InputError(format!("{}: this names no store of objects", doing(url))));
        };
        let opened = match scheme {
            ObjectStoreScheme::Local => open_directory(&parsed),
            #[cfg(feature = "aws")]
            ObjectStoreScheme::AmazonS3 => cloud::open_s3(url, prefix, variables),
            #[cfg(feature = "gcp")]
            ObjectStoreScheme::GoogleCloudStorage => cloud::open_google(url, prefix, variables),
            #[cfg(feature = "azure")]
            ObjectStoreScheme::MicrosoftAzure => cloud::open_azure(url, prefix, variables),
            other => {
                let _ = (variables.into_iter(), prefix);
                let source = format!("this program was built without {other:?}").into();
                Err(object_store::Error::Generic { store: "objects", source })
            }
        };
        opened.map_err(|error| InputError::new(doing(url), &error))
    }
}

fn doing(url: &str) -> String {
    format!("opening {}", shown(url))
}

fn open_directory(url: &Url) -> object_store::Result<Objects> {
    let directory = url.to_file_path().map_err(|()| object_store::Error::Generic {
        store: "objects",
        source: "this names no directory".into(),
    })?;
    let store = LocalFileSystem::new_with_prefix(directory)?;
    Ok(build(store, Path::default(), false))
}

fn build(store: impl ObjectStore, prefix: Path, in_order: bool) -> Objects {
    Objects { store: Arc::new(store), prefix, in_order, copies: Copies::of_at_most(USUAL_COPIES) }
}

#[cfg(feature = "cloud")]
mod cloud {
    use std::time::Duration;

    use object_store::path::Path;
    use object_store::{ClientOptions, RetryConfig};

    use super::super::Objects;
    use super::build;
    use crate::inputs::tls;

    /// How long a store may be silent. The whole request has no limit, since objects may be large.
    const SILENCE: Duration = Duration::from_secs(30);

    fn client(allow_http: bool) -> ClientOptions {
        tls::install();
        ClientOptions::new()
            .with_allow_http(allow_http)
            .with_timeout_disabled()
            .with_read_timeout(SILENCE)
    }

    /// Retries of reads and deletions. When they fail, the runner of the input goes on trying.
    fn retries() -> RetryConfig {
        let retry_timeout = Duration::from_secs(60);
        RetryConfig { max_retries: 3, retry_timeout, ..RetryConfig::default() }
    }

    /// A builder of the object store crate, with the variables of its cloud.
    ///
    /// The builders are alike, but share no trait.
    macro_rules! configured {
        ($builder:ty, $prefix:literal, $variables:expr) => {{
            let named = $variables.into_iter().filter(|(name, _)| name.starts_with($prefix));
            named.fold(<$builder>::new(), |builder, (name, value)| {
                match name.to_ascii_lowercase().parse() {
                    Ok(key) => builder.with_config(key, value),
                    Err(_) => builder,
                }
            })
        }};
    }

    /// The store of a builder at a URL.
    macro_rules! built {
        ($builder:expr, $url:expr, $allow_http:expr) => {
            $builder
                .with_url($url)
                .with_client_options(client($allow_http))
                .with_retry(retries())
                .build()?
        };
    }

    #[cfg(feature = "aws")]
    pub(super) fn open_s3(
        url: &str,
        prefix: Path,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> object_store::Result<Objects> {
        use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
        let builder = configured!(AmazonS3Builder, "AWS_", variables);
        let value = |key: AmazonS3ConfigKey| builder.get_config_value(&key).unwrap_or_default();
        // An endpoint without TLS is the user's decision.
        let plain = [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint]
            .into_iter()
            .any(|key| value(key).starts_with("http://"));
        // Only directory buckets do not list in order, and their names end with `--x-s3`.
        let bucket = url.split('/').nth(2).unwrap_or_default();
        Ok(build(built!(builder, url, plain), prefix, !bucket.ends_with("--x-s3")))
    }

    #[cfg(feature = "gcp")]
    pub(super) fn open_google(
        url: &str,
        prefix: Path,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> object_store::Result<Objects> {
        use object_store::gcp::GoogleCloudStorageBuilder;
        let builder = configured!(GoogleCloudStorageBuilder, "GOOGLE_", variables);
        Ok(build(built!(builder, url, false), prefix, true))
    }

    #[cfg(feature = "azure")]
    pub(super) fn open_azure(
        url: &str,
        prefix: Path,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> object_store::Result<Objects> {
        use object_store::azure::MicrosoftAzureBuilder;
        let builder = configured!(MicrosoftAzureBuilder, "AZURE_", variables);
        // Azure lists by names, not by bytes, if the account has directories.
        Ok(build(built!(builder, url, false), prefix, false))
    }
}
