//! The program of a simulator: its arguments, and the three ways to run it.

use std::fmt::Debug;
use std::process::ExitCode;
use std::time::Instant;

use super::clock::Rates;
use super::listed::Listed;
use super::runner::{commit, hunt, report, search};
use super::simulator::{Options, Simulator};

/// A mutant that survives this many seeds has escaped.
const MOST_SEEDS_PER_MUTANT: u64 = 20_000;
/// So many seeds of the whole swarm take every rare path.
const SEEDS_FOR_EVERY_PATH: u64 = 3000;

struct Arguments<S: Simulator> {
    from: u64,
    seeds: u64,
    threads: u64,
    seed: Option<u64>,
    mutants: bool,
    options: Options<S>,
}

/// The main function of a simulator's program.
///
/// It exits with 1 if a seed breaks a promise, or if a mutant escapes.
#[must_use]
pub fn main<S: Simulator>() -> ExitCode {
    match parse::<S>(std::env::args().skip(1)) {
        Ok(Arguments { seed: Some(seed), options, .. }) => one(seed, options),
        Ok(arguments) if arguments.mutants => mutants::<S>(arguments.from),
        Ok(arguments) => many(&arguments),
        Err(why) => {
            eprintln!("{why}\n{}", usage::<S>());
            ExitCode::from(2)
        }
    }
}

fn usage<S: Simulator>() -> String {
    let profiles = S::Profile::ALL.iter().map(|profile| format!("{profile:?}").to_lowercase());
    format!(
        "usage: {} [--seeds N] [--from N] [--threads N] [--seed N [--trace]] [--mutants]\n\
         \x20      [--mutant NAME] [--beyond] [--profile {}]",
        S::PROGRAM,
        profiles.collect::<Vec<_>>().join("|")
    )
}

fn parse<S: Simulator>(mut given: impl Iterator<Item = String>) -> Result<Arguments<S>, String> {
    let options = Options::default();
    let mut arguments =
        Arguments { from: 0, seeds: 1000, threads: 2, seed: None, mutants: false, options };
    while let Some(flag) = given.next() {
        let mut value = || given.next().ok_or(format!("{flag} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text} is no number"));
        let options = &mut arguments.options;
        match flag.as_str() {
            "--from" => arguments.from = number(value()?)?,
            "--seeds" => arguments.seeds = number(value()?)?,
            "--threads" => arguments.threads = number(value()?)?.max(1),
            "--seed" => arguments.seed = Some(number(value()?)?),
            "--trace" => options.trace = true,
            "--mutants" => arguments.mutants = true,
            "--beyond" => options.rates = Rates::Beyond,
            "--profile" => options.profile = named(S::Profile::ALL, &value()?)?,
            "--mutant" => {
                let mutant = named(S::MUTANTS, &value()?)?;
                (options.mutant, options.profile) = (Some(mutant), S::hunting(mutant));
            }
            _ => return Err(format!("{flag} is unknown")),
        }
    }
    Ok(arguments)
}

fn named<T: Copy + Debug>(all: &[T], name: &str) -> Result<T, String> {
    let found = all.iter().find(|one| format!("{one:?}").eq_ignore_ascii_case(name));
    found.copied().ok_or(format!("nothing is called {name}"))
}

/// Shows one seed.
fn one<S: Simulator>(seed: u64, options: Options<S>) -> ExitCode {
    let run = S::simulate(seed, options);
    run.trace.iter().for_each(|line| println!("{line}"));
    println!("seed {seed}: {}, {} events", run.verdict(), run.events);
    if run.breach.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs many seeds, which must keep every promise and take every rare path.
fn many<S: Simulator>(arguments: &Arguments<S>) -> ExitCode {
    let Arguments { from, seeds, threads, options, .. } = *arguments;
    let began = Instant::now();
    let found = search(from..from + seeds, threads, options);
    let took = began.elapsed().as_secs_f64();
    for rare in S::Rare::ALL {
        println!("{:>12}  {rare:?}", found.sometimes.count(*rare));
    }
    println!(
        "{seeds} seeds at commit {} in {took:.1} s, {:.0} seeds/s, {} events a seed, {} broken",
        commit(),
        seeds as f64 / took,
        found.events / seeds.max(1),
        found.broken.len()
    );
    for run in found.broken.iter().take(12) {
        println!("seed {}: {}", run.seed, run.verdict());
    }
    if let Some(run) = found.broken.first() {
        println!("{}", report(run, options));
        return ExitCode::FAILURE;
    }
    let never = found.sometimes.never();
    let whole = options.profile == S::Profile::ALL[0] && seeds >= SEEDS_FOR_EVERY_PATH;
    if whole && !never.is_empty() {
        println!("never seen: {never:?}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Breaks each rule; some seed must notice.
fn mutants<S: Simulator>(from: u64) -> ExitCode {
    let mut escaped = 0;
    for mutant in S::MUTANTS {
        match hunt::<S>(*mutant, from..from + MOST_SEEDS_PER_MUTANT) {
            Some(run) => println!("{mutant:?}: {} seeds, {}", run.seed - from + 1, run.verdict()),
            None => {
                escaped += 1;
                println!("{mutant:?}: ESCAPED {MOST_SEEDS_PER_MUTANT} seeds");
            }
        }
    }
    if escaped == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
