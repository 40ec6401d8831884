//! A TCP proxy that counts and keeps what passes, and can cut its connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

#[derive(Clone, Default)]
pub struct Traffic {
    to_server: Arc<AtomicU64>,
    to_client: Arc<AtomicU64>,
}

impl Traffic {
    pub fn total(&self) -> u64 {
        self.to_server.load(Ordering::Relaxed) + self.to_client.load(Ordering::Relaxed)
    }
}

pub struct Proxy {
    pub address: SocketAddr,
    pub traffic: Traffic,
    /// Bytes from the server, as far as they are kept.
    pub heard: watch::Receiver<Vec<u8>>,
    _tasks: JoinSet<()>,
}

/// What is kept of a connection's bytes: enough for the tests that read them.
const MOST_KEPT: usize = 1 << 20;

impl Proxy {
    pub async fn start(listen: SocketAddr, server: SocketAddr) -> Self {
        let listener = TcpListener::bind(listen).await.unwrap();
        let address = listener.local_addr().unwrap();
        let traffic = Traffic::default();
        let counted = traffic.clone();
        let (keep, heard) = watch::channel(Vec::new());
        let keep = Arc::new(keep);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let Ok(upstream) = TcpStream::connect(server).await else { continue };
                let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
                let (client_reader, client_writer) = client.into_split();
                let (server_reader, server_writer) = upstream.into_split();
                connections.spawn(pass(client_reader, server_writer, counted.to_server.clone(), None));
                connections.spawn(pass(server_reader, client_writer, counted.to_client.clone(), Some(keep.clone())));
            }
        });
        Self { address, traffic, heard, _tasks: tasks }
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    count: Arc<AtomicU64>,
    keep: Option<Arc<watch::Sender<Vec<u8>>>>,
) {
    let mut chunk = vec![0_u8; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        count.fetch_add(length as u64, Ordering::Relaxed);
        if let Some(keep) = &keep {
            keep.send_if_modified(|kept| {
                let room = kept.len() + length <= MOST_KEPT;
                if room {
                    kept.extend_from_slice(&chunk[..length]);
                }
                room
            });
        }
        if to.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}
