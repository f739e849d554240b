//! In which order secrets are written, and how long an application has one.

use countersign_domain::ids::{ApplicationNo, MerchantNo, TenantNo};
use countersign_store::testing::rows;

use super::*;

fn secret(secret_id: &str) -> SecretRow {
    rows::secret(secret_id, ApplicationNo(1))
}

#[test]
fn secrets_are_written_in_the_order_in_which_their_uses_are_noted() {
    let application = rows::application(ApplicationNo(1), "app_1", MerchantNo(1), TenantNo(1));
    let newest_first = ["sec_3", "sec_2", "sec_1"].map(secret).to_vec();
    let order: Vec<String> = changed(&application, newest_first)
        .into_iter()
        .filter_map(|write| if let Write::UpdateSecret(row) = write { Some(row.secret_id) } else { None })
        .collect();
    assert_eq!(order, ["sec_1", "sec_2", "sec_3"]);
}

#[test]
fn a_change_says_how_long_the_application_has_a_secret() {
    let now = UnixMillis(100);
    let until = |secret_id: &str, end: Option<i64>| SecretRow { not_after: end.map(UnixMillis), ..secret(secret_id) };
    let [stays, tomorrow, today, over] =
        [("s", None), ("t", Some(300)), ("d", Some(200)), ("o", Some(100))].map(|(id, end)| until(id, end));
    let of = |changed: &SecretRow, all: &[&SecretRow]| {
        let all: Vec<SecretRow> = all.iter().map(|row| (*row).clone()).collect();
        let change = SecretChange::of(changed.clone(), &all, now);
        (change.live, change.live_end_at.map(|at| at.0))
    };
    let revoked = |row: &SecretRow| SecretRow { revoked_at: Some(now), ..row.clone() };

    assert_eq!(of(&revoked(&stays), &[&stays, &today, &tomorrow, &over]), (2, Some(300)), "the last of those that end");
    assert_eq!(of(&revoked(&today), &[&stays, &today, &tomorrow]), (2, None), "one stays");
    assert_eq!(of(&revoked(&stays), &[&stays, &over]), (0, None), "none is left");
    assert_eq!(of(&tomorrow, &[&tomorrow, &today]), (2, Some(300)), "a secret that stays as it is counts, too");
}
