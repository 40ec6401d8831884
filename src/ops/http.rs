//! `/healthz`, `/readyz` and `/metrics`.

use std::net::SocketAddr;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;

use super::{Health, Metrics, Shutdown};

/// Why the endpoint cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("cannot listen on {address} for health and metrics")]
    Bind { address: SocketAddr, source: std::io::Error },
    #[error("health and metrics on {address} ended")]
    Serve { address: SocketAddr, source: std::io::Error },
}

/// Opens the port.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, HttpError> {
    TcpListener::bind(address).await.map_err(|source| HttpError::Bind { address, source })
}

/// Serves until shutdown.
pub async fn serve(
    listener: TcpListener,
    health: Health,
    metrics: Metrics,
    shutdown: Shutdown,
) -> Result<(), HttpError> {
    let address = listener.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(move || async move { readyz(&health) }))
        .route("/metrics", get(move || async move { render(&metrics) }));
    axum::serve(listener, router)
        .with_graceful_shutdown(async move { shutdown.requested().await })
        .await
        .map_err(|source| HttpError::Serve { address, source })
}

fn readyz(health: &Health) -> impl IntoResponse + use<> {
    match health.ready() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

fn render(metrics: &Metrics) -> impl IntoResponse + use<> {
    match metrics.render() {
        Ok(text) => {
            let kind = [(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")];
            (StatusCode::OK, kind, text).into_response()
        }
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be rendered\n").into_response(),
    }
}
