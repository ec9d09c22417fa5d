use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bytes::Bytes;
use tempfile::TempDir;

use super::step::{Script, run};
use super::*;
use crate::store::{Durability, Expect, MAX_DOCUMENT_BYTES, StoreExt};

fn key(text: &str) -> Key {
    Key::parse(text).expect("a key")
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn open(at: &TempDir) -> FileStore {
    FileStore::open(&at.path().join("store"), FileOptions::default()).expect("opened")
}

fn open_at_boot(at: &TempDir, boot: &str) -> FileStore {
    let options = FileOptions { boot_id: Some(boot.to_owned()), ..FileOptions::default() };
    FileStore::open(&at.path().join("store"), options).expect("opened")
}

fn file(at: &TempDir, below: &str) -> PathBuf {
    at.path().join("store").join(below)
}

fn stored(put: Result<Put, StoreError>) -> Version {
    match put {
        Ok(Put::Stored(version)) => version,
        other => panic!("{other:?}"),
    }
}

fn write(text: &str, expect: Expect, body: &str, durability: Durability) -> Write {
    Write { key: key(text), expect, body: Some(Bytes::from(body.to_owned())), durability }
}

/// Writes on this thread, where a script can be running.
fn put_here(store: &FileStore, write: Write) -> Result<Put, StoreError> {
    let deadline = Instant::now() + Duration::from_secs(1);
    store.shared.put_many(&[write], deadline).pop().expect("one outcome")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(1)
}

fn body_here(store: &FileStore, text: &str) -> Option<String> {
    let read = store.shared.get_many(&[key(text)], soon()).expect("read").pop().flatten();
    read.map(|document| String::from_utf8(document.body.to_vec()).expect("text"))
}

fn words(error: &StoreError) -> String {
    format!("{error}: {}", error.source)
}

#[tokio::test]
async fn documents_are_files_that_people_read_and_others_cannot() {
    let at = directory();
    let store = open(&at);
    stored(store.put(&key("elections/a/b"), Expect::Absent, "{\"a\":1}".into()).await);
    assert_eq!(fs::read_to_string(file(&at, "elections/a/b.json")).expect("a file"), "{\"a\":1}");
    for (below, mode) in [("", 0o700), ("elections/a", 0o700), ("elections/a/b.json", 0o600)] {
        let found = fs::metadata(file(&at, below)).expect("there").permissions().mode();
        assert_eq!(found & 0o7777, mode, "{below}");
    }
}

#[tokio::test]
async fn a_write_needs_the_version_it_expects() {
    let at = directory();
    let store = open(&at);
    let first = stored(store.put(&key("a"), Expect::Absent, "1".into()).await);
    assert_eq!(
        store.put(&key("a"), Expect::Absent, "2".into()).await.expect("answered"),
        Put::Conflict
    );
    let at_first = || Expect::At(first.clone());
    let second = stored(store.put(&key("a"), at_first(), "2".into()).await);
    assert_ne!(first, second);
    assert_eq!(
        store.put(&key("a"), at_first(), "3".into()).await.expect("answered"),
        Put::Conflict
    );
    assert_eq!(
        store.put(&key("b/c"), at_first(), "3".into()).await.expect("answered"),
        Put::Conflict
    );
    assert!(!file(&at, "b").exists(), "a lost race makes no directory");
    let read = store.get(&key("a")).await.expect("read").expect("there");
    assert_eq!((read.version, &read.body[..]), (second, &b"2"[..]));
}

#[tokio::test]
async fn a_deletion_leaves_nothing_behind() {
    let at = directory();
    let store = open(&at);
    let version = stored(store.put(&key("a/b"), Expect::Absent, "1".into()).await);
    stored(store.delete(&key("a/b"), version.clone()).await);
    assert_eq!(store.get(&key("a/b")).await.expect("read"), None);
    assert_eq!(fs::read_dir(file(&at, "a")).expect("there").count(), 0);
    assert_eq!(store.delete(&key("a/b"), version).await.expect("answered"), Put::Conflict);
}

#[test]
fn one_of_a_hundred_contenders_wins_each_round() {
    let at = directory();
    let mut version =
        stored(put_here(&open(&at), write("a/b", Expect::Absent, "0", Durability::Lasting)));
    for round in 0..3 {
        let contend = |contender: usize| {
            let (at, version) = (&at, version.clone());
            move || {
                // Each uses a handle of its own: locks of descriptors in one process exclude each
                // other too.
                let body = format!("{round} {contender}");
                let write = write("a/b", Expect::At(version), &body, Durability::Lasting);
                put_here(&open(at), write).expect("answered")
            }
        };
        let puts: Vec<Put> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..100).map(|number| scope.spawn(contend(number))).collect();
            threads.into_iter().map(|thread| thread.join().expect("joined")).collect()
        });
        let won: Vec<_> = puts.into_iter().filter(|put| *put != Put::Conflict).collect();
        let [Put::Stored(next)] = &won[..] else { panic!("{won:?}") };
        version = next.clone();
    }
}

#[tokio::test]
async fn a_batch_gives_each_write_its_own_outcome() {
    let at = directory();
    let store = open(&at);
    stored(store.put(&key("d3/a"), Expect::Absent, "old".into()).await);
    let large = "x".repeat(MAX_DOCUMENT_BYTES + 1);
    let mut writes: Vec<Write> = (0..100)
        .map(|n| write(&format!("d{}/a", n), Expect::Absent, "new", Durability::Lasting))
        .collect();
    writes[4] = write("d4/a", Expect::Absent, &large, Durability::Lasting);
    writes[5] = write("d5/a", Expect::Absent, &large, Durability::UntilPowerCut);
    let outcomes = store.put_many(writes).await;
    assert_eq!(outcomes.len(), 100);
    for (n, outcome) in outcomes.into_iter().enumerate() {
        match n {
            3 => assert_eq!(outcome.expect("answered"), Put::Conflict),
            4 | 5 => assert_eq!(outcome.expect_err("too large").fault, Fault::Permanent),
            _ => drop(stored(outcome)),
        }
        let temporary =
            |entry: fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".temp");
        let left = fs::read_dir(file(&at, &format!("d{n}"))).expect("there");
        assert!(!left.flatten().any(temporary), "d{n}");
    }
}

#[tokio::test]
async fn a_listing_pages_in_key_order_and_skips_what_is_not_ours() {
    let at = directory();
    let store = open(&at);
    for text in ["a/c", "a/b", "a", "a-b", "ab/c", "a/b/c", "a/.json", "a/x.json", "a/ü"] {
        stored(store.put(&key(text), Expect::Absent, "x".into()).await);
    }
    fs::write(file(&at, "a/%41.json"), "x").expect("written");
    fs::write(file(&at, "a/README"), "x").expect("written");
    fs::write(file(&at, "a/large.json"), vec![b'x'; MAX_DOCUMENT_BYTES + 1]).expect("written");
    symlink("/etc/passwd", file(&at, "a/link.json")).expect("linked");
    let (mut keys, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = store.list(&key("a"), after.as_ref(), 2).await.expect("a page");
        keys.extend(page.documents.iter().map(|(key, _)| key.to_string()));
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(keys, ["a/.json", "a/b", "a/b/c", "a/c", "a/x.json", "a/ü"]);
    assert_eq!(pages, 4);
    assert_eq!(store.list(&key("none"), None, 2).await.expect("a page"), Page::default());
}

#[tokio::test]
async fn what_is_planted_in_a_documents_place_is_refused() {
    let at = directory();
    let store = open(&at);
    fs::create_dir(file(&at, "d")).expect("made");
    fs::create_dir(file(&at, "d/dir.json")).expect("made");
    symlink("/etc/passwd", file(&at, "d/link.json")).expect("linked");
    symlink("/etc", file(&at, "linked")).expect("linked");
    fs::write(file(&at, "d/large.json"), vec![b'x'; MAX_DOCUMENT_BYTES + 1]).expect("written");
    rustix::fs::mkfifoat(rustix::fs::CWD, file(&at, "d/fifo.json"), rustix::fs::Mode::RWXU)
        .expect("made");
    for text in ["d/dir", "d/link", "d/fifo", "d/large", "linked/x"] {
        let error = store.get(&key(text)).await.expect_err(text);
        assert_eq!(error.fault, Fault::Permanent, "{}", words(&error));
        let last = text.rsplit('/').next().expect("a segment");
        assert!(words(&error).contains(last), "{}", words(&error));
        let error = store.put(&key(text), Expect::Absent, "x".into()).await.expect_err(text);
        assert_eq!(error.fault, Fault::Permanent, "{}", words(&error));
    }
}

#[test]
fn a_directory_that_others_could_tamper_with_is_refused() {
    let at = directory();
    drop(open(&at));
    let refusal =
        |path: PathBuf| FileStore::open(&path, FileOptions::default()).expect_err("refused");
    let mode = |mode| {
        fs::set_permissions(file(&at, ""), fs::Permissions::from_mode(mode)).expect("changed");
    };
    // A user who may only read or pass can lock the directory, and so keep all others out.
    for other in [0o770, 0o720, 0o750, 0o755, 0o701] {
        mode(other);
        let error = refusal(file(&at, ""));
        assert_eq!(error.fault, Fault::Permanent);
        assert!(words(&error).contains("chmod 700"), "{}", words(&error));
    }
    mode(0o700);
    symlink(file(&at, ""), at.path().join("link")).expect("linked");
    for link in ["link", "link/"] {
        assert!(words(&refusal(at.path().join(link))).contains("symbolic link"));
    }
    fs::write(at.path().join("file"), "x").expect("written");
    assert_eq!(refusal(at.path().join("file")).fault, Fault::Permanent);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(file(&at, ""), Some(12345), None).expect("changed");
        let error = refusal(file(&at, ""));
        assert!(words(&error).contains("belongs to user 12345"), "{}", words(&error));
    }
}

/// Opens the store at a path below the test's directory.
fn opened_below(at: &TempDir, below: &str, trust_parents: bool) -> Result<FileStore, StoreError> {
    let options = FileOptions { trust_parents, ..FileOptions::default() };
    FileStore::open(&at.path().join(below), options)
}

#[test]
fn a_parent_that_others_may_rename_in_is_refused_by_its_path() {
    let at = directory();
    let parent = at.path().join("a");
    drop(opened_below(&at, "a/b/store", false).expect("opened"));
    let made = fs::metadata(&parent).expect("made").permissions().mode();
    assert_eq!(made & 0o022, 0, "{made:o}");
    for (mode, safe) in [(0o777, false), (0o775, false), (0o1777, true), (0o755, true)] {
        fs::set_permissions(&parent, fs::Permissions::from_mode(mode)).expect("changed");
        match opened_below(&at, "a/b/store", false) {
            Ok(_) => assert!(safe, "{mode:o}"),
            Err(error) => {
                assert!(!safe, "{mode:o}: {}", words(&error));
                assert_eq!(error.fault, Fault::Permanent);
                let wrong = format!("write to {} (mode {mode:04o})", parent.display());
                assert!(words(&error).contains(&wrong), "{}", words(&error));
                assert!(words(&error).contains("trust-parents"), "{}", words(&error));
            }
        }
        opened_below(&at, "a/b/store", true).expect("trusted");
    }
}

#[test]
fn a_parent_reached_through_a_link_is_refused_by_its_own_path() {
    let at = directory();
    let parent = at.path().join("open");
    fs::create_dir(&parent).expect("made");
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o777)).expect("changed");
    fs::create_dir(parent.join("inner")).expect("made");
    symlink(parent.join("inner"), at.path().join("absolute")).expect("linked");
    symlink("open/inner/../inner", at.path().join("relative")).expect("linked");
    symlink("round", at.path().join("round")).expect("linked");
    for below in ["absolute/store", "relative/store", "relative/../inner/store"] {
        let error = opened_below(&at, below, false).expect_err(below);
        let wrong = format!("write to {} ", parent.display());
        assert!(words(&error).contains(&wrong), "{}", words(&error));
    }
    let error = opened_below(&at, "round/store", false).expect_err("a loop");
    assert_eq!(error.fault, Fault::Permanent);
    fs::set_permissions(&parent, fs::Permissions::from_mode(0o755)).expect("changed");
    for below in ["absolute/store", "relative/store", "relative/../inner/store"] {
        opened_below(&at, below, false).expect(below);
    }
    assert!(parent.join("inner/store").is_dir());
}

#[test]
fn a_parent_or_a_link_of_another_user_is_refused_by_its_path() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can give directories away");
        return;
    }
    let at = directory();
    drop(opened_below(&at, "theirs/store", false).expect("opened"));
    std::os::unix::fs::chown(at.path().join("theirs"), Some(12345), None).expect("changed");
    symlink(at.path(), at.path().join("link")).expect("linked");
    std::os::unix::fs::lchown(at.path().join("link"), Some(12345), None).expect("changed");
    for (below, wrong) in [("theirs/store", "theirs"), ("link/store", "link")] {
        let error = opened_below(&at, below, false).expect_err(below);
        assert_eq!(error.fault, Fault::Permanent);
        let says = format!("{} belongs to user 12345", at.path().join(wrong).display());
        assert!(words(&error).contains(&says), "{}", words(&error));
        opened_below(&at, below, true).expect("trusted");
    }
}

const UNWRITABLE: &str = "TENURE_TEST_UNWRITABLE_DIRECTORY";

/// Not a test: the next test runs this as a user who is not root.
#[test]
fn helper_that_opens_an_unwritable_directory() {
    let Some(path) = std::env::var_os(UNWRITABLE) else { return };
    let error = FileStore::open(path.as_ref(), FileOptions::default()).expect_err("refused");
    assert_eq!(error.fault, Fault::Denied, "{}", words(&error));
    println!("refused: {}", words(&error));
}

#[test]
fn a_directory_that_can_be_read_but_not_written_is_refused() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can become another user");
        return;
    }
    let at = directory();
    drop(open(&at));
    for path in [at.path().to_owned(), file(&at, "")] {
        std::os::unix::fs::chown(&path, Some(NOBODY), None).expect("changed");
    }
    fs::set_permissions(file(&at, ""), fs::Permissions::from_mode(0o500)).expect("changed");
    let this = std::env::current_exe().expect("this program");
    let name = "file::tests::helper_that_opens_an_unwritable_directory";
    let started = Command::new(this)
        .args([name, "--exact", "--nocapture"])
        .env(UNWRITABLE, file(&at, ""))
        .uid(NOBODY)
        .output();
    let Ok(output) = started else {
        println!("SKIPPED: another user may not run this program where it lies");
        return;
    };
    let says = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && says.contains("refused"), "{output:?}");
}

#[tokio::test]
async fn a_directory_that_was_replaced_is_noticed() {
    let at = directory();
    let store = open(&at);
    fs::rename(file(&at, ""), at.path().join("elsewhere")).expect("moved");
    let _other = open(&at);
    assert_eq!(store.get(&key("a")).await.expect_err("noticed").fault, Fault::Unavailable);
    let put = store.put(&key("a"), Expect::Absent, "1".into()).await;
    assert_eq!(put.expect_err("noticed").fault, Fault::Unavailable);
}

#[tokio::test]
async fn a_lock_somebody_keeps_makes_the_store_unavailable_in_time() {
    let at = directory();
    // The lock is given up after three quarters of the time. A request that takes all of it is
    // indeterminate.
    let request = Duration::from_secs(6);
    let options = FileOptions { request, ..FileOptions::default() };
    let store = FileStore::open(&file(&at, ""), options).expect("opened");
    let version = stored(store.put(&key("a/b"), Expect::Absent, "1".into()).await);
    let held = fs::File::open(file(&at, "a")).expect("opened");
    held.lock().expect("locked");
    let put = store.put(&key("a/b"), Expect::At(version.clone()), "2".into()).await;
    assert_eq!(put.expect_err("locked").fault, Fault::Unavailable);
    stored(store.put(&key("other/b"), Expect::Absent, "2".into()).await);
    assert_eq!(&store.get(&key("a/b")).await.expect("read").expect("there").body[..], b"1");
    drop(held);
    stored(store.put(&key("a/b"), Expect::At(version), "2".into()).await);
}

#[tokio::test]
async fn another_handles_write_wakes_who_waits_for_that_key_only() {
    let at = directory();
    let (store, other) = (open(&at), open(&at));
    let version = stored(store.put(&key("a/b"), Expect::Absent, "1".into()).await);
    let (waited_for, seen) = (key("a/b"), version.clone());
    let mut waits = Box::pin(store.changed(&waited_for, Some(&seen)));
    let second = store.put(&key("a/c"), Expect::Absent, "1".into()).await;
    let mut unrelated = {
        let (store, second) = (store.clone(), stored(second));
        tokio::spawn(async move { store.changed(&key("a/c"), Some(&second)).await })
    };
    let pause = Duration::from_millis(50);
    assert!(tokio::time::timeout(pause, &mut waits).await.is_err(), "nothing changed yet");
    let began = Instant::now();
    stored(other.put(&key("a/b"), Expect::At(version), "2".into()).await);
    tokio::time::timeout(Duration::from_secs(5), waits).await.expect("woken");
    println!("woken after {:?}, the write included", began.elapsed());
    assert!(tokio::time::timeout(pause, &mut unrelated).await.is_err(), "another key");
    unrelated.abort();
}

#[tokio::test]
async fn who_waits_for_what_does_not_exist_is_woken_when_it_does() {
    let at = directory();
    let (store, other) = (open(&at), open(&at));
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move { store.changed(&key("a/b/c/d"), None).await })
    };
    for text in ["a/x", "a/b/x", "a/b/c/x", "a/b/c/d"] {
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert!(!waiting.is_finished(), "{text}");
        stored(other.put(&key(text), Expect::Absent, "1".into()).await);
    }
    tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("woken").expect("joined");
}

#[tokio::test]
async fn a_deletion_wakes_and_a_version_that_is_old_already_does_not_wait() {
    let at = directory();
    let store = open(&at);
    let version = stored(store.put(&key("a/b"), Expect::Absent, "1".into()).await);
    store.changed(&key("a/b"), None).await;
    let waiting = {
        let (store, version) = (store.clone(), version.clone());
        tokio::spawn(async move { store.changed(&key("a/b"), Some(&version)).await })
    };
    stored(store.delete(&key("a/b"), version).await);
    tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("woken").expect("joined");
    assert!(store.notifies());
}

#[tokio::test]
async fn no_wake_up_is_lost_between_looking_and_waiting() {
    let at = directory();
    let (store, other) = (open(&at), open(&at));
    let mut version = stored(store.put(&key("a/b"), Expect::Absent, "0".into()).await);
    for round in 1..300 {
        let (waited_for, seen) = (key("a/b"), version.clone());
        let changed = store.changed(&waited_for, Some(&seen));
        let change =
            write("a/b", Expect::At(version), &round.to_string(), Durability::UntilPowerCut);
        let both = async { tokio::join!(changed, other.put_many(vec![change])).1 };
        let mut outcome = tokio::time::timeout(Duration::from_secs(5), both).await.expect("woken");
        version = stored(outcome.pop().expect("an outcome"));
    }
}

#[test]
fn a_document_deleted_by_hand_is_not_created_anew_but_put_back() {
    let at = directory();
    let store = open_at_boot(&at, "first");
    stored(put_here(&store, write("a/b", Expect::Absent, "token 7", Durability::Lasting)));
    fs::remove_file(file(&at, "a/b.json")).expect("removed");
    assert_eq!(body_here(&store, "a/b"), None, "whoever led by it must know");
    let anew = write("a/b", Expect::Absent, "token 1", Durability::Lasting);
    assert!(matches!(put_here(&store, anew), Ok(Put::Conflict)));
    assert_eq!(body_here(&store, "a/b").as_deref(), Some("token 7"));
}

#[test]
fn a_document_deleted_through_the_store_may_be_created_anew() {
    let at = directory();
    let store = open_at_boot(&at, "first");
    let version = stored(put_here(&store, write("a/b", Expect::Absent, "1", Durability::Lasting)));
    let key = key("a/b");
    let expect = Expect::At(version);
    let gone = Write { key, expect, body: None, durability: Durability::Lasting };
    stored(put_here(&store, gone));
    stored(put_here(&store, write("a/b", Expect::Absent, "2", Durability::Lasting)));
}

#[test]
fn after_a_reboot_documents_go_back_to_their_last_lasting_content() {
    let at = directory();
    let store = open_at_boot(&at, "first");
    let lasting = write("a/b", Expect::Absent, "lasting", Durability::Lasting);
    let mut version = stored(put_here(&store, lasting));
    // Several renewals, because each rewrites the file of the one before the last.
    for number in 0..5 {
        let body = format!("renewal {number}");
        let renewal = write("a/b", Expect::At(version), &body, Durability::UntilPowerCut);
        version = stored(put_here(&store, renewal));
        assert_eq!(fs::read_to_string(file(&at, "a/.b.json.kept")).expect("kept"), "lasting");
    }
    for (text, body) in [("a/whole", "whole"), ("a/torn", "")] {
        stored(put_here(&store, write(text, Expect::Absent, body, Durability::UntilPowerCut)));
    }
    fs::write(file(&at, "a/b.json"), "").expect("torn");

    assert_eq!(body_here(&open_at_boot(&at, "first"), "a/b").as_deref(), Some(""), "same boot");
    let store = open_at_boot(&at, "second");
    assert_eq!(body_here(&store, "a/b").as_deref(), Some("lasting"));
    assert_eq!(body_here(&store, "a/whole").as_deref(), Some("whole"));
    assert_eq!(body_here(&store, "a/torn"), None);

    fs::write(file(&at, ".boot"), "garbled").expect("written");
    fs::remove_file(file(&at, "a/b.json")).expect("removed");
    assert_eq!(body_here(&open_at_boot(&at, "second"), "a/b").as_deref(), Some("lasting"));
}

#[test]
fn a_deleted_document_stays_deleted_after_a_reboot() {
    let at = directory();
    let store = open_at_boot(&at, "first");
    let version = stored(put_here(&store, write("a/b", Expect::Absent, "x", Durability::Lasting)));
    let expect = Expect::At(version);
    let delete = Write { key: key("a/b"), expect, body: None, durability: Durability::Lasting };
    stored(put_here(&store, delete));
    assert_eq!(body_here(&open_at_boot(&at, "second"), "a/b"), None);
}

#[test]
fn a_reader_sees_whole_documents_while_renewals_rewrite_old_ones() {
    let at = directory();
    let store = open(&at);
    let body = |number: usize| {
        let letter = char::from(b'a' + (number % 26) as u8);
        letter.to_string().repeat(1 + number * 7919 % 60_000)
    };
    let first = write("a/b", Expect::Absent, &body(0), Durability::Lasting);
    let mut version = stored(put_here(&store, first));
    let finished = std::sync::atomic::AtomicBool::new(false);
    let ordering = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let reader = open(&at);
                while !finished.load(ordering) {
                    let read = body_here(&reader, "a/b").expect("never missing");
                    let number = (0..500).find(|number| body(*number).len() == read.len());
                    assert!(number.map(body) == Some(read), "torn");
                }
            });
        }
        for number in 1..500 {
            let renewal =
                write("a/b", Expect::At(version), &body(number), Durability::UntilPowerCut);
            version = stored(put_here(&store, renewal));
        }
        finished.store(true, ordering);
    });
    assert_eq!(fs::read_dir(file(&at, "a")).expect("there").count(), 3, "document, kept, spare");
}

/// Runs one write with a script for each of its steps, and checks the content afterwards.
fn at_every_step(script: fn(usize) -> Script, durability: Durability, body: Option<&str>) {
    for number in 0.. {
        let at = directory();
        let store = open_at_boot(&at, "first");
        let version =
            stored(put_here(&store, write("a/b", Expect::Absent, "old", Durability::Lasting)));
        let change = Write {
            key: key("a/b"),
            expect: Expect::At(version),
            body: body.map(|body| Bytes::from(body.to_owned())),
            durability,
        };
        let (outcome, came) = run(script(number), || put_here(&store, change));
        drop(store);
        let store = open_at_boot(&at, "first");
        let now = body_here(&store, "a/b");
        let (old, new) = (Some("old"), body);
        let allowed = match &outcome {
            Ok(Put::Stored(_)) => vec![new],
            Ok(Put::Conflict) => panic!("nobody contended"),
            Err(error) => match error.fault {
                Fault::Indeterminate => vec![old, new],
                Fault::Unavailable | Fault::Permanent | Fault::Denied => vec![old],
            },
        };
        assert!(allowed.contains(&now.as_deref()), "step {number}: {outcome:?} {now:?}");
        drop(store);
        let later = body_here(&open_at_boot(&at, "second"), "a/b");
        let after_cut = match durability {
            Durability::Lasting => allowed,
            Durability::UntilPowerCut => vec![old, new],
        };
        assert!(after_cut.contains(&later.as_deref()), "step {number}: {outcome:?} {later:?}");
        if !came {
            assert!(number > 1, "there were steps");
            return;
        }
    }
}

#[test]
fn a_process_that_dies_at_any_step_leaves_the_old_or_the_new_document() {
    at_every_step(Script::Dies, Durability::Lasting, Some("new"));
    at_every_step(Script::Dies, Durability::UntilPowerCut, Some("new"));
    at_every_step(Script::Dies, Durability::Lasting, None);
}

#[test]
fn a_failure_at_any_step_leaves_the_old_or_the_new_document() {
    at_every_step(Script::Fails, Durability::Lasting, Some("new"));
    at_every_step(Script::Fails, Durability::UntilPowerCut, Some("new"));
    at_every_step(Script::Fails, Durability::Lasting, None);
}

#[test]
fn a_recovery_that_dies_at_any_step_is_done_again() {
    for number in 0.. {
        let at = directory();
        let store = open_at_boot(&at, "first");
        let version =
            stored(put_here(&store, write("a/b", Expect::Absent, "old", Durability::Lasting)));
        stored(put_here(&store, write("a/b", Expect::At(version), "x", Durability::UntilPowerCut)));
        fs::write(file(&at, "a/b.json"), "").expect("torn");
        let options = FileOptions { boot_id: Some("second".to_owned()), ..Default::default() };
        let (_, came) = run(Script::Dies(number), || FileStore::open(&file(&at, ""), options));
        assert_eq!(body_here(&open_at_boot(&at, "second"), "a/b").as_deref(), Some("old"));
        if !came {
            break;
        }
    }
}

#[test]
fn a_write_that_may_vanish_in_a_power_cut_is_synced_before_it_is_read() {
    let at = directory();
    let store = open(&at);
    let version = stored(put_here(&store, write("a/b", Expect::Absent, "1", Durability::Lasting)));
    assert!(!store.shared.unsynced.contains(&key("a/b")));
    // The last step of the write is the sync of its directory.
    for number in 0.. {
        let change = write("a/b", Expect::At(version.clone()), "2", Durability::Lasting);
        let (outcome, came) = run(Script::Fails(number), || put_here(&store, change));
        let now = body_here(&store, "a/b");
        if now.as_deref() == Some("2") {
            assert!(came && outcome.is_err());
            assert!(store.shared.unsynced.contains(&key("a/b")));
            return;
        }
    }
}

#[test]
fn stale_temporary_files_are_swept_and_fresh_ones_are_not() {
    let at = directory();
    drop(open(&at));
    fs::create_dir(file(&at, "a")).expect("made");
    let (stale, fresh) =
        (file(&at, &format!("a/{}", path::temporary())), file(&at, &path::temporary()));
    fs::write(&stale, "x").expect("written");
    fs::write(&fresh, "x").expect("written");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(2 * 60 * 60);
    let opened = fs::File::options().write(true).open(&stale).expect("opened");
    opened.set_modified(long_ago).expect("aged");
    drop(open(&at));
    assert!(!stale.exists() && fresh.exists());
}

/// A small file system of its own, where we are allowed to mount one.
struct Mounted(TempDir);

impl Mounted {
    fn new(options: &str) -> Option<Mounted> {
        let at = directory();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "none"])
            .arg(at.path())
            .stderr(Stdio::null())
            .status();
        if mount.is_ok_and(|status| status.success()) {
            return Some(Mounted(at));
        }
        println!("SKIPPED: mounting a file system is not permitted here");
        None
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_says_so_keeps_the_old_document_and_heals() {
    let Some(at) = Mounted::new("size=128k,mode=0700") else { return };
    let store = open(&at.0);
    let version =
        stored(put_here(&store, write("a/b", Expect::Absent, "old", Durability::Lasting)));
    let filler = at.0.path().join("filler");
    let _ = fs::write(&filler, vec![0; 1024 * 1024]).expect_err("full");
    for durability in [Durability::Lasting, Durability::UntilPowerCut] {
        let change = write("a/b", Expect::At(version.clone()), &"x".repeat(9000), durability);
        let error = put_here(&store, change).expect_err("full");
        assert_eq!(error.fault, Fault::Unavailable);
        assert!(words(&error).contains("disk is full"), "{}", words(&error));
        assert_eq!(body_here(&store, "a/b").as_deref(), Some("old"));
    }
    fs::remove_file(filler).expect("removed");
    stored(put_here(&store, write("a/b", Expect::At(version), "new", Durability::Lasting)));
}

#[test]
fn a_read_only_file_system_says_so() {
    let Some(at) = Mounted::new("size=128k,mode=0700") else { return };
    let store = open(&at.0);
    let version =
        stored(put_here(&store, write("a/b", Expect::Absent, "old", Durability::Lasting)));
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(at.0.path()).status();
    assert!(remount.is_ok_and(|status| status.success()));
    let put = put_here(&store, write("a/b", Expect::At(version), "new", Durability::Lasting));
    let open = FileStore::open(&at.0.path().join("store"), FileOptions::default());
    for error in [put.expect_err("read-only"), open.expect_err("read-only")] {
        assert_eq!(error.fault, Fault::Permanent);
        assert!(words(&error).contains("read-only"), "{}", words(&error));
    }
    assert_eq!(body_here(&store, "a/b").as_deref(), Some("old"));
}

#[tokio::test]
async fn dropping_the_last_clone_releases_every_descriptor() {
    let at = directory();
    let store = open(&at);
    let _ = tokio::time::timeout(Duration::from_millis(20), store.changed(&key("a/b"), None)).await;
    let inode = fs::metadata(file(&at, "")).expect("there").ino();
    drop(store);
    let ours = || {
        let links = fs::read_dir("/proc/self/fd").expect("listed").flatten();
        links.filter_map(|entry| fs::metadata(entry.path()).ok()).any(|found| found.ino() == inode)
    };
    // The task is aborted, and ends when the runtime next polls it.
    for _ in 0..1000 {
        if !ours() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("the directory is still open");
}
