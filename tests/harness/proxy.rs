//! A TCP proxy on loopback that can be cut (connections closed, new ones refused at once) or stalled (open, but no byte passes), and counts what goes through.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Open,
    Cut,
    Stalled,
}

pub struct Proxy {
    pub port: u16,
    line: watch::Sender<Line>,
    pub bytes: Arc<AtomicU64>,
    accepted: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

/// A port that was free when it was looked for may be somebody's by now: the next one is tried.
fn listen() -> (u16, TcpListener) {
    for _ in 0..20 {
        let port = super::scratch::free_port();
        if let Ok(listener) = super::runtime().block_on(TcpListener::bind(("127.0.0.1", port))) {
            return (port, listener);
        }
    }
    panic!("twenty free ports were taken before they could be used");
}

impl Proxy {
    pub fn to(target: u16) -> Self {
        let (port, listener) = listen();
        let (line, state) = watch::channel(Line::Open);
        let (bytes, accepted) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (count, connections) = (bytes.clone(), accepted.clone());
        let task = super::runtime().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if *state.borrow() == Line::Cut {
                    continue;
                }
                connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(pass(client, target, state.clone(), count.clone()));
            }
        });
        Self { port, line, bytes, accepted, task }
    }

    pub fn set(&self, line: Line) {
        self.line.send_replace(line);
    }

    /// How many connections were let through so far.
    pub fn connections(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Line::Cut);
        self.task.abort();
    }
}

async fn pass(client: TcpStream, target: u16, line: watch::Receiver<Line>, bytes: Arc<AtomicU64>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", target)).await else { return };
    let (_, _) = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = copy(from_client, to_server, line.clone(), bytes.clone()) => {}
        () = copy(from_server, to_client, line, bytes) => {}
    }
}

async fn copy(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut line: watch::Receiver<Line>,
    bytes: Arc<AtomicU64>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => read,
            cut = line.wait_for(|l| *l == Line::Cut) => { drop(cut); return }
        };
        let Ok(size @ 1..) = read else { return };
        let state = line.wait_for(|l| *l != Line::Stalled).await.map(|l| *l);
        if !matches!(state, Ok(Line::Open)) || to.write_all(&buffer[..size]).await.is_err() {
            return;
        }
        bytes.fetch_add(size as u64, Ordering::Relaxed);
    }
}
