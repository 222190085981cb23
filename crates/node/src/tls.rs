//! TLS for listeners.

use std::{path::Path, sync::Arc};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::{ServiceError, TlsConfig};

/// Whether listeners can present these files.
pub fn check_tls(config: &TlsConfig) -> Result<(), ServiceError> {
    server(config).map(|_| ())
}

/// What a listener presents.
pub(crate) fn server(config: &TlsConfig) -> Result<Arc<ServerConfig>, ServiceError> {
    let invalid = |path: &Path| {
        ServiceError::Tls(format!("{} is no PEM file of the right kind", path.display()))
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(&config.certificate)
        .map_err(|_| invalid(&config.certificate))?
        .collect();
    let chain = chain.map_err(|_| invalid(&config.certificate))?;
    let key = PrivateKeyDer::from_pem_file(&config.key).map_err(|_| invalid(&config.key))?;
    let failed = |error: rustls::Error| ServiceError::Tls(error.to_string());
    let mut server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(failed)?;
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(server))
}
