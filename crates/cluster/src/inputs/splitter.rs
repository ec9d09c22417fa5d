//! Splits a stream of bytes into lines.

use bytes::Bytes;

/// Lines of a stream that arrives in pieces. Lines longer than the limit are left out whole.
#[derive(Debug)]
pub(crate) struct Splitter {
    most: usize,
    begun: Vec<u8>,
    /// True if the current line is already too long: its rest is skipped.
    skipping: bool,
    too_long: u64,
}

impl Splitter {
    pub(crate) fn new(most: usize) -> Splitter {
        Splitter { most, begun: Vec::new(), skipping: false, too_long: 0 }
    }

    /// The number of lines that were too long.
    pub(crate) fn too_long(&self) -> u64 {
        self.too_long
    }

    /// Returns true if a line has begun and not ended.
    pub(crate) fn is_within_line(&self) -> bool {
        self.skipping || !self.begun.is_empty()
    }

    /// Adds the lines that end in this piece, without their ends. Empty lines are left out.
    pub(crate) fn push(&mut self, piece: &[u8], lines: &mut Vec<Bytes>) {
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.extend(&rest[..end]);
            self.end_line(lines);
            rest = &rest[end + 1..];
        }
        self.extend(rest);
    }

    /// Adds the unfinished line at the end of the stream.
    pub(crate) fn finish(&mut self, lines: &mut Vec<Bytes>) {
        self.end_line(lines);
    }

    fn extend(&mut self, part: &[u8]) {
        // One more byte, since a carriage return may belong to the end.
        if self.begun.len() + part.len() > self.most + 1 {
            self.skipping = true;
            self.begun.clear();
        }
        if !self.skipping {
            self.begun.extend_from_slice(part);
        }
    }

    fn end_line(&mut self, lines: &mut Vec<Bytes>) {
        let mut line = std::mem::take(&mut self.begun);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if std::mem::take(&mut self.skipping) || line.len() > self.most {
            self.too_long += 1;
        } else if !line.is_empty() {
            lines.push(line.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a text that arrives in pieces of this size.
    fn lines(text: &str, size: usize) -> (Vec<Bytes>, u64) {
        let (mut splitter, mut lines) = (Splitter::new(5), Vec::new());
        for piece in text.as_bytes().chunks(size) {
            splitter.push(piece, &mut lines);
        }
        splitter.finish(&mut lines);
        (lines, splitter.too_long())
    }

    #[test]
    fn lines_are_the_same_whatever_pieces_they_arrive_in() {
        let text = "one\r\n\ntwo\n12345\r\n123456\n1234567\r\n1234567890123\nend";
        for size in 1..text.len() {
            let expected = ["one", "two", "12345", "end"].map(Bytes::from).to_vec();
            assert_eq!(lines(text, size), (expected, 3), "in pieces of {size}");
        }
    }

    #[test]
    fn no_more_than_the_limit_is_kept_of_a_line() {
        let (mut splitter, mut lines) = (Splitter::new(5), Vec::new());
        for _ in 0..1000 {
            splitter.push(&[b'x'; 100], &mut lines);
            assert!(splitter.begun.len() <= 6);
        }
        splitter.push(b"\nshort\n", &mut lines);
        assert_eq!((lines, splitter.too_long()), (vec![Bytes::from("short")], 1));
    }
}
