//! TLS towards a database: client certificate, CA, and whether the server's name is verified.
//!
//! Credentials come as PEM bytes (from a Secret) through [`TlsSource::Held`], or from files that are read again before
//! each connection. Either way a rotated certificate is used at the next connection, and a connection that is up stays.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
};
use thiserror::Error;
use tokio::sync::watch;

/// Which of the three pieces of PEM a message is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    Ca,
    Certificate,
    Key,
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ca => "CA certificate (ca.crt)",
            Self::Certificate => "client certificate (tls.crt)",
            Self::Key => "client key (tls.key)",
        })
    }
}

#[derive(Debug, Error)]
pub enum TlsError {
    #[error("the address says `ssl:`, but no certificate is configured")]
    NoCredentials,
    #[error("cannot read {piece} from {}: {source}", path.display())]
    Read { piece: Piece, path: PathBuf, source: io::Error },
    #[error("{piece} holds no PEM block of its kind")]
    Missing { piece: Piece },
    #[error("{piece} is not valid PEM: {problem}")]
    Pem { piece: Piece, problem: String },
    #[error("{piece} is not usable: {source}")]
    Unusable { piece: Piece, source: rustls::Error },
    #[error("client certificate and key do not belong together: {0}")]
    Pair(#[source] rustls::Error),
    #[error("the client certificate (tls.crt) {when}; renew it")]
    OwnValidity { when: String },
    #[error("`{name}` cannot stand in a certificate")]
    Name { name: String },
    #[error("{message}")]
    Server { message: String, source: rustls::Error },
}

/// Certificate authority, client certificate chain and key, as PEM. Printing it never shows the key.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsMaterial {
    pub ca: Vec<u8>,
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
}

impl fmt::Debug for TlsMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsMaterial")
            .field("ca", &format_args!("{} bytes", self.ca.len()))
            .field("certificate", &format_args!("{} bytes", self.certificate.len()))
            .field("key", &"…")
            .finish()
    }
}

/// Paths of the three files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub ca: PathBuf,
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Where credentials come from.
#[derive(Debug, Clone)]
pub enum TlsSource {
    /// Whoever holds the sender replaces them; `None` while there are none.
    Held(watch::Receiver<Option<TlsMaterial>>),
    /// Read again before each connection.
    Files(TlsFiles),
}

/// Whether a server must prove its address or name, or only that our CA signed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerNames {
    #[default]
    Verify,
    /// For certificates without names, as `ovs-pki` makes them: any certificate of the CA will do.
    ChainOnly,
}

impl TlsSource {
    pub(super) async fn load(&self) -> Result<TlsMaterial, TlsError> {
        match self {
            Self::Held(held) => held.borrow().clone().ok_or(TlsError::NoCredentials),
            Self::Files(files) => {
                let read = async |piece, path: &PathBuf| {
                    tokio::fs::read(path).await.map_err(|source| TlsError::Read { piece, path: path.clone(), source })
                };
                Ok(TlsMaterial {
                    ca: read(Piece::Ca, &files.ca).await?,
                    certificate: read(Piece::Certificate, &files.certificate).await?,
                    key: read(Piece::Key, &files.key).await?,
                })
            }
        }
    }
}

fn parse_certificates(piece: Piece, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let mut certificates = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        certificates.push(certificate.map_err(|error| TlsError::Pem { piece, problem: error.to_string() })?);
    }
    if certificates.is_empty() {
        return Err(TlsError::Missing { piece });
    }
    Ok(certificates)
}

impl TlsMaterial {
    /// Whether a client could be made of this: PEM readable, key and certificate one pair, certificate valid now.
    /// The cause of an `Err` is for a status condition.
    pub fn check(&self) -> Result<(), TlsError> {
        client_config(self, ServerNames::Verify).map(|_| ())
    }
}

/// Builds what a connection needs, and refuses credentials that a server would refuse, with a message that says so
/// better than the alert that the server would send.
pub(super) fn client_config(material: &TlsMaterial, names: ServerNames) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in parse_certificates(Piece::Ca, &material.ca)? {
        roots.add(certificate).map_err(|source| TlsError::Unusable { piece: Piece::Ca, source })?;
    }
    let roots = Arc::new(roots);
    let chain = parse_certificates(Piece::Certificate, &material.certificate)?;
    let key = match PrivateKeyDer::from_pem_slice(&material.key) {
        Ok(key) => key,
        Err(rustls::pki_types::pem::Error::NoItemsFound) => return Err(TlsError::Missing { piece: Piece::Key }),
        Err(error) => return Err(TlsError::Pem { piece: Piece::Key, problem: error.to_string() }),
    };
    check_own_validity(&chain, &roots, &provider)?;

    let inner = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(|error| TlsError::Pem { piece: Piece::Ca, problem: error.to_string() })?;
    let verifier: Arc<dyn ServerCertVerifier> = match names {
        ServerNames::Verify => inner,
        ServerNames::ChainOnly => Arc::new(ChainOnlyVerifier { roots, provider: provider.clone() }),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Pair)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(chain, key)
        .map_err(TlsError::Pair)?;
    Ok(Arc::new(config))
}

/// Our own certificate's dates. Its issuer is the server's business (it may know a CA that we do not); an expired one
/// would come back as a bare alert, or with TLS 1.3 as a connection that is closed after it was accepted.
fn check_own_validity(
    chain: &[CertificateDer<'static>],
    roots: &Arc<RootCertStore>,
    provider: &Arc<CryptoProvider>,
) -> Result<(), TlsError> {
    let Some((own, intermediates)) = chain.split_first() else {
        return Err(TlsError::Missing { piece: Piece::Certificate });
    };
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
        .build()
        .map_err(|error| TlsError::Pem { piece: Piece::Ca, problem: error.to_string() })?;
    match verifier.verify_client_cert(own, intermediates, UnixTime::now()) {
        Err(rustls::Error::InvalidCertificate(problem)) => match validity(&problem) {
            Some(when) => Err(TlsError::OwnValidity { when }),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn validity(problem: &CertificateError) -> Option<String> {
    match problem {
        CertificateError::Expired => Some("has expired".to_owned()),
        CertificateError::ExpiredContext { not_after, .. } => Some(format!("expired on {}", date(*not_after))),
        CertificateError::NotValidYet => Some("is not valid yet".to_owned()),
        CertificateError::NotValidYetContext { not_before, .. } => {
            Some(format!("is valid only from {}", date(*not_before)))
        }
        _ => None,
    }
}

/// The calendar date of a time, in UTC (civil-from-days; a dependency for one message would be too much).
fn date(time: UnixTime) -> String {
    let days = i64::try_from(time.as_secs() / 86_400).unwrap_or(0) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Verifies the chain and its dates, not the name.
#[derive(Debug)]
struct ChainOnlyVerifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for ChainOnlyVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = rustls::server::ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// What a TLS failure means to the person who has to mend it.
pub(super) fn explain(error: &rustls::Error, server: &str) -> String {
    match error {
        rustls::Error::InvalidCertificate(problem) => match problem {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                format!("the certificate of {server} is not signed by our CA (ca.crt)")
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => format!(
                "the certificate of {server} does not carry that address or name; \
                 issue one that does, or verify the chain only (certificates of ovs-pki carry no names)"
            ),
            other => match validity(other) {
                Some(when) => format!("the certificate of {server} {when}"),
                None => format!("the certificate of {server} is refused: {}", describe(other)),
            },
        },
        rustls::Error::AlertReceived(alert) => {
            let reason = match alert {
                AlertDescription::CertificateExpired => "it has expired",
                AlertDescription::UnknownCA => "the server does not know its CA",
                AlertDescription::CertificateRevoked => "it is revoked",
                AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateUnknown
                | AlertDescription::AccessDenied
                | AlertDescription::DecryptError => "the server finds it wrong",
                AlertDescription::CertificateRequired => "the server got none",
                _ => return format!("{server} ended the TLS handshake: {error}"),
            };
            format!("{server} refuses our client certificate: {reason}")
        }
        rustls::Error::InvalidMessage(_) => format!("{server} does not speak TLS; is this address a `tcp:` one?"),
        other => format!("TLS with {server} failed: {other}"),
    }
}

fn describe(problem: &CertificateError) -> String {
    match problem {
        CertificateError::Other(OtherError(inner)) => inner.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["db.example".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn material() -> TlsMaterial {
        let (certificate, key) = pair();
        TlsMaterial { ca: certificate.clone().into(), certificate: certificate.into(), key: key.into() }
    }

    #[test]
    fn good_material_is_accepted_and_never_prints_its_key() {
        let good = material();
        good.check().unwrap();
        let printed = format!("{good:?}");
        assert!(!printed.contains("PRIVATE") && printed.contains("bytes"), "{printed}");
    }

    #[test]
    fn each_wrong_piece_is_named() {
        let good = material();
        let cases = [
            (TlsMaterial { ca: b"nonsense".to_vec(), ..good.clone() }, "ca.crt"),
            (TlsMaterial { certificate: Vec::new(), ..good.clone() }, "tls.crt"),
            (TlsMaterial { key: good.ca.clone(), ..good.clone() }, "tls.key"),
            (TlsMaterial { key: pair().1.into(), ..good.clone() }, "do not belong together"),
            (
                TlsMaterial {
                    certificate: b"-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n".to_vec(),
                    ..good.clone()
                },
                "tls.crt",
            ),
        ];
        for (wrong, word) in cases {
            let message = wrong.check().unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
    }

    #[test]
    fn an_expired_client_certificate_is_found_before_a_server_sees_it() {
        let mut parameters = rcgen::CertificateParams::new(["client".to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(2001, 2, 3);
        parameters.not_after = rcgen::date_time_ymd(2004, 2, 29);
        let key = rcgen::KeyPair::generate().unwrap();
        let expired = parameters.self_signed(&key).unwrap();
        let wrong = TlsMaterial { certificate: expired.pem().into(), key: key.serialize_pem().into(), ..material() };
        let message = wrong.check().unwrap_err().to_string();
        assert_eq!(message, "the client certificate (tls.crt) expired on 2004-02-29; renew it");
    }
}
