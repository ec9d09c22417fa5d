//! Numbers, texts and lists in ZooKeeper's encoding.

use bytes::BufMut;

/// The bytes that a server sent do not follow the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Reads from the front of a server's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn int(&mut self) -> Result<i32, Malformed> {
        self.chunk().map(i32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Result<i64, Malformed> {
        self.chunk().map(i64::from_be_bytes)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        self.chunk().map(|[byte]: [u8; 1]| byte != 0)
    }

    /// Reads bytes that follow their length. A length of -1 means none.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = match self.int()? {
            -1 => 0,
            length => usize::try_from(length).map_err(|_| Malformed)?,
        };
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(Malformed)?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    /// Reads a list's count. It is never more than the bytes left, so a lie reserves no memory.
    pub(crate) fn count(&mut self) -> Result<usize, Malformed> {
        match self.int()? {
            -1 => Ok(0),
            count => {
                let count = usize::try_from(count).map_err(|_| Malformed)?;
                if count > self.rest.len() { Err(Malformed) } else { Ok(count) }
            }
        }
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (chunk, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*chunk)
    }
}

/// Writes the length of some bytes, and then the bytes.
pub(crate) fn bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.put_i32(i32::try_from(bytes.len()).expect("requests are far shorter than 2 GiB"));
    out.put_slice(bytes);
}

pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    bytes(out, text.as_bytes());
}

pub(crate) fn flag(out: &mut Vec<u8>, flag: bool) {
    out.put_u8(u8::from(flag));
}

/// Writes the length of a frame, and then the frame that `body` writes.
pub(crate) fn frame(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.put_i32(0);
    body(out);
    let length = i32::try_from(out.len() - start - 4).expect("frames are far shorter than 2 GiB");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let mut out = Vec::new();
        frame(&mut out, |out| {
            text(out, "é");
            flag(out, true);
            bytes(out, b"");
        });
        let mut reader = Reader::new(&out);
        assert_eq!(reader.int(), Ok(4 + 2 + 1 + 4));
        assert_eq!(reader.text(), Ok("é"));
        assert_eq!(reader.flag(), Ok(true));
        assert_eq!(reader.bytes(), Ok(&b""[..]));
        assert_eq!(reader.int(), Err(Malformed));
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        for lie in [-2, 1, i32::MAX, i32::MIN] {
            let bytes = lie.to_be_bytes();
            assert_eq!(Reader::new(&bytes).bytes(), Err(Malformed), "{lie}");
            assert_eq!(Reader::new(&bytes).count(), Err(Malformed), "{lie}");
        }
        assert_eq!(Reader::new(&(-1i32).to_be_bytes()).bytes(), Ok(&b""[..]));
        assert_eq!(Reader::new(&[0, 0, 0, 1, 0xff]).text(), Err(Malformed));
    }
}
