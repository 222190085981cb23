//! TLS for listeners.

use std::{
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use incrowd_files::{Readers, read_secret};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    ServiceError, TlsConfig,
    role::{Change, Reload},
};

/// Whether listeners can present these files.
pub fn check_tls(config: &TlsConfig) -> Result<(), ServiceError> {
    server(config).map(drop)
}

/// What listeners present to new connections, read again when the files are renewed.
pub(crate) struct Tls {
    files: TlsConfig,
    current: RwLock<Arc<ServerConfig>>,
}

impl Tls {
    /// Reads certificate and key.
    pub fn load(files: &TlsConfig) -> Result<Arc<Self>, ServiceError> {
        let current = RwLock::new(server(files)?);
        Ok(Arc::new(Self { files: files.clone(), current }))
    }

    /// For one connection.
    pub fn acceptor(&self) -> TlsAcceptor {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone().into()
    }
}

impl Reload for Tls {
    fn reload(&self) -> Result<Change<'_>, ServiceError> {
        let server = server(&self.files)?;
        Ok(Box::new(|| *self.current.write().unwrap_or_else(PoisonError::into_inner) = server))
    }
}

fn server(config: &TlsConfig) -> Result<Arc<ServerConfig>, ServiceError> {
    let invalid = |path: &Path| {
        ServiceError::Tls(format!("{} is no PEM file of the right kind", path.display()))
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&config.certificate)
        .map_err(|_| invalid(&config.certificate))?
        .collect();
    let chain = chain.map_err(|_| invalid(&config.certificate))?;
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
    Ok(Arc::new(server))
}
