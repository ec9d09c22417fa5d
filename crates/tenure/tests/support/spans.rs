//! Collects the spans and events of a test on one thread.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// The spans and events so far. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Spans(Arc<Mutex<Collected>>);

#[derive(Default)]
struct Collected {
    spans: Vec<Span>,
    entered: Vec<usize>,
    /// The name of the current span, and the message.
    events: Vec<(String, String)>,
}

/// A span as it was opened.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) name: &'static str,
    pub(crate) parent: Option<&'static str>,
    pub(crate) fields: BTreeMap<&'static str, String>,
}

impl Spans {
    /// The only span of this name.
    pub(crate) fn only(&self, name: &str) -> Span {
        let spans = &self.lock().spans;
        let found: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "{spans:?}");
        found[0].clone()
    }

    /// Returns true if there was an event with this message in a span of this name.
    pub(crate) fn saw(&self, span: &str, message: &str) -> bool {
        self.lock().events.contains(&(span.to_owned(), message.to_owned()))
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.0.lock().expect("no test panics while it collects")
    }
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

fn index(id: &Id) -> usize {
    usize::try_from(id.into_u64()).expect("few spans") - 1
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tenure")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let mut collected = self.lock();
        let parent = attributes.parent().map(|parent| collected.spans[index(parent)].name);
        let name = attributes.metadata().name();
        collected.spans.push(Span { name, parent, fields: fields.0 });
        Id::from_u64(collected.spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let mut collected = self.lock();
        let current = collected.entered.last().map(|index| collected.spans[*index].name);
        let message = fields.0.remove("message").unwrap_or_default();
        collected.events.push((current.unwrap_or_default().to_owned(), message));
    }

    fn enter(&self, id: &Id) {
        self.lock().entered.push(index(id));
    }

    fn exit(&self, _: &Id) {
        self.lock().entered.pop();
    }
}
