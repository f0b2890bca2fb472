//! For fuzz targets only: the kernel's answers, without a kernel.

use crate::{conntrack, ipvs, link, netlink::Messages, nft::decode};

/// Reads bytes as every kind of answer that is read anywhere.
pub fn replies(bytes: &[u8]) {
    for message in Messages::new(bytes) {
        let Ok(message) = message else { return };
        let _ = link::read_link(&message);
        let _ = link::read_route(&message);
        let _ = link::read_address(&message);
        for fixed in [0, 4, 8, 16] {
            let Ok(attrs) = message.attrs(fixed) else { continue };
            let _ = decode::owned(&attrs);
            let _ = decode::chain(&attrs);
            let _ = decode::rule(&attrs);
            let _ = conntrack::connection(&attrs);
            let _ = ipvs::server(&attrs);
            for ipv6 in [false, true] {
                let _ = ipvs::destination(&attrs, ipv6);
            }
            let mut dumped = Vec::new();
            let read = decode::elements(&attrs, &mut dumped);
            if let (Ok(()), Ok(Some((_, set)))) = (read, decode::set(&attrs))
                && let Some(schema) = &set.schema
            {
                let _ = decode::collect(schema, dumped);
            }
        }
    }
}
