//! Addresses of database servers in the syntax of the OVS tools: `ssl:10.0.0.1:6641,tcp:[fd00::1]:6641,unix:/run/db.sock`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::str::FromStr;

use thiserror::Error;

use super::value::excerpt;

/// More remotes than this in one list is a mistake: a database has three to seven members.
const MOST_ENDPOINTS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EndpointError {
    #[error("no database address; expected a list such as `ssl:10.0.0.1:6641,ssl:10.0.0.2:6641`")]
    Empty,
    #[error("address list `{list}` has an empty element; remove the extra comma")]
    EmptyElement { list: String },
    #[error("{count} addresses in one list; expected at most {MOST_ENDPOINTS}")]
    TooMany { count: usize },
    #[error("address `{found}` starts with none of `ssl:`, `tcp:` and `unix:`")]
    Scheme { found: String },
    #[error("address `{found}` is one to listen on; expected where to connect to, `ssl:HOST:PORT` or `tcp:HOST:PORT`")]
    Passive { found: String },
    #[error("address `{found}` has no port; expected `{scheme}:HOST:PORT`")]
    NoPort { found: String, scheme: &'static str },
    #[error("address `{found}`: `{port}` is not a port; expected 1 to 65535")]
    Port { found: String, port: String },
    #[error("address `{found}`: `{host}` is neither an IP address nor a DNS name")]
    Host { found: String, host: String },
    #[error("address `{found}`: write an IPv6 address in brackets, `ssl:[fd00::1]:6641`")]
    Brackets { found: String },
    #[error("address `{found}` has no path; expected `unix:/run/openvswitch/db.sock`")]
    NoPath { found: String },
}

/// Where a server listens: an address or a name that is looked up at each connection.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    Address(IpAddr),
    Name(String),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Endpoint {
    Unix(PathBuf),
    Tcp { host: Host, port: u16 },
    Ssl { host: Host, port: u16 },
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
            Self::Ssl { host, port } => write!(f, "ssl:{host}:{port}"),
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let found = || excerpt(text);
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(EndpointError::Scheme { found: found() });
        };
        match scheme {
            "unix" if rest.is_empty() || rest.contains('\0') => Err(EndpointError::NoPath { found: found() }),
            "unix" => Ok(Self::Unix(PathBuf::from(rest))),
            "tcp" => parse_host_port(text, rest, "tcp").map(|(host, port)| Self::Tcp { host, port }),
            "ssl" => parse_host_port(text, rest, "ssl").map(|(host, port)| Self::Ssl { host, port }),
            "ptcp" | "pssl" | "punix" => Err(EndpointError::Passive { found: found() }),
            _ => Err(EndpointError::Scheme { found: found() }),
        }
    }
}

fn parse_host_port(text: &str, rest: &str, scheme: &'static str) -> Result<(Host, u16), EndpointError> {
    let found = || excerpt(text);
    let (host, port) = match rest.strip_prefix('[') {
        Some(bracketed) => {
            let wrong = || EndpointError::Host { found: found(), host: excerpt(rest) };
            let (address, port) = bracketed.split_once(']').ok_or_else(wrong)?;
            let address: Ipv6Addr = address.parse().map_err(|_| wrong())?;
            let port = port.strip_prefix(':').ok_or(EndpointError::NoPort { found: found(), scheme })?;
            (Host::Address(IpAddr::V6(address)), port)
        }
        None => {
            let (host, port) = rest.rsplit_once(':').ok_or(EndpointError::NoPort { found: found(), scheme })?;
            if host.contains(':') {
                return Err(EndpointError::Brackets { found: found() });
            }
            let host = match host.parse::<IpAddr>() {
                Ok(address) => Host::Address(address),
                Err(_) if is_dns_name(host) => Host::Name(host.to_owned()),
                Err(_) => return Err(EndpointError::Host { found: found(), host: excerpt(host) }),
            };
            (host, port)
        }
    };
    match port.parse::<u16>() {
        Ok(number) if number > 0 && !port.starts_with('+') => Ok((host, number)),
        _ => Err(EndpointError::Port { found: found(), port: excerpt(port) }),
    }
}

fn is_dns_name(text: &str) -> bool {
    let label = |part: &str| {
        !part.is_empty()
            && part.len() <= 63
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    // All digits and dots is a mistyped IPv4 address, not a name.
    let numeric = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    text.len() <= 253 && !numeric && text.strip_suffix('.').unwrap_or(text).split('.').all(label)
}

/// The remotes of one database, at least one, without duplicates, in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints(Vec<Endpoint>);

impl Endpoints {
    pub fn iter(&self) -> impl Iterator<Item = &Endpoint> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never true: a list without an address does not parse.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The `number`th try's address: the list round and round.
    pub fn nth_round(&self, number: usize) -> Option<&Endpoint> {
        number.checked_rem(self.0.len()).and_then(|at| self.0.get(at))
    }
}

impl FromStr for Endpoints {
    type Err = EndpointError;

    fn from_str(list: &str) -> Result<Self, EndpointError> {
        if list.trim().is_empty() {
            return Err(EndpointError::Empty);
        }
        let count = list.split(',').count();
        if count > MOST_ENDPOINTS {
            return Err(EndpointError::TooMany { count });
        }
        let mut endpoints = Vec::new();
        for element in list.split(',').map(str::trim) {
            if element.is_empty() {
                return Err(EndpointError::EmptyElement { list: excerpt(list) });
            }
            let endpoint: Endpoint = element.parse()?;
            if !endpoints.contains(&endpoint) {
                endpoints.push(endpoint);
            }
        }
        Ok(Self(endpoints))
    }
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, endpoint) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str(",")?;
            }
            write!(f, "{endpoint}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_usual_syntax() {
        let list = "ssl:10.0.0.1:6641, tcp:[fd00::1]:6641,unix:/run/openvswitch/db.sock,ssl:nb-0.ovn.svc:6641";
        let endpoints: Endpoints = list.parse().unwrap();
        assert_eq!(endpoints.to_string(), list.replace(' ', ""));
        assert_eq!(endpoints.len(), 4);
        assert_eq!(endpoints.nth_round(5), endpoints.iter().nth(1));
        let twice: Endpoints = "tcp:1.2.3.4:1,tcp:1.2.3.4:1".parse().unwrap();
        assert_eq!(twice.len(), 1);
    }

    #[test]
    fn wrong_addresses_say_what_is_expected() {
        for (wrong, word) in [
            ("", "no database address"),
            (" ", "no database address"),
            ("tcp:1.2.3.4:1,,tcp:1.2.3.5:1", "extra comma"),
            ("10.0.0.1:6641", "starts with none of"),
            ("10.0.0.1", "starts with none of"),
            ("pssl:6641", "to listen on"),
            ("ssl:10.0.0.1", "no port"),
            ("ssl:[fd00::1]", "no port"),
            ("ssl:10.0.0.1:0", "`0` is not a port"),
            ("ssl:10.0.0.1:70000", "`70000` is not a port"),
            ("ssl:10.0.0.1:+1", "`+1` is not a port"),
            ("ssl:fd00::1:6641", "in brackets"),
            ("ssl:[10.0.0.1]:6641", "neither an IP address nor a DNS name"),
            ("ssl:10.0.0.256:6641", "neither an IP address nor a DNS name"),
            ("tcp:a b:6641", "neither an IP address nor a DNS name"),
            ("tcp::6641", "neither an IP address nor a DNS name"),
            ("unix:", "no path"),
        ] {
            let message = wrong.parse::<Endpoints>().unwrap_err().to_string();
            assert!(message.contains(word), "`{wrong}`: {message}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_address_list_or_a_message(text in "(ssl:|tcp:|unix:|)[a-z0-9\\[\\]:.,/ -]{0,60}") {
            match text.parse::<Endpoints>() {
                Ok(endpoints) => prop_assert_eq!(endpoints.to_string().parse::<Endpoints>().unwrap(), endpoints),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }

        #[test]
        fn no_text_panics(text in ".{0,200}") {
            let _ = text.parse::<Endpoints>();
        }
    }
}
