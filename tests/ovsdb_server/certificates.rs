//! A certificate authority for one test.

use std::net::IpAddr;

use ovn_chassis::ovsdb::TlsMaterial;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType};

pub struct Authority {
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key, as PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

/// When a certificate is valid.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    Now,
    /// Until the end of 2004-02-28.
    Past,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let pem = parameters.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(parameters, key) }
    }

    pub fn issue(&self, addresses: &[IpAddr], names: &[&str], validity: Validity) -> Pair {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.subject_alt_names.extend(addresses.iter().map(|address| SanType::IpAddress(*address)));
        parameters.distinguished_name.push(DnType::CommonName, "ovsdb test");
        parameters.not_before = rcgen::date_time_ymd(2000, 1, 1);
        parameters.not_after = match validity {
            Validity::Now => rcgen::date_time_ymd(2090, 1, 1),
            Validity::Past => rcgen::date_time_ymd(2004, 2, 28),
        };
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }

    /// What a client of a server of this authority uses.
    pub fn client(&self) -> TlsMaterial {
        self.material(&self.issue(&[], &["client.example"], Validity::Now))
    }

    pub fn material(&self, pair: &Pair) -> TlsMaterial {
        TlsMaterial {
            ca: self.pem.clone().into_bytes(),
            certificate: pair.certificate.clone().into_bytes(),
            key: pair.key.clone().into_bytes(),
        }
    }
}
