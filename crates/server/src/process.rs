//! What the process asks of the system before it serves: no picture of its memory on any disk, and files enough.
//!
//! Keys that are in use stand in memory in the clear. A core dump would write them to a disk where nobody expects them.

use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, dumpable_behavior, getrlimit, set_dumpable_behavior, setrlimit,
};

use tokio::signal::unix::{SignalKind, signal};

/// Files that a server needs beside those that are counted: the log, its own, what of the store's does not grow with the threads.
const OTHER_FILES: u64 = 128;
/// Listeners that have as many connections as the settings say, each.
const LISTENERS: u64 = 2;
/// A listener has so many connections in any case.
const CONNECTIONS_LEAST: u64 = 8;
/// Of each kind of connections to receivers there are so many in any case.
const TO_RECEIVERS_LEAST: u64 = 4;

/// What a server opens files for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// Of each of the two listeners, at most.
    pub of_each_listener: usize,
    /// To receivers of callbacks, at most.
    pub to_receivers: ToReceivers,
    /// To the resolver of this machine, for names of receivers: look-ups that hang keep theirs.
    pub look_ups: usize,
    /// Of the store, for the threads that read from it.
    pub of_store: usize,
    /// Of the listener for health alone, where there is one.
    pub of_health: usize,
}

impl Connections {
    /// Those that are not the listeners', nor to receivers.
    fn others(self) -> u64 {
        [self.look_ups, self.of_store, self.of_health].into_iter().map(whole).fold(OTHER_FILES, u64::saturating_add)
    }
}

/// Connections to receivers of callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToReceivers {
    /// Under attempts that have not taken long yet.
    pub attempts: usize,
    /// Under attempts that have.
    pub slow: usize,
    /// Kept for the next attempt.
    pub kept: usize,
}

impl ToReceivers {
    fn whole(self) -> u64 {
        whole(self.attempts).saturating_add(whole(self.slow)).saturating_add(whole(self.kept))
    }
}

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

/// How many connections the listeners take at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    /// That of merchants.
    pub merchants: usize,
    /// That of operators.
    pub operators: usize,
}

/// How many files this process may have open, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFiles {
    /// Most at once; `u64::MAX` where there is no limit.
    pub most: u64,
    /// What the settings call for.
    pub wanted: Connections,
}

impl OpenFiles {
    /// As many as the settings may call for.
    pub fn needed(&self) -> u64 {
        whole(self.wanted.of_each_listener).saturating_mul(LISTENERS).saturating_add(self.beside())
    }

    /// Those that are not the listeners'.
    fn beside(&self) -> u64 {
        self.wanted.to_receivers.whole().saturating_add(self.wanted.others())
    }

    /// How many connections the listeners take at once: fewer than the settings say where the files would not suffice, so that whoever connects
    /// leaves some for callbacks and the store. Where files are very few, the listeners have half of them.
    pub fn places(&self) -> Places {
        let wanted = self.wanted.of_each_listener;
        let left = self.most.saturating_sub(self.beside()).max(self.most.saturating_sub(self.wanted.others()) / 2);
        let of = |part: u64| usize::try_from(part.max(CONNECTIONS_LEAST)).unwrap_or(usize::MAX).min(wanted);
        if self.most >= self.needed() {
            return Places { merchants: wanted, operators: wanted };
        }
        Places { merchants: of(left - left / 4), operators: of(left / 4) }
    }

    /// How many connections go to receivers at once: as many as the settings say, or each kind its part of what the listeners leave. Receivers that
    /// hang leave some files for whoever connects, and for the store.
    pub fn to_receivers(&self) -> ToReceivers {
        let (wanted, Places { merchants, operators }) = (self.wanted.to_receivers, self.places());
        let others = self.wanted.others();
        let left = self.most.saturating_sub(others.saturating_add(whole(merchants)).saturating_add(whole(operators)));
        let all = wanted.whole();
        if left >= all {
            return wanted;
        }
        let part = |count: usize| {
            let part = u128::from(whole(count)) * u128::from(left) / u128::from(all);
            usize::try_from(part.max(u128::from(TO_RECEIVERS_LEAST))).unwrap_or(usize::MAX).min(count)
        };
        ToReceivers { attempts: part(wanted.attempts), slow: part(wanted.slow), kept: part(wanted.kept) }
    }

    /// What is wrong, for the log and `doctor`; none where they suffice.
    pub fn lack(&self) -> Option<String> {
        let (most, needed, Places { merchants, operators }) = (self.most, self.needed(), self.places());
        let callbacks = self.to_receivers().whole();
        (most < needed).then(|| {
            format!(
                "this process may open {most} files and the settings call for {needed}, so merchants have {merchants} connections at once, operators \
                 {operators}, and callbacks {callbacks}: raise the limit (systemd: LimitNOFILE={needed}), or lower limits.connections, \
                 callback_concurrency, callback_concurrency_slow and worker_threads"
            )
        })
    }
}

fn whole(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// Raises the number of files that may be open as far as the system allows.
pub fn allow_files(wanted: Connections) -> OpenFiles {
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised, what there is must do, and the caller says what is missing.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    OpenFiles { most, wanted }
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

    const WANTED: Connections = Connections {
        of_each_listener: 4_000,
        to_receivers: ToReceivers { attempts: 100, slow: 400, kept: 100 },
        look_ups: 0,
        of_store: 0,
        of_health: 0,
    };

    #[test]
    fn too_few_files_are_a_sentence_with_the_figures() {
        let of = |most| OpenFiles { most, wanted: WANTED };
        assert_eq!(of(8_728).lack(), None);
        let said = of(1_024).lack().expect("too few");
        for part in ["1024", "8728", "merchants have 336 connections", "callbacks 446", "LimitNOFILE"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn where_files_are_few_it_is_the_listeners_that_have_fewer() {
        let places = |most| {
            let Places { merchants, operators } = OpenFiles { most, wanted: WANTED }.places();
            (merchants, operators)
        };
        let some = [u64::MAX, 8_728, 8_727, 4_096, 1_024, 64].map(places);
        assert_eq!(some, [(4_000, 4_000), (4_000, 4_000), (4_000, 1_999), (2_526, 842), (336, 112), (8, 8)]);
        let few = OpenFiles { most: 64, wanted: Connections { of_each_listener: 2, ..WANTED } };
        assert_eq!(few.places(), Places { merchants: 2, operators: 2 }, "never more than the settings say");
    }

    #[test]
    fn where_files_are_few_receivers_have_what_the_listeners_leave_and_all_together_suffice() {
        let to_receivers = |most| {
            let ToReceivers { attempts, slow, kept } = OpenFiles { most, wanted: WANTED }.to_receivers();
            (attempts, slow, kept)
        };
        let some = [u64::MAX, 8_728, 4_096, 1_024, 512, 256, 64].map(to_receivers);
        let all = (100, 400, 100);
        assert_eq!(some, [all, all, all, (74, 298, 74), (32, 128, 32), (10, 42, 10), (4, 4, 4)]);
        for most in (256..9_000).step_by(7) {
            let files = OpenFiles { most, wanted: WANTED };
            let Places { merchants, operators } = files.places();
            let sum = files.to_receivers().whole() + whole(merchants + operators) + OTHER_FILES;
            assert!(sum <= most, "{sum} of {most}");
        }
        let few = ToReceivers { attempts: 1, slow: 2, kept: 3 };
        let files = OpenFiles { most: 64, wanted: Connections { of_each_listener: 2, to_receivers: few, ..WANTED } };
        assert_eq!(files.to_receivers(), few, "never more than the settings say");
    }

    #[test]
    fn what_look_ups_and_threads_of_the_store_take_is_left_to_them() {
        let wanted = Connections { look_ups: 320, of_store: 2_048, of_health: 64, ..WANTED };
        let of = |most| OpenFiles { most, wanted };
        assert_eq!(of(u64::MAX).needed(), 8_728 + 320 + 2_048 + 64);
        for most in (3_000..12_000).step_by(7) {
            let (Places { merchants, operators }, to_receivers) = (of(most).places(), of(most).to_receivers());
            let sum = to_receivers.whole() + whole(merchants + operators) + OTHER_FILES + 320 + 2_048 + 64;
            assert!(sum <= most, "{sum} of {most}");
        }
    }

    #[test]
    fn dumps_are_forbidden_by_the_limit_and_by_the_mark_that_counts_where_they_are_piped() {
        forbid_dumps().expect("it may be lowered");
        assert_eq!(dumps(), Dumps::Forbidden);
        assert_eq!(getrlimit(Resource::Core).maximum, Some(0));
    }

    #[test]
    fn files_are_raised_to_what_the_system_allows() {
        let files = allow_files(WANTED);
        assert_eq!(Some(files.most), getrlimit(Resource::Nofile).maximum.or(Some(u64::MAX)));
    }
}
