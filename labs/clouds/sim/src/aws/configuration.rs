//! What EC2 writes for whoever sets up the other end of a VPN connection.

use std::fmt::Write as _;

use ipnet::Ipv4Net;
use serde_json::Value;

use crate::rest::list;

/// One side of a tunnel: its address outside, its host in the net inside, and its number for BGP.
fn side(name: &str, outside: &str, inside: Option<std::net::Ipv4Addr>, asn: &str) -> String {
    let inside = inside.map_or_else(String::new, |address| address.to_string());
    format!(
        "<{name}><tunnel_outside_address><ip_address>{outside}</ip_address></tunnel_outside_address>\
         <tunnel_inside_address><ip_address>{inside}</ip_address><network_mask>255.255.255.252</network_mask>\
         <network_cidr>30</network_cidr></tunnel_inside_address>\
         <bgp><asn>{asn}</asn><hold_time>30</hold_time></bgp></{name}>"
    )
}

/// The configuration of a connection, from it and the two gateways that it joins.
pub(super) fn configuration(connection: &Value, customer: &Value, transit: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let asns = (text(&customer["BgpAsn"]), text(&transit["Options"]["AmazonSideAsn"]));
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<vpn_connection id=\"{}\"><customer_gateway_id>{}</customer_gateway_id>\
         <transit_gateway_id>{}</transit_gateway_id><vpn_connection_type>ipsec.1</vpn_connection_type>",
        text(&connection["VpnConnectionId"]),
        text(&connection["CustomerGatewayId"]),
        text(&connection["TransitGatewayId"]),
    );
    for tunnel in list(&connection["Options"]["TunnelOptions"]) {
        // Amazon takes the first host of the net inside, the customer the second.
        let net: Option<Ipv4Net> = tunnel["TunnelInsideCidr"].as_str().and_then(|net| net.parse().ok());
        let host = |place: usize| net.and_then(|net| net.hosts().nth(place));
        let _ = write!(
            xml,
            "<ipsec_tunnel>{}{}<ike><pre_shared_key>{}</pre_shared_key></ike></ipsec_tunnel>",
            side("customer_gateway", &text(&customer["IpAddress"]), host(1), &asns.0),
            side("vpn_gateway", &text(&tunnel["OutsideIpAddress"]), host(0), &asns.1),
            text(&tunnel["PreSharedKey"]),
        );
    }
    xml + "</vpn_connection>"
}
