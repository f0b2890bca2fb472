//! Tickets and consumers as a terminal shows them.

use jiff::Timestamp;
use wire::trestle::v1::{Consumer, Ticket, Volume};

use crate::output::Rows;

fn time(seconds: u64) -> String {
    let second = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(second).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

/// Bytes with the unit people use for storage.
fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let exponent = (count.max(1).ilog2() / 10) as usize;
    let scaled = count as f64 / (1_u64 << (10 * exponent)) as f64;
    match exponent {
        0 => format!("{count} B"),
        _ => format!("{scaled:.1} {}", units[exponent]),
    }
}

impl Rows for Ticket {
    const HEADER: &'static [&'static str] = &["id", "state", "key", "expires", "limit", "consumer"];

    fn row(&self) -> Vec<String> {
        let limit = self.limit_bytes.map_or_else(|| "none".to_owned(), bytes);
        let expires = time(self.expires_at);
        [&self.id, &self.state, &self.key, &expires, &limit, &self.consumer].map(Clone::clone).to_vec()
    }
}

/// Cells of the bar that shows usage against grant.
const BAR: u64 = 10;

impl Rows for Consumer {
    const HEADER: &'static [&'static str] = &["id", "name", "phase", "usage", "used", "granted", "remark"];

    fn row(&self) -> Vec<String> {
        let (bar, used) = match self.used_bytes {
            Some(used) => {
                let cells =
                    (u128::from(used) * u128::from(BAR)).div_ceil(u128::from(self.granted_bytes.max(1)));
                let filled = usize::try_from(cells.min(u128::from(BAR))).unwrap_or(0);
                (format!("{}{}", "#".repeat(filled), ".".repeat(BAR as usize - filled)), bytes(used))
            }
            None => ("?".to_owned(), "?".to_owned()),
        };
        let kept = self.kept_until.map(|until| format!("its data is kept until {}", time(until)));
        let kept = kept.unwrap_or_default();
        let encrypted = if self.encrypted { "encrypted" } else { "" }.to_owned();
        let remark = [&self.reason, &self.notice, &kept, &encrypted]
            .iter()
            .filter(|t| !t.is_empty())
            .map(|t| t.as_str())
            .collect::<Vec<_>>();
        vec![
            self.id.clone(),
            self.name.clone(),
            self.phase.clone(),
            bar,
            used,
            bytes(self.granted_bytes),
            remark.join("; "),
        ]
    }
}

impl Rows for Volume {
    const HEADER: &'static [&'static str] = &["name", "size", "held", "from", "clients", "created", "remark"];

    fn row(&self) -> Vec<String> {
        let kept = self.kept_until.map(|until| format!("deleted; can be taken back until {}", time(until)));
        let writer = Some(&self.writer).filter(|writer| !writer.is_empty());
        let writer = writer.map(|writer| format!("{writer} writes, by {}", self.export));
        let importing = self.importing.then(|| "being imported".to_owned());
        let trouble = Some(self.trouble.clone()).filter(|trouble| !trouble.is_empty());
        let encrypted = self.encrypted.then(|| "encrypted".to_owned());
        let remark: Vec<_> = [writer, kept, importing, trouble, encrypted].into_iter().flatten().collect();
        vec![
            self.name.clone(),
            bytes(self.size_bytes),
            bytes(self.held_bytes),
            self.origin.clone(),
            self.clients.to_string(),
            self.created_at.map_or_else(String::new, time),
            remark.join("; "),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn bytes_are_shown_in_the_unit_people_use() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(10 << 30), "10.0 GiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }
}
