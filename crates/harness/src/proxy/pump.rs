use super::alarm::Alarm;
use super::connection::{Ending, Link};
use super::decoder::Decoder;
use super::queue::{Item, Queue};
use super::rules::{Flow, Rules};
use super::trap::Verdict;
use super::{Direction, Framing};
use bytes::Bytes;
use std::future::pending;
use std::io;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

/// How many bytes are read at once.
const CHUNK: usize = 64 << 10;

/// Moves the bytes of one direction of one connection.
pub(super) struct Pump<'a> {
    link: &'a Link,
    direction: Direction,
    reader: ReadHalf<'a>,
    writer: WriteHalf<'a>,
    decoder: Decoder,
    queue: Queue,
    alarm: Alarm,
    /// True once the reader has ended.
    finished: bool,
}

enum Event {
    Changed,
    Due,
    Read(io::Result<usize>),
}

impl<'a> Pump<'a> {
    pub(super) fn new(
        link: &'a Link,
        direction: Direction,
        framing: Framing,
        reader: ReadHalf<'a>,
        writer: WriteHalf<'a>,
    ) -> Pump<'a> {
        Pump {
            link,
            direction,
            reader,
            writer,
            decoder: Decoder::new(framing, direction),
            queue: Queue::default(),
            alarm: Alarm::default(),
            finished: false,
        }
    }

    /// Runs until nothing is left to forward this way. An error ends the whole connection.
    pub(super) async fn run(mut self, mut rules: watch::Receiver<Rules>) -> Result<(), Ending> {
        loop {
            let flow = rules.borrow_and_update().flow(self.direction);
            match self.next(&mut rules, flow).await {
                Event::Changed => {}
                Event::Read(read) => self.take_in(read, flow),
                Event::Due => {
                    if !self.give_out().await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    async fn next(&mut self, rules: &mut watch::Receiver<Rules>, flow: Flow) -> Event {
        let due = self.queue.due();
        // Held bytes are not even read, so the sender's buffers fill up, as behind a dead link.
        let reads = !flow.held && !self.finished && !self.queue.full();
        tokio::select! {
            biased;
            // Dropping the proxy drops this future; until then the rules always have an owner.
            changed = rules.changed() => match changed {
                Ok(()) => Event::Changed,
                Err(_gone) => pending().await,
            },
            () = wait(&mut self.alarm, due), if !flow.held && due.is_some() => Event::Due,
            read = read(&mut self.reader, &mut self.decoder), if reads => Event::Read(read),
        }
    }

    fn take_in(&mut self, read: io::Result<usize>, flow: Flow) {
        let arrived = Instant::now();
        while let Some(message) = self.decoder.next() {
            self.queue.push(arrived, flow.delay, Item::Message(message));
        }
        let last = match read {
            Ok(0) => Item::End,
            Ok(_) => return,
            Err(_) => Item::Reset,
        };
        if let Some(rest) = self.decoder.rest() {
            self.queue.push(arrived, flow.delay, Item::Message(rest));
        }
        self.queue.push(arrived, flow.delay, last);
        self.finished = true;
    }

    /// Forwards the item that is due. Returns false if nothing is left to forward.
    async fn give_out(&mut self) -> Result<bool, Ending> {
        match self.queue.pop() {
            Some(Item::Message(message)) => self.forward(message).await,
            Some(Item::End) => {
                let _ = self.writer.shutdown().await;
                Ok(false)
            }
            Some(Item::Reset) => Err(Ending::Reset),
            None => Ok(true),
        }
    }

    /// Forwards a message, as the verdict says. Returns false if the other end takes no more.
    async fn forward(&mut self, message: Bytes) -> Result<bool, Ending> {
        let verdict = self.link.judge(self.direction, self.decoder.framing, &message);
        let passing = match verdict {
            Verdict::Pass => &message[..],
            Verdict::Part(length) => &message[..length],
            Verdict::Lost => return Err(Ending::Closed),
        };
        self.link.forwarding(self.direction, passing);
        // A reset of the other end travels the other way, with that way's delay: the other pump
        // reads it.
        let written = self.writer.write_all(passing).await.is_ok();
        match verdict {
            Verdict::Pass => Ok(written),
            Verdict::Part(_) | Verdict::Lost => Err(Ending::Closed),
        }
    }
}

async fn wait(alarm: &mut Alarm, due: Option<Instant>) {
    match due {
        Some(due) => alarm.until(due).await,
        None => pending().await,
    }
}

async fn read(reader: &mut ReadHalf<'_>, decoder: &mut Decoder) -> io::Result<usize> {
    decoder.buffer.reserve(CHUNK);
    reader.read_buf(&mut decoder.buffer).await
}
