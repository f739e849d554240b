//! The yardstick: hyper alone, answering fixed bytes.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Serves `body` to every request until the process ends, over TLS where files of a certificate and its key are given; prints its address as the
/// first line.
pub async fn serve(body: Vec<u8>, certified: Option<(&Path, &Path)>) -> anyhow::Result<()> {
    let tls = certified.map(acceptor).transpose()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let body = Bytes::from(body);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (body, tls) = (body.clone(), tls.clone());
        tokio::spawn(async move {
            match tls {
                None => answer(stream, body).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        answer(stream, body).await;
                    }
                }
            }
        });
    }
}

fn acceptor((certificate, key): (&Path, &Path)) -> anyhow::Result<TlsAcceptor> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let chain = vec![CertificateDer::from_pem_file(certificate)?];
    let config = config.with_no_client_auth().with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, body: Bytes) {
    let answer = service_fn(move |_: Request<hyper::body::Incoming>| {
        let mut response = Response::new(Full::new(body.clone()));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        async move { Ok::<_, Infallible>(response) }
    });
    // The generator closes its connections when it is done.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
}
