//! For fuzz targets only: what other programs on this machine say.

use crate::vpn::vici::Section;

/// A message of the IKE daemon: what is understood is written and read as the same.
pub fn vici(bytes: &[u8]) {
    let Ok(section) = Section::decode(&mut &*bytes, false) else { return };
    // What was no text is read as something else, which may be too long to be written.
    if format!("{section:?}").contains(char::REPLACEMENT_CHARACTER) {
        return;
    }
    let mut written = Vec::new();
    section.encode(&mut written);
    let again = Section::decode(&mut written.as_slice(), false).expect("we wrote it");
    let mut rewritten = Vec::new();
    again.encode(&mut rewritten);
    assert_eq!(written, rewritten);
}
