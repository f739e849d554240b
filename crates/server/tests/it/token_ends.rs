//! An operator token that is in use and about to end.

use countersign_store::testing::Tampering;

use super::desk::Desk;

#[test]
fn doctor_and_the_log_name_a_token_in_use_that_is_about_to_end_and_never_show_it() {
    let desk = Desk::open();
    let made = desk.made("token create --name back-end --role operator --life-days 5");
    let [id, token] = ["token_id", "token"].map(|name| made[name].as_str().expect("a text"));
    desk.made("token create --name idle --role operator --life-days 5");
    let used = desk.command("merchant list").env("COUNTERSIGN_OPERATOR_TOKEN", token).output().expect("runs");
    assert!(used.status.success(), "{}", String::from_utf8_lossy(&used.stderr));
    let Desk { place, serving, .. } = desk;
    assert_eq!(serving.terminate(), Some(0));
    // Of its five days one is left.
    place.tamper(Tampering::AgeTokens(4 * 86_400_000));

    let wanted = format!("operator token {id} (back-end) ends at ");
    let free = ["doctor", "--data", "data", "--listen", "127.0.0.1:0", "--operator-listen", "127.0.0.1:0"];
    let (found, _) = place.ends(&free, 0);
    let warned: Vec<_> = found.lines().filter(|line| line.starts_with("warn  tokens")).collect();
    assert!(matches!(warned.as_slice(), [one] if one.contains(&wanted)), "{found}");

    let log = place.path("log");
    assert_eq!(place.serve_logging(&[], &log).terminate(), Some(0));
    let said = std::fs::read_to_string(log).expect("is read");
    let warned: Vec<_> = said.lines().filter(|line| line.contains("The operator token")).collect();
    let is_it = |line: &str| line.contains(&wanted) && line.contains("WARN") && line.contains(id);
    assert!(matches!(warned.as_slice(), [one] if is_it(one)), "{said}");
    assert!(!said.contains(token) && !found.contains(token), "{said}");
}
