//! A model: one process reads and writes in any order, through a server that may be deposed without
//! knowing it.
//!
//! A deposed server answers polls with its old state, and takes no barrier and no write. The
//! process takes an answer some time after the server gave it. The rules for a read:
//!
//! - It shows no version older than those that this process had learnt when the read was asked for.
//! - It shows news only if no newer version had been acknowledged when the read was asked for.

use bytes::Bytes;
use tenure::Key;
use tenure::store::{Document, Version};

use super::{Asked, Known, Sent};

/// A reader that breaks a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Twin {
    /// It takes news from the poll, without another read behind a barrier.
    NewsNotReadAgain,
    /// A read behind a barrier counts, however late its answer is taken.
    LateReadCounts,
}

/// A simple random number generator.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % sides
    }
}

enum Task {
    Read { asked: Then, stage: Stage },
    Write { sent: Sent, acknowledged: Option<u32> },
}

/// The state when a read was asked for.
#[derive(Clone, Copy)]
struct Then {
    truth: u32,
    learnt: u32,
}

enum Stage {
    Polling,
    Polled(u32),
    Asked(Asked),
    Answered(Asked, u32),
}

struct World {
    twin: Option<Twin>,
    known: Known,
    key: Key,
    /// The version that a quorum has.
    truth: u32,
    /// The version that a deposed server shows.
    frozen: Option<u32>,
    /// The newest version that this process has learnt.
    learnt: u32,
    tasks: Vec<Task>,
}

fn version(number: u32) -> Version {
    Version::new(number.to_string())
}

impl World {
    fn new(twin: Option<Twin>) -> World {
        let key = Key::parse("a").expect("a good key");
        let known = Known::default();
        World { twin, known, key, truth: 1, frozen: None, learnt: 0, tasks: Vec::new() }
    }

    fn step(&mut self, dice: &mut Dice) -> Result<(), String> {
        match dice.roll(10) {
            0 if self.tasks.len() < 4 => {
                let asks = !self.known.knows_any(std::slice::from_ref(&self.key));
                let stage = if asks { Stage::Asked(self.known.asked()) } else { Stage::Polling };
                let asked = Then { truth: self.truth, learnt: self.learnt };
                self.tasks.push(Task::Read { asked, stage });
            }
            1 if self.tasks.len() < 4 => {
                let sent = self.known.doubt(&self.key);
                self.tasks.push(Task::Write { sent, acknowledged: None });
            }
            // Another process writes.
            2 => self.truth += 1,
            3 if self.frozen.is_some() => self.frozen = None,
            3 => {
                let behind = u32::try_from(dice.roll(3)).expect("few");
                self.frozen = Some(self.truth.saturating_sub(behind).max(1));
            }
            _ if self.tasks.is_empty() => {}
            _ => {
                let task = self.tasks.swap_remove(dice.roll(self.tasks.len()));
                return self.go_on(task);
            }
        }
        Ok(())
    }

    fn go_on(&mut self, task: Task) -> Result<(), String> {
        match task {
            Task::Read { asked, stage } => {
                if let Some(stage) = self.read_on(asked, stage)? {
                    self.tasks.push(Task::Read { asked, stage });
                }
            }
            // Lost with the connection, or refused.
            Task::Write { acknowledged: None, .. } if self.frozen.is_some() => {
                self.known.doubt(&self.key);
            }
            Task::Write { sent, acknowledged: None } => {
                self.truth += 1;
                self.tasks.push(Task::Write { sent, acknowledged: Some(self.truth) });
            }
            Task::Write { sent, acknowledged: Some(number) } => {
                self.known.wrote(&self.key, &version(number), sent);
                self.learnt = self.learnt.max(number);
            }
        }
        Ok(())
    }

    /// Takes one step of `ZookeeperStore::look`, up to its next pause.
    fn read_on(&mut self, then: Then, stage: Stage) -> Result<Option<Stage>, String> {
        match stage {
            Stage::Polling => Ok(Some(Stage::Polled(self.frozen.unwrap_or(self.truth)))),
            Stage::Polled(shown) => {
                let document = Document { version: version(shown), body: Bytes::new() };
                let news = self.known.news(std::slice::from_ref(&self.key), &[Some(document)]);
                if news.is_empty() || self.twin == Some(Twin::NewsNotReadAgain) {
                    return self.show(then, shown);
                }
                Ok(Some(Stage::Asked(self.known.asked())))
            }
            // No quorum takes the barrier before the read.
            Stage::Asked(_) if self.frozen.is_some() => Ok(None),
            Stage::Asked(asked) => Ok(Some(Stage::Answered(asked, self.truth))),
            Stage::Answered(asked, shown) => {
                let late = self.twin == Some(Twin::LateReadCounts);
                let asked = if late { self.known.asked() } else { asked };
                self.known.read(&self.key, Some(version(shown)), asked);
                self.show(then, shown)
            }
        }
    }

    fn show(&mut self, then: Then, shown: u32) -> Result<Option<Stage>, String> {
        if shown < then.learnt {
            return Err(format!("{shown} is shown after {}", then.learnt));
        }
        if shown > self.learnt && shown < then.truth {
            return Err(format!("{shown} is news after {}", then.truth));
        }
        self.learnt = self.learnt.max(shown);
        Ok(None)
    }
}

/// The first seed that breaks a rule.
fn broken_by(twin: Option<Twin>) -> Option<(u64, String)> {
    (0..3000).find_map(|seed| {
        let (mut world, mut dice) = (World::new(twin), Dice(seed));
        let run = (0..200).try_for_each(|_| world.step(&mut dice));
        run.err().map(|how| (seed, how))
    })
}

#[test]
fn reads_in_any_order_through_a_deposed_server_show_nothing_old() {
    assert_eq!(broken_by(None), None);
}

#[test]
fn readers_that_break_a_rule_are_caught() {
    for twin in [Twin::NewsNotReadAgain, Twin::LateReadCounts] {
        assert!(broken_by(Some(twin)).is_some(), "{twin:?}");
    }
}
