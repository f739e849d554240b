//! An operator with a server and a shell.

use std::process::{Command, Output};

use serde_json::Value;

use super::{Place, Serving};

/// A server and its first token.
#[derive(Debug)]
pub struct Desk {
    /// Where it lives.
    pub place: Place,
    token: String,
    /// The server.
    pub serving: Serving,
}

impl Desk {
    /// A new deployment, served.
    pub fn open() -> Self {
        let place = Place::fresh();
        let token = place.init()["operator_token"].as_str().expect("a token").to_owned();
        let serving = place.serve(&["--allow-private-callbacks"]);
        Self { place, token, serving }
    }

    /// A command on it, its words parted by spaces.
    pub fn command(&self, words: &str) -> Command {
        let mut command = self.place.command(&words.split(' ').collect::<Vec<_>>());
        command
            .env("COUNTERSIGN_OPERATOR_TOKEN", &self.token)
            .env("COUNTERSIGN_OPERATOR_URL", format!("http://{}", self.serving.operator_listen));
        command
    }

    /// What is said on stdout and stderr, and the exit code.
    pub fn says(&self, words: &str) -> (String, String, Option<i32>) {
        told(&self.command(words).output().expect("runs"))
    }

    /// The JSON of a command that goes well.
    pub fn made(&self, words: &str) -> Value {
        let (stdout, stderr, code) = self.says(&format!("{words} --json"));
        assert_eq!(code, Some(0), "{stderr}");
        serde_json::from_str(&stdout).expect("JSON")
    }
}

/// What a program said on stdout and stderr, and its exit code.
pub fn told(output: &Output) -> (String, String, Option<i32>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr), output.status.code())
}
