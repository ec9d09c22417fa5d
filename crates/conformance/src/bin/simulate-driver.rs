//! Simulates many seeds through the driver; exits with 1 for a broken promise.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tenure_conformance::driven::{Rates, Run, simulate};
use tenure_conformance::simulator::commit;

const USAGE: &str = "usage: simulate-driver [--seeds N] [--from N] [--threads N] [--seed N]";

struct Args {
    from: u64,
    seeds: u64,
    threads: u64,
    seed: Option<u64>,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(Args { seed: Some(seed), .. }) => tell(seed, &simulate(seed, Rates::Tolerated)),
        Ok(args) => many(&args),
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut given: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args { from: 0, seeds: 2000, threads: 2, seed: None };
    while let Some(flag) = given.next() {
        let value = given.next().ok_or(format!("{flag} needs a value"))?;
        let number = value.parse().map_err(|_| format!("{value} is no number"))?;
        match flag.as_str() {
            "--from" => args.from = number,
            "--seeds" => args.seeds = number,
            "--threads" => args.threads = number.max(1),
            "--seed" => args.seed = Some(number),
            _ => return Err(format!("{flag} is unknown")),
        }
    }
    Ok(args)
}

/// The whole run of one seed, for a replay.
fn tell(seed: u64, run: &Run) -> ExitCode {
    run.trace.iter().for_each(|line| println!("{line}"));
    match &run.breach {
        Some(breach) => {
            println!("seed {seed} at commit {}: {breach}", commit());
            println!("replay: simulate-driver --seed {seed}");
            ExitCode::FAILURE
        }
        None => {
            println!("seed {seed}: every promise kept");
            ExitCode::SUCCESS
        }
    }
}

fn many(args: &Args) -> ExitCode {
    let began = Instant::now();
    let (next, end) = (AtomicU64::new(args.from), args.from + args.seeds);
    let (tenures, losses) = (AtomicU64::new(0), AtomicU64::new(0));
    let broken = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..args.threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let run = simulate(seed, Rates::Tolerated);
                    tenures.fetch_add(run.tenures, Ordering::Relaxed);
                    losses.fetch_add(run.losses, Ordering::Relaxed);
                    if run.breach.is_some() {
                        next.store(end, Ordering::Relaxed);
                        let mut broken =
                            broken.lock().expect("no thread panics while it holds this");
                        broken.get_or_insert((seed, run));
                        return;
                    }
                }
            });
        }
    });
    if let Some((seed, run)) = broken.into_inner().expect("every thread has ended") {
        return tell(seed, &run);
    }
    println!(
        "{} seeds through the driver at commit {} in {:.1} s: {} tenures, {} of them lost, 0 broken",
        args.seeds,
        commit(),
        began.elapsed().as_secs_f64(),
        tenures.into_inner(),
        losses.into_inner()
    );
    ExitCode::SUCCESS
}
