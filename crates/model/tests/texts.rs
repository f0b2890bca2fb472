//! What is read from text: whatever it is, it is read as what it prints as, or refused in few words; and names that mean the same
//! are the same.

#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::{fmt, net::IpAddr, str::FromStr};

use model::{
    Address, Direction, EntryName, LinkName, Member, NetworkName, PeeringName, PermitRule, Ports, Protocol,
    ProtocolClass, ResourceName, Role, Segment, Site, Subject, Subscriber, TagName, Traffic,
    service::{parse_address, parse_prefix},
};
use proptest::prelude::*;
use serde::{Serialize, de::DeserializeOwned};

/// Texts that are nearly right, nearly an address, or meant to hurt.
fn hostile() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        Just("a"),
        Just("web-1"),
        Just("A_b"),
        Just("ns"),
        Just("aws"),
        Just("10"),
        Just("0"),
        Just("255"),
        Just("256"),
        Just("010"),
        Just("::"),
        Just("fd00"),
        Just("1"),
        Just("32"),
        Just("33"),
        Just("-1"),
        Just("any"),
        Just("tcp"),
        Just("65535"),
        Just("65536"),
        Just("-"),
        Just("_"),
        Just(""),
        Just("é"),
        Just("\u{0}"),
        Just(" "),
        Just("\n"),
        Just("\u{202e}"),
        Just("ﬁ"),
        Just("\""),
        Just("admin"),
    ];
    let glue = prop_oneof![
        Just("."),
        Just("/"),
        Just(":"),
        Just("+"),
        Just(">"),
        Just("-"),
        Just(""),
        Just(".."),
        Just("%"),
    ];
    let built = proptest::collection::vec((part, glue), 0..7);
    let built =
        built.prop_map(|parts| parts.into_iter().flat_map(|(part, glue)| [part, glue]).collect::<String>());
    let trimmed =
        built.clone().prop_map(|text| text.trim_end_matches(['.', '/', ':', '+', '>', '-', '%']).to_owned());
    let addresses = (any::<IpAddr>(), 0_u8..140).prop_map(|(address, len)| format!("{address}/{len}"));
    prop_oneof![4 => built, 4 => trimmed, 2 => addresses, 1 => ".*", 1 => ".{300,400}"]
}

/// Reads a text, if it is one: it prints as something that is read as the same, and prints the same again.
fn reads<T>(text: &str) -> Result<Option<T>, TestCaseError>
where
    T: FromStr + fmt::Display + fmt::Debug + PartialEq,
    T::Err: fmt::Display,
{
    match text.parse::<T>() {
        Ok(read) => {
            let printed = read.to_string();
            let again = printed.parse::<T>();
            prop_assert!(again.as_ref().is_ok_and(|again| *again == read), "{text:?} prints as {printed:?}");
            prop_assert_eq!(again.ok().map(|again| again.to_string()), Some(printed));
            Ok(Some(read))
        }
        Err(error) => {
            let told = error.to_string();
            prop_assert!(told.len() < 1_500, "{} bytes about {} bytes", told.len(), text.len());
            Ok(None)
        }
    }
}

/// As [`reads`], and the same through JSON, which must refuse what the parser refuses.
fn keeps<T>(text: &str) -> Result<Option<T>, TestCaseError>
where
    T: FromStr + fmt::Display + fmt::Debug + PartialEq + Serialize + DeserializeOwned,
    T::Err: fmt::Display,
{
    let read = reads::<T>(text)?;
    let from_json = serde_json::from_value::<T>(text.into()).ok();
    prop_assert_eq!(&from_json, &read, "from JSON: {:?}", text);
    if let Some(read) = &read {
        let json = serde_json::to_string(read).unwrap();
        prop_assert_eq!(&serde_json::from_str::<T>(&json).unwrap(), read);
    }
    Ok(read)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn every_word_is_read_as_it_prints_or_refused(text in hostile()) {
        keeps::<Address>(&text)?;
        keeps::<Segment>(&text)?;
        keeps::<TagName>(&text)?;
        keeps::<Member>(&text)?;
        keeps::<ResourceName>(&text)?;
        keeps::<Subscriber>(&text)?;
        keeps::<Site>(&text)?;
        keeps::<NetworkName>(&text)?;
        keeps::<PeeringName>(&text)?;
        keeps::<LinkName>(&text)?;
        reads::<Protocol>(&text)?;
        reads::<Ports>(&text)?;
        reads::<ProtocolClass>(&text)?;
        reads::<Role>(&text)?;
    }

    /// A member is an address or a tag, never both, and a tag never reads as an address.
    #[test]
    fn a_member_is_one_thing(text in hostile()) {
        let (address, tag) = (text.parse::<Address>().ok(), text.parse::<TagName>().ok());
        prop_assert!(address.is_none() || tag.is_none(), "{:?}", text);
        match text.parse::<Member>() {
            Ok(Member::Literal(read)) => prop_assert_eq!(Some(read), address),
            Ok(Member::Tag(read)) => prop_assert_eq!(Some(read), tag),
            Err(_) => prop_assert!(address.is_none() && tag.is_none(), "{:?}", text),
        }
    }

    #[test]
    fn an_address_is_itself_whatever_is_written_in_its_host_bits(ip in any::<IpAddr>(), len in 0_u8..=128) {
        let len = if ip.is_ipv4() { len % 33 } else { len };
        let address: Address = format!("{ip}/{len}").parse().unwrap();
        prop_assert!(address.net().contains(&ip));
        prop_assert_eq!(address, Address::from(address.net()));
        prop_assert_eq!(address.single().is_some(), len == address.net().max_prefix_len());
        prop_assert!(address.overlaps(ip.into()) && Address::from(ip).overlaps(address));
    }

    /// As Kubernetes writes them: what std reads is read the same, and nothing panics.
    #[test]
    fn addresses_of_services_are_what_std_says_where_it_says_something(text in hostile()) {
        if let Ok(ip) = text.parse::<IpAddr>() {
            prop_assert_eq!(parse_address(&text), Some(ip));
        }
        if let Some(prefix) = parse_prefix(&text) {
            prop_assert_eq!(parse_prefix(&prefix.to_string()), Some(prefix));
            prop_assert_eq!(prefix, prefix.trunc());
        }
    }

    #[test]
    fn octets_with_zeros_before_them_are_decimal(octets in any::<[u8; 4]>(), zeros in any::<[bool; 4]>()) {
        let text: Vec<_> = octets.iter().zip(zeros).map(|(octet, zero)| {
            if zero { format!("0{octet}") } else { octet.to_string() }
        }).collect();
        prop_assert_eq!(parse_address(&text.join(".")), Some(IpAddr::from(octets)));
    }
}

fn segment() -> impl Strategy<Value = Segment> {
    "[a-z][a-z0-9_-]{0,6}".prop_map(|text| text.parse().unwrap())
}

fn site() -> impl Strategy<Value = Site> {
    (segment(), segment()).prop_map(|(namespace, cloud)| Site { namespace, cloud })
}

fn traffic() -> impl Strategy<Value = Traffic> {
    let ports = || {
        prop_oneof![
            Just(Ports::Any),
            any::<(u16, u16)>().prop_map(|(a, b)| Ports::Range { first: a.min(b), last: a.max(b) })
        ]
    };
    let protocol = prop_oneof![Just(Protocol::Any), any::<u8>().prop_map(Protocol::Number)];
    (any::<bool>(), protocol, ports(), ports()).prop_map(|(inbound, protocol, src, dst)| {
        let direction = if inbound { Direction::Inbound } else { Direction::Outbound };
        let (src, dst) = if protocol.has_ports() { (src, dst) } else { (Ports::Any, Ports::Any) };
        Traffic::new(direction, protocol, src, dst).unwrap()
    })
}

fn peers() -> impl Strategy<Value = std::collections::BTreeSet<Member>> {
    let member = prop_oneof![
        any::<IpAddr>().prop_map(|ip| Member::Literal(ip.into())),
        segment().prop_map(|name| Member::Tag(name.as_str().parse().unwrap())),
    ];
    proptest::collection::btree_set(member, 1..4)
}

proptest! {
    /// A link or a peering is the same from either end, and neither joins a thing with itself.
    #[test]
    fn what_joins_two_is_the_same_from_both_ends(a in site(), b in site(), regions in (segment(), segment())) {
        let links = [LinkName::new(a.clone(), b.clone()), LinkName::new(b.clone(), a.clone())];
        prop_assert_eq!(links[0].as_ref().ok(), links[1].as_ref().ok());
        prop_assert_eq!(links[0].is_ok(), a.cloud != b.cloud);
        if let Ok(link) = &links[0] {
            prop_assert_eq!((link.peer_of(&a), link.peer_of(&b)), (&b, &a));
            prop_assert!(link.ends()[0] < link.ends()[1]);
        }
        let b = Site { cloud: a.cloud.clone(), ..b };
        let networks = [NetworkName { site: a, region: regions.0 }, NetworkName { site: b, region: regions.1 }];
        let peerings = [
            PeeringName::new(networks[0].clone(), networks[1].clone()),
            PeeringName::new(networks[1].clone(), networks[0].clone()),
        ];
        prop_assert_eq!(peerings[0].as_ref().ok(), peerings[1].as_ref().ok());
        prop_assert_eq!(peerings[0].is_ok(), networks[0] != networks[1]);
    }

    /// A rule without a name is named by what it says: the same twice is one, and different ones are two.
    #[test]
    fn a_rule_without_a_name_is_named_by_its_content(one in (traffic(), peers()), two in (traffic(), peers())) {
        let named = |(traffic, peers): &(Traffic, _)| PermitRule::new(None, *traffic, std::clone::Clone::clone(peers)).unwrap();
        prop_assert_eq!(named(&one).name, named(&one).name);
        prop_assert_eq!(named(&one).name == named(&two).name, one == two);
        let json = serde_json::to_string(&named(&one)).unwrap();
        prop_assert_eq!(serde_json::from_str::<PermitRule>(&json).unwrap(), named(&one));
    }

    /// Entries that are a resource's own, a tag's, a policy's and a part of another never meet.
    #[test]
    fn names_of_entries_never_meet(rule in segment(), tag in segment(), other in segment(), id in "[0-9a-f]{1,8}") {
        let tag: TagName = tag.as_str().parse().unwrap();
        let names = [
            EntryName::own(&rule),
            EntryName::inherited(&tag, &rule),
            EntryName::of_policy(&id),
            EntryName::part_of(&EntryName::own(&rule), &id),
            EntryName::part_of(&EntryName::inherited(&tag, &rule), &id),
        ];
        let distinct: std::collections::BTreeSet<_> = names.iter().collect();
        prop_assert_eq!(distinct.len(), names.len());
        prop_assert_eq!(EntryName::inherited(&tag, &rule) == EntryName::inherited(&tag, &other), rule == other);
    }

    /// What a resource subscribes as is split again into what it was made of, whatever its URI holds.
    #[test]
    fn a_subscriber_is_split_as_it_was_joined(at in site(), uri in "[!-~]{1,40}") {
        let subscriber = Subscriber::resource(&at.namespace, &at.cloud, &uri).unwrap();
        prop_assert_eq!(subscriber.as_resource(), Some((at.namespace, at.cloud, uri.as_str())));
    }

    #[test]
    fn a_subject_is_read_as_it_prints(name in segment(), which in 0..Role::ALL.len()) {
        let subject = Subject { role: Role::ALL[which], name: name.as_str().parse().unwrap() };
        let json = serde_json::to_string(&subject).unwrap();
        prop_assert_eq!(serde_json::from_str::<Subject>(&json).unwrap(), subject);
    }
}

/// A megabyte is told of in a line.
#[test]
fn a_refusal_of_much_is_short() {
    for text in
        ["a.".repeat(500_000), "é".repeat(500_000), "10.0.0.0/".repeat(100_000), "+".repeat(1_000_000)]
    {
        let told = [
            text.parse::<Address>().unwrap_err().to_string(),
            text.parse::<TagName>().unwrap_err().to_string(),
            text.parse::<Member>().unwrap_err().to_string(),
            text.parse::<ResourceName>().unwrap_err().to_string(),
            text.parse::<LinkName>().unwrap_err().to_string(),
            text.parse::<NetworkName>().unwrap_err().to_string(),
            text.parse::<Protocol>().unwrap_err().to_string(),
            text.parse::<Ports>().unwrap_err().to_string(),
            text.parse::<Subscriber>().map(|_| String::new()).unwrap_or_else(|error| error.to_string()),
        ];
        for told in told {
            assert!(told.len() < 1_500, "{} bytes: {}", told.len(), &told[..100]);
        }
    }
}
