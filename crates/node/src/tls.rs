//! TLS for listeners.

use std::{
    path::Path,
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use incrowd_files::{Readers, read_secret};
use prometheus_client::metrics::gauge::Gauge;
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_rustls::TlsAcceptor;
use x509_cert::{Certificate, der::Decode};

use crate::{
    Metrics, ServiceError, TlsConfig,
    role::{Change, Reload},
};

/// Whether listeners can present these files.
pub fn check_tls(config: &TlsConfig) -> Result<(), ServiceError> {
    presented(config).map(drop)
}

/// What listeners present to new connections, read again when the files are renewed.
pub(crate) struct Tls {
    files: TlsConfig,
    current: RwLock<Presented>,
    /// When the certificate expires, for the operator.
    expires: OnceLock<Gauge>,
}

#[derive(Clone)]
struct Presented {
    server: Arc<ServerConfig>,
    /// Seconds from 1970 until the first certificate of the chain is not valid any more.
    expires: i64,
}

impl Tls {
    /// Reads certificate and key.
    pub fn load(files: &TlsConfig) -> Result<Arc<Self>, ServiceError> {
        let current = RwLock::new(presented(files)?);
        Ok(Arc::new(Self { files: files.clone(), current, expires: OnceLock::new() }))
    }

    /// Shows the operator when the certificate expires, also when it is renewed.
    pub fn measure(&self, metrics: &Metrics) {
        let gauge = self.expires.get_or_init(|| metrics.certificate_expiry());
        gauge.set(self.current().expires);
    }

    fn current(&self) -> Presented {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// For one connection.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.current().server.into()
    }
}

impl Reload for Tls {
    fn reload(&self) -> Result<Change<'_>, ServiceError> {
        let fresh = presented(&self.files)?;
        Ok(Box::new(|| {
            if let Some(gauge) = self.expires.get() {
                gauge.set(fresh.expires);
            }
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        }))
    }
}

fn presented(config: &TlsConfig) -> Result<Presented, ServiceError> {
    let invalid = |path: &Path| {
        ServiceError::Tls(format!("{} is no PEM file of the right kind", path.display()))
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&config.certificate)
        .map_err(|_| invalid(&config.certificate))?
        .collect();
    let chain = chain.map_err(|_| invalid(&config.certificate))?;
    let first = chain.first().ok_or_else(|| invalid(&config.certificate))?;
    let expires = expiry(first).ok_or_else(|| invalid(&config.certificate))?;
    let key = read_secret(&config.key, Readers::Group)?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| invalid(&config.key))?;
    let failed = |error: rustls::Error| {
        let (certificate, key) = (config.certificate.display(), config.key.display());
        ServiceError::Tls(format!("{certificate} with {key}: {error}"))
    };
    let mut server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(failed)?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Presented { server: Arc::new(server), expires })
}

/// When a certificate is not valid any more, in seconds from 1970.
fn expiry(certificate: &CertificateDer<'_>) -> Option<i64> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let validity = certificate.tbs_certificate().validity();
    i64::try_from(validity.not_after.to_unix_duration().as_secs()).ok()
}
