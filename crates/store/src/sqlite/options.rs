//! How a SQLite store is opened.

use std::fmt;

/// How a SQLite store is opened. [`SqliteOptions::new`] has the shipped settings.
#[derive(Clone)]
pub struct SqliteOptions {
    /// Batches in one transaction at most; 1 is the yardstick of the benchmark.
    pub group_max: usize,
    /// Batches that may wait for the writer; one more is answered `Unavailable` at once.
    pub queue_max: usize,
    /// 16 random bytes: the key of nonce hashes if this opening makes the file. Later openings use the stored one.
    pub window_key: [u8; 16],
    /// Names the boot of this machine (`/proc/sys/kernel/random/boot_id`). Another one than at the last opening means that unsynced
    /// writes may be lost. Empty: unknown, taken as another one.
    pub boot_id: String,
    /// Pages of the log (4 KiB each) that call for a checkpoint.
    pub checkpoint_pages: u32,
    /// Whether nonce journals that are damaged are written anew, with what is good in them. Only who serves does so: else the next start would
    /// find them whole, and nobody would hear of it.
    pub mends_journal: bool,
    /// How long to wait for a lock that another program holds on the file, in ms.
    pub busy_ms: u32,
}

impl SqliteOptions {
    /// The shipped settings.
    pub fn new(window_key: [u8; 16], boot_id: impl Into<String>) -> Self {
        Self {
            group_max: 512,
            queue_max: 8192,
            window_key,
            boot_id: boot_id.into(),
            checkpoint_pages: 8192,
            mends_journal: true,
            busy_ms: 5000,
        }
    }
}

impl fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("group_max", &self.group_max)
            .field("queue_max", &self.queue_max)
            .field("boot_id", &self.boot_id)
            .field("checkpoint_pages", &self.checkpoint_pages)
            .field("mends_journal", &self.mends_journal)
            .field("busy_ms", &self.busy_ms)
            .finish_non_exhaustive()
    }
}
