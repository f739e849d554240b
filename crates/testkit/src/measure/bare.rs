//! The yardstick: hyper alone, answering fixed bytes.

use std::convert::Infallible;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// Serves `body` to every request until the process ends; prints its address as the first line.
pub async fn serve(body: Vec<u8>) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let body = Bytes::from(body);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let body = body.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |_: Request<hyper::body::Incoming>| {
                let mut response = Response::new(Full::new(body.clone()));
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                async move { Ok::<_, Infallible>(response) }
            });
            // The generator closes its connections when it is done.
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}
