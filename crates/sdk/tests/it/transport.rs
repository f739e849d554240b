use std::sync::Arc;
use std::time::Duration;

use countersign_sdk::{Advice, Client, Error};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use crate::stub::{CLIENT_ID, SECRET};

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("bound").port();
    (listener, port)
}

fn client(port: u16) -> Client {
    Client::builder(format!("http://127.0.0.1:{port}"), CLIENT_ID, SECRET).build().expect("a client")
}

/// Reads a request's head and gives an answer.
async fn one_exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.is_ok_and(|read| read > 0) {}
    stream.write_all(answer.as_bytes()).await.expect("the client listens");
    stream.shutdown().await.expect("the client listens");
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_done() {
    // Bound and not listened on: a port that was freed may be another's by now.
    let refusing = TcpSocket::new_v4().expect("a socket");
    refusing.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let port = refusing.local_addr().expect("bound").port();
    let error = client(port).call("POST", "/x", b"{}").await.expect_err("nobody is there");
    assert!(matches!(error, Error::Transport(_)) && !error.may_have_been_done(), "{error:?}");
    assert_eq!((error.advice(), error.is_temporary()), (Advice::RepeatLater, true));
    assert!(error.to_string().starts_with("no answer from the server: Connection refused"), "{error}");
}

#[tokio::test]
async fn where_the_answer_is_lost_something_may_have_been_done() {
    for answer in ["", "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"] {
        let (listener, port) = listener().await;
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("the client comes");
            one_exchange(stream, answer).await;
        });
        let error = client(port).call("GET", "/x", b"").await.expect_err("no whole answer");
        assert!(matches!(error, Error::Transport(_)) && error.may_have_been_done(), "{error:?}");
        assert_eq!(error.advice(), Advice::RepeatOrFindOut);
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_is_not_waited_for_longer_than_the_time_out() {
    let (listener, port) = listener().await;
    let silent = tokio::spawn(async move { listener.accept().await.expect("the client comes") });
    let client =
        Client::builder(format!("http://127.0.0.1:{port}"), CLIENT_ID, SECRET).timeout(Duration::from_millis(50));
    let error = client.build().expect("a client").call("GET", "/x", b"").await.expect_err("nothing came");
    assert!(matches!(&error, Error::Transport(cause) if cause.is_timeout()), "{error:?}");
    assert!(error.may_have_been_done());
    drop(silent.await.expect("it accepted"));
}

#[tokio::test]
async fn https_trusts_the_named_roots_only_and_installs_nothing_global() {
    let ours = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let key = PrivatePkcs8KeyDer::from(ours.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("TLS 1.2 and 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![ours.cert.der().clone()], key.into())
        .expect("a matching key");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let (listener, port) = listener().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                one_exchange(stream, ANSWER).await;
            }
        }
    });

    let client = |pem: String| {
        Client::builder(format!("https://localhost:{port}"), CLIENT_ID, SECRET)
            .root_certificates(pem)
            .build()
            .expect("a client")
    };
    let answer = client(ours.cert.pem()).call("GET", "/x", b"").await.expect("a trusted server");
    assert_eq!((answer.http_status, answer.body.as_slice()), (200, b"{}".as_slice()));
    let error = client(other.cert.pem()).call("GET", "/x", b"").await.expect_err("another root");
    assert!(matches!(error, Error::Transport(_)) && !error.may_have_been_done(), "{error:?}");
    assert!(CryptoProvider::get_default().is_none(), "no provider was installed for the whole process");

    let nobody = Client::builder("https://localhost", CLIENT_ID, SECRET).root_certificates("no certificate").build();
    assert!(matches!(nobody, Err(Error::Usage(why)) if why.contains("no root certificate in the PEM")));
}
