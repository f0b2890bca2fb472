//! Bodies of REST calls: the first byte says which one the others are. What is understood is written and read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use model::allow::{End, Passage};
use serde::{Serialize, de::DeserializeOwned};
use wire::{
    invisinetspb::PermitListRule,
    permit::{permit_entry, permit_rule},
    tags::{tag_members, tag_value},
    tagservicepb::TagMapping,
    trestle::v1,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 12 {
        0 => {
            let Some(mapping) = kept::<TagMapping>(bytes) else { return };
            let _ = tag_members(mapping.clone());
            if let Ok(read) = tag_value(mapping) {
                assert_eq!(tag_value(TagMapping::from(read.clone())).ok(), Some(read));
            }
        }
        1 => kept::<PermitListRule>(bytes).iter().for_each(rule),
        2 => kept::<Vec<PermitListRule>>(bytes).iter().flatten().for_each(rule),
        3 => {
            let Some(deployments) = kept::<Vec<v1::Deployment>>(bytes) else { return };
            let message = v1::Namespace { name: "shop".to_owned(), deployments, ..Default::default() };
            if let Ok(namespace) = model::Namespace::try_from(message) {
                assert_eq!(model::Namespace::try_from(v1::Namespace::from(namespace.clone())), Ok(namespace));
            }
        }
        4 => drop(kept::<Vec<String>>(bytes)),
        5 => {
            let Some(asked) = read::<v1::AllowRequest>(bytes) else { return };
            for end in [&asked.from, &asked.to] {
                printed::<End>(end);
            }
            asked.traffic.iter().for_each(|traffic| printed::<Passage>(traffic));
        }
        6 => drop(read::<v1::CreateTicketRequest>(bytes)),
        7 => {
            let Some(asked) = read::<v1::CreateJoinTokenRequest>(bytes) else { return };
            let _ = model::Grant::new(&asked.names, asked.tags, asked.labels);
        }
        8 => drop(read::<v1::ResizeConsumerRequest>(bytes)),
        9 => drop(read::<v1::NameConsumerRequest>(bytes)),
        10 => drop(read::<v1::RecreateVolumeRequest>(bytes)),
        _ => drop(read::<v1::PermitConsumerRequest>(bytes)),
    }
});

fn rule(message: &PermitListRule) {
    if let Ok(rule) = permit_rule(message) {
        assert_eq!(permit_rule(&PermitListRule::from(&rule)).ok(), Some(rule));
    }
    if let Ok(entry) = permit_entry(message) {
        assert_eq!(permit_entry(&PermitListRule::from(&entry)).ok(), Some(entry));
    }
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    serde_json::from_slice(bytes).ok()
}

/// What is read, if it is: it is written as something that is read as the same.
fn kept<T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> Option<T> {
    let value = read::<T>(bytes)?;
    let written = serde_json::to_vec(&value).expect("it is JSON");
    assert_eq!(read::<T>(&written).as_ref(), Some(&value));
    Some(value)
}

fn printed<T: std::str::FromStr + std::fmt::Display + PartialEq + std::fmt::Debug>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        assert_eq!(value.to_string().parse::<T>().ok(), Some(value));
    }
}
