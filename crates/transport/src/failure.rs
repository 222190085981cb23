//! Why there was no answer, found in the chain of an error's sources.

use std::{error::Error, io};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use rustls::CertificateError;
use thiserror::Error;

/// Why there was no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NetworkFailure {
    /// Nobody listens at the port.
    #[error("the connection was refused")]
    Refused,
    /// The name has no address.
    #[error("the host name cannot be resolved")]
    Host,
    /// No secure connection.
    #[error("TLS failed: {0}")]
    Tls(#[from] TlsFailure),
    /// No connection for another reason.
    #[error("cannot connect: {0}")]
    Connect(io::ErrorKind),
    /// Not in time.
    #[error("timed out")]
    Timeout,
    /// An answer that broke off or is no HTTP.
    #[error("the answer broke off, or is no HTTP")]
    Broken,
    /// An answer longer than what was asked for can be.
    #[error("the answer is too long")]
    TooLong,
}

/// Why there was no secure connection. Certificates' names are not repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TlsFailure {
    /// An answer that is no TLS, such as plain HTTP.
    #[error("the server does not speak TLS at this port")]
    NotTls,
    /// Signed by an authority that is not trusted.
    #[error("the certificate's issuer is not trusted")]
    Issuer,
    /// A certificate of another host.
    #[error("the certificate is for another host")]
    Name,
    /// A certificate that is expired or not valid yet.
    #[error("the certificate is expired, or not valid yet")]
    Time,
    /// A certificate with another fault.
    #[error("the certificate is not valid")]
    Certificate,
    /// Anything else.
    #[error("no agreement with the server")]
    Handshake,
}

impl From<&rustls::Error> for TlsFailure {
    fn from(error: &rustls::Error) -> Self {
        use CertificateError as C;
        match error {
            rustls::Error::InvalidMessage(_) => Self::NotTls,
            rustls::Error::InvalidCertificate(reason) => match reason {
                C::UnknownIssuer => Self::Issuer,
                C::NotValidForName | C::NotValidForNameContext { .. } => Self::Name,
                C::Expired
                | C::ExpiredContext { .. }
                | C::NotValidYet
                | C::NotValidYetContext { .. } => Self::Time,
                _ => Self::Certificate,
            },
            _ => Self::Handshake,
        }
    }
}

impl NetworkFailure {
    pub(crate) fn of(error: &reqwest::Error) -> Self {
        match cause(error) {
            Some(cause) => cause,
            None if error.is_timeout() => Self::Timeout,
            None if error.is_connect() => Self::Connect(io::ErrorKind::Other),
            None => Self::Broken,
        }
    }
}

/// The first cause in the chain that says something.
fn cause(error: &(dyn Error + 'static)) -> Option<NetworkFailure> {
    if error.is::<Unresolved>() {
        return Some(NetworkFailure::Host);
    }
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(TlsFailure::from(error).into());
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        // What an I/O error wraps is not its source.
        let inner = error.get_ref().and_then(|inner| cause(inner));
        return inner.or(match error.kind() {
            io::ErrorKind::ConnectionRefused => Some(NetworkFailure::Refused),
            io::ErrorKind::TimedOut => Some(NetworkFailure::Timeout),
            kind @ (io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::AddrNotAvailable
            | io::ErrorKind::PermissionDenied) => Some(NetworkFailure::Connect(kind)),
            _ => None,
        });
    }
    cause(error.source()?)
}

/// The system's resolver, with an error that can be told from others.
pub(crate) struct SystemResolver;

#[derive(Debug, Error)]
#[error("the host name cannot be resolved")]
struct Unresolved(#[source] io::Error);

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            // The port is the address's own: reqwest fills it in.
            let found = tokio::net::lookup_host((name.as_str(), 0)).await.map_err(Unresolved)?;
            let addresses: Addrs = Box::new(found.collect::<Vec<_>>().into_iter());
            Ok(addresses)
        })
    }
}
