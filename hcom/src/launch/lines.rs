//! Whole lines out of what ranks print, each behind its rank's number.

use std::io::{self, Read, Write};

use super::RECORD;

/// A line longer than this is printed in pieces. A report is never cut.
const LONGEST: usize = 1 << 20;

/// One output stream of one rank.
pub(super) struct Lines {
    /// Bytes of a line whose end has not arrived.
    rest: Vec<u8>,
    prefix: String,
}

/// What a read of a non-blocking pipe came to.
#[derive(Debug, PartialEq)]
pub(super) enum State {
    Open,
    Closed,
}

impl Lines {
    pub(super) fn new(rank: u32, coloured: bool) -> Lines {
        // Cyan, yellow, green, magenta, blue, red: distinct on dark and on light.
        const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 31];
        let prefix = match coloured {
            true => {
                let colour = COLOURS[rank as usize % COLOURS.len()];
                format!("\x1b[{colour}m[rank {rank}]\x1b[0m ")
            }
            false => format!("[rank {rank}] "),
        };
        Lines {
            rest: Vec::new(),
            prefix,
        }
    }

    /// Reads what has arrived in `pipe` and hands out every line that is complete.
    pub(super) fn read(
        &mut self,
        pipe: &mut impl Read,
        mut line: impl FnMut(&str, &[u8]),
    ) -> io::Result<State> {
        let mut chunk = [0; 1 << 16];
        loop {
            match pipe.read(&mut chunk) {
                Ok(0) => return Ok(State::Closed),
                Ok(count) => self.take(&chunk[..count], &mut line),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(State::Open),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, mut bytes: &[u8], line: &mut impl FnMut(&str, &[u8])) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(&bytes[..end]);
            line(&self.prefix, &self.rest);
            self.rest.clear();
            bytes = &bytes[end + 1..];
        }
        self.rest.extend_from_slice(bytes);
        if self.rest.len() > LONGEST && self.rest[0] != RECORD {
            line(&self.prefix, &self.rest);
            self.rest.clear();
        }
    }

    /// Hands out what stood behind the last line end.
    pub(super) fn finish(&mut self, mut line: impl FnMut(&str, &[u8])) {
        if !self.rest.is_empty() {
            line(&self.prefix, &self.rest);
            self.rest.clear();
        }
    }
}

/// Writes one line in one piece, so that lines of other processes cannot come between.
///
/// A closed reader (`hcom … | head`) must not end the job half-way; its lines are lost, as it asked.
pub(super) fn print(out: &mut impl Write, prefix: &str, line: &[u8]) {
    let mut whole = Vec::with_capacity(prefix.len() + line.len() + 1);
    whole.extend_from_slice(prefix.as_bytes());
    whole.extend_from_slice(line);
    whole.push(b'\n');
    let _ = out.write_all(&whole).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&str]) -> Vec<String> {
        let mut lines = Lines::new(3, false);
        let mut seen = Vec::new();
        let mut note = |prefix: &str, line: &[u8]| {
            seen.push(format!("{prefix}{}", String::from_utf8_lossy(line)))
        };
        for mut chunk in chunks.iter().map(|chunk| chunk.as_bytes()) {
            assert_eq!(lines.read(&mut chunk, &mut note).unwrap(), State::Closed);
        }
        lines.finish(note);
        seen
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        assert_eq!(
            lines(&["a\nb", "c\n\nd"]),
            ["[rank 3] a", "[rank 3] bc", "[rank 3] ", "[rank 3] d"]
        );
        assert!(lines(&[""]).is_empty());
    }

    #[test]
    fn only_an_endless_line_is_cut_and_never_a_report() {
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(lines(&[&long, "y\n"]).len(), 2);
        let report = format!("\u{1e}{long}");
        assert_eq!(lines(&[&report, "y\n"]).len(), 1);
    }

    #[test]
    fn ranks_have_colours_where_they_are_wanted() {
        assert_eq!(Lines::new(0, true).prefix, "\x1b[36m[rank 0]\x1b[0m ");
        assert_eq!(Lines::new(7, true).prefix, "\x1b[33m[rank 7]\x1b[0m ");
    }
}
