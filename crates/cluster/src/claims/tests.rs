//! Tests of a node's claims, and the parts that they share.

mod claiming;
mod ending;
mod telling;

use super::*;
use crate::documents::{Progress, first_token};

/// Slots as a store would keep them, with rising versions.
struct World {
    now: Moment,
    slots: Vec<(u64, Slot)>,
    writes: u64,
}

fn me(number: u128) -> MemberId {
    MemberId::from_bits(number)
}

fn timing() -> Timing {
    Timing::new(Duration::from_secs(6)).expect("it fits")
}

fn task(serial: u64) -> Arc<Assignment> {
    Arc::new(Assignment {
        serial,
        id: format!("task-{serial}"),
        kind: "k".into(),
        payload: Default::default(),
        attempts: 3,
        timeout: None,
        to: None,
        receipt: None,
    })
}

fn outstanding(serial: u64) -> Slot {
    Slot {
        task: task(serial),
        progress: Progress::Outstanding { avoid: None, error: None },
        cancel: false,
        token: first_token(serial),
        attempt: 0,
        ttl: timing().ttl(),
        revision: 1,
        op: Op::new(&me(99), serial),
    }
}

fn node(member: u128, reads: Reads) -> Claims {
    let kinds = BTreeSet::from(["k".to_owned()]);
    let settings = Settings {
        member: me(member),
        presence: None,
        timing: timing(),
        reads,
        kinds,
        seed: u64::try_from(member).expect("small") * 77,
    };
    let mut claims = Claims::new(settings);
    claims.take(Moment::default(), Input::Hands { most: 8, workers: 8 });
    claims.take(Moment::default(), Input::Place(Some(place(0, &[member], 8, 8))));
    claims
}

fn place(before: usize, members: &[u128], workers: usize, all_workers: usize) -> Place {
    let members = members.iter().map(|number| me(*number)).collect();
    Place { before, members, workers, all_workers }
}

impl World {
    fn with(slots: u64) -> World {
        let slots = (1..=slots).map(|serial| (1, outstanding(serial))).collect();
        World { now: Moment::default() + Duration::from_secs(1), slots, writes: 1 }
    }

    fn pass(&mut self, span: Duration) {
        self.now = self.now + span;
    }

    fn seen(&self) -> Vec<Option<Seen>> {
        self.slots
            .iter()
            .map(|(version, slot)| {
                Some(Seen { version: Version::new(version.to_string()), slot: Ok(slot.clone()) })
            })
            .collect()
    }

    fn put(&mut self, write: &SlotWrite) -> Put {
        let (version, slot) = &mut self.slots[write.slot];
        if write.expect != Expect::At(Version::new(version.to_string())) {
            return Put::Conflict;
        }
        self.writes += 1;
        (*version, *slot) = (self.writes, (*write.body).clone());
        Put::Stored(Version::new(version.to_string()))
    }

    /// Serves a node until it asks for nothing more, and returns its other outputs.
    fn serve(&mut self, node: &mut Claims) -> Vec<Output> {
        let mut said = Vec::new();
        loop {
            let outputs = node.act(self.now, 0);
            let mut asked = false;
            for output in outputs {
                match output {
                    Output::Look(ask) => {
                        node.take(self.now, Input::Looked(ask, Ok(self.seen())));
                        asked = true;
                    }
                    Output::Write(ask, writes) => {
                        let answers = writes.iter().map(|write| Ok(self.put(write))).collect();
                        node.take(self.now, Input::Wrote(ask, answers));
                        asked = true;
                    }
                    other @ (Output::Begin { .. }
                    | Output::Extended(..)
                    | Output::MustStop(_)
                    | Output::Cancel(_)
                    | Output::Lost(_)
                    | Output::Settled(..)
                    | Output::Garbled(..)
                    | Output::RanDry) => said.push(other),
                }
            }
            if !asked {
                return said;
            }
        }
    }
}

fn begun(said: &[Output]) -> Vec<Claim> {
    said.iter()
        .filter_map(
            |output| {
                if let Output::Begin { claim, .. } = output { Some(*claim) } else { None }
            },
        )
        .collect()
}
