//! The progress line on the terminal.

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use rustix::termios::tcgetwinsize;

/// The rate is the average over this time.
const WINDOW: Duration = Duration::from_secs(10);
/// The width where the terminal does not report one.
const USUAL_WIDTH: usize = 80;
/// The width of the bar.
const BAR: usize = 20;

/// The totals that the progress line shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) accepted: u64,
    pub(super) done: u64,
    pub(super) dead: u64,
    pub(super) cancelled: u64,
    /// Whether no more items will be accepted.
    pub(super) complete: bool,
    /// How many tasks run in this process.
    pub(super) running: usize,
    pub(super) members: usize,
}

impl Standing {
    pub(super) fn ended(&self) -> u64 {
        self.done + self.dead + self.cancelled
    }
}

/// The progress line, if there is a terminal to show it.
#[derive(Debug)]
pub(super) struct Progress {
    shown: bool,
    drawn: bool,
    samples: VecDeque<(Instant, u64)>,
}

impl Progress {
    /// Shows the line on standard error, if that is a terminal without lines of data.
    pub(super) fn new(data_on_stdout: bool) -> Progress {
        let crowded = data_on_stdout && io::stdout().is_terminal();
        let shown = io::stderr().is_terminal() && !crowded;
        Progress { shown, drawn: false, samples: VecDeque::new() }
    }

    /// Returns true if there is a terminal to show the line.
    pub(super) fn is_shown(&self) -> bool {
        self.shown
    }

    /// Redraws the line.
    pub(super) fn draw(&mut self, standing: &Standing) {
        if !self.shown {
            return;
        }
        let rate = self.rate(Instant::now(), standing.ended());
        let size = tcgetwinsize(io::stderr());
        let width = size.map_or(USUAL_WIDTH, |size| usize::from(size.ws_col));
        let width = if width == 0 { USUAL_WIDTH } else { width };
        // Ignore a failure: the terminal may be gone.
        let _ = write!(io::stderr(), "\r{}\u{1b}[K", line(standing, rate, width - 1));
        let _ = io::stderr().flush();
        self.drawn = true;
    }

    /// Clears the line, to make room for a message.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(io::stderr(), "\r\u{1b}[K");
        }
    }

    /// How many tasks ended per second in the last seconds.
    fn rate(&mut self, now: Instant, ended: u64) -> Option<f64> {
        while self.samples.len() > 2 && now.duration_since(self.samples[1].0) >= WINDOW {
            self.samples.pop_front();
        }
        self.samples.push_back((now, ended));
        let (since, before) = self.samples.front()?;
        let seconds = now.duration_since(*since).as_secs_f64();
        (seconds >= 0.2).then(|| ended.saturating_sub(*before) as f64 / seconds)
    }
}

/// The text of the line, no wider than `width`.
fn line(standing: &Standing, rate: Option<f64>, width: usize) -> String {
    let Standing { accepted, dead, complete, running, members, .. } = *standing;
    let ended = standing.ended();
    let mut parts = Vec::new();
    if complete && accepted > 0 {
        let of = |whole: u64| usize::try_from(ended * whole / accepted).unwrap_or(0);
        let filled = of(BAR as u64).min(BAR);
        let bar = format!("{}{}", "#".repeat(filled), ".".repeat(BAR - filled));
        parts.push(format!("[{bar}] {ended}/{accepted} {}%", of(100)));
    } else {
        // The source has not been read to its end, so the final number is unknown.
        parts.push(format!("{ended} of {accepted} so far"));
    }
    parts.extend(rate.map(|rate| format!("{rate:.*}/s", usize::from(rate < 10.0))));
    if let Some(rate) = rate.filter(|rate| complete && *rate > 0.0 && accepted > ended) {
        let seconds = (accepted - ended) as f64 / rate;
        parts.push(format!("ETA {}", clock(seconds)));
    }
    if dead > 0 {
        parts.push(format!("{dead} dead"));
    }
    parts.push(format!("{running} running here"));
    if members != 1 {
        parts.push(format!("{members} members"));
    }
    let mut text = String::new();
    for part in parts {
        let gap = if text.is_empty() { 0 } else { 2 };
        if text.chars().count() + gap + part.chars().count() > width {
            break;
        }
        text = format!("{text}{}{part}", " ".repeat(gap));
    }
    text
}

/// Formats a time in hours, minutes and seconds.
fn clock(seconds: f64) -> String {
    // The limit keeps the text short; the cast of a float saturates.
    let seconds = seconds.ceil().min(359_999.0) as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds:02}s"),
        _ => format!("{hours}h{minutes:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: Standing = Standing {
        accepted: 5000,
        done: 2498,
        dead: 2,
        cancelled: 0,
        complete: true,
        running: 4,
        members: 3,
    };

    #[test]
    fn the_line_has_a_bar_a_rate_and_an_estimate() {
        assert_eq!(
            line(&HALF, Some(100.0), 100),
            "[##########..........] 2500/5000 50%  100/s  ETA 25s  2 dead  4 running here  3 members"
        );
    }

    #[test]
    fn nothing_is_estimated_while_the_source_is_being_read() {
        let reading = Standing { complete: false, dead: 0, members: 1, ..HALF };
        assert_eq!(line(&reading, Some(7.25), 100), "2498 of 5000 so far  7.2/s  4 running here");
        assert_eq!(
            line(&Standing::default(), None, 100),
            "0 of 0 so far  0 running here  0 members"
        );
    }

    #[test]
    fn the_line_is_never_wider_than_the_terminal() {
        for width in 0..100 {
            assert!(line(&HALF, Some(123.4), width).chars().count() <= width, "{width}");
        }
    }

    #[test]
    fn the_rate_is_that_of_the_last_seconds() {
        let mut progress = Progress { shown: true, drawn: false, samples: VecDeque::new() };
        let began = Instant::now();
        assert_eq!(progress.rate(began, 0), None);
        for second in 1..=20 {
            let now = began + Duration::from_secs(second);
            let rate = progress.rate(now, second * 50).expect("a rate");
            assert!((rate - 50.0).abs() < 0.01, "{rate}");
        }
        // Nothing happens any more.
        let rate = progress.rate(began + Duration::from_secs(60), 1000).expect("a rate");
        assert!(rate < 5.0, "{rate}");
        assert!(progress.samples.len() < 20);
    }

    #[test]
    fn times_are_short() {
        assert_eq!(
            (clock(0.2), clock(61.0), clock(3700.0)),
            ("1s".into(), "1m01s".into(), "1h01m".into())
        );
        assert_eq!(clock(f64::INFINITY), "99h59m");
    }
}
