//! The scripted server's answers in parts: feeds, and sequences on request.

use serde_json::{Value, json};
use tokio::sync::mpsc;

pub(super) struct Feed {
    pub(super) asked: Asked,
    pub(super) table: String,
    pub(super) pluck: Option<Value>,
    pub(super) waiting: Vec<Value>,
    /// True while the client waits for a part.
    pub(super) owed: bool,
}

/// The question that an answer belongs to.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) token: u64,
    pub(super) answers: mpsc::UnboundedSender<(u64, Value)>,
}

impl Asked {
    pub(super) fn is_of(&self, token: u64, answers: &mpsc::UnboundedSender<(u64, Value)>) -> bool {
        self.token == token && self.answers.same_channel(answers)
    }
}

/// The rest of a sequence that is sent in parts.
pub(super) struct Sequence {
    pub(super) asked: Asked,
    pub(super) left: Vec<Value>,
}

impl Sequence {
    /// The next part, with up to `rows` rows.
    pub(super) fn part(&mut self, rows: usize) -> Value {
        let some: Vec<Value> = self.left.drain(..rows.min(self.left.len())).collect();
        json!({ "t": if self.left.is_empty() { 2 } else { 3 }, "r": some })
    }
}

impl Feed {
    pub(super) fn show(&mut self, change: Value) {
        let change = match &self.pluck {
            Some(pluck) => plucked(&change, pluck),
            None => change,
        };
        self.waiting.push(change);
        self.tell();
    }

    pub(super) fn tell(&mut self) {
        if self.owed && !self.waiting.is_empty() {
            self.owed = false;
            let part = json!({ "t": 3, "r": std::mem::take(&mut self.waiting) });
            // The client may have gone away.
            let _ = self.asked.answers.send((self.asked.token, part));
        }
    }
}

/// Keeps only the fields that the pattern names.
fn plucked(value: &Value, pattern: &Value) -> Value {
    let Some(fields) = value.as_object() else { return value.clone() };
    let keep = |name: &String, value: &Value| match pattern {
        Value::Object(pattern) => match pattern.get(name) {
            None => None,
            Some(Value::Bool(true)) => Some(value.clone()),
            Some(deeper) => Some(plucked(value, deeper)),
        },
        Value::Array(names) => names.iter().any(|kept| kept == name).then(|| value.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    let kept = fields.iter().filter_map(|(name, value)| Some((name.clone(), keep(name, value)?)));
    Value::Object(kept.collect())
}
