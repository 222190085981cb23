//! TLS for listeners and for the calls between services.

use std::{path::Path, sync::Arc, time::Duration};

use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::{ServiceError, TlsConfig};

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

/// A client for an operator's questions to a service: trusts these certificates (PEM), or the system's.
pub fn http_client(ca: Option<&[u8]>) -> Result<reqwest::Client, ServiceError> {
    client(ca, Duration::from_secs(30))
}

/// A client that trusts these certificates, or the system's: no cookies, no redirects, no user agent.
pub(crate) fn client(
    ca: Option<&[u8]>,
    timeout: Duration,
) -> Result<reqwest::Client, ServiceError> {
    let failed = |error: reqwest::Error| ServiceError::Tls(error.to_string());
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(timeout)
        .connect_timeout(Duration::from_secs(10));
    if let Some(ca) = ca {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca) {
            let certificate = certificate
                .map_err(|_| ServiceError::Tls("the trusted certificates are no PEM".into()))?;
            roots.add(certificate).map_err(|error| ServiceError::Tls(error.to_string()))?;
        }
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| ServiceError::Tls(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        builder = builder.tls_backend_preconfigured(tls);
    } else {
        // Fails only when a provider is installed already, and then that one is used.
        let _ = ring::default_provider().install_default();
    }
    builder.build().map_err(failed)
}
