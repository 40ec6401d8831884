//! A hand-written server that says exactly what a test wants it to say.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub struct Peer {
    listener: TcpListener,
}

/// One client's connection.
pub struct Talk {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Peer {
    pub async fn listen() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub fn remote(&self) -> String {
        let address: SocketAddr = self.listener.local_addr().unwrap();
        format!("tcp:{address}")
    }

    pub async fn accept(&self) -> Talk {
        let (stream, _) = self.listener.accept().await.unwrap();
        Talk { stream, buffer: Vec::new() }
    }

    /// Accepts a client and tells it that database `T` is here and we are its fit server.
    pub async fn welcome(&self) -> Talk {
        let mut talk = self.accept().await;
        talk.introduce(json!({"name": "T", "model": "standalone", "connected": true, "leader": true,
            "index": ["set", []], "cid": ["set", []], "sid": ["set", []]}))
            .await;
        talk
    }
}

impl Talk {
    /// The next message that is no echo request; those are answered.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            let mut parser = serde_json::Deserializer::from_slice(&self.buffer).into_iter::<Value>();
            match parser.next() {
                Some(Ok(message)) => {
                    let used = parser.byte_offset();
                    self.buffer.drain(..used);
                    return Some(message);
                }
                Some(Err(error)) => assert!(error.is_eof(), "the client sent {error}"),
                None => {}
            }
            let mut chunk = [0_u8; 4096];
            match self.stream.read(&mut chunk).await {
                Ok(length @ 1..) => self.buffer.extend_from_slice(&chunk[..length]),
                _ => return None,
            }
        }
    }

    /// The next request, which must be `method`.
    pub async fn expect(&mut self, method: &str) -> Value {
        let message = self.next().await.unwrap_or_else(|| panic!("the client left before `{method}`"));
        assert_eq!(message["method"], method, "{message}");
        message
    }

    pub async fn send(&mut self, message: Value) {
        self.send_bytes(message.to_string().as_bytes()).await;
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        // A client that has hung up is the test's to notice, by what it does next.
        let _ = self.stream.write_all(bytes).await;
    }

    pub async fn answer(&mut self, request: &Value, result: Value) {
        self.send(json!({"id": request["id"], "result": result, "error": null})).await;
    }

    pub async fn refuse(&mut self, request: &Value, error: Value) {
        self.send(json!({"id": request["id"], "result": null, "error": error})).await;
    }

    /// Answers the client's question who we are.
    pub async fn introduce(&mut self, row: Value) {
        let request = self.expect("monitor").await;
        assert_eq!(request["params"][0], "_Server");
        let rows = json!({"Database": {"00000000-0000-0000-0000-000000000001": {"new": row}}});
        self.answer(&request, rows).await;
    }

    /// Waits until the client hangs up.
    pub async fn closed(&mut self) {
        while self.next().await.is_some() {}
    }
}
