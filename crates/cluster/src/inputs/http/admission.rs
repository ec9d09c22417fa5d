//! The check that a request is meant for a listener.
//!
//! A web page can make the browser of an operator send requests to any address, even loopback. A
//! form or a script does that, which shows in `Origin`. Or the page has a name of its own that it
//! makes point there (DNS rebinding), which shows in `Host`.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{HOST, HeaderValue, ORIGIN};
use hyper::{HeaderMap, Request, StatusCode, Uri};

/// The port of a `Host` that names none.
const HTTP_PORT: u16 = 80;

/// The hosts that a listener answers to, and the origins that may send to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Admission {
    /// In lower case, each with a port or for all ports.
    pub(super) hosts: Vec<String>,
    pub(super) origins: Vec<String>,
}

impl Admission {
    /// Succeeds if a request that arrived at this address is meant for us.
    ///
    /// # Errors
    /// The answer to a request that is not.
    pub(super) fn check<B>(
        &self,
        request: &Request<B>,
        at: SocketAddr,
    ) -> Result<(), (StatusCode, &'static str)> {
        let named =
            host(request.headers()).ok_or((StatusCode::BAD_REQUEST, "no Host, or several"))?;
        // A host in the target of the request overrides the header.
        let target = Some(request.uri()).filter(|target| target.authority().is_some());
        if !target.into_iter().chain([&named]).all(|place| self.is_ours(place, at)) {
            return Err((StatusCode::MISDIRECTED_REQUEST, "this Host is not configured here"));
        }
        let is_own = |origin: &HeaderValue| {
            let origin = origin.to_str().map(str::to_ascii_lowercase);
            origin.is_ok_and(|origin| self.origins.contains(&origin))
        };
        if request.headers().get_all(ORIGIN).iter().all(is_own) {
            Ok(())
        } else {
            Err((StatusCode::FORBIDDEN, "pages of this Origin may not send tasks"))
        }
    }

    fn is_ours(&self, place: &Uri, at: SocketAddr) -> bool {
        let text =
            place.authority().map_or("", |authority| authority.as_str()).to_ascii_lowercase();
        let host = place.host().unwrap_or_default().to_ascii_lowercase();
        if text.contains('@') {
            return false;
        }
        if self.hosts.contains(&text) || self.hosts.contains(&host) {
            return true;
        }
        // An attacker cannot make an address point elsewhere, and `localhost` counts as one.
        let (ip, port) = (at.ip().to_canonical(), place.port_u16().unwrap_or(HTTP_PORT));
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let is_address = literal.is_ok_and(|literal| literal.to_canonical() == ip);
        port == at.port() && (is_address || ip.is_loopback() && host == "localhost")
    }
}

/// The single host that a request names.
fn host(headers: &HeaderMap) -> Option<Uri> {
    let mut hosts = headers.get_all(HOST).iter();
    let (host, None) = (hosts.next()?, hosts.next()) else { return None };
    Uri::builder().scheme("http").authority(host.as_bytes()).path_and_query("/").build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission() -> Admission {
        Admission {
            hosts: vec!["tasks.example.org".into(), "other:8443".into()],
            origins: vec!["https://app.example.org".into()],
        }
    }

    fn status(at: &str, target: &str, headers: &[(&str, &str)]) -> u16 {
        let mut request = Request::builder().uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).expect("a request");
        let at = at.parse().expect("an address");
        admission().check(&request, at).map_or_else(|(status, _)| status.as_u16(), |()| 200)
    }

    #[test]
    fn a_host_is_the_address_itself_or_one_that_was_configured() {
        for (at, host, expected) in [
            ("127.0.0.1:80", "127.0.0.1", 200),
            ("127.0.0.1:8080", "127.0.0.1:8080", 200),
            ("127.0.0.1:8080", "127.0.0.1", 421),
            ("127.0.0.1:8080", "localhost:8080", 200),
            ("127.0.0.1:8080", "LOCALHOST:8080", 200),
            ("10.0.0.5:8080", "localhost:8080", 421),
            ("10.0.0.5:8080", "10.0.0.5:8080", 200),
            ("10.0.0.5:8080", "10.0.0.6:8080", 421),
            ("[::1]:8080", "[::1]:8080", 200),
            ("[::ffff:10.0.0.5]:8080", "10.0.0.5:8080", 200),
            ("127.0.0.1:80", "tasks.example.org", 200),
            ("127.0.0.1:80", "Tasks.Example.Org:1234", 200),
            ("127.0.0.1:80", "other:8443", 200),
            ("127.0.0.1:80", "other", 421),
            ("127.0.0.1:80", "evil.example", 421),
            ("127.0.0.1:80", "tasks.example.org.evil.example", 421),
            ("127.0.0.1:80", "tasks.example.org@127.0.0.1", 421),
            ("127.0.0.1:80", "", 400),
            ("127.0.0.1:80", "a b", 400),
        ] {
            assert_eq!(status(at, "/", &[("host", host)]), expected, "{host} at {at}");
        }
        assert_eq!(status("127.0.0.1:80", "/", &[]), 400);
        assert_eq!(
            status("127.0.0.1:80", "/", &[("host", "127.0.0.1"), ("host", "127.0.0.1")]),
            400
        );
        let target = "http://evil.example/";
        assert_eq!(status("127.0.0.1:80", target, &[("host", "127.0.0.1")]), 421);
    }

    #[test]
    fn a_page_may_send_only_if_its_origin_was_configured() {
        for (origin, expected) in [
            ("https://app.example.org", 200),
            ("https://evil.example", 403),
            ("null", 403),
            ("", 403),
            ("http://127.0.0.1", 403),
        ] {
            let headers = [("host", "127.0.0.1"), ("origin", origin)];
            assert_eq!(status("127.0.0.1:80", "/", &headers), expected, "{origin}");
        }
        let both = [
            ("host", "127.0.0.1"),
            ("origin", "https://app.example.org"),
            ("origin", "https://evil.example"),
        ];
        assert_eq!(status("127.0.0.1:80", "/", &both), 403);
    }
}
