//! Simulates queues over many seeds; exits with 1 for a broken promise.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tenure::queue::mutant::Mutant;
use tenure_conformance::queue_simulator::{
    Dialect, Options, Profile, Rare, Sometimes, report, simulate,
};
use tenure_conformance::simulator::commit;

const USAGE: &str = "usage: simulate-queue [--seeds N] [--from N] [--threads N] [--mutants]
                      [--beyond] [--seed N [--trace]] [--mutant NAME] [--dialect zookeeper|etcd]
                      [--profile any|pings|deposed|hiccups|operated|delayed|rebuilt|refusing|whims|companions|overtaken|doubtful]";
/// A mutant that survives so many seeds has escaped.
const MOST_SEEDS_PER_MUTANT: u64 = 20_000;

struct Args {
    from: u64,
    seeds: u64,
    threads: u64,
    seed: Option<u64>,
    mutants: bool,
    options: Options,
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(args) => run(&args),
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn parse(mut given: impl Iterator<Item = String>) -> Result<Args, String> {
    let mut args = Args {
        from: 0,
        seeds: 1000,
        threads: 2,
        seed: None,
        mutants: false,
        options: Options::default(),
    };
    while let Some(flag) = given.next() {
        let mut value = || given.next().ok_or(format!("{flag} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{text} is no number"));
        match flag.as_str() {
            "--from" => args.from = number(value()?)?,
            "--seeds" => args.seeds = number(value()?)?,
            "--threads" => args.threads = number(value()?)?.max(1),
            "--seed" => args.seed = Some(number(value()?)?),
            "--trace" => args.options.trace = true,
            "--mutants" => args.mutants = true,
            "--beyond" => args.options.beyond = true,
            "--dialect" => {
                args.options.dialect = Some(match value()?.as_str() {
                    "zookeeper" => Dialect::Zookeeper,
                    "etcd" => Dialect::Etcd,
                    other => return Err(format!("no dialect is called {other}")),
                });
            }
            "--profile" => {
                args.options.profile = match value()?.as_str() {
                    "any" => Profile::Any,
                    "pings" => Profile::Pings,
                    "deposed" => Profile::Deposed,
                    "hiccups" => Profile::Hiccups,
                    "operated" => Profile::Operated,
                    "delayed" => Profile::Delayed,
                    "rebuilt" => Profile::Rebuilt,
                    "refusing" => Profile::Refusing,
                    "whims" => Profile::Whims,
                    "companions" => Profile::Companions,
                    "overtaken" => Profile::Overtaken,
                    "doubtful" => Profile::Doubtful,
                    other => return Err(format!("no profile is called {other}")),
                }
            }
            "--mutant" => {
                let name = value()?;
                let named = Mutant::ALL.into_iter().find(|mutant| format!("{mutant:?}") == name);
                let mutant = named.ok_or(format!("no mutant is called {name}"))?;
                let trace = args.options.trace;
                args.options = Options { trace, ..Options::hunting(mutant) };
            }
            _ => return Err(format!("{flag} is unknown")),
        }
    }
    Ok(args)
}

fn run(args: &Args) -> ExitCode {
    match args.seed {
        Some(seed) => one(seed, args),
        None if args.mutants => mutants(args),
        None => many(args),
    }
}

fn one(seed: u64, args: &Args) -> ExitCode {
    let run = simulate(seed, args.options);
    for line in &run.trace {
        println!("{line}");
    }
    match run.breach {
        Some(breach) => {
            println!("seed {seed}: {breach}");
            ExitCode::FAILURE
        }
        None => {
            println!("seed {seed}: every promise kept, {} events", run.events);
            ExitCode::SUCCESS
        }
    }
}

fn many(args: &Args) -> ExitCode {
    let began = Instant::now();
    let (next, events) = (AtomicU64::new(args.from), AtomicU64::new(0));
    let end = args.from + args.seeds;
    let found = Mutex::new((Sometimes::default(), Vec::new()));
    let options = Options { trace: false, ..args.options };
    std::thread::scope(|scope| {
        for _ in 0..args.threads {
            scope.spawn(|| {
                let (mut sometimes, mut broken) = (Sometimes::default(), Vec::new());
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        break;
                    }
                    let run = simulate(seed, options);
                    events.fetch_add(run.events, Ordering::Relaxed);
                    sometimes.add(&run.sometimes);
                    broken.extend(run.breach.map(|breach| (seed, breach)));
                }
                let mut found = found.lock().expect("no thread panics while it holds this");
                found.0.add(&sometimes);
                found.1.extend(broken);
            });
        }
    });
    let took = began.elapsed().as_secs_f64();
    let (sometimes, mut broken) = found.into_inner().expect("every thread has ended");
    broken.sort_by_key(|(seed, _)| *seed);
    for rare in Rare::ALL {
        println!("{:>12}  {rare:?}", sometimes.count(*rare));
    }
    println!(
        "{} seeds at commit {} in {took:.1} s, {:.0} seeds/s, {} events a seed, {} broken",
        args.seeds,
        commit(),
        args.seeds as f64 / took,
        events.into_inner() / args.seeds.max(1),
        broken.len()
    );
    for (seed, breach) in broken.iter().take(12) {
        println!("seed {seed}: {breach}");
    }
    if let Some((seed, _)) = broken.first() {
        println!("{}", report(*seed, options));
        return ExitCode::FAILURE;
    }
    let never: Vec<Rare> = sometimes.never().collect();
    let whole = args.options.dialect.is_none() && args.options.profile == Profile::Any;
    if args.seeds >= 3000 && whole && !never.is_empty() {
        println!("never seen: {never:?}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn mutants(args: &Args) -> ExitCode {
    let mut escaped = 0;
    for mutant in Mutant::ALL {
        let options = Options::hunting(mutant);
        let caught = (args.from..args.from + MOST_SEEDS_PER_MUTANT)
            .find_map(|seed| simulate(seed, options).breach.map(|breach| (seed, breach)));
        match caught {
            Some((seed, breach)) => {
                println!("{mutant:?}: {} seeds, {breach}", seed - args.from + 1);
            }
            None => {
                escaped += 1;
                println!("{mutant:?}: ESCAPED {MOST_SEEDS_PER_MUTANT} seeds");
            }
        }
    }
    if escaped == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
