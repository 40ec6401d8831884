//! JSON-RPC framing: OVSDB puts JSON objects one behind the other on the stream, without length or delimiter.
//!
//! [`FrameReader`] finds the end of each object while bytes arrive and refuses what is longer than its limit, so a peer
//! cannot make us hold more than that. It looks at each byte once.

use serde_json::{Value, json};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum FrameError {
    #[error("a message longer than {limit} bytes")]
    TooLong { limit: usize },
    #[error("byte {found:#04x} where a JSON object should start: this peer does not speak OVSDB")]
    NotAnObject { found: u8 },
    #[error("message is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("message is no JSON-RPC request, reply or notification")]
    NotJsonRpc,
}

/// Cuts a stream of bytes into JSON objects.
#[derive(Debug)]
pub struct FrameReader {
    buffer: Vec<u8>,
    /// Bytes of `buffer` already looked at.
    scanned: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    limit: usize,
}

impl FrameReader {
    pub fn new(limit: usize) -> Self {
        Self { buffer: Vec::new(), scanned: 0, depth: 0, in_string: false, escaped: false, limit }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete object, if the bytes so far hold one. After an error the stream cannot be used any more.
    pub fn next_frame(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        while let Some(&byte) = self.buffer.get(self.scanned) {
            self.scanned += 1;
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
            } else {
                match byte {
                    b'{' | b'[' if self.depth > 0 || byte == b'{' => self.depth += 1,
                    b'"' if self.depth > 0 => self.in_string = true,
                    b'}' | b']' if self.depth > 0 => {
                        self.depth -= 1;
                        if self.depth == 0 {
                            return self.take_frame().map(Some);
                        }
                    }
                    _ if self.depth == 0 && byte.is_ascii_whitespace() => {
                        // All of it in one step: a peer that sends nothing but spaces costs no more than one that talks.
                        let blanks = self.buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
                        self.buffer.drain(..blanks);
                        self.scanned = 0;
                    }
                    found if self.depth == 0 => return Err(FrameError::NotAnObject { found }),
                    _ => {}
                }
            }
            if self.scanned > self.limit {
                return Err(FrameError::TooLong { limit: self.limit });
            }
        }
        Ok(None)
    }

    fn take_frame(&mut self) -> Result<Vec<u8>, FrameError> {
        if self.scanned > self.limit {
            return Err(FrameError::TooLong { limit: self.limit });
        }
        let rest = self.buffer.split_off(self.scanned);
        self.scanned = 0;
        // A large reply must not leave its memory behind: `rest` is a new, small buffer.
        Ok(std::mem::replace(&mut self.buffer, rest))
    }
}

/// One JSON-RPC message.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    Request { id: Value, method: String, params: Value },
    Notification { method: String, params: Value },
    Reply { id: Value, result: Value, error: Option<Value> },
}

impl Message {
    pub fn parse(frame: &[u8]) -> Result<Self, FrameError> {
        let Value::Object(mut members) = serde_json::from_slice(frame)? else {
            return Err(FrameError::NotJsonRpc);
        };
        let id = members.remove("id").unwrap_or(Value::Null);
        match members.remove("method") {
            Some(Value::String(method)) => {
                let params = members.remove("params").unwrap_or(Value::Null);
                Ok(match id {
                    Value::Null => Self::Notification { method, params },
                    id => Self::Request { id, method, params },
                })
            }
            Some(_) => Err(FrameError::NotJsonRpc),
            None if id.is_null() => Err(FrameError::NotJsonRpc),
            None => {
                let result = members.remove("result").unwrap_or(Value::Null);
                let error = members.remove("error").filter(|error| !error.is_null());
                Ok(Self::Reply { id, result, error })
            }
        }
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        let value = match self {
            Self::Request { id, method, params } => json!({"id": id, "method": method, "params": params}),
            Self::Notification { method, params } => json!({"id": null, "method": method, "params": params}),
            Self::Reply { id, result, error } => json!({"id": id, "result": result, "error": error}),
        };
        value.to_string().into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(reader: &mut FrameReader) -> Vec<String> {
        let mut frames = Vec::new();
        while let Some(frame) = reader.next_frame().unwrap() {
            frames.push(String::from_utf8(frame).unwrap());
        }
        frames
    }

    #[test]
    fn objects_are_cut_wherever_the_bytes_break() {
        let stream = br#"{"a":"}{\"\\"} {"b":[{"c":{}}]}
            {"d":1}"#;
        for size in 1..stream.len() {
            let mut reader = FrameReader::new(1000);
            let mut frames = Vec::new();
            for part in stream.chunks(size) {
                reader.push(part);
                frames.extend(all(&mut reader));
            }
            assert_eq!(frames, [r#"{"a":"}{\"\\"}"#, r#"{"b":[{"c":{}}]}"#, r#"{"d":1}"#]);
        }
    }

    #[test]
    fn a_frame_is_bounded() {
        let mut reader = FrameReader::new(10);
        reader.push(br#"{"a":"0"}{"a":"0123456789"}"#);
        assert!(reader.next_frame().unwrap().is_some());
        assert!(matches!(reader.next_frame(), Err(FrameError::TooLong { limit: 10 })));
    }

    #[test]
    fn another_protocol_is_recognised() {
        for bytes in [b"HTTP/1.1 400".as_slice(), b"\x15\x03\x01", b"[1]", b"}"] {
            let mut reader = FrameReader::new(100);
            reader.push(bytes);
            assert!(matches!(reader.next_frame(), Err(FrameError::NotAnObject { .. })));
        }
    }

    #[test]
    fn messages_are_told_apart() {
        let parse = |text: &str| Message::parse(text.as_bytes());
        assert!(matches!(
            parse(r#"{"id":"echo","method":"echo","params":[]}"#),
            Ok(Message::Request { method, .. }) if method == "echo"
        ));
        assert!(matches!(parse(r#"{"id":null,"method":"update3","params":[]}"#), Ok(Message::Notification { .. })));
        assert!(matches!(parse(r#"{"id":3,"result":[],"error":null}"#), Ok(Message::Reply { error: None, .. })));
        assert!(matches!(parse(r#"{"id":null,"result":[],"error":null}"#), Err(FrameError::NotJsonRpc)));
        assert!(matches!(parse(r#"{"id":1,"method":7}"#), Err(FrameError::NotJsonRpc)));
        assert!(matches!(parse("{nonsense}"), Err(FrameError::Json(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_an_error(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20)) {
            let mut reader = FrameReader::new(200);
            'stream: for part in parts {
                reader.push(&part);
                loop {
                    match reader.next_frame() {
                        Ok(Some(frame)) => { let _ = Message::parse(&frame); }
                        Ok(None) => break,
                        Err(_) => break 'stream,
                    }
                }
            }
        }

        #[test]
        fn any_text_around_braces_is_frames_or_an_error(text in r#"[{}\[\]"\\a: ]{0,200}"#) {
            let mut reader = FrameReader::new(100);
            reader.push(text.as_bytes());
            while let Ok(Some(frame)) = reader.next_frame() {
                prop_assert!(frame.len() <= 100);
                let _ = Message::parse(&frame);
            }
        }

        #[test]
        fn messages_read_back(id in 1_u64.., method in "[a-z_]{1,12}", text in ".{0,30}") {
            for message in [
                Message::Request { id: id.into(), method: method.clone(), params: json!([text]) },
                Message::Notification { method, params: json!([text]) },
                Message::Reply { id: id.into(), result: json!({"x": text}), error: None },
            ] {
                let mut reader = FrameReader::new(4096);
                reader.push(&message.to_bytes());
                let frame = reader.next_frame().unwrap().unwrap();
                prop_assert_eq!(Message::parse(&frame).unwrap(), message);
            }
        }
    }
}
