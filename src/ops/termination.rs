//! The last words of a process, where Kubernetes shows them.

use std::path::Path;

/// Where the kubelet reads a container's termination message.
pub const DEFAULT_PATH: &str = "/dev/termination-log";

/// Writes the message, at most 4096 bytes of it (what the kubelet keeps). Does nothing outside a container.
pub fn write(message: &str) {
    write_to(Path::new(DEFAULT_PATH), message);
}

fn write_to(path: &Path, message: &str) {
    // The kubelet creates the file; creating it elsewhere would litter /dev.
    if !path.exists() {
        return;
    }
    let mut end = message.len().min(4096);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    if let Err(error) = std::fs::write(path, message.get(..end).unwrap_or_default()) {
        tracing::warn!(%error, "cannot write the termination message");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let file = tempfile::NamedTempFile::new().unwrap();
        write_to(file.path(), &"ä".repeat(4000));
        assert_eq!(std::fs::read_to_string(file.path()).unwrap().len(), 4096);
    }
}
