//! Which store a run of the tests is about, where a test runs on either.

/// Its variable.
pub const VARIABLE: &str = "TESTKIT_STORE";

/// The store under whole servers and applications in this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// A file in the data folder.
    Sqlite,
    /// A database of the run's cluster.
    Postgres,
}

impl Chosen {
    /// What `TESTKIT_STORE` says; SQLite where it says nothing. Panics at any other word: a run must not test something else in silence.
    #[expect(clippy::disallowed_methods, reason = "a choice of the test run is no configuration of the product")]
    pub fn of_this_run() -> Self {
        match std::env::var(VARIABLE) {
            Err(std::env::VarError::NotPresent) => Self::Sqlite,
            Err(error) => panic!("{VARIABLE} cannot be read: {error}"),
            Ok(word) => Self::named(&word).unwrap_or_else(|| panic!("{VARIABLE} is sqlite or postgres, not {word:?}")),
        }
    }

    /// The store of this name.
    pub fn named(word: &str) -> Option<Self> {
        match word {
            "sqlite" => Some(Self::Sqlite),
            "postgres" => Some(Self::Postgres),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Chosen;

    #[test]
    fn each_store_has_one_name_and_other_words_have_none() {
        assert_eq!(
            (Chosen::named("sqlite"), Chosen::named("postgres")),
            (Some(Chosen::Sqlite), Some(Chosen::Postgres))
        );
        for word in ["", "Postgres", "postgresql", "sqlite ", "model"] {
            assert_eq!(Chosen::named(word), None, "{word:?}");
        }
    }
}
