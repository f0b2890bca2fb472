//! Kubernetes quantities: `1.5Gi`, `12E`, `1e3`, exact to a billionth.
//!
//! In: text as users and clusters write it. Out: a number and the family of its suffix; printed, the one
//! canonical text Kubernetes itself would print. Not here: what a capacity may be (`capacity`).
//!
//! ```text
//!   sign  digits [. digits]  suffix       suffix: n u m k M G T P E | Ki Mi Gi Ti Pi Ei | e±digits | none
//! ```

use std::{fmt, str::FromStr};

#[cfg(test)]
mod tests;

/// One in billionths: the finest amount a quantity can hold.
const NANOS: i128 = 1_000_000_000;
/// Quantities with a binary suffix stop here, as Kubernetes' do: 2^63 - 1.
const MAX_BINARY: i128 = i64::MAX as i128 * NANOS;
/// Longest text looked at; the longest sensible quantity has about 25 characters.
const MAX_TEXT: usize = 128;

/// The family of suffixes a quantity was written in, and is printed in where its value allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `n u m k M G T P E`, powers of 1000.
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`, powers of 1024.
    BinarySi,
    /// `1e3`.
    DecimalExponent,
}

/// An exact amount. Two quantities of one value may differ in how they print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// Why a text is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    #[error("the quantity is empty; write a number with an optional suffix, such as 10Gi")]
    Empty,
    #[error(
        "{text:?} is no quantity; write digits and one of the suffixes Ki Mi Gi Ti Pi Ei k M G T P E, such as 10Gi"
    )]
    Syntax { text: String },
    #[error("the quantity {text:?} is larger than any storage")]
    TooLarge { text: String },
}

impl Quantity {
    pub fn from_bytes(bytes: u64, format: Format) -> Self {
        let nanos = i128::from(bytes) * NANOS;
        // A binary text beyond the cap would be read back as the cap.
        let format = if nanos > MAX_BINARY && format == Format::BinarySi { Format::DecimalSi } else { format };
        Self { nanos, format }
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// In whole bytes, rounded up; `None` for amounts below zero or beyond 64 bits.
    pub fn bytes(&self) -> Option<u64> {
        let whole = self.nanos.div_euclid(NANOS) + i128::from(self.nanos.rem_euclid(NANOS) > 0);
        u64::try_from(whole).ok()
    }

    pub fn is_positive(&self) -> bool {
        self.nanos > 0
    }
}

impl FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, ParseQuantityError> {
        if text.is_empty() {
            return Err(ParseQuantityError::Empty);
        }
        let shown = || text.chars().take(MAX_TEXT).collect::<String>();
        let syntax = || ParseQuantityError::Syntax { text: shown() };
        if text.len() > MAX_TEXT {
            return Err(syntax());
        }
        let parts = Parts::split(text).ok_or_else(syntax)?;
        let suffix = Suffix::parse(parts.suffix).ok_or_else(syntax)?;
        let nanos = match magnitude(&parts, &suffix) {
            Some(nanos) if suffix.format == Format::BinarySi => nanos.min(MAX_BINARY),
            Some(nanos) => nanos,
            None if suffix.format == Format::BinarySi => MAX_BINARY,
            None => return Err(ParseQuantityError::TooLarge { text: shown() }),
        };
        // Kubernetes prints a fraction of one unit in decimal, whatever it was written in.
        let format = if suffix.format == Format::BinarySi && nanos > 0 && nanos < NANOS {
            Format::DecimalSi
        } else {
            suffix.format
        };
        Ok(Self { nanos: if parts.negative { -nanos } else { nanos }, format })
    }
}

/// The text, taken apart: `-1.025Ti` is negative, `1`, `025`, `Ti`.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Option<Self> {
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (whole, rest) = digits(rest);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => digits(rest),
            None => ("", rest),
        };
        (!whole.is_empty() || !fraction.is_empty()).then_some(Self { negative, whole, fraction, suffix })
    }
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// What a suffix means: `unit` billionths, and the decimal point moved right by `shift`.
struct Suffix {
    format: Format,
    unit: i128,
    shift: i64,
}

impl Suffix {
    fn parse(text: &str) -> Option<Self> {
        let decimal = |power: u32| Self { format: Format::DecimalSi, unit: 10i128.pow(power), shift: 0 };
        let binary = |power: u32| Self { format: Format::BinarySi, unit: NANOS << (10 * power), shift: 0 };
        Some(match text {
            "n" => decimal(0),
            "u" => decimal(3),
            "m" => decimal(6),
            "" => decimal(9),
            "k" => decimal(12),
            "M" => decimal(15),
            "G" => decimal(18),
            "T" => decimal(21),
            "P" => decimal(24),
            "E" => decimal(27),
            "Ki" => binary(1),
            "Mi" => binary(2),
            "Gi" => binary(3),
            "Ti" => binary(4),
            "Pi" => binary(5),
            "Ei" => binary(6),
            _ => Self { format: Format::DecimalExponent, unit: NANOS, shift: exponent(text)? },
        })
    }
}

fn exponent(text: &str) -> Option<i64> {
    let text = text.strip_prefix(['e', 'E'])?;
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// `whole.fraction × 10^shift × unit` in billionths, rounded up; `None` when it does not fit.
fn magnitude(parts: &Parts<'_>, suffix: &Suffix) -> Option<i128> {
    let all: Vec<u8> = parts.whole.bytes().chain(parts.fraction.bytes()).map(|digit| digit - b'0').collect();
    let point = i64::try_from(parts.whole.len()).ok()? + suffix.shift;
    if all.iter().all(|digit| *digit == 0) {
        return Some(0);
    }
    let mut whole: i128 = 0;
    for position in 0..point.max(0) {
        let digit = usize::try_from(position).ok().and_then(|p| all.get(p)).copied().unwrap_or(0);
        whole = whole.checked_mul(10)?.checked_add(i128::from(digit))?;
    }
    let after = usize::try_from(point.max(0)).ok()?.min(all.len());
    let (below, inexact) = fraction(&all[after..], point.min(0), suffix.unit);
    whole.checked_mul(suffix.unit)?.checked_add(below + i128::from(inexact))
}

/// `0.000…digits × unit`, with `-leading` zeros after the point: its floor, and whether the floor is not all.
///
/// Dividing by ten digit by digit from the right keeps every step small and the floor exact: a floor of a floor
/// is the floor of the whole.
fn fraction(digits: &[u8], leading: i64, unit: i128) -> (i128, bool) {
    let mut value = 0;
    let mut inexact = false;
    for digit in digits.iter().rev() {
        let sum = i128::from(*digit) * unit + value;
        value = sum / 10;
        inexact |= sum % 10 != 0;
    }
    for _ in leading..0 {
        if value == 0 {
            // Only zeros follow: what is left is a rest or nothing.
            break;
        }
        inexact |= value % 10 != 0;
        value /= 10;
    }
    (value, inexact)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos % NANOS == 0;
        if self.format == Format::BinarySi && whole && (self.nanos / NANOS).abs() >= 1024 {
            let (number, power) = strip(self.nanos / NANOS, 1024, BINARY.len() - 1);
            return write!(f, "{number}{}", BINARY[power]);
        }
        let (number, power) = strip(self.nanos, 1000, usize::MAX);
        let exponent = 3 * i64::try_from(power).unwrap_or(i64::MAX) - 9;
        match (self.format, DECIMAL.get(power)) {
            (Format::DecimalSi | Format::BinarySi, Some(suffix)) => write!(f, "{number}{suffix}"),
            // Beyond `E` there is no suffix; dropping the magnitude would be a lie.
            (Format::DecimalSi | Format::BinarySi, None) => write!(f, "{number}e{exponent}"),
            (Format::DecimalExponent, _) if exponent == 0 => write!(f, "{number}"),
            (Format::DecimalExponent, _) => write!(f, "{number}e{exponent}"),
        }
    }
}

/// Divides by `base` as often as it divides evenly, at most `most` times.
fn strip(mut number: i128, base: i128, most: usize) -> (i128, usize) {
    let mut power = 0;
    while power < most && number % base == 0 {
        number /= base;
        power += 1;
    }
    (number, power)
}

impl serde::Serialize for Quantity {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Quantity {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
