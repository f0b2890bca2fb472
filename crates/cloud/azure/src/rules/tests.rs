use cloud_api::CloudErrorKind;
use proptest::prelude::*;
use serde_json::json;
use testkit::lists;

use super::*;

fn rules_of(current: &[Rule], entries: &[PermitEntry]) -> Result<Vec<Rule>, CloudError> {
    super::rules_of(current, entries, &closed())
}

fn entries_of(rules: &[Rule]) -> Vec<PermitEntry> {
    super::entries_of(rules, &closed())
}

fn entry(name: &str, protocol: Protocol, targets: &[String], tags: &[String]) -> PermitEntry {
    let ports = if protocol == Protocol::TCP { Ports::Range { first: 80, last: 90 } } else { Ports::Any };
    lists::entry(name, Direction::Outbound, (protocol, ports), targets, tags)
}

fn one(host: u8) -> Vec<String> {
    vec![format!("10.0.0.{host}")]
}

#[test]
fn a_closed_group_has_an_empty_list_and_an_open_one_shows() {
    assert_eq!(entries_of(&closed()), []);
    // A new group of Azure, without rules of its own, is open in both directions.
    let open = entries_of(&[]);
    assert_eq!(open.len(), 2);
    assert!(open.iter().all(is_strange));
    // Whatever is asked for, the group is closed afterwards.
    assert!(is_same(&rules_of(&[], &open).unwrap(), &closed()));
}

#[test]
fn rules_keep_their_priority_while_others_come_and_go() {
    let [a, b, c] = ["a", "b", "c"].map(|name| entry(name, Protocol::TCP, &one(1), &[]));
    let first = rules_of(&[], &[a.clone(), b.clone()]).unwrap();
    let of = |rules: &[Rule], entry: &PermitEntry| {
        let name = format!("t-{}-0", letters(entry.name.as_str(), 16));
        rules.iter().find(|rule| rule.name == name).map(|rule| rule.properties.priority)
    };
    assert_eq!([of(&first, &a), of(&first, &b)], [Some(100), Some(101)]);
    let second = rules_of(&first, &[c.clone(), b.clone()]).unwrap();
    assert_eq!([of(&second, &a), of(&second, &b), of(&second, &c)], [None, Some(101), Some(100)]);
}

#[test]
fn names_and_tags_of_any_length_come_back() {
    let tags: Vec<String> = (0..40).map(|n| format!("{n}{}", "x".repeat(60))).collect();
    let long = entry(&"n".repeat(200), Protocol::Any, &one(1), &tags);
    let rules = rules_of(&[], std::slice::from_ref(&long)).unwrap();
    assert!(rules.len() > 10);
    for rule in &rules {
        assert!(rule.properties.description.as_ref().unwrap().len() <= LONGEST);
        assert!(rule.name.len() <= 80);
    }
    assert_eq!(entries_of(&rules), [long]);
}

#[test]
fn what_azure_cannot_do_is_refused_before_the_first_call() {
    let kind = |entries: &[PermitEntry]| rules_of(&[], entries).unwrap_err().kind;
    assert_eq!(kind(&[entry("a", Protocol::Number(47), &one(1), &[])]), CloudErrorKind::Unsupported);
    let v6 = entry("a", Protocol::TCP, &["2001:db8::1".to_owned()], &[]);
    assert_eq!(kind(&[v6]), CloudErrorKind::Unsupported);
    // What does not fit is refused: there is no priority left over for it.
    let list = |count: usize| -> Vec<PermitEntry> {
        (0..count).map(|n| entry(&format!("e{n}"), Protocol::Any, &one(1), &[])).collect()
    };
    assert_eq!(rules_of(&[], &list(998)).unwrap().len(), 1000);
    assert_eq!(kind(&list(999)), CloudErrorKind::Conflict);
    let many: Vec<String> = (0..4000).map(|n| format!("10.{}.{}.1", n / 250, n % 250)).collect();
    assert!(rules_of(&[], &[entry("a", Protocol::Any, &many[..3998], &[])]).is_ok());
    assert_eq!(kind(&[entry("a", Protocol::Any, &many, &[])]), CloudErrorKind::Conflict);
}

/// What somebody with a portal did is seen, kept while other things change, and deleted when that is asked for.
#[test]
fn rules_of_others_are_seen_and_left_alone() {
    let rule = |name: &str, access: &str, priority: u32| -> Rule {
        let applications = json!([{"id": "/a"}]);
        let rule = json!({"name": name, "id": "/r", "properties": {
            "direction": "Inbound", "access": access, "priority": priority, "protocol": "Tcp", "sourcePortRange": "*",
            "destinationPortRanges": ["22", "443"], "sourceAddressPrefix": "Internet", "destinationAddressPrefix": "*",
            "destinationApplicationSecurityGroups": applications, "provisioningState": "Succeeded"}});
        serde_json::from_value(rule).unwrap()
    };
    let mut current = closed();
    current.extend([rule("ssh", "Allow", 100), rule("no-ssh", "Deny", 101)]);
    let seen = entries_of(&current);
    assert_eq!(seen.len(), 1);
    assert_eq!(
        (seen[0].name.as_str(), seen[0].traffic.dst_ports),
        ("not-ours ssh", Ports::Range { first: 22, last: 443 })
    );
    assert_eq!(seen[0].targets().iter().next().unwrap().to_string(), "0.0.0.0/0");
    let more = [seen[0].clone(), entry("a", Protocol::Any, &one(1), &[])];
    let rules = rules_of(&current, &more).unwrap();
    assert!(current.iter().all(|rule| rules.contains(rule)) && rules.len() == 5);
    // As it is written again, it has all that only its owner knows, and nothing that only Azure sets.
    let sent = serde_json::to_value(&current[2]).unwrap();
    let properties = sent.get("properties").unwrap();
    assert!(properties.get("destinationApplicationSecurityGroups").is_some() && sent.get("id").is_none());
    assert_eq!(properties.get("provisioningState"), Some(&json!(null)), "nulls are left out");
    let rules = rules_of(&current, &more[1..]).unwrap();
    assert!(!rules.contains(&current[2]) && rules.contains(&current[3]));
}

/// Azure may answer with one prefix where a list was sent, and with other cases of the same words.
#[test]
fn the_way_of_writing_does_not_matter() {
    let list = [entry("a", Protocol::TCP, &one(1), &[])];
    let wanted = rules_of(&[], &list).unwrap();
    let mut shown = wanted.clone();
    shown.reverse();
    for Rule { properties, .. } in &mut shown {
        properties.destination_address_prefix = properties
            .destination_address_prefixes
            .take()
            .map_or_else(|| Some("*".into()), |mut all| all.pop());
        properties.source_address_prefixes = Some(Vec::new());
        properties.protocol = properties.protocol.to_uppercase();
    }
    assert!(is_same(&shown, &wanted));
    assert_eq!(entries_of(&shown), list);
    shown[2].properties.destination_address_prefix = Some("10.0.0.2/32".into());
    assert!(!is_same(&shown, &wanted));
}

proptest! {
    #[test]
    fn lists_survive_the_way_through_azure(a in lists::any(), b in lists::any()) {
        let current = rules_of(&[], &a).unwrap();
        let wanted = rules_of(&current, &b).unwrap();
        let mut read = entries_of(&wanted);
        read.sort();
        prop_assert_eq!(read, b.clone());
        prop_assert!(is_same(&rules_of(&wanted, &b).unwrap(), &wanted));
        let places: BTreeSet<_> = wanted.iter().map(|rule| (rule.direction(), rule.properties.priority)).collect();
        prop_assert_eq!(places.len(), wanted.len());
    }
}

/// What lets a cluster work inside is told as no entry, and no entry takes its place; who touches it is seen.
#[test]
fn the_inside_of_a_cluster_is_in_no_list() {
    let base = border("10.4.0.0/17".parse().unwrap());
    assert_eq!(super::entries_of(&base, &base), []);
    let many: Vec<PermitEntry> =
        (0..900).map(|n| entry(&format!("e{n}"), Protocol::Any, &one(1), &[])).collect();
    let rules = super::rules_of(&base, &many, &base).unwrap();
    let mut places = BTreeSet::new();
    assert!(rules.iter().all(|rule| places.insert((rule.direction(), rule.properties.priority))));
    let mut last = rules.iter().filter(|rule| rule.properties.priority >= BASE_PRIORITY);
    assert!(last.all(|rule| base.contains(rule)));
    assert_eq!(super::entries_of(&rules, &base).len(), 900);
    assert!(is_same(&super::rules_of(&rules, &[], &base).unwrap(), &base));

    let names = |rules: &[Rule]| -> Vec<String> {
        super::entries_of(rules, &base).iter().map(|entry| entry.name.to_string()).collect()
    };
    assert_eq!(names(&base[1..]), ["not-ours missing t-inside-in"]);
    let mut wide = base.clone();
    wide[0].properties.source_address_prefix = Some("*".into());
    assert_eq!(names(&wide), ["not-ours t-inside-in", "not-ours missing t-inside-in"]);
    for broken in [&base[1..], &wide, &[]] {
        assert!(is_same(
            &super::rules_of(broken, &super::entries_of(broken, &base)[1..], &base).unwrap(),
            &base
        ));
    }
}
