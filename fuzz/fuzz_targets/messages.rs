//! Bodies of calls: the first byte says which message the others are. What is understood is written and read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message as _;
use wire::{
    invisinetspb::PermitListRule,
    permit::{permit_entry, permit_rule},
    tags::{tag_members, tag_value},
    tagservicepb::TagMapping,
    trestle::v1,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((which, bytes)) = bytes.split_first() else { return };
    match which % 6 {
        0 => tag(bytes),
        1 => rule(bytes),
        2 => {
            if let Ok(message) = v1::Namespace::decode(bytes)
                && let Ok(namespace) = model::Namespace::try_from(message)
            {
                assert_eq!(model::Namespace::try_from(v1::Namespace::from(namespace.clone())), Ok(namespace));
            }
        }
        3 => {
            if let Ok(message) = v1::NodeService::decode(bytes)
                && let Ok((name, service)) = wire::service::read_service(&message)
            {
                let again = wire::service::node_service(&name, &service);
                assert_eq!(wire::service::read_service(&again).ok(), Some((name, service)));
            }
        }
        4 => {
            if let Ok(message) = v1::NodeEndpointSlice::decode(bytes)
                && let Ok(slice) = model::service::Slice::try_from(&message)
            {
                let again = v1::NodeEndpointSlice::from(&slice);
                assert_eq!(model::service::Slice::try_from(&again).ok(), Some(slice));
            }
        }
        _ => {
            if let Ok(message) = v1::NodePolicy::decode(bytes) {
                let policy = wire::node::read::network_policy("p", &message);
                let again = wire::node::read::network_policy("p", &v1::NodePolicy::from(&policy));
                assert_eq!(again, policy);
            }
        }
    }
});

fn tag(bytes: &[u8]) {
    let Ok(mapping) = TagMapping::decode(bytes) else { return };
    let _ = tag_members(mapping.clone());
    if let Ok((name, value)) = tag_value(mapping) {
        let again = TagMapping::from((name.clone(), value.clone()));
        assert_eq!(tag_value(again).ok(), Some((name, value)));
    }
}

fn rule(bytes: &[u8]) {
    let Ok(message) = PermitListRule::decode(bytes) else { return };
    if let Ok(rule) = permit_rule(&message) {
        assert_eq!(permit_rule(&PermitListRule::from(&rule)).ok(), Some(rule));
    }
    if let Ok(entry) = permit_entry(&message) {
        assert_eq!(permit_entry(&PermitListRule::from(&entry)).ok(), Some(entry));
    }
}
