//! Which rule is in force, read from the words of the contract: an upgrade invalidates what is pending, a rule is in force from its time, but
//! never before it was made, until its due date, and what a newer one has replaced never comes back.

/// A version, as it was asked for.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) r: String,
    pub(super) f: String,
    pub(super) made_at: i64,
    pub(super) effective_at: i64,
    pub(super) due_at: Option<i64>,
}

/// The number of the version in force at `at`, counted from 1, with the version.
pub(super) fn in_force(versions: &[Version], at: i64) -> Option<(usize, &Version)> {
    let mut started: Option<(usize, &Version)> = None;
    let mut pending: Option<(usize, &Version)> = None;
    for (number, version) in (1..).zip(versions.iter().filter(|version| version.made_at <= at)) {
        // What was pending has begun by the time of this one, or never does.
        started = pending.filter(|(_, before)| before.effective_at <= version.made_at).or(started);
        pending = None;
        if version.effective_at <= version.made_at {
            started = Some((number, version));
        } else {
            pending = Some((number, version));
        }
    }
    started = pending.filter(|(_, version)| version.effective_at <= at).or(started);
    started.filter(|(_, version)| version.due_at.is_none_or(|due| at < due))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_is_read_as_the_contract_says() {
        let version = |made_at, effective_at, due_at| Version {
            r: "1".to_owned(),
            f: "0".to_owned(),
            made_at,
            effective_at,
            due_at,
        };
        let versions = [
            version(10, 5, None),
            version(20, 30, None),
            version(40, 90, None),
            version(50, 50, Some(60)),
            version(70, 80, None),
        ];
        let table = [
            (9, None),
            (10, Some(1)),
            (29, Some(1)),
            (30, Some(2)),
            (45, Some(2)),
            (50, Some(4)),
            (59, Some(4)),
            (60, None),
            (79, None),
            (80, Some(5)),
            (99, Some(5)),
        ];
        for (at, expected) in table {
            assert_eq!(in_force(&versions, at).map(|(number, _)| number), expected, "at {at}");
        }
    }
}
