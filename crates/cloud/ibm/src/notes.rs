//! Notes: text of any kind, kept with IBM. Pure.
//!
//! An object in IBM Cloud has a name of 63 letters and no description, and an account has room for few tags. So what
//! must be remembered is written into the names of the rules of a security group that has no targets: it applies to
//! nothing and permits nothing, is made in one request with all its rules, reads back as it was written, and goes with
//! its VPC. A long one takes several groups. Its rules name an address that nobody has (RFC 5737), in case somebody puts a target into it.

use cloud_api::CloudError;
use model::Direction;

use crate::shapes::{Remote, RuleRequest, SecurityGroup};

/// IBM's bound on the rules of a group.
const MOST_RULES: usize = 250;
/// Bytes in one rule's name: 63 letters, five of them its number, two per byte.
const BYTES: usize = 29;
/// The longest note in one group.
pub(crate) const LONGEST: usize = MOST_RULES * BYTES;
/// Groups that one note may take.
pub(crate) const MOST_PARTS: usize = 5;

fn too_long(what: &str, length: usize, most: usize) -> CloudError {
    CloudError::conflict(format!(
        "{what}: names, addresses and tags take {length} characters; what Trestle can keep with IBM Cloud is {most}. Use fewer or \
         shorter ones"
    ))
}

/// A note cut to pieces, each for a group of its own. There is always one.
pub(crate) fn parts<'n>(what: &str, note: &'n str) -> Result<Vec<&'n str>, CloudError> {
    let mut parts = Vec::new();
    let mut rest = note;
    loop {
        let (part, later) = rest.split_at(rest.floor_char_boundary(LONGEST));
        parts.push(part);
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    match parts.len() > MOST_PARTS {
        true => Err(too_long(what, note.len(), LONGEST * MOST_PARTS)),
        false => Ok(parts),
    }
}

/// The rules that a note is.
pub(crate) fn write(what: &str, note: &str) -> Result<Vec<RuleRequest>, CloudError> {
    if note.len() > LONGEST {
        return Err(too_long(what, note.len(), LONGEST));
    }
    let rule = |(number, bytes): (u16, &[u8])| {
        let letters: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        RuleRequest {
            name: format!("n{number:03}-{letters}"),
            direction: Direction::Inbound,
            protocol: "tcp",
            port_min: Some(number + 1),
            port_max: Some(number + 1),
            remote: Remote { address: Some("192.0.2.1".to_owned()), cidr_block: None },
        }
    };
    Ok((0..).zip(note.as_bytes().chunks(BYTES)).map(rule).collect())
}

/// The note of a group; none if it is no note, or not whole.
pub(crate) fn read(group: &SecurityGroup) -> Option<String> {
    let parts = group.rules.iter().map(|rule| rule.name.split_once('-'));
    let mut parts: Vec<(&str, &str)> = parts.collect::<Option<_>>()?;
    parts.sort_unstable();
    let mut bytes = Vec::new();
    for (place, (number, letters)) in parts.iter().enumerate() {
        if *number != format!("n{place:03}") {
            return None;
        }
        for pair in letters.as_bytes().chunks(2) {
            bytes.push(u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shapes::samples;

    fn group(rules: &[RuleRequest]) -> SecurityGroup {
        samples::group("x", rules.iter().map(|rule| samples::rule("r", rule)).collect())
    }

    proptest! {
        #[test]
        fn notes_read_back_in_any_order(note in ".{0,400}", turn in 0usize..20) {
            let mut rules = write("x", &note).unwrap();
            prop_assert!(rules.iter().all(|rule| rule.name.len() <= 63));
            let count = rules.len().max(1);
            rules.rotate_left(turn % count);
            prop_assert_eq!(read(&group(&rules)), Some(note.clone()));
            if rules.len() > 1 {
                rules.sort_by_key(|rule| rule.name.clone());
                rules.remove(rules.len() / 2 - usize::from(rules.len() == 2));
                prop_assert_eq!(read(&group(&rules)), None);
            }
        }
    }

    #[test]
    fn long_notes_are_cut_where_letters_end() {
        for (note, count) in [
            (String::new(), 1),
            ("y".repeat(LONGEST), 1),
            (format!("y{}", "ü".repeat(LONGEST)), 3),
            ("y".repeat(LONGEST * MOST_PARTS), MOST_PARTS),
        ] {
            let cut = parts("x", &note).unwrap();
            assert_eq!(cut.len(), count);
            assert!(cut.concat() == note);
            assert!(cut.iter().all(|part| write("x", part).is_ok()));
        }
        assert!(parts("x", &"y".repeat(LONGEST * MOST_PARTS + 1)).is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(write("x", &"y".repeat(LONGEST)).unwrap().len(), MOST_RULES);
        assert!(write("x", &"y".repeat(LONGEST + 1)).unwrap_err().message.contains("7250"));
        let by_hand = RuleRequest { name: "by-hand".into(), ..write("x", "y").unwrap().remove(0) };
        assert_eq!(read(&group(&[by_hand])), None);
    }
}
