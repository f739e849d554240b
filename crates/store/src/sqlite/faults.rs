//! Faults that tests put into the path of a commit. Outside of tests there are none, and to ask for one costs nothing.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The writer panics in its next transaction.
    Panic,
    /// The log cannot be synced at a commit.
    LostCommit,
    /// The database file cannot be synced at a checkpoint.
    LostSync,
}

/// The faults that happen now.
#[derive(Debug, Default)]
pub(super) struct Faults {
    #[cfg(test)]
    happening: std::sync::Mutex<Vec<Fault>>,
}

#[cfg(not(test))]
const _: () = assert!(size_of::<Faults>() == 0);

impl Faults {
    /// Whether this fault happens now.
    pub(super) fn has(&self, fault: Fault) -> bool {
        #[cfg(test)]
        let has = self.happening.lock().expect("nobody panicked").contains(&fault);
        #[cfg(not(test))]
        let has = {
            let _ = (self, fault);
            false
        };
        has
    }

    /// From now on this fault happens.
    #[cfg(test)]
    pub(super) fn begin(&self, fault: Fault) {
        self.happening.lock().expect("nobody panicked").push(fault);
    }

    /// From now on no fault happens.
    #[cfg(test)]
    pub(super) fn end(&self) {
        self.happening.lock().expect("nobody panicked").clear();
    }
}
