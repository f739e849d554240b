use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::config::Config;
use crate::keys::master_key;
use crate::whole_file::beside;

fn folder() -> (tempfile::TempDir, DataDir) {
    let temporary = tempfile::tempdir().expect("a temporary folder can be made");
    let data = DataDir::create(&temporary.path().join("data")).expect("it can be made");
    (temporary, data)
}

#[test]
fn folder_and_key_are_their_owners_alone() {
    let (_keep, data) = folder();
    make_key(&data.master_key(), &Chance::default()).expect("it is made");
    assert_eq!(data.mode().expect("it is there"), 0o700);
    assert_eq!(mode_of(&data.master_key()).expect("it is there"), 0o600);
}

#[test]
fn a_key_reads_back_as_it_was_made_and_is_never_overwritten() {
    let (_keep, data) = folder();
    let made = make_key(&data.master_key(), &Chance::default()).expect("it is made");
    assert_eq!(*read_key(&data.master_key(), None).expect("it is read"), *made);
    assert_ne!(*made, [0; MASTER_KEY_BYTES]);
    assert!(make_key(&data.master_key(), &Chance::default()).is_err());
    assert_eq!(*read_key(&data.master_key(), None).expect("it is still read"), *made);
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let (_keep, data) = folder();
    make_key(&data.master_key(), &Chance::default()).expect("it is made");
    for mode in [0o640, 0o604, 0o644] {
        std::fs::set_permissions(data.master_key(), std::fs::Permissions::from_mode(mode)).expect("it is ours");
        let refused = read_key(&data.master_key(), None).expect_err("it is refused").to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
    }
}

#[test]
fn a_folder_is_the_same_node_at_every_start_and_no_other_folder_is() {
    let ((_keep, data), (_other_keep, other)) = (folder(), folder());
    let made = data.node_id(&Chance::default()).expect("it is made");
    assert_eq!(data.node_id(&Chance::default()).expect("it is read"), made);
    assert_ne!(other.node_id(&Chance::default()).expect("it is made"), made);
    std::fs::write(data.path().join("node.id"), "what").expect("it is ours");
    let refused = data.node_id(&Chance::default()).expect_err("it is refused").to_string();
    assert!(refused.contains("node.id") && refused.contains("remove it"), "{refused}");
}

#[test]
fn only_64_hex_digits_are_a_key() {
    let good = "0123456789abcdefABCDEF".repeat(3)[..64].to_owned();
    assert!(parse_key(&format!("{good}\n"), "x").is_ok());
    for bad in ["", "00", &good[1..], &format!("{good}0"), &good.replace('0', "g"), &good.replacen("01", "é", 1)] {
        assert!(matches!(parse_key(bad, "x"), Err(DataRefused::NotAKey(_))), "{bad}");
    }
}

#[test]
fn the_settings_say_where_the_key_is() {
    let (_keep, data) = folder();
    let own = make_key(&data.master_key(), &Chance::default()).expect("it is made");
    let other = make_key(&data.path().join("other.key"), &Chance::default()).expect("it is made");
    let mut config = Config::default();
    assert_eq!(*master_key(&config, &data).expect("it is read"), *own);
    config.master_key_file = crate::config::Optional(Some(data.path().join("other.key")));
    assert_eq!(*master_key(&config, &data).expect("it is read"), *other);
    config.master_key = crate::config::Optional(Some("11".repeat(32).into()));
    assert_eq!(*master_key(&config, &data).expect("it is read"), [0x11; 32]);
}

#[test]
fn a_folder_is_served_by_one_at_a_time() {
    let (_keep, data) = folder();
    let first = data.lock().expect("nobody has it");
    assert!(matches!(data.lock(), Err(DataRefused::Locked(_))));
    std::fs::remove_file(data.path().join("lock")).expect("somebody takes it for stale");
    assert!(matches!(data.lock(), Err(DataRefused::Locked(_))), "the folder is locked, too");
    drop(first);
    assert!(data.lock().is_ok());
}

#[test]
fn what_is_not_a_folder_is_refused_with_what_to_do() {
    let (_keep, data) = folder();
    let file = data.path().join("file");
    std::fs::write(&file, "").expect("it can be written");
    assert!(matches!(DataDir::create(&file), Err(DataRefused::NotAFolder(_))));
    assert!(matches!(DataDir::open(&file), Err(DataRefused::NotAFolder(_))));
    let missing = DataDir::open(&data.path().join("none")).expect_err("it is not there").to_string();
    assert!(missing.contains("countersign init"), "{missing}");
}

#[test]
fn a_folder_is_closed_to_others_unless_something_else_lives_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mounted");
    std::fs::create_dir(&path).expect("made");
    std::fs::create_dir(path.join("lost+found")).expect("made");
    let open = || std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    open();
    let data = DataDir::create(&path).expect("nothing else is there");
    assert_eq!(data.mode().expect("it is there"), 0o700);
    data.node_id(&Chance::default()).expect("it is made");
    for ours in [
        data.master_key(),
        data.database(),
        path.join("nonces-1.journal"),
        path.join("audit.chain"),
        data.timeline_file(),
    ] {
        std::fs::write(ours, "").expect("written");
    }
    open();
    DataDir::create(&path).expect("these are its own");
    std::fs::write(path.join("notes.txt"), "").expect("written");
    DataDir::create(&path).expect("nobody else may enter it");
    open();
    let refused = DataDir::create(&path).expect_err("others may").to_string();
    assert!(refused.contains("holds notes.txt") && refused.contains("chmod 700"), "{refused}");
    assert_eq!(data.mode().expect("it is there"), 0o755, "as it was");
}

#[test]
fn a_link_that_waits_for_the_database_in_an_open_folder_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("open");
    std::fs::create_dir(&path).expect("made");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).expect("it is ours");
    std::os::unix::fs::symlink(folder.path().join("elsewhere.db"), path.join("countersign.db")).expect("links");
    let refused = DataDir::create(&path).expect_err("the rows would be elsewhere").to_string();
    assert!(refused.contains("holds the link countersign.db"), "{refused}");
}

#[test]
fn the_timeline_that_was_noted_last_is_read_again_and_what_is_none_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = DataDir::create(&folder.path().join("data")).expect("it is made");
    assert_eq!(data.timeline_seen().expect("nothing is noted"), None);
    for timeline in [1, 2] {
        data.note_timeline("7412345678901234567", timeline).expect("is written");
        assert_eq!(data.timeline_seen().expect("is read"), Some(("7412345678901234567".to_owned(), timeline)));
    }
    for text in ["", "2", " 2", "7412345678901234567 two"] {
        std::fs::write(data.timeline_file(), text).expect("written");
        let refused = data.timeline_seen().expect_err(text).to_string();
        assert!(refused.contains("database.timeline does not hold"), "{text}: {refused}");
    }
    assert_eq!(DataDir::named(&folder.path().join("none")).timeline_seen().expect("no folder"), None);
}

#[test]
fn a_credential_of_systemd_may_show_a_group_and_nothing_else_may() {
    let folder = tempfile::tempdir().expect("a folder");
    let (own, other) = (folder.path().join("own"), folder.path().join("other"));
    std::fs::create_dir(&own).expect("made");
    std::fs::create_dir(&other).expect("made");
    let file = own.join("master.key");
    std::fs::write(&file, "ab".repeat(32)).expect("written");
    let as_mode = |mode, credentials: Option<&Path>| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("set");
        read_key(&file, credentials).is_ok()
    };
    assert!(as_mode(0o440, Some(&own)), "as an access list makes it look");
    for (mode, credentials) in [
        (0o440, None),
        (0o440, Some(&*other)),
        (0o444, Some(&*own)),
        (0o460, Some(&*own)),
        (0o640, Some(folder.path())),
    ] {
        assert!(!as_mode(mode, credentials), "{mode:o} {credentials:?}");
    }
}

#[test]
fn what_root_writes_into_the_folder_of_another_user_is_that_users() {
    // Only root can give a file away; the containers that run the tests are its.
    if !geteuid().is_root() {
        return;
    }
    let (_keep, data) = folder();
    let (uid, gid) = (65_534, 65_533);
    std::os::unix::fs::chown(data.path(), Some(uid), Some(gid)).expect("it is ours to give");
    data.note_chain_key("f").expect("it is written");
    let written = std::fs::metadata(data.chain_key_file()).expect("it is there");
    assert_eq!((written.uid(), written.gid(), written.mode() & 0o777), (uid, gid, 0o600));
}

#[test]
fn nothing_is_written_through_a_link_that_stands_where_a_file_is_to_be_made() {
    let (_keep, data) = folder();
    let (there, nowhere) = (data.path().join("victim"), data.path().join("nowhere"));
    std::fs::write(&there, "as it was").expect("is written");
    for target in [&there, &nowhere] {
        let begun = [data.chain_key_file(), data.path().join("node.id")];
        let begun = begun.map(|file| beside(&file, "unfinished").expect("it has a name"));
        for link in begun.iter().chain([&data.path().join("lock")]) {
            std::os::unix::fs::symlink(target, link).expect("is made");
        }
        data.note_chain_key("f").expect("in the place of the link");
        data.node_id(&Chance::default()).expect("alike");
        assert_eq!(std::fs::read_to_string(&there).expect("is there"), "as it was");
        let _ = data.lock();
        assert!(!nowhere.exists(), "the lock is not made there either");
        for name in ["audit.chain", "node.id", "lock"] {
            std::fs::remove_file(data.path().join(name)).expect("is removed");
        }
    }
}

#[test]
fn the_name_of_each_folder_that_was_made_is_put_on_the_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let (outer, inner) = (folder.path().join("a"), folder.path().join("a/b"));
    let mut synced = Vec::new();
    let mut sync = |made: &Path| {
        synced.push(made.to_owned());
        // A folder around it that may not be read is none that can be asked.
        if made.ends_with("a") { Err(ErrorKind::PermissionDenied.into()) } else { Ok(()) }
    };
    make_folders(&inner, &mut sync).expect("they are made");
    make_folders(&inner, &mut sync).expect("they are there");
    assert_eq!(synced, [inner, outer]);
    let broken = |_: &Path| Err(ErrorKind::StorageFull.into());
    let said = make_folders(&folder.path().join("c"), broken).expect_err("it is not for good").to_string();
    assert!(said.contains("cannot be put on the disk"), "{said}");
}
