//! What a link has learnt. IBM's VPN gateways do not say; the transit gateway behind them writes a report when it is asked
//! to, which takes a while. It keeps one that is complete, and asking again while one is being written is not asking.

use std::{collections::BTreeSet, time::Duration};

use http::Method;
use ipnet::Ipv4Net;
use serde_json::Value;

use crate::{
    api::{Place, TRANSIT_GATEWAY, text},
    cloud::{Ground, IbmCloud, Result},
};

/// How often a new report is looked at before the last one must do: somebody waits for the answer.
const LOOKS: usize = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// The prefixes in use that came from an AS.
fn learnt(report: &Value, asn: u32) -> Vec<Ipv4Net> {
    let connections = report["connections"].as_array().into_iter().flatten();
    let routes = connections.flat_map(|one| one["bgps"].as_array().into_iter().flatten());
    let is_from = |route: &&Value| {
        let mut path = text(route, "as_path").split(|letter: char| !letter.is_ascii_digit());
        route["is_used"] == true && path.any(|number| number.parse() == Ok(asn))
    };
    let found: BTreeSet<Ipv4Net> =
        routes.filter(is_from).filter_map(|route| text(route, "prefix").parse().ok()).collect();
    found.into_iter().collect()
}

impl IbmCloud {
    /// What a site's gateway has learnt from an AS, by a report of now or, if that takes too long, by the one before.
    pub(crate) async fn learnt(&self, ground: &Ground, asn: u32) -> Result<Vec<Ipv4Net>> {
        let name = ground.names.hub();
        let hub = self.api.find(Place::Transit, &TRANSIT_GATEWAY, "transit_gateways", &name).await?;
        let Some(hub) = hub else { return Ok(Vec::new()) };
        let path = format!("transit_gateways/{}/route_reports", text(&hub, "id"));
        let ask = async |operation: &str, method: Method, path: &str| {
            self.api.send(Place::Transit, operation, method, path, None).await
        };
        let mut report = ask("create_transit_gateway_route_report", Method::POST, &path).await?;
        let one = format!("{path}/{}", text(&report, "id"));
        for _ in 0..LOOKS {
            if report["status"] != "pending" {
                break;
            }
            self.api.clock().sleep(PAUSE).await;
            report = ask("get_transit_gateway_route_report", Method::GET, &one).await?;
        }
        if report["status"] != "complete" {
            let all = ask("list_transit_gateway_route_reports", Method::GET, &path).await?;
            let all = all["route_reports"].as_array().cloned().unwrap_or_default();
            report = all.into_iter().find(|one| one["status"] == "complete").unwrap_or_default();
        }
        Ok(learnt(&report, asn))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn routes_are_told_apart_by_the_as_they_come_from() {
        let route = |prefix: &str, path: &str, used: bool| json!({"prefix": prefix, "as_path": path, "is_used": used});
        let report = json!({"connections": [
            {"routes": [{"prefix": "10.0.0.0/18"}], "bgps": []},
            {"routes": [], "bgps": [
                route("10.2.0.0/16", "(65201 4201065544) 64600", true),
                route("10.1.0.0/16", "64600", true),
                route("10.1.0.0/16", "64600", true),
                route("10.3.0.0/16", "64600", false),
                route("10.4.0.0/16", "646001", true),
            ]},
        ]});
        let wanted: Vec<Ipv4Net> = ["10.1.0.0/16", "10.2.0.0/16"].map(|text| text.parse().unwrap()).into();
        assert_eq!(learnt(&report, 64_600), wanted);
        assert_eq!(learnt(&Value::Null, 64_600), []);
    }
}
