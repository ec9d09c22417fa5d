//! Runs the fuzz functions.
//!
//! The input is the committed corpus, documents too large to commit, and mutations.

use std::path::Path;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tenure::store::MAX_DOCUMENT_BYTES;
use tenure_simulation::fuzz;

const MUTATIONS: u64 = 20_000;
/// Bytes with a meaning for parsers.
const TOKENS: [&[u8]; 20] = [
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\\u0000",
    b"\\ud800",
    b"-",
    b"1e999",
    b"18446744073709551616",
    b"null",
    b"\0",
    b"\xff",
    b"/",
    b"..",
    b"%",
    "\u{202e}".as_bytes(),
];

#[test]
fn records_are_decoded_without_harm() {
    run("record", fuzz::record);
}

#[test]
fn registrations_are_decoded_without_harm() {
    run("registration", fuzz::registration);
}

#[test]
fn names_are_checked_without_harm() {
    run("name", fuzz::name);
}

#[test]
fn urls_are_parsed_without_harm() {
    run("url", fuzz::url);
}

#[test]
fn the_documents_of_clusters_are_decoded_without_harm() {
    run("cluster", fuzz::cluster);
}

fn run(kind: &str, body: fn(&[u8])) {
    let corpus = corpus(kind);
    for (name, data) in corpus.iter().chain(&large()) {
        say_when_it_panics(&format!("{kind}/{name}"), data, body);
    }
    for seed in 0..MUTATIONS {
        let mut rng = StdRng::seed_from_u64(seed);
        let data = mutated(&mut rng, &corpus);
        say_when_it_panics(&format!("{kind}, mutation {seed}"), &data, body);
    }
}

/// The corpus, in an order that does not depend on the file system.
fn corpus(kind: &str) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(kind);
    let mut corpus: Vec<(String, Vec<u8>)> = std::fs::read_dir(&directory)
        .expect("the corpus is there")
        .map(|entry| {
            let entry = entry.expect("a readable directory");
            let data = std::fs::read(entry.path()).expect("a readable file");
            (entry.file_name().to_string_lossy().into_owned(), data)
        })
        .collect();
    corpus.sort();
    assert!(corpus.len() > 20, "only {} files in {}", corpus.len(), directory.display());
    corpus
}

/// Documents that are too large to commit.
fn large() -> Vec<(String, Vec<u8>)> {
    let deep = |text: &str| text.repeat(MAX_DOCUMENT_BYTES / text.len());
    let long_value = |bytes: usize| format!("{{\"holder\":\"{}\"}}", "x".repeat(bytes));
    let mut all: Vec<(String, Vec<u8>)> = [
        ("deep arrays", deep("[")),
        ("deep objects", deep("{\"a\":")),
        ("many fields", format!("{{{}}}", deep("\"a\":1,"))),
        ("spaces", " ".repeat(MAX_DOCUMENT_BYTES)),
        ("a long text", long_value(MAX_DOCUMENT_BYTES - 100)),
        ("one byte too many", " ".repeat(MAX_DOCUMENT_BYTES + 1)),
        ("a megabyte", long_value(1 << 20)),
        ("slashes", deep("/")),
        ("segments", deep("a/")),
    ]
    .map(|(name, text)| (name.to_owned(), text.into_bytes()))
    .to_vec();
    all.push(("sixteen megabytes".into(), vec![b'['; 16 << 20]));
    all
}

fn mutated(rng: &mut StdRng, corpus: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut data = corpus[rng.random_range(0..corpus.len())].1.clone();
    for _ in 0..rng.random_range(1..6) {
        let at = rng.random_range(0..=data.len());
        let end = rng.random_range(at..=data.len().min(at + 64));
        match rng.random_range(0..7) {
            0 => drop(data.drain(at..end)),
            1 => data.insert(at, rng.random()),
            2 if at < data.len() => data[at] ^= 1 << rng.random_range(0..8),
            3 => {
                let again = data[at..end].to_vec();
                drop(data.splice(at..at, again));
            }
            4 => {
                let token = TOKENS[rng.random_range(0..TOKENS.len())];
                drop(data.splice(at..end, token.iter().copied()));
            }
            5 => {
                let other = &corpus[rng.random_range(0..corpus.len())].1;
                let from = rng.random_range(0..=other.len());
                data.truncate(at);
                data.extend_from_slice(&other[from..]);
            }
            _ => {
                let digits = rng.random::<u64>().to_string();
                drop(data.splice(at..end, digits.into_bytes()));
            }
        }
    }
    data
}

fn say_when_it_panics(name: &str, data: &[u8], body: fn(&[u8])) {
    if let Err(panic) = std::panic::catch_unwind(|| body(data)) {
        let shown = String::from_utf8_lossy(&data[..data.len().min(2000)]);
        eprintln!("{name} broke it, {} bytes: {shown:?}", data.len());
        std::panic::resume_unwind(panic);
    }
}

/// If a decoder refused the whole corpus, only its first lines would be tested.
#[test]
fn the_corpus_holds_what_is_accepted_and_what_is_refused() {
    use tenure::lease::record::Record;
    use tenure_cluster::documents::{self, Format};
    let records = corpus("record");
    let accepted = records.iter().filter(|(_, data)| Record::decode(data).is_ok()).count();
    assert!(accepted > 15 && records.len() - accepted > 50, "{accepted} of {}", records.len());
    let documents = corpus("cluster");
    let accepted =
        |decodes: fn(&[u8]) -> bool| documents.iter().filter(|(_, data)| decodes(data)).count();
    for (kind, accepted) in [
        ("slots", accepted(|data| documents::Slot::decode(data).is_ok())),
        ("cursors", accepted(|data| documents::Cursor::decode(data).is_ok())),
        ("pages", accepted(|data| documents::Page::decode(data).is_ok())),
        ("node lists", accepted(|data| documents::Nodes::decode(data).is_ok())),
        ("members", accepted(|data| documents::MemberLock::decode(data).is_ok())),
        ("charters", accepted(|data| documents::ClusterConfig::decode(data).is_ok())),
        ("bells", accepted(|data| documents::WakeUp::decode(data).is_ok())),
        ("letters", accepted(|data| documents::Letter::decode(data).is_ok())),
        ("pieces", accepted(|data| documents::Piece::decode(data).is_ok())),
        ("outcomes", accepted(|data| documents::Outcome::decode(data).is_ok())),
        ("settings", accepted(|data| documents::Settings::decode(data).is_ok())),
        ("plans", accepted(|data| documents::Plan::decode(data).is_ok())),
    ] {
        assert!(accepted >= 2 && accepted < documents.len() / 2, "{accepted} {kind}");
    }
}
