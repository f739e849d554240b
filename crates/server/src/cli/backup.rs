//! `backup` and `restore`: a deployment into a file and back, and `delivery`: what a restored one is told before it sends anything.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use countersign_domain::time::rfc3339;
use hyper::Method;
use serde_json::json;

use super::numbers::ordinal;
use super::operator::{Call, IntoCall};
use super::settings::DataArgs;
use crate::clock::Clock;
use crate::datadir::DataDir;
use crate::run::backup::series::{self, LeftAlone, Thinned};
use crate::run::backup::{self, Restored, Trailer};

/// Flags of `backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The file to be made
    #[arg(required_unless_present = "into")]
    pub file: Option<PathBuf>,
    /// A folder for backups of this deployment, in which the file is named by its time
    #[arg(long, value_name = "DIR", conflicts_with = "file")]
    pub into: Option<PathBuf>,
    /// Keep so many good backups in that folder, this one among them, and remove older ones
    #[arg(long, value_name = "N", requires = "into", conflicts_with = "file", allow_negative_numbers = true, value_parser = ordinal)]
    pub keep: Option<u32>,
    /// Where the data is.
    #[command(flatten)]
    pub data: DataArgs,
    /// Print what was written for programs
    #[arg(long)]
    pub json: bool,
}

/// Flags of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The file that `backup` made; - is standard input, which must be that file and no pipe
    pub file: PathBuf,
    /// Where the data shall be.
    #[command(flatten)]
    pub data: DataArgs,
    /// Print what was done for programs
    #[arg(long)]
    pub json: bool,
}

/// Delivery of callbacks as a whole.
#[derive(Debug, Subcommand)]
pub enum Delivery {
    /// Whether callbacks are held since a restore
    Show,
    /// Let a restored deployment send its callbacks from now on
    Release,
}

impl IntoCall for Delivery {
    fn call(&self) -> anyhow::Result<Call> {
        Ok(match self {
            Self::Show => Call::new(Method::GET, "/delivery"),
            Self::Release => Call::new(Method::POST, "/delivery/release"),
        })
    }
}

/// Copies the deployment into a file.
pub fn backup(args: &BackupArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    let config = args.data.load(environment)?;
    let path = match (&args.file, &args.into) {
        (Some(file), _) => file.clone(),
        (None, Some(folder)) => series::file_in(folder, Clock::System.now()),
        (None, None) => bail!("name the file to be made, or a folder for it with --into"),
    };
    let trailer = super::small_runtime()?.block_on(backup::take(&config, &path))?;
    let not_noted = backup::note(&config, &trailer).err().map(anyhow::Error::from);
    // The file is whole: what comes of others is said beside it.
    let thinned = match (&args.into, args.keep) {
        (Some(folder), Some(keep)) => series::thin(folder, &path, &trailer, keep),
        (None, _) | (_, None) => Ok(Thinned::default()),
    };
    let others = Beside { thinned: thinned.as_ref().ok(), not_noted: not_noted.map(|error| format!("{error:#}")) };
    say_what_was_written(args.json, &path, &trailer, &others)?;
    let file = path.display();
    thinned.with_context(|| format!("{file} is whole, but older backups could not be removed"))?;
    if let Some(broken) = &trailer.broken {
        bail!(
            "{file} is whole, but `restore` refuses it, since the deployment is damaged: {broken}. Keep your earlier backups, and see what \
             `countersign doctor` says"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// What was done beside the file.
struct Beside<'a> {
    /// With older ones; none: it was refused, and is told as an error.
    thinned: Option<&'a Thinned>,
    /// Why the data folder does not tell of it.
    not_noted: Option<String>,
}

fn say_what_was_written(is_json: bool, file: &Path, trailer: &Trailer, beside: &Beside<'_>) -> anyhow::Result<()> {
    let file = file.display().to_string();
    let none = Thinned::default();
    let Thinned { removed, left_alone } = beside.thinned.unwrap_or(&none);
    let not_noted = beside.not_noted.as_deref();
    if is_json {
        let said = json!({
            "file": file, "backup": trailer, "removed": removed, "left_alone": left_alone, "not_noted": not_noted
        });
        return super::say(&format!("{said}\n"));
    }
    let not_noted = not_noted.map_or(String::new(), |why| {
        format!("The data folder does not tell of it, so `/metrics` and `doctor` do not know it: {why}.\n")
    });
    let mut others = String::new();
    for file in removed {
        let _ = writeln!(others, "Removed {}.", file.display());
    }
    for LeftAlone { file, why } in left_alone {
        let _ = writeln!(others, "Left {} alone, which does not count: {why}.", file.display());
    }
    super::say(&format!(
        "Wrote {file}: {} bytes, SHA-256 {}.\n\
         The master key ({}) is not in it: keep it in another place.\n{}{others}{not_noted}",
        trailer.bytes,
        trailer.sha256,
        trailer.master_key_id,
        unfinished_rewrap(&trailer.other_master_key_ids),
    ))
}

/// What is said where more than one master key is needed.
fn unfinished_rewrap(others: &[String]) -> String {
    if others.is_empty() {
        return String::new();
    }
    format!(
        "A re-wrap of the master key is not finished in it: it needs the master key {}, too (master_key_previous). Keep both with it, or finish \
         with `countersign master-key rewrap` and take another.\n",
        others.join(", ")
    )
}

/// Makes a deployment of a backup.
pub fn restore(args: &RestoreArgs, environment: &BTreeMap<String, String>) -> anyhow::Result<ExitCode> {
    let config = args.data.load(environment)?;
    let Restored { trailer, place, refused_through, is_held, has_key, other_keys } =
        super::small_runtime()?.block_on(backup::restore(&config, &args.file))?;
    let folder = config.data.display();
    if args.json {
        super::say(&format!(
            "{}\n",
            json!({
                "data": folder.to_string(), "database": place, "backup": trailer, "delivery_held": is_held,
                "refused_through": refused_through.0, "has_master_key": has_key, "other_master_key_ids": other_keys
            })
        ))?;
        return Ok(ExitCode::SUCCESS);
    }
    let place = place.map_or_else(|| folder.to_string(), |place| format!("{place}, with the data folder {folder}"));
    let of_folder = DataDir::named(&config.data).master_key();
    let key = if has_key && of_folder.exists() {
        String::new()
    } else if has_key {
        format!(
            "The master key {} is not in {folder}: name it at each start, as here, or put a copy at {}, mode 600.\n",
            trailer.master_key_id,
            of_folder.display()
        )
    } else {
        format!("Bring the master key {} back first: {}, mode 600.\n", trailer.master_key_id, of_folder.display())
    };
    let callbacks = if is_held {
        "Callbacks are held: when the deployment that this one takes the place of is down for good, run `countersign delivery release`."
    } else {
        "An earlier run of this restore had made all but its last step; callbacks were released since."
    };
    super::say(&format!(
        "Restored the deployment of {} into {place}.\n\
         {key}{}\
         Requests stamped up to {} are refused, so that none is accepted twice.\n\
         {callbacks}\n",
        trailer.taken_at,
        unfinished_rewrap(&other_keys),
        rfc3339(refused_through)
    ))?;
    Ok(ExitCode::SUCCESS)
}
