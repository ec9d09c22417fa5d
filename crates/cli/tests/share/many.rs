//! Issue 7, "It holds when" 6: many files, several processes, one of them killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::counts;
use super::support::{Running, Scene};

const FILES: usize = 5000;
/// How many files must be done before one of the three processes is killed.
const BEFORE: usize = 1000;
/// Far longer than the work takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// Reads the output of a process on a thread, so that it is never held up.
fn listen(running: &mut Running) -> std::thread::JoinHandle<Vec<Value>> {
    let out = running.child().stdout.take().unwrap();
    std::thread::spawn(move || {
        let lines = BufReader::new(out).lines();
        // The last line of a killed process may be cut.
        lines.map_while(Result::ok).filter_map(|line| serde_json::from_str(&line).ok()).collect()
    })
}

#[test]
fn five_thousand_files_by_three_processes_of_which_one_is_killed_are_all_accounted_for() {
    let scene = Scene::with_files(FILES);
    fs::create_dir(scene.path("out")).unwrap();
    let out = scene.path("out");
    let line = ["share", "g", "--from", "in", "--workers", "4", "--", "cp", "{}"];
    let line = [&line[..], &[out.to_str().unwrap()]].concat();
    let start = || {
        let mut command = scene.tenure(&line);
        command.current_dir(scene.path(""));
        Running::start(command)
    };
    let began = Instant::now();
    let mut all = [start(), start(), start()];
    let told = all.each_mut().map(listen);
    let copied = || fs::read_dir(scene.path("out")).unwrap().count();
    while copied() < BEFORE {
        assert!(began.elapsed() < PATIENCE, "only {} files in time", copied());
        std::thread::sleep(Duration::from_millis(20));
    }
    all[0].signal(Signal::KILL);
    let [_, second, third] = all;
    let codes = [second, third].map(|running| running.end_within(PATIENCE).code);
    assert_eq!(codes, [Some(0), Some(0)]);
    let took = began.elapsed();
    let told = told.map(|thread| thread.join().unwrap());

    // Every file was processed.
    assert_eq!(copied(), FILES);
    for number in 0..FILES {
        let copy = fs::read_to_string(out.join(format!("{number:04}"))).unwrap();
        assert_eq!(copy, format!("{number}\n"));
    }
    // The cluster's records have each file once.
    let results = scene.listed("g", "--results");
    let ids: BTreeSet<&str> = results.iter().map(|result| result["id"].as_str().unwrap()).collect();
    assert_eq!((results.len(), ids.len()), (FILES, FILES));
    assert!(results.iter().all(|result| result["state"] == "done"));
    // So does the output, except for the last items of the killed process.
    let mut printed: BTreeMap<&str, u32> = BTreeMap::new();
    let ended = |line: &&Value| line["event"] == "ended" && line["state"] == "done";
    for line in told.iter().flatten().filter(ended) {
        *printed.entry(line["id"].as_str().unwrap()).or_default() += 1;
    }
    assert!(printed.values().all(|times| *times == 1), "some end counted twice");
    let missing = ids.iter().filter(|id| !printed.contains_key(**id)).count();
    assert!(missing < 600, "{missing} are in nobody's output");
    for told in &told[1..] {
        let summary = told.last().unwrap();
        assert_eq!(counts(summary), [FILES as u64, FILES as u64, 0, 0, 0], "{summary}");
    }
    let each = told.each_ref().map(|told| told.iter().filter(ended).count());
    println!("{FILES} files in {took:.1?}; told {each:?}, {missing} by the killed one only");
}
