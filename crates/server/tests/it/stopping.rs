//! SIGTERM ends the process, whatever somebody else does not do.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use countersign_store::testing::free_port;

use super::full::becomes;
use super::{PATIENCE, Place, Serving, until, within};

#[test]
fn a_server_whose_first_line_nobody_takes_serves_and_hears_that_it_is_to_stop() {
    let place = Place::fresh();
    place.init();
    let (mut stdout, _unread) = UnixStream::pair().expect("a pair");
    stdout.set_nonblocking(true).expect("is set");
    let full = std::io::copy(&mut std::io::repeat(b' '), &mut stdout).expect_err("it takes no more");
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    // The program's own side of it waits, as that of a pipe does.
    stdout.set_nonblocking(false).expect("is set");
    let [listen, operator_listen] = [free_port(), free_port()].map(|port| format!("127.0.0.1:{port}"));
    let mut command =
        place.command(&["serve", "--data", "data", "--listen", &listen, "--operator-listen", &operator_listen]);
    let child = command.stdout(OwnedFd::from(stdout)).spawn().expect("the binary starts");
    until("it listens", || TcpStream::connect(&operator_listen).is_ok());
    let mut serving = Serving { child, listen, operator_listen, health_listen: None };
    becomes(&serving, 200);
    serving.signal("-TERM");
    assert_eq!(serving.ends_within(PATIENCE), Some(0));
}

#[test]
fn a_process_that_stood_still_says_so_and_serves_on() {
    let place = Place::fresh();
    place.init();
    let log = place.path("log");
    let serving = place.serve_logging(&[], &log);
    becomes(&serving, 200);
    let said = || std::fs::read_to_string(&log).expect("a log");
    assert!(!said().contains("stood still"), "{}", said());
    serving.signal("-STOP");
    // It looks each 5 s, and tells of 3 s.
    assert_eq!(within(Duration::from_millis(8_500), || None::<()>), None);
    serving.signal("-CONT");
    until("the log says so", || said().contains("This process stood still for"));
    becomes(&serving, 200);
    assert_eq!(serving.terminate(), Some(0));
}
