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

#[test]
fn of_two_heads_of_one_place_the_one_that_contradicts_is_found_whichever_comes_first() {
    let key = ChainKey::new(&[7; LINK_BYTES]);
    let (mut lines, mut last) = (Vec::new(), START);
    for no in 1..=3 {
        let row = row(no, "x");
        last = link(&last, no, &key.mark(None, &row));
        lines.push(line(no, row, Some(last)));
    }
    let head = |link| ChainHead { tenant: None, no: 2, link };
    let (right, wrong) = (head(lines[1].link), head(Some([9; LINK_BYTES])));
    let found = |heads: &[ChainHead]| {
        let mut walk = ChainWalk::new(key.clone(), heads.iter().copied(), "begin");
        let counted = walk.heads_left();
        for line in &lines {
            walk.line(line);
        }
        let now = ChainHead { tenant: None, no: 3, link: Some(last) };
        (counted, walk.end([now]).1.iter().map(|fault| fault.no).collect::<Vec<_>>())
    };
    assert_eq!(found(&[right, head(None), right]), (2, vec![]));
    for heads in [[right, wrong], [wrong, right], [head(None), wrong], [wrong, head(None)]] {
        assert_eq!(found(&heads), (2, vec![2]), "{heads:?}");
    }
}
