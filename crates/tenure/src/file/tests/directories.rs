//! Tests of directories that are refused, replaced or closed, and of files planted in them.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use super::*;
use crate::store::{MAX_DOCUMENT_BYTES, StoreExt as _};

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
    let name = "file::tests::directories::helper_that_opens_an_unwritable_directory";
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
