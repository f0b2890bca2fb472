//! Words of calls, paths and queries: whatever a text is read as prints as something that is read as the same.
#![no_main]

use std::{
    fmt::{Debug, Display},
    str::FromStr,
};

use libfuzzer_sys::fuzz_target;
use model::{
    Address, Fingerprint, JoinToken, LinkName, Member, NamePattern, NetworkName, PeeringName, Ports,
    Protocol, ProtocolClass, ResourceName, Role, Segment, Site, Subject, Subscriber, TagName,
    allow::{End, ObjectName, Passage},
};

fn reads<T: FromStr + Display + Debug + PartialEq>(text: &str) {
    if let Ok(read) = text.parse::<T>() {
        assert_eq!(read.to_string().parse::<T>().ok(), Some(read), "{text:?}");
    }
}

fuzz_target!(|text: &str| {
    reads::<Address>(text);
    reads::<End>(text);
    reads::<Fingerprint>(text);
    reads::<LinkName>(text);
    reads::<Member>(text);
    reads::<NamePattern>(text);
    reads::<NetworkName>(text);
    reads::<ObjectName>(text);
    reads::<Passage>(text);
    reads::<PeeringName>(text);
    reads::<Ports>(text);
    reads::<Protocol>(text);
    reads::<ProtocolClass>(text);
    reads::<ResourceName>(text);
    reads::<Role>(text);
    reads::<Segment>(text);
    reads::<Site>(text);
    reads::<Subscriber>(text);
    reads::<TagName>(text);
    if let Ok(subject) = Subject::from_uri(text) {
        assert_eq!(Subject::from_uri(&subject.uri()).ok(), Some(subject));
    }
    if let Ok(token) = text.parse::<JoinToken>() {
        assert_eq!(token.expose().expose(), text.trim());
    }
});
