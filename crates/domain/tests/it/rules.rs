use RuleState::{Effective, Expired, Invalidated, PendingEffective, Superseded};
use countersign_domain::ids::SortedId;
use countersign_domain::rules::{
    Markup, MarkupRefused, Newer, RuleAsk, RuleHead, RuleRefused, RuleState, RuleVersion, create, in_force, pending,
    state, states, upgrade,
};
use countersign_domain::time::UnixMillis;
use rust_decimal::Decimal;

fn markup(r: &str, f: &str) -> Result<Markup, MarkupRefused> {
    let exact = |text| Decimal::from_str_exact(text).expect("a number");
    Markup::new(exact(r), exact(f))
}

fn ask(effective: i64, due: Option<i64>) -> RuleAsk {
    let markup = markup("0.3", "0").expect("within bounds");
    RuleAsk { markup, effective_at: UnixMillis(effective), due_at: due.map(UnixMillis) }
}

/// All versions of a sub-account, oldest first, as a store would have them.
#[derive(Default)]
struct Rows(Vec<RuleVersion>);

impl Rows {
    fn head(&self) -> Option<RuleHead> {
        let last = self.0.last()?.clone();
        let base = last.base_version_no.map(|no| self.0[usize::try_from(no).expect("positive") - 1].clone());
        Some(RuleHead { last, base })
    }

    fn upgrade(&mut self, now: i64, effective: i64, due: Option<i64>) -> &mut Self {
        let made = upgrade(self.head().as_ref(), &ask(effective, due), UnixMillis(now), 7).expect("a good period");
        self.0.push(made);
        self
    }

    fn states(&self, now: i64) -> Vec<RuleState> {
        let newest_first: Vec<_> = self.0.iter().rev().cloned().collect();
        let mut states = states(&newest_first, UnixMillis(now));
        states.reverse();
        states
    }

    fn in_force(&self, at: i64) -> Option<i64> {
        self.head().and_then(|h| in_force(&h, UnixMillis(at)).map(|v| v.version_no))
    }
}

#[test]
fn markups_outside_their_bounds_are_refused_and_zeros_at_the_end_do_not_count() {
    use MarkupRefused::{Fixed, Percentage};
    let table = [
        ("0", "0", Ok(("0", "0"))),
        ("-0", "-0", Ok(("0", "0"))),
        ("0.30", "1.500", Ok(("0.3", "1.5"))),
        ("100", "5000000", Ok(("100", "5000000"))),
        ("100.0000000000", "5000000.0000000", Ok(("100", "5000000"))),
        ("12.34567891", "0.000001", Ok(("12.34567891", "0.000001"))),
        ("12.345678912", "0", Err(Percentage)),
        ("100.00000001", "0", Err(Percentage)),
        ("-0.1", "0", Err(Percentage)),
        ("0", "0.0000001", Err(Fixed)),
        ("0", "5000000.000001", Err(Fixed)),
        ("0", "-0.000001", Err(Fixed)),
        ("0", "99999999999999999999", Err(Fixed)),
        ("101", "-1", Err(Percentage)), // The first that applies is the answer.
    ];
    for (r, f, wanted) in table {
        let got = markup(r, f).map(|m| (m.r().to_string(), m.f().to_string()));
        assert_eq!(got, wanted.map(|(r, f)| (r.to_owned(), f.to_owned())), "{r} {f}");
    }
}

#[test]
fn the_first_version_has_number_1_and_no_previous() {
    let first = upgrade(None, &ask(500, Some(900)), UnixMillis(100), 42).expect("a good period");
    assert_eq!((first.version_no, first.previous, first.base_version_no), (1, None, None));
    assert_eq!(
        (first.effective_at, first.due_at, first.created_at),
        (UnixMillis(500), Some(UnixMillis(900)), UnixMillis(100))
    );
    assert_eq!(first.config_id, SortedId::new(UnixMillis(100), 42));
    assert_eq!(first.starts_at(), UnixMillis(500));
}

#[test]
fn a_past_effective_date_starts_at_creation() {
    let mut rows = Rows::default();
    rows.upgrade(100, 20, None);
    assert_eq!(rows.0[0].effective_at, UnixMillis(20), "as asked for");
    assert_eq!((rows.in_force(99), rows.in_force(100)), (None, Some(1)));
}

#[test]
fn a_due_date_must_be_after_the_effective_date_and_after_now() {
    for (now, effective, due, good) in [
        (100, 200, Some(200), false),
        (100, 200, Some(199), false),
        (100, 200, Some(201), true),
        (100, 50, Some(100), false),
        (100, 50, Some(99), false),
        (100, 50, Some(101), true),
        (100, 50, None, true),
    ] {
        let made = upgrade(None, &ask(effective, due), UnixMillis(now), 0);
        assert_eq!(made.is_ok(), good, "{now} {effective} {due:?}");
        assert!(good || made == Err(RuleRefused::Period));
    }
}

#[test]
fn an_upgrade_keeps_the_rule_in_force_until_its_own_time() {
    let mut rows = Rows::default();
    rows.upgrade(100, 100, None).upgrade(200, 300, None);
    assert_eq!([299, 300].map(|at| rows.in_force(at)), [Some(1), Some(2)]);
    assert_eq!(rows.states(299), [Effective, PendingEffective]);
    assert_eq!(rows.states(300), [Superseded, Effective]);
    assert_eq!(rows.0[1].previous, Some(rows.0[0].config_id));
}

#[test]
fn an_upgrade_invalidates_what_is_pending() {
    let mut rows = Rows::default();
    rows.upgrade(100, 100, None).upgrade(200, 300, None).upgrade(250, 400, None);
    assert_eq!([300, 399, 400].map(|at| rows.in_force(at)), [Some(1), Some(1), Some(3)]);
    assert_eq!(rows.states(249), [Effective, PendingEffective, PendingEffective], "version 3 is not made yet");
    assert_eq!(rows.states(250), [Effective, Invalidated, PendingEffective]);
    assert_eq!(rows.states(400), [Superseded, Invalidated, Effective]);
    assert_eq!(rows.0[2].base_version_no, Some(1));
    assert_eq!(rows.0[2].previous, Some(rows.0[1].config_id), "the version made just before, whatever its state");
}

#[test]
fn a_version_that_started_in_the_instant_of_an_upgrade_is_superseded_not_invalidated() {
    let mut rows = Rows::default();
    rows.upgrade(100, 200, None).upgrade(200, 300, None);
    assert_eq!(rows.states(200), [Effective, PendingEffective]);
    assert_eq!(rows.0[1].base_version_no, Some(1));
}

#[test]
fn a_due_date_is_exclusive_and_nothing_older_comes_back() {
    let mut rows = Rows::default();
    rows.upgrade(100, 100, None).upgrade(200, 200, Some(300));
    assert_eq!([299, 300, 9_999].map(|at| rows.in_force(at)), [Some(2), None, None]);
    assert_eq!(rows.states(300), [Superseded, Expired]);
    rows.upgrade(400, 400, None);
    assert_eq!(rows.states(400), [Superseded, Expired, Effective], "what expired stays expired");
}

#[test]
fn what_ended_by_its_replacement_does_not_expire_later() {
    let mut rows = Rows::default();
    rows.upgrade(100, 100, Some(500)).upgrade(200, 300, None);
    assert_eq!(rows.states(600), [Superseded, Effective]);
    let mut tied = Rows::default();
    tied.upgrade(100, 100, Some(300)).upgrade(200, 300, None);
    assert_eq!(tied.states(300), [Expired, Effective], "due in the instant of its replacement: it had ended by itself");
}

#[test]
fn a_version_is_replaced_by_the_first_that_starts_not_by_the_next_made() {
    let mut rows = Rows::default();
    rows.upgrade(100, 100, Some(350)).upgrade(200, 300, None).upgrade(250, 400, None);
    assert_eq!(rows.states(349), [Effective, Invalidated, PendingEffective]);
    assert_eq!(rows.states(350), [Expired, Invalidated, PendingEffective], "version 2 never started");
    assert_eq!(rows.states(400), [Expired, Invalidated, Effective]);
}

#[test]
fn creation_is_refused_where_a_rule_is_effective_or_pending() {
    let try_create =
        |rows: &Rows, now| create(rows.head().as_ref(), &ask(0, None), UnixMillis(now), 0).map(|v| v.version_no);
    let mut rows = Rows::default();
    assert_eq!(try_create(&rows, 100), Ok(1));
    rows.upgrade(100, 300, Some(400));
    assert_eq!(try_create(&rows, 200), Err(RuleRefused::Exists), "pending");
    assert_eq!(try_create(&rows, 399), Err(RuleRefused::Exists), "effective");
    assert_eq!(try_create(&rows, 400), Ok(2), "expired");
    let period = create(rows.head().as_ref(), &ask(500, Some(500)), UnixMillis(350), 0);
    assert_eq!(period, Err(RuleRefused::Period), "the first that applies is the answer");
}

#[test]
fn a_clock_that_went_back_neither_reorders_versions_nor_their_ids() {
    let mut rows = Rows::default();
    rows.upgrade(100, 100, None).upgrade(90, 90, None).upgrade(100, 100, None);
    let made: Vec<_> = rows.0.iter().map(|v| (v.version_no, v.created_at.0)).collect();
    assert_eq!(made, [(1, 100), (2, 100), (3, 100)]);
    assert!(rows.0.is_sorted_by(|a, b| a.config_id < b.config_id));
    assert_eq!(rows.in_force(100), Some(3));
}

#[test]
fn only_the_last_version_made_can_be_pending() {
    let mut rows = Rows::default();
    rows.upgrade(100, 300, None).upgrade(200, 200, None);
    let head = rows.head().expect("two versions");
    assert_eq!(pending(&head, UnixMillis(200)), None);
    assert_eq!(rows.states(200), [Invalidated, Effective]);
    assert_eq!(state(&rows.0[0], Newer::NONE, UnixMillis(200)), PendingEffective, "had nothing newer been made");
}

#[test]
fn states_have_names_and_ends_stay_ends() {
    let names: Vec<_> = RuleState::ALL.into_iter().map(RuleState::name).collect();
    assert_eq!(names.join(" "), "EFFECTIVE PENDING_EFFECTIVE INVALIDATED SUPERSEDED EXPIRED");
    assert!(RuleState::ALL.into_iter().all(|s| RuleState::from_name(s.name()) == Some(s)));
    let moves = [
        (PendingEffective, Effective),
        (PendingEffective, Invalidated),
        (PendingEffective, Superseded),
        (PendingEffective, Expired),
        (Effective, Superseded),
        (Effective, Expired),
    ];
    for from in RuleState::ALL {
        for to in RuleState::ALL {
            assert_eq!(from.may_become(to), moves.contains(&(from, to)), "{from:?} {to:?}");
        }
    }
}
