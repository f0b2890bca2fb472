//! What a link has learnt. IBM's VPN gateways do not say; the transit gateway behind them writes a report when it is asked
//! to, which takes a while. It keeps one that is complete, and asking again while one is being written is not asking.

use std::{collections::BTreeSet, time::Duration};

use http::Method;
use ipnet::Ipv4Net;

use crate::shapes::{ReportedRoute, RouteReport, RouteReports, TransitGateway};
use crate::{Call, Ground, Listed as _, Place, Result};

/// How often a new report is looked at before the last one must do: somebody waits for the answer.
const LOOKS: usize = 3;
const PAUSE: Duration = Duration::from_secs(1);

/// The prefixes in use that came from an AS.
fn from_as(report: &RouteReport, asn: u32) -> Vec<Ipv4Net> {
    let is_from = |route: &&ReportedRoute| {
        let path = route.as_path.as_deref().unwrap_or_default();
        let mut numbers = path.split(|letter: char| !letter.is_ascii_digit());
        route.is_used && numbers.any(|number| number.parse() == Ok(asn))
    };
    let routes = report.connections.iter().flat_map(|one| &one.bgps).filter(is_from);
    let found: BTreeSet<Ipv4Net> = routes.filter_map(|route| route.prefix.as_ref()?.parse().ok()).collect();
    found.into_iter().collect()
}

/// What a site's gateway has learnt from an AS, by a report of now or, if that takes too long, by the one before.
pub(crate) async fn learnt(ground: &Ground, asn: u32) -> Result<Vec<Ipv4Net>> {
    let api = &ground.api;
    let hub = api.transit::<TransitGateway>().find(&ground.names.hub()).await?;
    let Some(hub) = hub.filter(TransitGateway::is_alive) else { return Ok(Vec::new()) };
    let path = format!("transit_gateways/{}/route_reports", hub.id);
    let call = |operation: &str, method: Method, path: &str| {
        Call::new(Place::Transit, &format!("{operation}_transit_gateway_route_report"), method, path)
    };
    let mut report: RouteReport = api.ask(call("create", Method::POST, &path)).await?;
    let one = format!("{path}/{}", report.id);
    for _ in 0..LOOKS {
        if report.status != "pending" {
            break;
        }
        api.clock().sleep(PAUSE).await;
        report = api.ask(call("get", Method::GET, &one)).await?;
    }
    if report.status == "complete" {
        return Ok(from_as(&report, asn));
    }
    let all = Call::get(Place::Transit, "list_transit_gateway_route_reports", path);
    let all = api.ask::<RouteReports>(all).await?.route_reports;
    let last = all.iter().find(|one| one.status == "complete");
    Ok(last.map(|report| from_as(report, asn)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shapes::ReportedConnection;

    #[test]
    fn routes_are_told_apart_by_the_as_they_come_from() {
        let routes = [
            ("10.2.0.0/16", "(65201 4201065544) 64600", true),
            ("10.1.0.0/16", "64600", true),
            ("10.1.0.0/16", "64600", true),
            ("10.3.0.0/16", "64600", false),
            ("10.4.0.0/16", "646001", true),
        ];
        let route = |(prefix, path, is_used): (&str, &str, bool)| ReportedRoute {
            is_used,
            as_path: Some(path.to_owned()),
            prefix: Some(prefix.to_owned()),
        };
        let connections = vec![
            ReportedConnection { bgps: Vec::new() },
            ReportedConnection { bgps: routes.map(route).into() },
        ];
        let report = RouteReport { id: "r".into(), status: "complete".into(), connections };
        let wanted: Vec<Ipv4Net> = ["10.1.0.0/16", "10.2.0.0/16"].map(|text| text.parse().unwrap()).into();
        assert_eq!(from_as(&report, 64_600), wanted);
    }
}
