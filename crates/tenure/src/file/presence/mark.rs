//! The content of a mark. It comes from documents, so everything in it is checked before use.

use std::os::unix::fs::MetadataExt;
use std::{fs, io};

use serde_json::{Map, Value};

use crate::file::directory::Identity;
use crate::file::path;
use crate::store::Mark;

/// A file that a process keeps locked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Locked {
    pub file: String,
    pub identity: Identity,
}

/// A process, and the file it keeps locked while it lives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Life {
    pub boot: String,
    pub namespace: u64,
    pub process: u32,
    /// When the process started, in ticks since the boot: process ids are used again.
    pub start: u64,
    pub locked: Locked,
}

/// The process and its work, which must both be gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub life: Life,
    pub work: Option<Locked>,
}

impl Life {
    pub(super) fn of_this_process(boot: String, locked: Locked) -> io::Result<Life> {
        let process = std::process::id();
        let Process::Alive { start } = look_at(process)? else {
            return Err(io::Error::other("/proc does not show this process"));
        };
        Ok(Life { boot, namespace: namespace()?, process, start, locked })
    }
}

impl Claim {
    /// Encodes the claim. Numbers that JSON readers would round are written as text.
    pub(super) fn mark(&self) -> Mark {
        let mut map = Map::new();
        let mut say = |name: &str, value: Value| drop(map.insert(name.to_owned(), value));
        let life = &self.life;
        say("boot", life.boot.clone().into());
        say("pidns", life.namespace.to_string().into());
        say("pid", life.process.into());
        say("start", life.start.to_string().into());
        say("file", life.locked.file.clone().into());
        say("dev", life.locked.identity.device.to_string().into());
        say("ino", life.locked.identity.inode.to_string().into());
        if let Some(work) = &self.work {
            say("work", work.file.clone().into());
            say("work_dev", work.identity.device.to_string().into());
            say("work_ino", work.identity.inode.to_string().into());
        }
        Mark(map)
    }

    /// Decodes a mark; `None` for any invalid one, which then proves nothing.
    pub(super) fn read(mark: &Mark) -> Option<Claim> {
        let map = &mark.0;
        let process = u32::try_from(map.get("pid")?.as_u64()?).ok()?;
        let work = match ["work", "work_dev", "work_ino"].map(|name| map.contains_key(name)) {
            [false, false, false] => None,
            _ => Some(locked(map, "work", "work_dev", "work_ino")?),
        };
        let life = Life {
            boot: text(map, "boot")?.to_owned(),
            namespace: number(map, "pidns")?,
            process: (1..=i32::MAX as u32).contains(&process).then_some(process)?,
            start: number(map, "start")?,
            locked: locked(map, "file", "dev", "ino")?,
        };
        Some(Claim { life, work })
    }
}

fn locked(map: &Map<String, Value>, file: &str, device: &str, inode: &str) -> Option<Locked> {
    let file = text(map, file).filter(|file| path::is_random(file))?.to_owned();
    let identity = Identity { device: number(map, device)?, inode: number(map, inode)? };
    Some(Locked { file, identity })
}

fn text<'m>(map: &'m Map<String, Value>, name: &str) -> Option<&'m str> {
    map.get(name)?.as_str()
}

fn number(map: &Map<String, Value>, name: &str) -> Option<u64> {
    text(map, name)?.parse().ok()
}

/// The state of a process id in `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Process {
    Alive { start: u64 },
    Zombie { start: u64 },
    Gone,
}

/// Looks at a process of our own pid namespace.
pub(super) fn look_at(process: u32) -> io::Result<Process> {
    match fs::read(format!("/proc/{process}/stat")) {
        Ok(stat) => parse_stat(&stat).ok_or_else(|| io::Error::other("/proc is not as expected")),
        Err(error) if is_gone(&error) => {
            // Without /proc every process would look dead.
            fs::metadata("/proc/self/stat").map(|_| Process::Gone)
        }
        Err(error) => Err(error),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
        || rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::SRCH)
}

/// Parses the `stat` file of a process.
///
/// The second field is the program's name in parentheses, and may itself hold parentheses.
fn parse_stat(stat: &[u8]) -> Option<Process> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(&stat[after_name..]).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    // The state is field 3, the start is field 22.
    let start = fields.nth(18)?.parse().ok()?;
    Some(match state {
        "Z" | "X" => Process::Zombie { start },
        _ => Process::Alive { start },
    })
}

/// The id of this process's pid namespace.
pub(super) fn namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn claim() -> Claim {
        let locked = |file: &str| Locked {
            file: file.repeat(16),
            identity: Identity { device: u64::MAX, inode: 1 << 60 },
        };
        let life = Life {
            boot: "boot".to_owned(),
            namespace: 4_026_531_836,
            process: 7,
            start: 12345,
            locked: locked("0a"),
        };
        Claim { life, work: Some(locked("f9")) }
    }

    #[test]
    fn a_mark_is_read_as_it_was_written() {
        let with_work = claim();
        let without = Claim { work: None, ..claim() };
        for claim in [with_work, without] {
            assert_eq!(Claim::read(&claim.mark()), Some(claim));
        }
    }

    #[test]
    fn an_odd_mark_says_nothing() {
        for (name, value) in [
            ("boot", json!(1)),
            ("pid", json!("7")),
            ("pid", json!(0)),
            ("pid", json!(-7)),
            ("pid", json!(1_u64 << 40)),
            ("start", json!(12345)),
            ("ino", json!("1e3")),
            ("file", json!("../../../../../../../../etc/pass")),
            ("file", json!("0A".repeat(16))),
            ("file", json!("0a".repeat(15))),
            ("work", json!(null)),
            ("work_dev", json!(null)),
        ] {
            let mut mark = claim().mark();
            mark.0.insert(name.to_owned(), value.clone());
            assert_eq!(Claim::read(&mark), None, "{name} {value}");
        }
        for name in ["boot", "pidns", "pid", "start", "file", "dev", "ino", "work", "work_ino"] {
            let mut mark = claim().mark();
            mark.0.remove(name);
            assert_eq!(Claim::read(&mark), None, "{name}");
        }
    }

    #[test]
    fn a_programs_name_may_look_like_the_fields_after_it() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20 21";
        let stat = format!("42 (a) Z (1 2)) {fields}");
        assert_eq!(parse_stat(stat.as_bytes()), Some(Process::Alive { start: 777 }));
        let dead = format!("42 (a) {}", fields.replacen('S', "Z", 1));
        assert_eq!(parse_stat(dead.as_bytes()), Some(Process::Zombie { start: 777 }));
        assert_eq!(parse_stat(b"42 (a) S 1"), None);
        let ours = look_at(std::process::id()).expect("looked");
        assert!(matches!(ours, Process::Alive { start } if start > 0));
    }

    proptest! {
        #[test]
        fn what_proc_says_is_parsed_without_panic(stat in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = parse_stat(&stat);
        }
    }
}
