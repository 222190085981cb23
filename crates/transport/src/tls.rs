use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use rustls_platform_verifier::BuilderVerifierExt;

use crate::TransportError;

/// Whose certificates are believed.
#[derive(Debug, Clone)]
pub enum Trust {
    /// The system's certificate authorities.
    System,
    /// These certificates (PEM) and no others.
    Pem(Vec<u8>),
    /// None: for plain http, which then works on a system without certificate authorities.
    Nobody,
}

impl Trust {
    /// These certificates, or the system's authorities.
    pub fn new(pem: Option<&[u8]>) -> Self {
        pem.map_or(Self::System, |pem| Self::Pem(pem.to_vec()))
    }
}

/// The TLS of every request, with its own provider, whatever else the process uses.
pub fn client_config(trust: &Trust) -> Result<ClientConfig, TransportError> {
    let problem = |error: rustls::Error| TransportError::Tls(error.to_string());
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(problem)?;
    let builder = match trust {
        Trust::System => builder.with_platform_verifier().map_err(problem)?,
        Trust::Pem(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem) {
                let certificate = certificate.map_err(|_| TransportError::Certificates)?;
                roots.add(certificate).map_err(problem)?;
            }
            builder.with_root_certificates(roots)
        }
        Trust::Nobody => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}
