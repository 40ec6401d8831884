//! A certificate authority of the test's own. Server certificates carry 127.0.0.1, so names are verified as in a real installation.
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub certificate: String,
}

/// A certificate with its key, in PEM.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// An identity written to files, as OVS tools want it.
#[derive(Clone, Debug)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub authority: PathBuf,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages =
            vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate authority").pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    pub fn identity(&self, common_name: &str, organisation: Option<&str>) -> Identity {
        self.identity_until(common_name, organisation, 2100)
    }

    /// `last_year` in the past makes an expired certificate.
    pub fn identity_until(&self, common_name: &str, organisation: Option<&str>, last_year: i32) -> Identity {
        let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(String::from);
        let mut params = CertificateParams::new(names).expect("loopback names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        if let Some(organisation) = organisation {
            params.distinguished_name.push(DnType::OrganizationName, organisation);
        }
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Identity { certificate, key: key.serialize_pem() }
    }

    pub fn write(&self, folder: &Path, name: &str, identity: &Identity) -> Files {
        let files = Files {
            certificate: folder.join(format!("{name}.crt")),
            key: folder.join(format!("{name}.key")),
            authority: folder.join("ca.crt"),
        };
        std::fs::write(&files.certificate, &identity.certificate).expect("certificate file");
        std::fs::write(&files.key, &identity.key).expect("key file");
        std::fs::write(&files.authority, &self.certificate).expect("authority file");
        files
    }
}

impl Files {
    /// The three TLS options that every OVS and OVN program shares.
    pub fn ovs_arguments(&self) -> [String; 3] {
        [
            format!("--private-key={}", self.key.display()),
            format!("--certificate={}", self.certificate.display()),
            format!("--ca-cert={}", self.authority.display()),
        ]
    }
}

/// The key pair that signs ServiceAccount tokens: (private PEM, public PEM).
pub fn token_signing_keys() -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    (key.serialize_pem(), key.public_key_pem())
}
