//! `token recover`: a new operator token at the machine.

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde_json::json;

use super::operator::Group;
use super::out::shown;
use super::provision::{RecoverArgs, Token};
use crate::run;

/// Runs a command about tokens: one is done at the machine, the others are calls.
pub fn token(group: &Group<Token>, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    if let Token::Recover(args) = &group.command {
        group.refuse_key()?;
        return recover(args, group.operator.json, environment);
    }
    group.run(environment)
}

/// Makes a token and shows it, once.
fn recover(args: &RecoverArgs, json: bool, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    let config = args.data.load(environment)?;
    let made = super::small_runtime()?.block_on(run::recover(&config, args.life_days))?;
    let (id, token) = (&made.token_id, made.operator_token.expose());
    let lost = || {
        let again = run::command("token recover", &config);
        format!(
            "the token {id} is made, but it is lost: `{again}` makes another; end this one with `countersign token revoke {id}`"
        )
    };
    if json {
        super::say_once(&format!("{}\n", json!({ "token_id": id, "operator_token": token })), lost)?;
        return shown(made.unclosed, "the token is made, and shown above");
    }
    let text = format!(
        "Operator token   {token}\n\
         \x20                Shown this once. Id: {id}; role: security; ends {}.\n\n\
         Revoke what was lost: `countersign token list`, then `countersign token revoke TOKEN_ID`.\n",
        made.ends()
    );
    super::say_once(&text, lost)?;
    shown(made.unclosed, "the token is made, and shown above")
}
