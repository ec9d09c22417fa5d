//! Lists that another machine sends, refused when they are too long.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// A list of at most `MOST` items. Reading a longer one stops with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounded<T, const MOST: usize>(pub(crate) Vec<T>);

impl<T, const MOST: usize> Default for Bounded<T, MOST> {
    fn default() -> Bounded<T, MOST> {
        Bounded(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Bounded<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

struct Items<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Items<T, MOST> {
    type Value = Bounded<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MOST} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while let Some(item) = items.next_element()? {
            if kept.len() == MOST {
                return Err(A::Error::custom(format!("the list has more than {MOST} items")));
            }
            kept.push(item);
        }
        Ok(Bounded(kept))
    }
}

/// The peak memory of a test's work, measured in a process of its own.
#[cfg(test)]
pub(crate) mod memory {
    use std::process::Command;

    const VARIABLE: &str = "TENURE_TEST_MEASURES_MEMORY";
    const MEBIBYTE: usize = 1024 * 1024;

    /// Eight mebibytes of JSON, in which each item is a small tree. Parsed into values, they take a
    /// hundred times as much.
    pub(crate) fn costly(around: impl FnOnce(&str) -> String) -> String {
        let item = r#"{"a":0},"#;
        let mut items = item.repeat(8 * MEBIBYTE / item.len());
        items.pop();
        around(&format!("[{items}]"))
    }

    /// Runs the work in another process. Fails if it takes more than `most` mebibytes.
    pub(crate) fn is_spared(test: &str, most: usize, work: impl FnOnce()) {
        if std::env::var_os(VARIABLE).is_some() {
            let before = peak();
            work();
            println!("took {} KiB", peak() - before);
            return;
        }
        let program = std::env::current_exe().expect("this program");
        let output = Command::new(program)
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, "1")
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        let took = said.split("took ").nth(1).and_then(|took| took.split(' ').next());
        let took: usize =
            took.and_then(|took| took.parse().ok()).unwrap_or_else(|| panic!("{said}"));
        println!("{test}: {} MiB", took / 1024);
        assert!(took / 1024 <= most, "{test} took {} MiB of memory", took / 1024);
    }

    /// The peak memory of this process, in KiB.
    fn peak() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
    }
}
