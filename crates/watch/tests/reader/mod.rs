//! A reader as strict as a stock agent: it believes only frames, inserts what a patch adds and then deletes what it
//! removes by key, and refuses what an agent refuses.

use std::{collections::BTreeMap, net::IpAddr};

use prost::Message as _;
use watch::{
    Cache, Encoding, MAGIC, Resource, Start, View, Watch,
    proto::{self, GroupMember},
};

pub struct Reader {
    pub resource: Resource,
    pub view: View,
    pub bookmarks: usize,
    pub revision: u64,
    encoding: Encoding,
    watch: Watch,
    groups: BTreeMap<String, (String, BTreeMap<String, String>)>,
    policies: BTreeMap<String, String>,
    /// What was known at the bookmark.
    at_bookmark: Option<Known>,
    /// Everything may come again after a resumption.
    is_resumed: bool,
}

type Known = (BTreeMap<String, (String, BTreeMap<String, String>)>, BTreeMap<String, String>);

impl Reader {
    pub fn attach(cache: &Cache, resource: Resource, view: View, encoding: Encoding) -> Self {
        let watch = cache.watch(resource, view.clone(), Start::Everything, encoding, false).unwrap();
        Reader {
            resource,
            view,
            bookmarks: 0,
            revision: 0,
            encoding,
            watch,
            groups: BTreeMap::new(),
            policies: BTreeMap::new(),
            at_bookmark: None,
            is_resumed: false,
        }
    }

    /// Goes back to what it knew at its bookmark, as after a crash, and resumes from there.
    pub fn resume(&mut self, cache: &Cache) {
        let Some((groups, policies)) = self.at_bookmark.clone() else { return };
        let start = Start::After { revision: self.revision, with_bookmark: false };
        self.watch = cache.watch(self.resource, self.view.clone(), start, self.encoding, false).unwrap();
        (self.groups, self.policies, self.is_resumed) = (groups, policies, true);
    }

    /// Reads at most so many chunks; how many there were.
    pub fn read(&mut self, most: usize) -> usize {
        let mut chunks = 0;
        while chunks < most
            && let Some(bytes) = self.watch.take_frames()
        {
            match self.encoding {
                Encoding::Protobuf => self.take_protobuf(&bytes),
                Encoding::Json | Encoding::Table => self.take_json(&bytes),
            }
            chunks += 1;
        }
        chunks
    }

    pub fn state(&self) -> BTreeMap<String, String> {
        let groups = self.groups.iter().map(|(name, (uid, members))| {
            let members: std::collections::BTreeSet<_> =
                members.iter().map(|(key, rest)| format!("{key} {rest}")).collect();
            (name.clone(), format!("{uid} {members:?}"))
        });
        groups.chain(self.policies.clone()).collect()
    }

    fn take_protobuf(&mut self, mut bytes: &[u8]) {
        while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
            let (frame, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
            bytes = rest;
            let event = proto::WatchEvent::decode(frame).unwrap();
            let unknown = proto::Unknown::decode(event.object.raw.strip_prefix(MAGIC).unwrap()).unwrap();
            let (kind, raw) = (unknown.type_meta.kind.as_str(), unknown.raw.as_slice());
            match kind {
                "NetworkPolicy" => {
                    let policy = proto::NetworkPolicy::decode(raw).unwrap();
                    let groups: Vec<_> = policy
                        .rules
                        .iter()
                        .flat_map(|rule| {
                            rule.from.address_groups.iter().chain(&rule.to.address_groups).cloned()
                        })
                        .collect();
                    let text = policy.source_ref.as_ref().map(|source| {
                        format!(
                            "{} {}/{} {} {groups:?}",
                            policy.metadata.generation,
                            source.namespace,
                            source.name,
                            policy.rules.len()
                        )
                    });
                    self.take_policy(&event.kind, &policy.metadata, text);
                }
                "AddressGroup" | "AppliedToGroup" | "EgressGroup" | "SupportBundleCollection" => {
                    let group = proto::AddressGroup::decode(raw).unwrap();
                    self.take_group(&event.kind, &group.metadata, describe_all(&group.group_members));
                }
                "AddressGroupPatch" | "AppliedToGroupPatch" => {
                    assert_eq!(event.kind, "MODIFIED");
                    let patch = proto::AddressGroupPatch::decode(raw).unwrap();
                    self.take_patch(
                        &patch.metadata,
                        describe_all(&patch.added_group_members),
                        describe_all(&patch.removed_group_members),
                    );
                }
                other => panic!("unknown kind {other}"),
            }
        }
    }

    fn take_json(&mut self, bytes: &[u8]) {
        for event in serde_json::Deserializer::from_slice(bytes).into_iter::<serde_json::Value>() {
            let event = event.unwrap();
            let (kind, object) = (event["type"].as_str().unwrap(), &event["object"]);
            let metadata: proto::ObjectMeta = serde_json::from_value(object["metadata"].clone()).unwrap();
            match object["kind"].as_str().unwrap() {
                "NetworkPolicy" => {
                    let rules = object["rules"].as_array().cloned().unwrap_or_default();
                    let groups: Vec<String> = rules
                        .iter()
                        .flat_map(|rule| {
                            let from = rule["from"]["addressGroups"].as_array().cloned().unwrap_or_default();
                            let to = rule["to"]["addressGroups"].as_array().cloned().unwrap_or_default();
                            from.into_iter().chain(to).map(|name| name.as_str().unwrap().to_owned())
                        })
                        .collect();
                    let text = object.get("sourceRef").map(|source| {
                        format!(
                            "{} {}/{} {} {groups:?}",
                            metadata.generation,
                            source.get("namespace").and_then(|namespace| namespace.as_str()).unwrap_or(""),
                            source["name"].as_str().unwrap(),
                            rules.len()
                        )
                    });
                    self.take_policy(kind, &metadata, text);
                }
                "AddressGroup" | "AppliedToGroup" | "EgressGroup" | "SupportBundleCollection" => {
                    self.take_group(kind, &metadata, describe_json(&object["groupMembers"]));
                }
                _ => self.take_patch(
                    &metadata,
                    describe_json(&object["addedGroupMembers"]),
                    describe_json(&object["removedGroupMembers"]),
                ),
            }
        }
    }

    fn bookmark(&mut self, metadata: &proto::ObjectMeta) {
        self.bookmarks += 1;
        assert_eq!(self.bookmarks, 1, "a second bookmark");
        self.revision = metadata.resource_version.parse().unwrap();
        self.at_bookmark = Some((self.groups.clone(), self.policies.clone()));
    }

    fn take_policy(&mut self, event: &str, metadata: &proto::ObjectMeta, text: Option<String>) {
        let name = metadata.name.clone();
        let known = self.policies.contains_key(&name);
        match event {
            "BOOKMARK" => return self.bookmark(metadata),
            "ADDED" => assert!(!known || self.is_resumed, "{name} is known"),
            "MODIFIED" => assert!(known, "{name} is not known"),
            "DELETED" => {
                assert!(text.is_some(), "deleted without its source");
                assert!(self.policies.remove(&name).is_some() || self.is_resumed);
                return;
            }
            other => panic!("unknown event {other}"),
        }
        assert_eq!(name, metadata.uid);
        self.policies.insert(name, text.expect("a policy has a source"));
    }

    fn take_group(&mut self, event: &str, metadata: &proto::ObjectMeta, members: BTreeMap<String, String>) {
        let name = metadata.name.clone();
        match event {
            "BOOKMARK" => self.bookmark(metadata),
            "ADDED" => {
                let node_sees_own = self.resource == Resource::AppliedToGroups && self.view.node.is_some();
                assert!(!node_sees_own || !members.is_empty(), "{name} has no member here");
                let known = self.groups.insert(name, (metadata.uid.clone(), members));
                assert!(known.is_none() || self.is_resumed, "added twice: {known:?}");
            }
            "DELETED" => assert!(self.groups.remove(&name).is_some() || self.is_resumed),
            other => panic!("unknown event {other} for a whole group"),
        }
    }

    fn take_patch(
        &mut self,
        metadata: &proto::ObjectMeta,
        added: BTreeMap<String, String>,
        removed: BTreeMap<String, String>,
    ) {
        assert!(!added.is_empty() || !removed.is_empty(), "an empty patch");
        let (_, members) =
            self.groups.get_mut(&metadata.name).expect("a patch for a group that is not known");
        members.extend(added);
        for key in removed.keys() {
            assert!(members.remove(key).is_some(), "{key} was no member");
        }
    }
}

/// The key of a stock agent, and the rest.
fn describe_all(members: &[GroupMember]) -> BTreeMap<String, String> {
    members.iter().map(describe).collect()
}

fn describe(member: &GroupMember) -> (String, String) {
    let parts = [
        ("pod", &member.pod),
        ("entity", &member.external_entity),
        ("node", &member.node),
        ("service", &member.service),
    ];
    let (kind, reference) = parts.into_iter().find_map(|(kind, part)| Some((kind, part.as_ref()?))).unwrap();
    let addresses: Vec<_> = member.ips.iter().map(|ip| address(ip)).collect();
    let ports: Vec<_> = member.ports.iter().map(|port| format!("{}={}", port.name, port.port)).collect();
    (format!("{kind} {}/{} {addresses:?}", reference.namespace, reference.name), format!("{ports:?}"))
}

fn address(bytes: &[u8]) -> String {
    let octets: [u8; 16] = bytes.try_into().expect("16 bytes, always");
    let address = std::net::Ipv6Addr::from(octets);
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4).to_string()
}

fn describe_json(members: &serde_json::Value) -> BTreeMap<String, String> {
    use base64::Engine as _;
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let members = list(members).into_iter().map(|member| {
        let reference = |key: &str| {
            member.get(key).map(|reference| proto::Reference {
                name: reference["name"].as_str().unwrap().to_owned(),
                namespace: reference.get("namespace").and_then(|n| n.as_str()).unwrap_or("").to_owned(),
            })
        };
        let ips = list(&member["ips"]).into_iter();
        let ips =
            ips.map(|ip| base64::engine::general_purpose::STANDARD.decode(ip.as_str().unwrap()).unwrap());
        let ports = list(&member["ports"]).into_iter().map(|port| proto::NamedPort {
            port: i32::try_from(port["port"].as_i64().unwrap()).unwrap(),
            name: port["name"].as_str().unwrap().to_owned(),
            protocol: port["protocol"].as_str().unwrap().to_owned(),
        });
        describe(&GroupMember {
            pod: reference("pod"),
            external_entity: reference("externalEntity"),
            node: reference("node"),
            service: reference("service"),
            ips: ips.collect(),
            ports: ports.collect(),
        })
    });
    members.collect()
}
