//! Learns the current state.
//!
//! While the node in this process is the only one, the leader learns from it. Otherwise it looks at
//! all documents.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::Moment;
use tenure::store::{StoreError, Version};

use super::held_cursor::Stop;
use super::request::{Answer, Request};
use super::{Leader, Output, PACE, Phase, held};
use crate::documents::{DocumentError, NodeEntry};
use crate::event::Event;

/// How long a leader relies on its process's node before it looks by itself.
///
/// This is for a node that is the only one.
const ALONE: Duration = Duration::from_millis(200);

/// When the leader last learnt something.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the last round began.
    pub(super) began: Moment,
    /// When the leader last learnt the state of the slots, by a look or by facts.
    caught_up: Option<Moment>,
    /// When it last looked; `None` if a look is due, because the leader was called or has just
    /// taken over the cursor.
    pub(super) last_look: Option<Moment>,
    /// The last round left tasks for nodes to take.
    pub(super) stocked: bool,
}

impl Pace {
    /// The time of the next look, regardless of local writes of the node.
    fn next_look(&self, alone: bool) -> Option<Moment> {
        Some(self.last_look? + if alone { ALONE } else { PACE })
    }

    /// The time of the next look, if the leader relies on local writes since the last one: only a
    /// look shows the writes of other nodes.
    pub(super) fn look_due(&self, alone: bool) -> Option<Moment> {
        self.next_look(alone).filter(|_| self.caught_up > self.last_look)
    }

    /// The time until which several tasks may have ended, unless nodes wait for work.
    fn until(&self, now: Moment) -> Option<Moment> {
        let since = self.caught_up.map(|last| now.at_most_since(last));
        let left = since.and_then(|since| PACE.checked_sub(since)).filter(|_| self.stocked)?;
        Some(now + left)
    }
}

/// A look at all documents, and beside it a wake-up of the nodes.
#[derive(Debug)]
pub(super) struct Looking {
    /// The look before showed no other node.
    alone: bool,
    step: LookingStep,
}

#[derive(Debug)]
enum LookingStep {
    /// The look begins after a short pause.
    Pacing { until: Moment },
    /// Documents are read. The first request was sent at this time.
    Reading { at: Moment },
    /// They were read, or not. The wake-up of the nodes may be under way still.
    Read { at: Moment, result: Result<(), StoreError> },
    /// Nodes have joined, and are woken.
    Ringing,
}

impl Looking {
    /// The end of the pause before the look.
    pub(super) fn pace(&self) -> Option<Moment> {
        match self.step {
            LookingStep::Pacing { until } => Some(until),
            LookingStep::Reading { .. } | LookingStep::Read { .. } | LookingStep::Ringing => None,
        }
    }
}

impl Leader {
    /// Learns the current state, by a look or from the node in this process.
    pub(super) fn catch_up(&mut self) -> Result<(), Stop> {
        let (alone, silent) = (self.is_alone(), self.heard.is_empty());
        let outdated = self.look.is_outdated || !held(&mut self.cursor)?.is_seen_through();
        if outdated || self.is_look_due(alone) || silent && !alone {
            return self.refresh(alone);
        }
        if silent {
            return self.take_heard();
        }
        match self.pace.until(self.common.now) {
            Some(until) => {
                self.phase = Phase::Pacing { until };
                Ok(())
            }
            None => self.paced(),
        }
    }

    /// Returns true if the last look showed no other node than the one in this process.
    pub(super) fn is_alone(&self) -> bool {
        let is_me = |node: &NodeEntry| node.token == self.common.settings.me;
        self.look.nodes.content().is_some_and(|nodes| nodes.nodes.iter().all(is_me))
    }

    /// Returns true if a look is due, regardless of local writes of the node.
    fn is_look_due(&self, alone: bool) -> bool {
        let next = self.pace.next_look(alone);
        self.unrung && !alone || next.is_none_or(|next| next.boot <= self.common.now.boot)
    }

    pub(super) fn paced(&mut self) -> Result<(), Stop> {
        self.pace.caught_up = Some(self.common.now);
        self.take_heard()
    }

    fn take_heard(&mut self) -> Result<(), Stop> {
        for write in std::mem::take(&mut self.heard).into_values() {
            self.look.heard(write);
        }
        self.act()
    }

    /// Looks at all documents after a short pause. Meanwhile wakes the nodes, if that is due and
    /// there are other nodes to hear it.
    fn refresh(&mut self, alone: bool) -> Result<(), Stop> {
        match self.pace.until(self.common.now) {
            Some(until) => {
                let step = LookingStep::Pacing { until };
                self.phase = Phase::Looking(Looking { alone, step });
            }
            None => self.look(alone, self.common.now)?,
        }
        if self.unrung && !alone {
            self.ring();
        }
        Ok(())
    }

    fn look(&mut self, alone: bool, at: Moment) -> Result<(), Stop> {
        let keys = self.look.keys(&self.common.settings.keys);
        let step = LookingStep::Reading { at };
        self.wait_in(Phase::Looking(Looking { alone, step }), Request::Look(keys))
    }

    fn ring(&mut self) {
        let ask = self.send(Request::Ring);
        self.ringing = Some(ask);
    }

    /// Takes in the answer to a wake-up of the nodes.
    pub(super) fn rang(&mut self, answer: Answer) -> Result<(), Stop> {
        match answer.done() {
            Ok(_) => self.unrung = false,
            Err(error) => {
                self.common.warn_of("the bell was not rung; it is tried again", "", &error);
            }
        }
        match self.take_phase() {
            Phase::Looking(looking) => self.go_on_looking(looking),
            phase @ (Phase::Awaiting(_)
            | Phase::Pacing { .. }
            | Phase::TellingSource(_)
            | Phase::AskingSource { .. }
            | Phase::Pausing { .. }
            | Phase::Resting { .. }
            | Phase::Between) => {
                self.phase = phase;
                Ok(())
            }
        }
    }

    /// Begins the look after its pause.
    pub(super) fn go_on_looking(&mut self, looking: Looking) -> Result<(), Stop> {
        let Looking { alone, step } = looking;
        match step {
            LookingStep::Pacing { until } if until.boot <= self.common.now.boot => {
                self.look(alone, self.common.now)
            }
            LookingStep::Read { at, result } if self.ringing.is_none() => {
                self.looked(alone, at, result)
            }
            LookingStep::Ringing => self.observe(),
            step @ (LookingStep::Pacing { .. }
            | LookingStep::Reading { .. }
            | LookingStep::Read { .. }) => {
                self.phase = Phase::Looking(Looking { alone, step });
                Ok(())
            }
        }
    }

    /// Takes in the answer to a look.
    pub(super) fn shown(&mut self, looking: Looking, answer: Answer) -> Result<(), Stop> {
        let LookingStep::Reading { at } = looking.step else { return Err(Stop::Unsure) };
        let (keys, now) = (&self.common.settings.keys, self.common.now);
        let result = answer.shown().map(|shown| self.look.refresh(keys, shown, now));
        let result = match result {
            Ok(true) => Ok(()),
            Ok(false) => return self.look(looking.alone, at),
            Err(error) => Err(error),
        };
        self.go_on_looking(Looking { step: LookingStep::Read { at, result }, ..looking })
    }

    fn looked(
        &mut self,
        alone: bool,
        at: Moment,
        result: Result<(), StoreError>,
    ) -> Result<(), Stop> {
        (self.pace.caught_up, self.pace.last_look) = (Some(at), Some(at));
        result?;
        // Another node has joined, which has not heard of the slots that were filled meanwhile.
        if self.unrung && alone && !self.is_alone() {
            self.phase = Phase::Looking(Looking { alone, step: LookingStep::Ringing });
            self.ring();
            return Ok(());
        }
        self.observe()
    }

    /// Passes on what a look has shown.
    fn observe(&mut self) -> Result<(), Stop> {
        if let Some(nodes) = self.look.nodes.content() {
            self.common.outputs.push(Output::SawNodes(nodes.clone()));
        }
        self.common.outputs.push(Output::Filled(self.look.to_be_taken().collect()));
        self.members.observe(&self.look);
        if let Some(count) = self.members.changed_count(&self.look) {
            self.common.tell(Event::Members(count));
        }
        self.tell_of_garbled();
        self.take_heard()
    }

    /// Reports each invalid document once.
    fn tell_of_garbled(&mut self) {
        let (look, keys) = (&self.look, &self.common.settings.keys);
        let refused = (Version::new("refused"), DocumentError::refused("slot"));
        let mut garbled = Vec::new();
        garbled.extend(look.cluster_config.error().map(|found| (keys.cluster_config(), found)));
        garbled.extend(look.nodes.error().map(|found| (keys.nodes(), found)));
        let slots = look.slots.iter().enumerate();
        garbled.extend(slots.filter_map(|(number, slot)| Some((keys.slot(number), slot.error()?))));
        garbled.extend(look.unreadable().map(|it| (keys.slot(it), (&refused.0, &refused.1))));
        let mut told = BTreeMap::new();
        for (key, (version, error)) in garbled {
            if self.told.get(&key) != Some(version) {
                self.common.garbled(key.clone(), error.clone());
            }
            told.insert(key, version.clone());
        }
        self.told = told;
    }
}
