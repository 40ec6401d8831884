//! SHA-256 in the short hexadecimal forms that object names and config hashes use.

use sha2::{Digest, Sha256};

/// The first `digits` hexadecimal digits of the SHA-256 of `text` (at most 64).
pub fn sha256_hex(text: &str, digits: usize) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(text.as_bytes()) {
        hex.push_str(&format!("{byte:02x}"));
    }
    hex.truncate(digits);
    hex
}

/// The eight digits that stand for a node in a Job's name: what `printf %s "$NODE" | sha256sum | cut -c1-8` prints.
pub fn hash8(text: &str) -> String {
    sha256_hex(text, 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash8_is_what_sha256sum_prints() {
        // printf %s node-a | sha256sum | cut -c1-8
        assert_eq!(hash8("abc"), "ba7816bf");
        assert_eq!(sha256_hex("abc", 64).len(), 64);
    }
}
