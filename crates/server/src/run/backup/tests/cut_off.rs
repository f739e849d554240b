//! A restore into PostgreSQL that was cut off before anything was in the database.

use countersign_store::PostgresStore;

use super::*;

pub(super) fn opened(file: &Path) -> Source {
    Source::open(file).expect("it is a file")
}

/// The first half of a backup.
fn half_of(place: &Place, file: &Path) -> PathBuf {
    let (half, bytes) = (place.path("half"), std::fs::read(file).expect("it is read"));
    std::fs::write(&half, &bytes[..bytes.len() / 2]).expect("it is written");
    half
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_was_cut_off_while_it_unpacked_begins_anew() {
    let (place, database) = (Place::new().await, Fresh::new().await);
    let (file, trailer) = place.backup("backup").await;
    let config = place.elsewhere("restored", Some(database.url()));
    let data = DataDir::create(&config.data).expect("it can be made");
    let work = Work::in_folder(&data);
    let half = half_of(&place, &file);
    let refused = work.unpack(&opened(&half), &trailer).expect_err("it comes to its end too early");
    assert!(refused.to_string().starts_with(&format!("{} cannot be read", half.display())), "{refused:#}");
    let full = |_: &[u8]| bail!("the copy cannot be written");
    let refused = opened(&file).unpack(trailer.bytes, full).expect_err("it is not taken");
    assert_eq!(format!("{refused:#}"), "the copy cannot be written", "and nothing is said of the backup");
    assert!(work.folder.exists() && !work.copy.exists(), "a half is not called a copy");
    // Whoever was killed has left it.
    std::fs::write(beside(&work.copy, "unfinished").expect("it has a name"), "half of it").expect("it is written");
    assert_eq!(restore(&config, &file).await.expect("it begins anew").trailer, trailer);
    assert!(!work.folder.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_was_damaged_after_it_was_left_is_named_and_may_be_removed() {
    let (place, database) = (Place::new().await, Fresh::new().await);
    let (file, trailer) = place.backup("backup").await;
    let config = place.elsewhere("restored", Some(database.url()));
    let data = DataDir::create(&config.data).expect("it can be made");
    let work = Work::in_folder(&data);
    let whole = usize::try_from(trailer.bytes).expect("it is small");
    let bytes = std::fs::read(&file).expect("it is read");
    for left in [&bytes[..whole / 2], &[b'x'; 8192]] {
        work.unpack(&opened(&file), &trailer).expect("it is whole");
        std::fs::write(&work.copy, left).expect("it is written");
        let said = refused(restore(&config, &file)).await;
        assert!(said.contains("restoring/countersign.db, which an earlier restore left, is damaged"), "{said}");
        assert!(said.contains(&format!("remove {} and", work.folder.display())), "{said}");
    }
    std::fs::remove_dir_all(&work.folder).expect("as told");
    restore(&config, &file).await.expect("it begins anew");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_is_damaged_behind_the_mark_of_its_move_is_named_too() {
    let (place, database, other) = (Place::new().await, Fresh::new().await, Fresh::new().await);
    let (file, trailer) = place.backup("backup").await;
    let config = place.elsewhere("restored", Some(database.url()));
    let data = DataDir::create(&config.data).expect("it can be made");
    let work = Work::in_folder(&data);
    work.unpack(&opened(&file), &trailer).expect("it is whole");
    let order = place.order(work.copy.clone(), &database.url());
    let here = tokio::task::LocalSet::new();
    let moving = here.spawn_local(moving::run(order, |_| panic!("it dies here")));
    assert!(here.run_until(moving).await.expect_err("it died").is_panic());
    assert!(matches!(SqliteStore::move_mark(&work.copy), Ok(Some(MoveMark::Begun(_)))));
    let copy = OpenOptions::new().write(true).open(&work.copy).expect("it is there");
    let bytes = copy.metadata().expect("it has a size").len();
    // A page that only the move reads, and such as are read before it.
    for kept in [bytes - 4096, bytes / 4 * 3] {
        copy.set_len(kept).and_then(|()| copy.set_len(bytes)).expect("it can be emptied from there on");
        let said = refused(restore(&config, &file)).await;
        assert!(said.contains("which an earlier restore left, is damaged: remove"), "{kept}: {said}");
    }
    assert!(work.folder.exists(), "it is not this command's to remove");
    std::fs::remove_dir_all(&work.folder).expect("as told");
    restore(&place.elsewhere("restored", Some(other.url())), &file).await.expect("an empty database takes it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_was_cut_off_at_its_end_may_be_complete_and_is_settled_when_it_is_run_again() {
    let (place, database) = (Place::new().await, Fresh::new().await);
    let (file, trailer) = place.backup("backup").await;
    let config = place.elsewhere("restored", Some(database.url()));
    let options = postgres_options(&config, &database.url()).expect("it can be reached");
    PostgresStore::migrate(&options).await.expect("it is made");
    database.refuse_unless("move_record", "completed_at IS NULL").await;
    let said = refused(restore(&config, &file)).await;
    assert!(said.starts_with("whether it was restored is not known: the database may be complete"), "{said}");
    database.refuse_no_more("move_record").await;
    assert_eq!(restore(&config, &file).await.expect("it goes on").trailer, trailer);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restore_that_is_repeated_after_its_end_says_whether_callbacks_are_still_held() {
    let (place, database) = (Place::new().await, Fresh::new().await);
    let (file, trailer) = place.backup("backup").await;
    let config = place.elsewhere("restored", Some(database.url()));
    let data = DataDir::create(&config.data).expect("it can be made");
    let work = Work::in_folder(&data);
    // As whoever was killed before the folder was removed has left it, twice.
    work.make_ready(&config, &opened(&file), &trailer, None, false).expect("it is whole");
    moving::run(place.order(work.copy.clone(), &database.url()), |_| {}).await.expect("it comes to its end");
    let kept = place.path("kept");
    let copy_all = |from: &Path, to: &Path| {
        std::fs::create_dir_all(to).expect("made");
        for entry in std::fs::read_dir(from).expect("is read") {
            let entry = entry.expect("is read");
            std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
        }
    };
    copy_all(&work.folder, &kept);
    assert!(restore(&config, &file).await.expect("nothing is left to do").is_held);
    assert!(!work.folder.exists());

    let app = open_app(&config, Clock::System, None).await.expect("it opens");
    let since = app.store.setting(DELIVERY_HELD).await.expect("reads");
    assert!(since.is_some());
    let release = Write::MoveSetting { name: DELIVERY_HELD.to_owned(), from: since, to: String::new() };
    app.store.commit(Batch(vec![release])).await.expect("is released");
    close_store(&app.store).expect("it closes");
    copy_all(&kept, &work.folder);
    assert!(!restore(&config, &file).await.expect("nothing is left to do").is_held);
}
