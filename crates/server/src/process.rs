//! What the process asks of the system before it serves: no picture of its memory on any disk, and files enough.
//!
//! Keys that are in use stand in memory in the clear. A core dump would write them to a disk where nobody expects them.

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, dumpable_behavior, getrlimit, set_dumpable_behavior, setrlimit,
};

use tokio::signal::unix::{SignalKind, signal};

/// Files that a server needs beside its connections: the store's, the log, its own.
const OTHER_FILES: u64 = 128;

/// Whether a crash leaves the memory on a disk, and other programs of this user may read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dumps {
    /// Neither.
    Forbidden,
    /// As the system has it: for developers.
    AsTheSystemHasIt,
}

/// Forbids core dumps, and other programs of the same user to look into the memory. Holds until the process ends.
pub fn forbid_dumps() -> std::io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    // The limit alone does not hold where the system pipes dumps into a program.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// What holds for this process now.
pub fn dumps() -> Dumps {
    match dumpable_behavior() {
        Ok(DumpableBehavior::NotDumpable) => Dumps::Forbidden,
        Ok(DumpableBehavior::Dumpable | DumpableBehavior::DumpableReadableOnlyByRoot) | Err(_) => {
            Dumps::AsTheSystemHasIt
        }
    }
}

/// How many files this process may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// Most at once; `u64::MAX` where there is no limit.
    pub most: u64,
    /// What the settings may call for.
    pub needed: u64,
}

impl OpenFiles {
    /// What is wrong, for the log and `doctor`; none where they suffice.
    pub fn lack(&self) -> Option<String> {
        let Self { most, needed } = self;
        (most < needed).then(|| {
            format!(
                "this process may open {most} files and the settings allow connections for {needed}: raise the limit \
                 (systemd: LimitNOFILE={needed}) or lower limits.connections"
            )
        })
    }
}

/// Raises the number of files that may be open as far as the system allows. `connections`: of both listeners and of callbacks.
pub fn allow_files(connections: u64) -> OpenFiles {
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised, what there is must do, and the caller says what is missing.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    OpenFiles { most, needed: connections.saturating_add(OTHER_FILES) }
}

/// Lets a write that would make a file larger than this process may (`ulimit -f`) fail as on a full disk, instead of ending the process by a signal.
/// Within a runtime. Holds until the process ends.
pub fn outlive_file_size_limit() -> std::io::Result<()> {
    // Nobody has to wait for it: that it is caught is enough.
    signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_files_are_a_sentence_with_both_figures() {
        assert_eq!(OpenFiles { most: 9_000, needed: 9_000 }.lack(), None);
        let said = OpenFiles { most: 1_024, needed: 8_576 }.lack().expect("too few");
        assert!(said.contains("1024") && said.contains("8576") && said.contains("LimitNOFILE"), "{said}");
    }

    #[test]
    fn dumps_are_forbidden_by_the_limit_and_by_the_mark_that_counts_where_they_are_piped() {
        forbid_dumps().expect("it may be lowered");
        assert_eq!(dumps(), Dumps::Forbidden);
        assert_eq!(getrlimit(Resource::Core).maximum, Some(0));
    }

    #[test]
    fn files_are_raised_to_what_the_system_allows() {
        let files = allow_files(10);
        assert_eq!(files.needed, 10 + OTHER_FILES);
        assert_eq!(Some(files.most), getrlimit(Resource::Nofile).maximum.or(Some(u64::MAX)));
    }
}
