//! What a walk finds, line by line.

use countersign_domain::time::UnixMillis;

use super::*;

fn row(no: i64, action: &str) -> AuditRow {
    let empty = String::new;
    AuditRow {
        no,
        tenant: None,
        at: UnixMillis(no),
        actor: empty(),
        source: empty(),
        action: action.to_owned(),
        subject: empty(),
        before: empty(),
        after: empty(),
        request_id: empty(),
    }
}

fn line(no: i64, row: AuditRow, link: Option<Link>) -> ChainLine {
    ChainLine { place: ChainPlace(no, 0), row, link }
}

fn walked(key: &ChainKey, lines: &[ChainLine]) -> (ChainReport, Vec<i64>) {
    let last = lines.last().map_or(0, |line| line.row.no);
    let head = ChainHead { tenant: None, no: last, link: None };
    let mut walk = ChainWalk::new(key.clone(), [head], "begin");
    for line in lines {
        walk.line(line);
    }
    let (report, faults) = walk.end([head]);
    (report, faults.iter().map(|fault| fault.no).collect())
}

#[test]
fn behind_a_line_of_an_older_program_and_behind_a_gap_every_change_is_named_still() {
    let key = ChainKey::new(&[7; LINK_BYTES]);
    let (mut lines, mut last) = (Vec::new(), START);
    for no in 1..=10 {
        let row = row(no, "x");
        let link = (no != 3).then(|| link(&last, no, &key.mark(None, &row)));
        last = link.unwrap_or(last);
        lines.push(line(no, row, link));
    }
    assert_eq!(walked(&key, &lines).1, [3], "the older program's, and none of those that hang on the line before");
    lines[4].row.actor = "changed".to_owned();
    assert_eq!(walked(&key, &lines).1, [3, 5]);
    lines.remove(6);
    let (report, faults) = walked(&key, &lines);
    assert_eq!(faults, [3, 5, 7]);
    assert_eq!((report.lines, report.linked, report.unlinked), (9, 8, 0));
    lines[7].row.actor = "changed".to_owned();
    assert_eq!(walked(&key, &lines).1, [3, 5, 7, 9], "what lies behind the gap is looked at still");
}

#[test]
fn faults_are_named_up_to_a_bound() {
    let lines: Vec<ChainLine> = (1..=50).map(|no| line(no, row(no, "x"), Some([9; LINK_BYTES]))).collect();
    let faults = walked(&ChainKey::new(&[7; LINK_BYTES]), &lines).1;
    assert_eq!(faults, (1..=20).collect::<Vec<i64>>());
}

#[test]
fn keys_are_told_apart_by_their_fingerprints() {
    let one = ChainKey::new(&[7; LINK_BYTES]);
    assert_eq!(one.fingerprint(), one.clone().fingerprint());
    assert_ne!(one.fingerprint(), ChainKey::new(&[8; LINK_BYTES]).fingerprint());
    assert_ne!(one.fingerprint()[..], [7; 8]);
}

/// Lines that hold, each by a transaction of its own.
fn chain(key: &ChainKey, count: i64) -> Vec<ChainLine> {
    let mut last = START;
    let linked = |no| {
        let row = row(no, "x");
        last = link(&last, no, &key.mark(None, &row));
        line(no, row, Some(last))
    };
    (1..=count).map(linked).collect()
}

#[test]
fn of_two_heads_of_one_place_the_one_that_contradicts_is_found_whichever_comes_first() {
    let key = ChainKey::new(&[7; LINK_BYTES]);
    let lines = chain(&key, 3);
    let head = |link| ChainHead { tenant: None, no: 2, link };
    let (right, wrong) = (head(lines[1].link), head(Some([9; LINK_BYTES])));
    let found = |heads: &[ChainHead]| {
        let mut walk = ChainWalk::new(key.clone(), heads.iter().copied(), "begin");
        let counted = walk.heads_left();
        for line in &lines {
            walk.line(line);
        }
        let now = ChainHead { tenant: None, no: 3, link: lines[2].link };
        (counted, walk.end([now]).1.iter().map(|fault| fault.no).collect::<Vec<_>>())
    };
    assert_eq!(found(&[right, head(None), right]), (2, vec![]));
    for heads in [[right, wrong], [wrong, right], [head(None), wrong], [wrong, head(None)]] {
        assert_eq!(found(&heads), (2, vec![2]), "{heads:?}");
    }
}

#[test]
fn a_line_that_cannot_be_read_is_named_and_those_before_and_behind_it_are_looked_at() {
    let key = ChainKey::new(&[7; LINK_BYTES]);
    let found = |lines: &[ChainLine], unread: &[i64], has_link: bool| {
        let now = ChainHead { tenant: None, no: 6, link: lines[5].link };
        let kept = ChainHead { tenant: None, no: 3, link: lines[2].link };
        let mut walk = ChainWalk::new(key.clone(), [now, kept], "begin");
        for line in lines {
            if unread.contains(&line.row.no) {
                let link = line.link.filter(|_| has_link);
                walk.unreadable(&UnreadableLine { place: line.place, tenant: None, no: line.row.no, link });
            } else {
                walk.line(line);
            }
        }
        let (report, faults) = walk.end([now]);
        assert_eq!(report.lines, 6);
        faults.into_iter().map(|fault| fault.no).collect::<Vec<_>>()
    };
    let mut lines = chain(&key, 6);
    assert_eq!(found(&lines, &[3], true), [3]);
    assert_eq!(found(&lines, &[6], true), [6], "nothing is missing");
    assert_eq!(found(&lines, &[1, 2], true), [1, 2]);
    assert_eq!(found(&lines, &[3], false), [3, 4], "what hangs on a link that nobody knows");
    lines[0].row.actor = "changed".to_owned();
    lines[3].row.actor = "changed".to_owned();
    assert_eq!(found(&lines, &[3], true), [1, 3, 4], "each change is named still");
    lines[3].link = None;
    assert_eq!(found(&lines, &[3], true), [1, 3, 4, 5], "and a link that was taken away, with what hangs on it");
}

#[test]
fn a_chain_that_is_gone_as_a_whole_is_named_by_whose_it_was() {
    let key = ChainKey::new(&[7; LINK_BYTES]);
    let lines = chain(&key, 2);
    let head = ChainHead { tenant: None, no: 2, link: lines[1].link };
    let named = |lines: &[ChainLine], kept: &[ChainHead], gone: &[Option<TenantNo>]| {
        let mut walk = ChainWalk::new(key.clone(), kept.iter().copied(), "begin");
        walk.must_begin(gone.iter().copied());
        for line in lines {
            walk.line(line);
        }
        let faults = walk.end([head]).1;
        faults.into_iter().map(|fault| (fault.tenant, fault.no, fault.what)).collect::<Vec<_>>()
    };
    let whole = "the whole chain is missing: it begins with whose it is, in one transaction".to_owned();
    let both = [None, Some(TenantNo(3))];
    assert_eq!(named(&[], &[], &both), [(None, 1, whole.clone()), (Some(TenantNo(3)), 1, whole.clone())]);
    assert_eq!(named(&lines, &[head], &both), [(Some(TenantNo(3)), 1, whole)], "what is there is not gone");
    let kept = [head, ChainHead { tenant: Some(TenantNo(3)), no: 1, link: None }];
    assert_eq!(named(&[], &kept, &both).len(), 2, "each is named once, where its head was kept too");
}

#[test]
fn a_number_beyond_which_there_is_none_is_named_like_every_other() {
    let key = ChainKey::new(&[7; LINK_BYTES]);
    let lines = [1, i64::MAX, 2].map(|no| line(no, row(no, "x"), Some([9; LINK_BYTES])));
    assert!(walked(&key, &lines).1.contains(&2));
}
