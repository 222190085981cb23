use std::net::IpAddr;

use reqwest::Url;

use crate::TransportError;

/// The base address of a server.
#[derive(Debug, Clone)]
pub struct Address(Url);

impl Address {
    /// An address that may be used: https, or http to this machine; plain http to others only where
    /// that is allowed by name. The one place of this rule: whatever carries a token goes to an
    /// address. Errors call it `what`.
    pub fn new(text: &str, what: &'static str, plain_http: bool) -> Result<Self, TransportError> {
        let url = Url::parse(text).map_err(|_| TransportError::Url(what))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(TransportError::Scheme(what));
        }
        let host = url.host_str().ok_or(TransportError::Url(what))?;
        let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let loopback = host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback());
        let address = Self(url);
        if address.is_https() || plain_http || loopback {
            Ok(address)
        } else {
            let url = format!("{}://{}", address.scheme(), address.authority());
            Err(TransportError::PlainHttp { what, url })
        }
    }

    /// Whether both are of one server.
    pub fn is_server_of(&self, other: &Self) -> bool {
        (self.scheme(), self.authority()) == (other.scheme(), other.authority())
    }

    pub(crate) fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }

    pub(crate) fn scheme(&self) -> &str {
        self.0.scheme()
    }

    /// Host, and port if it is not the usual one.
    pub(crate) fn authority(&self) -> String {
        let host = self.0.host_str().expect("invariant: checked in `new`");
        self.0.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// The path of the base with `path` after it.
    pub(crate) fn path(&self, path: &str) -> String {
        format!("{}{path}", self.0.path().trim_end_matches('/'))
    }

    pub(crate) fn join(&self, path: &str) -> String {
        format!("{}://{}{}", self.scheme(), self.authority(), self.path(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_this_machine_unless_allowed() {
        for good in
            ["https://a.example", "http://127.0.0.1:80", "http://[::1]:9/x", "http://localhost"]
        {
            assert!(Address::new(good, "url", false).is_ok(), "{good}");
        }
        for plain in [
            "http://a.example",
            "http://10.0.0.1:8787",
            "http://[2001:db8::1]",
            "http://localhost.a.example",
        ] {
            let refused = Address::new(&format!("{plain}/x?y"), "url", false).unwrap_err();
            let named = TransportError::PlainHttp { what: "url", url: plain.to_owned() };
            assert_eq!(refused, named, "{plain}");
            assert!(Address::new(plain, "url", true).is_ok());
        }
    }

    #[test]
    fn what_is_no_http_address_is_refused_by_name() {
        for bad in ["", "a.example", "http://", "//a.example"] {
            assert_eq!(Address::new(bad, "url", true).unwrap_err(), TransportError::Url("url"));
        }
        for scheme in ["ftp://a.example", "unix:/x", "localhost:8787", "file:///x"] {
            let refused = Address::new(scheme, "relay", true).unwrap_err();
            assert_eq!(refused, TransportError::Scheme("relay"), "{scheme}");
        }
        let text = TransportError::Scheme("url").to_string();
        assert_eq!(text, "the url must begin with http:// or https://");
    }

    #[test]
    fn a_base_may_have_a_path() {
        let address = Address::new("https://a.example:1/b/", "url", false).unwrap();
        assert_eq!(address.join("/v1?x=1"), "https://a.example:1/b/v1?x=1");
    }
}
