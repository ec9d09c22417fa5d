//! Real processes that are really killed: which are proven dead, and how fast.
#![cfg(all(feature = "file", target_os = "linux"))]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tenure::file::{FileOptions, FilePresence, FileStore};
use tenure::store::{Mark, Presence};

const DIRECTORY: &str = "TENURE_TEST_PRESENCE_DIRECTORY";
const ROLE: &str = "TENURE_TEST_PRESENCE_ROLE";
/// Long enough to see that nothing happens, even with the 50 ms that follow a notification.
const NEVER: Duration = Duration::from_millis(300);
const SOON: Duration = Duration::from_secs(10);

/// Not a test: runs as the process that the tests below start and kill.
#[test]
fn helper_process() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let store = FileStore::open(Path::new(&directory), FileOptions::default()).expect("opened");
    let presence = store.presence();
    let role = std::env::var(ROLE).expect("a role");
    #[expect(clippy::zombie_processes, reason = "this process is killed before it could wait")]
    let sleep = |inherits: Stdio| {
        let child = Command::new("sleep").arg("1000").stdout(inherits).spawn().expect("started");
        child.id()
    };
    let mut held = None;
    let descendant = match role.as_str() {
        "alone" => 0,
        "guarded" => sleep(presence.share().expect("shared").into()),
        "working" => {
            let work = presence.work().expect("a work file");
            let copy = work.descriptor().try_clone_to_owned().expect("copied");
            held = Some(work);
            sleep(copy.into())
        }
        other => panic!("{other}"),
    };
    let mark = presence.mark().expect("a mark");
    println!("\nMARK {descendant} {}", serde_json::to_string(&mark).expect("JSON"));
    // The process ends with the test, in case the test fails to kill it.
    let _ = std::io::stdin().read(&mut [0]);
    drop(held);
}

/// A helper process with its own presence.
struct Helper {
    child: Child,
    descendant: Option<Pid>,
    mark: Mark,
}

impl Helper {
    fn start(at: &TempDir, role: &str) -> Helper {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["helper_process", "--exact", "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, store_path(at))
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let says = BufReader::new(child.stdout.take().expect("piped"));
        let marks = |line: String| line.strip_prefix("MARK ").map(str::to_owned);
        let line = says.lines().map_while(Result::ok).find_map(marks).expect("a mark");
        let (descendant, mark) = line.split_once(' ').expect("two words");
        let descendant = Pid::from_raw(descendant.parse().expect("a number"));
        Helper { child, descendant, mark: serde_json::from_str(mark).expect("a mark") }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn kill(&mut self) {
        kill_process(self.pid(), Signal::KILL).expect("killed");
    }

    fn kill_descendant(&mut self) {
        if let Some(descendant) = self.descendant.take() {
            kill_process(descendant, Signal::KILL).expect("killed");
        }
    }

    fn file(&self, at: &TempDir) -> PathBuf {
        store_path(at).join("presence").join(self.mark.0["file"].as_str().expect("a name"))
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.kill_descendant();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn store_path(at: &TempDir) -> PathBuf {
    at.path().join("store")
}

fn open(at: &TempDir) -> FileStore {
    FileStore::open(&store_path(at), FileOptions::default()).expect("opened")
}

async fn never(presence: &FilePresence, mark: &Mark, why: &str) {
    assert!(tokio::time::timeout(NEVER, presence.gone(mark)).await.is_err(), "{why}");
}

async fn soon(presence: &FilePresence, mark: &Mark) {
    tokio::time::timeout(SOON, presence.gone(mark)).await.expect("proven gone");
}

#[tokio::test]
async fn each_of_many_kills_is_noticed_within_milliseconds() {
    let at = directory();
    let presence = open(&at).presence();
    let mut latencies = Vec::new();
    for round in 0..200 {
        let mut helper = Helper::start(&at, "alone");
        let waiting = {
            let (presence, mark) = (Arc::clone(&presence), helper.mark.clone());
            tokio::spawn(async move { presence.gone(&mark).await })
        };
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished(), "round {round}: it lives");
        let killed = Instant::now();
        helper.kill();
        tokio::time::timeout(SOON, waiting).await.expect("proven gone").expect("joined");
        latencies.push(killed.elapsed());
    }
    latencies.sort();
    println!("median {:?}, slowest {:?}", latencies[100], latencies[199]);
}

#[tokio::test]
async fn a_process_that_died_before_anybody_asked_is_gone_too() {
    let at = directory();
    let presence = open(&at).presence();
    let mut helper = Helper::start(&at, "alone");
    helper.kill();
    helper.child.wait().expect("reaped");
    soon(&presence, &helper.mark).await;
}

/// A regression: on a busy machine, a process was killed while another began to look. The other
/// waited until the ttl was over.
#[tokio::test]
async fn a_lock_that_is_freed_without_a_ring_is_found_free_soon() {
    use rustix::fs::{FlockOperation, flock};
    let at = directory();
    let presence = open(&at).presence();
    let mut helper = Helper::start(&at, "alone");
    helper.kill();
    helper.child.wait().expect("reaped");
    // As if the process took long to die: the file is locked, but not by a writer, so that its
    // close notifies no process.
    let lock = fs::File::open(helper.file(&at)).expect("opened");
    flock(&lock, FlockOperation::LockExclusive).expect("locked");
    let gone = presence.gone(&helper.mark);
    tokio::pin!(gone);
    assert!(tokio::time::timeout(NEVER, &mut gone).await.is_err(), "it is still locked");
    drop(lock);
    tokio::time::timeout(SOON, gone).await.expect("proven gone");
}

#[tokio::test]
async fn a_living_a_stopped_and_this_very_process_are_not_gone() {
    let at = directory();
    let presence = open(&at).presence();
    let helper = Helper::start(&at, "alone");
    never(&presence, &helper.mark, "it lives").await;
    kill_process(helper.pid(), Signal::STOP).expect("stopped");
    never(&presence, &helper.mark, "it may go on").await;
    never(&presence, &presence.mark().expect("a mark"), "it is us").await;
}

#[tokio::test]
async fn a_file_that_is_missing_or_another_proves_nothing() {
    let at = directory();
    let presence = open(&at).presence();
    let mut missing = Helper::start(&at, "alone");
    fs::remove_file(missing.file(&at)).expect("removed");
    missing.kill();
    never(&presence, &missing.mark, "missing").await;

    let mut replaced = Helper::start(&at, "alone");
    let file = replaced.file(&at);
    fs::rename(&file, file.with_extension("away")).expect("moved");
    fs::write(&file, "").expect("written");
    replaced.kill();
    never(&presence, &replaced.mark, "another file").await;

    let mut linked = Helper::start(&at, "alone");
    let file = linked.file(&at);
    fs::rename(&file, file.with_extension("away")).expect("moved");
    std::os::unix::fs::symlink(file.with_extension("away"), &file).expect("linked");
    linked.kill();
    never(&presence, &linked.mark, "a link").await;
}

#[tokio::test]
async fn another_boot_or_an_odd_mark_proves_nothing() {
    let at = directory();
    let presence = open(&at).presence();
    let mut helper = Helper::start(&at, "alone");
    helper.kill();
    helper.child.wait().expect("reaped");
    for (name, value) in [("boot", "another".into()), ("ino", 7.into()), ("file", "../a".into())] {
        let mut mark = helper.mark.clone();
        mark.0.insert(name.to_owned(), value);
        never(&presence, &mark, name).await;
    }
    soon(&presence, &helper.mark).await;
}

#[tokio::test]
async fn in_another_pid_namespace_the_lock_alone_decides() {
    let at = directory();
    let presence = open(&at).presence();
    let mut helper = Helper::start(&at, "alone");
    // Our own pid, which is alive: presence must not ask about it.
    helper.mark.0.insert("pidns".to_owned(), "1".into());
    helper.mark.0.insert("pid".to_owned(), std::process::id().into());
    never(&presence, &helper.mark, "it lives").await;
    helper.kill();
    soon(&presence, &helper.mark).await;
}

#[tokio::test]
async fn a_free_lock_does_not_prove_a_living_process_gone() {
    let at = directory();
    let presence = open(&at).presence();
    let mut helper = Helper::start(&at, "alone");
    helper.kill();
    helper.child.wait().expect("reaped");
    let ours = presence.mark().expect("a mark");
    for name in ["pid", "start"] {
        helper.mark.0.insert(name.to_owned(), ours.0[name].clone());
    }
    never(&presence, &helper.mark, "that process lives").await;
    helper.mark.0.insert("start".to_owned(), "1".into());
    soon(&presence, &helper.mark).await;
}

#[tokio::test]
async fn a_guardian_that_shares_the_file_keeps_its_process_alive() {
    let at = directory();
    let presence = open(&at).presence();
    let mut helper = Helper::start(&at, "guarded");
    helper.kill();
    helper.child.wait().expect("reaped");
    never(&presence, &helper.mark, "its guardian lives").await;
    helper.kill_descendant();
    soon(&presence, &helper.mark).await;
}

#[tokio::test]
async fn work_that_goes_on_without_its_process_is_waited_for() {
    let at = directory();
    let presence = open(&at).presence();
    let mut helper = Helper::start(&at, "working");
    helper.kill();
    helper.child.wait().expect("reaped");
    never(&presence, &helper.mark, "its work goes on").await;
    helper.kill_descendant();
    soon(&presence, &helper.mark).await;
}

#[tokio::test]
async fn a_thousand_waiters_for_one_process_share_one_proof() {
    let at = directory();
    let presence = open(&at).presence();
    let mut helper = Helper::start(&at, "alone");
    let waiting: Vec<_> = (0..1000)
        .map(|_| {
            let (presence, mark) = (Arc::clone(&presence), helper.mark.clone());
            tokio::spawn(async move { presence.gone(&mark).await })
        })
        .collect();
    tokio::task::yield_now().await;
    let killed = Instant::now();
    helper.kill();
    for waiter in waiting {
        tokio::time::timeout(SOON, waiter).await.expect("proven gone").expect("joined");
    }
    println!("all 1000 told after {:?}", killed.elapsed());
}

#[tokio::test]
async fn the_end_of_work_is_probed_afresh_and_waited_for() {
    let at = directory();
    let presence = open(&at).presence();
    let work = presence.work().expect("a work file");
    assert!(presence.mark().expect("a mark").0.contains_key("work_ino"));
    let copy = work.descriptor().try_clone_to_owned().expect("copied");
    let mut child = Command::new("sleep").arg("1000").stdout(copy).spawn().expect("started");
    let probe = work.close();
    assert!(!probe.is_free());
    assert!(presence.work().is_err(), "a mark names one work file");
    assert!(tokio::time::timeout(NEVER, probe.freed()).await.is_err());
    child.kill().expect("killed");
    tokio::time::timeout(SOON, probe.freed()).await.expect("freed");
    assert!(probe.is_free());
    child.wait().expect("reaped");
}

#[test]
fn own_files_stay_for_an_hour_so_that_followers_can_prove_the_death() {
    let at = directory();
    let store = open(&at);
    let presence = store.presence();
    let first = presence.mark().expect("a mark");
    assert_eq!(first, store.clone().presence().mark().expect("a mark"));
    drop(presence.work().expect("a work file"));
    // A child that another test is just starting holds copies of our descriptors for a moment.
    let began = Instant::now();
    while let Err(error) = presence.work().map(drop) {
        assert!(began.elapsed() < SOON, "{error}");
        std::thread::yield_now();
    }
    let files = || fs::read_dir(store_path(&at).join("presence")).expect("there").count();
    assert_eq!(files(), 3);
    drop((store, presence));
    drop(open(&at));
    assert_eq!(files(), 3, "the hour has just begun");
    let aged = std::time::SystemTime::now() - Duration::from_secs(61 * 60);
    for file in fs::read_dir(store_path(&at).join("presence")).expect("there") {
        let file = fs::File::open(file.expect("an entry").path()).expect("opened");
        file.set_modified(aged).expect("aged");
    }
    drop(open(&at));
    assert_eq!(files(), 0);
}

#[test]
fn a_dead_processs_file_is_swept_in_two_steps() {
    let at = directory();
    let living = open(&at).presence();
    let _ = living.mark().expect("a mark");
    let mut helper = Helper::start(&at, "alone");
    helper.kill();
    helper.child.wait().expect("reaped");
    let dead = helper.file(&at);
    let ours = store_path(&at)
        .join("presence")
        .join(living.mark().expect("a mark").0["file"].as_str().expect("a name"));
    let age = |path: &Path| {
        let aged = std::time::SystemTime::now() - Duration::from_secs(25 * 60 * 60);
        fs::File::open(path).expect("opened").set_modified(aged).expect("aged");
    };
    let mode = |path: &Path| {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    };
    drop(open(&at));
    assert_eq!(mode(&dead), 0o600, "it is young");
    age(&dead);
    age(&ours);
    drop(open(&at));
    assert_eq!((mode(&dead), mode(&ours)), (0o400, 0o600));
    drop(open(&at));
    assert!(dead.exists(), "it was marked just now");
    age(&dead);
    drop(open(&at));
    assert!(!dead.exists() && ours.exists());
}
