//! `egress full|sample|control`: hostile URLs and names that flip, in a network of its own. `control` is for a server whose guard was left
//! out at build time, and must fail. The program starts itself again in there (`inside`), and a client without a guard (`naive`).

use std::process::ExitCode;

use anyhow::{Result, bail};
use countersign_testkit::egress::{Size, naive, namespace, run};

fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [what @ ("full" | "sample" | "control")] => {
            let held = namespace::enter(what)?.success();
            Ok(if held { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        ["inside", outside, what] => inside(outside, what),
        ["naive"] => {
            tokio::runtime::Runtime::new()?.block_on(naive::run())?;
            Ok(ExitCode::SUCCESS)
        }
        _ => bail!("usage: egress full|sample|control"),
    }
}

fn inside(outside: &str, what: &str) -> Result<ExitCode> {
    let folder = tempfile::tempdir()?;
    namespace::prepare(outside, folder.path())?;
    let size = match what {
        "full" => Size::FULL,
        "sample" => Size::SAMPLE,
        "control" => Size::CONTROL,
        other => bail!("{other:?} is no size of a run"),
    };
    let report = tokio::runtime::Runtime::new()?.block_on(run(size))?;
    report.print();
    let verdict = if what == "control" { report.control(size) } else { report.verdict(size) };
    verdict.map(|()| ExitCode::SUCCESS)
}
