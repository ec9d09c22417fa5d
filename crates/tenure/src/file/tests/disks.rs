//! Tests of full disks and of read-only file systems.

use std::fs;
use std::process::{Command, Stdio};

use super::*;

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
