//! Times in words: when rounds open, and how long they are open.

use std::{
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use incrowd_protocol::{Closes, Mechanism};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
/// Round 1 of a plan that opens now opens so much later, at least: for making the plan, and for
/// starting a service with it.
const SOON: u64 = MINUTE;

/// The argument that says when round 1 opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opens {
    /// At the first full minute that a plan made now can still meet.
    Now,
    /// Milliseconds since 1970.
    At(u64),
}

impl FromStr for Opens {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "now" {
            return Ok(Self::Now);
        }
        let rule =
            || format!("opens is {text:?}, must be 'now' or a time like 2027-01-15T08:00:00Z");
        let time = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| rule())?;
        let milliseconds = time.unix_timestamp_nanos().div_euclid(1_000_000);
        u64::try_from(milliseconds).map(Self::At).map_err(|_| rule())
    }
}

impl Opens {
    /// Milliseconds since 1970; without the argument the next full hour.
    pub fn resolve(opens: Option<Self>, now: u64) -> u64 {
        match opens {
            Some(Self::At(time)) => time,
            Some(Self::Now) => (now + SOON).next_multiple_of(MINUTE),
            None => (now + 1).next_multiple_of(HOUR),
        }
    }
}

/// Milliseconds since 1970, by this machine's clock.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A time in words. Times that a mechanism may have are before the year 10000.
pub fn words(milliseconds: u64) -> String {
    let nanoseconds = i128::from(milliseconds) * 1_000_000;
    let Ok(time) = OffsetDateTime::from_unix_timestamp_nanos(nanoseconds) else {
        return format!("{milliseconds} milliseconds after 1970");
    };
    let fraction = match time.millisecond() {
        0 => String::new(),
        milliseconds => format!(".{milliseconds:03}"),
    };
    format!(
        "{} {} {} {}, {:02}:{:02}:{:02}{fraction} UTC",
        time.weekday(),
        time.day(),
        time.month(),
        time.year(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

/// A length of time with its two largest units.
pub fn span(milliseconds: f64) -> String {
    let units = [("d", 24 * HOUR), ("h", HOUR), ("min", MINUTE), ("s", 1000)];
    let whole = milliseconds.round() as u64;
    let Some(first) = units.iter().position(|&(_, unit)| whole >= unit) else {
        return format!("{whole} ms");
    };
    let (name, unit) = units[first];
    let Some(&(small_name, small)) = units.get(first + 1) else {
        return format!("{:.3}", milliseconds / 1000.0)
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
            + " s";
    };
    let parts = (milliseconds / small as f64).round() as u64;
    // Rounded up to the next larger unit.
    if first > 0 && parts * small >= units[first - 1].1 {
        return span((parts * small) as f64);
    }
    let per = unit / small;
    match (parts / per, parts % per) {
        (large, 0) => format!("{large} {name}"),
        (large, rest) => format!("{large} {name} {rest} {small_name}"),
    }
}

/// The file of a task, with the opening time in words behind its milliseconds.
pub fn annotated(file: &str, mechanism: &Mechanism) -> String {
    let Closes::Time { opens } = mechanism.closes() else { return file.to_owned() };
    let line = format!("opens = \"{opens}\"");
    file.replacen(&line, &format!("{line} # {}", words(opens)), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_said() {
        let at = |text: &str| text.parse::<Opens>();
        assert_eq!(at("2027-01-15T08:00:00Z"), Ok(Opens::At(1_800_000_000_000)));
        assert_eq!(at("2027-01-15T09:00:00.25+01:00"), Ok(Opens::At(1_800_000_000_250)));
        assert_eq!(at("now"), Ok(Opens::Now));
        for wrong in ["", "2027-01-15", "1969-12-31T23:59:59Z", "2027-02-30T08:00:00Z", "8"] {
            assert!(at(wrong).unwrap_err().contains("must be 'now' or a time like"), "{wrong}");
        }
        assert_eq!(words(1_800_000_000_000), "Friday 15 January 2027, 08:00:00 UTC");
        assert_eq!(words(1_800_000_000_250), "Friday 15 January 2027, 08:00:00.250 UTC");
        assert_eq!(Opens::resolve(None, 1_800_000_000_000), 1_800_000_000_000 + HOUR);
        assert_eq!(Opens::resolve(None, 1_799_999_999_999), 1_800_000_000_000);
        // One to two minutes later, and a full minute.
        assert_eq!(Opens::resolve(Some(Opens::Now), 0), MINUTE);
        assert_eq!(Opens::resolve(Some(Opens::Now), 7), 2 * MINUTE);
        assert_eq!(Opens::resolve(Some(Opens::Now), MINUTE), 2 * MINUTE);
    }

    #[test]
    fn spans_have_two_units() {
        for (milliseconds, words) in [
            (10.0, "10 ms"),
            (1500.0, "1.5 s"),
            (61_000.0, "1 min 1 s"),
            (3_599_999.0, "1 h"),
            (3_600_000.0, "1 h"),
            (5_400_000.0, "1 h 30 min"),
            (86_400_000.0 * 30.0, "30 d"),
            (86_400_000.0 * 1.5, "1 d 12 h"),
        ] {
            assert_eq!(span(milliseconds), words);
        }
    }
}
