//! Keeps the end of a program's output.

use std::io;
use std::os::fd::OwnedFd;

use tenure_cluster::documents::MAX_NOTE_BYTES;
use tokio::net::unix::pipe::Receiver;

/// How many bytes are read at a time, and how many reads `close` makes at most.
const CHUNK: usize = 8 * 1024;
const MOST_CHUNKS: usize = 256;
/// Truncation marker.
const CUT: &str = "…";

/// A stream of which only the end is kept.
#[derive(Debug)]
pub(super) struct Tail {
    /// `None` once the stream has ended.
    stream: Option<Receiver>,
    kept: Vec<u8>,
    cut: bool,
}

impl Tail {
    /// A tail of this pipe's output.
    ///
    /// # Errors
    /// When the runtime cannot watch it.
    pub(super) fn of(pipe: OwnedFd) -> io::Result<Tail> {
        let stream = Some(Receiver::from_owned_fd(pipe)?);
        Ok(Tail { stream, kept: Vec::new(), cut: false })
    }

    /// A tail without a stream.
    pub(super) fn empty() -> Tail {
        Tail { stream: None, kept: Vec::new(), cut: false }
    }

    /// Returns true if more may come.
    pub(super) fn is_open(&self) -> bool {
        self.stream.is_some()
    }

    /// Waits until something was read, or until the stream has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn read(&mut self) {
        match &self.stream {
            Some(stream) if stream.readable().await.is_ok() => {
                let mut chunk = [0; CHUNK];
                let read = stream.try_read(&mut chunk);
                self.take(&chunk, read);
            }
            Some(_) | None => self.stream = None,
        }
    }

    /// Reads the bytes that are there by now, and closes the pipe.
    ///
    /// A process that still holds the other end is not a part of the work any more.
    pub(super) fn close(&mut self) {
        // This reads more than a pipe holds. The limit ends the loop even if a process keeps
        // writing.
        for _ in 0..MOST_CHUNKS {
            let Some(stream) = &self.stream else { return };
            let mut chunk = [0; CHUNK];
            // Ask the pipe itself: the runtime may not know yet that there are bytes.
            let read = rustix::io::read(stream, &mut chunk).map_err(io::Error::from);
            if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
                break;
            }
            self.take(&chunk, read);
        }
        self.stream = None;
    }

    fn take(&mut self, chunk: &[u8], read: io::Result<usize>) {
        match read {
            Ok(0) => self.stream = None,
            Ok(count) => self.keep(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.stream = None,
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
        let over = self.kept.len().saturating_sub(MAX_NOTE_BYTES);
        self.cut |= over > 0;
        self.kept.drain(..over);
    }

    /// The end of the output as text of at most `most` bytes; `None` if there is none.
    ///
    /// The last line feed is left out.
    pub(super) fn text(&self, most: usize) -> Option<String> {
        let text = String::from_utf8_lossy(&self.kept);
        let text = text.trim_end_matches(['\n', '\r']);
        if text.is_empty() {
            return None;
        }
        if !self.cut && text.len() <= most {
            return Some(text.to_owned());
        }
        let from = text.len().saturating_sub(most.saturating_sub(CUT.len()));
        Some(format!("{CUT}{}", &text[text.ceil_char_boundary(from)..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn tail(bytes: &[u8]) -> Tail {
        let mut tail = Tail::empty();
        bytes.chunks(1000).for_each(|chunk| tail.keep(chunk));
        tail
    }

    #[test]
    fn what_is_short_is_kept_whole_but_for_the_last_line_feed() {
        assert_eq!(tail(b"a\nb\n").text(MAX_NOTE_BYTES).as_deref(), Some("a\nb"));
        assert_eq!(tail(b"\n").text(MAX_NOTE_BYTES), None);
        assert_eq!(tail(b"").text(MAX_NOTE_BYTES), None);
        assert_eq!(tail(b"a\xff").text(MAX_NOTE_BYTES).as_deref(), Some("a\u{fffd}"));
    }

    #[test]
    fn what_is_long_is_kept_from_its_end_and_fits_whatever_it_holds() {
        let long = tail(&[b'x'; 10_000]).text(MAX_NOTE_BYTES).expect("text");
        assert_eq!((long.len(), long.starts_with("…x")), (MAX_NOTE_BYTES, true));
        for most in [3, 4, 100, MAX_NOTE_BYTES] {
            // Each of these bytes takes three bytes as text.
            let wide = tail(&[0xff; 5000]).text(most).expect("text");
            assert!(wide.len() <= most, "{} of {most}", wide.len());
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_stream_is_read_to_its_end_and_closed_although_somebody_holds_it() {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let mut tail = Tail::of(reader.into()).expect("watched");
        (&writer).write_all(b"first").expect("written");
        tail.read().await;
        // The runtime has had no time to notice these bytes.
        (&writer).write_all(b" second").expect("written");
        tail.close();
        assert_eq!(tail.text(MAX_NOTE_BYTES).as_deref(), Some("first second"));
        assert!(!tail.is_open());
    }
}
