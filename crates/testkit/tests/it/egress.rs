//! Never aimed inside, in small; `cargo xtask egress` is the same in large.

use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_egress");

fn said(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

#[test]
fn no_url_and_no_answer_of_a_name_server_leads_to_a_forbidden_address() {
    let out = Command::new(PROGRAM).arg("sample").output().expect("the program starts");
    assert!(out.status.success(), "{}", said(&out));
    assert!(
        said(&out).contains("sightings of a forbidden address: 0; of a client without a guard: "),
        "{}",
        said(&out)
    );
}

#[test]
fn where_no_network_of_its_own_can_be_made_the_run_fails_and_says_so() {
    let out = Command::new(PROGRAM).arg("sample").env("PATH", "/nowhere").output().expect("the program starts");
    assert!(
        !out.status.success() && said(&out).contains("no network of its own can be made on this machine"),
        "{}",
        said(&out)
    );
}

#[test]
fn in_the_network_of_the_machine_the_run_touches_nothing() {
    let network = std::fs::read_link("/proc/self/ns/net").expect("a process is in a network");
    let out = Command::new(PROGRAM).args(["inside", &network.to_string_lossy(), "sample"]).output().expect("it starts");
    assert!(!out.status.success() && said(&out).contains("the network of the machine"), "{}", said(&out));
}
