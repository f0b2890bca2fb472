//! Whether a log is as it was written (pure): each line is held against the one before, and the end against the head.
//!
//! In: lines with their places, oldest first, and the head that was kept beside them. Out: what was found. Holds: the
//! end of the chain so far. Not here: reading files (`files`).
//!
//! A chain has no key, so it cannot tell a log that was rewritten from some line to its end together with its head, nor
//! records that were added after the head: for that the head must be kept elsewhere.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::IgnoredAny};

use super::chain::{Head, Link, START};

/// Where a line is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    pub file: String,
    pub line: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Something that is not as it was written, or is to be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Somebody may have tampered; otherwise it has an innocent cause.
    pub alarm: bool,
    pub place: Place,
    /// The id of the record there, where it has one.
    pub id: String,
    pub text: String,
}

/// What verifying came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Lines that are links of the chain.
    pub records: u64,
    /// The end of the chain, as the lines have it.
    pub head: Head,
    pub findings: Vec<Finding>,
}

impl Report {
    pub fn is_sound(&self) -> bool {
        !self.findings.iter().any(|finding| finding.alarm)
    }
}

/// What is known of the log beside its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Lines of one file by itself: where they begin and end is not known.
    Part,
    /// The whole log.
    Whole {
        /// None: it is not there.
        head: Option<Head>,
        /// As many old files as are kept are there, so the oldest records may have been deleted.
        is_rotated_out: bool,
    },
}

/// Reads a log line by line.
pub struct Verifier {
    expected: Expected,
    report: Report,
    /// The last link that stands in its order, and where.
    last: Option<(Head, Place, String)>,
    /// Lines that are no links since `last`.
    strange: u64,
    earlier: u64,
}

impl Verifier {
    pub fn new(expected: Expected) -> Self {
        Self { expected, report: Report::default(), last: None, strange: 0, earlier: 0 }
    }

    /// The next line, without its newline.
    pub fn line(&mut self, place: Place, line: &[u8]) {
        let Some(link) = Link::read(line) else {
            if self.last.is_none() && is_of_earlier_version(line) {
                self.earlier += 1;
                return;
            }
            self.strange += 1;
            self.alarm(place, "", "the line is no record: it was changed or inserted".to_owned());
            return;
        };
        self.report.records += 1;
        let head = link.head(line);
        self.compare_with_head(&head, &place, &link.id);
        match self.last.take() {
            None => self.first(&link, &place),
            Some((last, at, id)) => {
                if link.n <= last.count {
                    let text = format!(
                        "record {} stands after record {}: it was moved or inserted",
                        link.n, last.count
                    );
                    self.alarm(place, &link.id, text);
                    self.last = Some((last, at, id));
                    return;
                }
                self.next(&link, &place, &last, at, &id);
            }
        }
        self.strange = 0;
        self.last = Some((head, place, link.id));
    }

    fn first(&mut self, link: &Link, place: &Place) {
        let Expected::Whole { is_rotated_out, .. } = self.expected else { return };
        if link.n == 1 && link.prev != START {
            let text = "the first record follows another one, which is gone".to_owned();
            self.alarm(place.clone(), &link.id, text);
        }
        if link.n > 1 && self.earlier > 0 {
            let text = "lines without a link stand before this one: they were inserted".to_owned();
            self.alarm(place.clone(), &link.id, text);
        }
        if link.n > 1 && !is_rotated_out {
            let text = format!("the log begins with record {}: older ones were removed", link.n);
            self.alarm(place.clone(), &link.id, text);
        }
    }

    fn next(&mut self, link: &Link, place: &Place, last: &Head, at: Place, id: &str) {
        let missing = link.n - last.count - 1;
        if missing > self.strange {
            let range = match missing {
                1 => format!("record {} is", last.count + 1),
                _ => format!("records {} to {} are", last.count + 1, link.n - 1),
            };
            self.alarm(place.clone(), &link.id, format!("{range} missing before this one"));
        }
        if missing == 0 && link.prev != last.hash {
            let text = format!("record {} was changed: the one after it carries another hash", last.count);
            self.alarm(at, id, text);
        }
    }

    fn compare_with_head(&mut self, found: &Head, place: &Place, id: &str) {
        if let Expected::Whole { head: Some(head), .. } = &self.expected
            && head.count == found.count
            && head.hash != found.hash
        {
            let text = format!("record {} is not the one that the head names", found.count);
            self.alarm(place.clone(), id, text);
        }
    }

    /// After the last line. `torn`: bytes behind the last newline.
    pub fn finish(mut self, end: Place, torn: usize) -> Report {
        let last = self.last.take().map(|(head, ..)| head).unwrap_or_default();
        if torn > 0 {
            let text = format!("the last line is torn ({torn} bytes), as a crash leaves it");
            self.notice(end.clone(), text);
        }
        if self.earlier > 0 {
            let text =
                format!("{} lines before the first link are of a version without a chain", self.earlier);
            self.notice(Place::default(), text);
        }
        if let Expected::Whole { head, .. } = self.expected.clone() {
            match head {
                Some(head) if head.count > last.count => {
                    let text = format!(
                        "the newest records are gone: the log ends with record {}, the head names record {}",
                        last.count, head.count
                    );
                    self.alarm(end, "", text);
                }
                Some(head) if head.count < last.count => {
                    let text = format!(
                        "{} records stand after the head: written just now, left by a crash, or added by somebody",
                        last.count - head.count
                    );
                    self.notice(end, text);
                }
                None if self.report.records > 0 => {
                    let text = "the head is gone: whether newest records were removed cannot be told";
                    self.alarm(end, "", text.to_owned());
                }
                _ => {}
            }
        }
        self.report.head = last;
        self.report
    }

    fn alarm(&mut self, place: Place, id: &str, text: String) {
        self.report.findings.push(Finding { alarm: true, place, id: id.to_owned(), text });
    }

    fn notice(&mut self, place: Place, text: String) {
        self.report.findings.push(Finding { alarm: false, place, id: String::new(), text });
    }
}

/// Versions before the chain wrote records without links.
fn is_of_earlier_version(line: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Unlinked {
        #[serde(rename = "time")]
        _time: Timestamp,
        #[serde(rename = "operation")]
        _operation: String,
        #[serde(default)]
        n: Option<IgnoredAny>,
        #[serde(default)]
        prev: Option<IgnoredAny>,
    }
    serde_json::from_slice::<Unlinked>(line).is_ok_and(|line| line.n.is_none() && line.prev.is_none())
}

#[cfg(test)]
mod tests;
