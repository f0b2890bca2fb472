//! Private Service Connect: reserved addresses, forwarding rules to services, and the firewall policies of networks.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Refusal, refuse,
    state::{Gce, Request, path_of},
    wire::{last, line, net, ranges, wire_name},
};
use crate::{
    rest::{items, list, text},
    wire::{Firewall, Hop, Host, Line, Network, Wire},
};

type Done = Result<(), Refusal>;

/// Google's own last rule of a policy.
const LAST: u64 = 2_147_483_647;

fn invalid(message: impl Into<String>) -> Refusal {
    refuse(400, "invalid", message)
}

fn any(priority: u32, allow: bool, peers: Vec<Ipv4Net>) -> Line {
    Line { priority, allow, protocol: None, ports: vec![], src_ports: vec![], peers }
}

/// Whether an object refers to another in ways that only endpoints and policies do.
pub(super) fn uses(object: &Value, link: &str) -> bool {
    let mut bound = list(&object["associations"]);
    object["_address"] == link || bound.any(|one| one["attachmentTarget"] == link)
}

impl Gce {
    pub(super) fn reserve(&mut self, request: &Request<'_>, object: &mut Value) -> Done {
        if object["addressType"] != "INTERNAL" {
            return Err(invalid("Only internal addresses are simulated."));
        }
        let global = request.target.scope == "global";
        match (global, object["purpose"].as_str()) {
            (true, Some("PRIVATE_SERVICE_CONNECT")) => {
                let address: Option<Ipv4Addr> = object["address"].as_str().and_then(|text| text.parse().ok());
                let address = address.ok_or_else(|| invalid("A global internal address must be given."))?;
                let mut subnets =
                    self.of_kind("subnetworks").filter(|(_, one)| one["network"] == object["network"]);
                if subnets.any(|(_, one)| ranges(one).iter().any(|net| net.contains(&address))) {
                    return Err(invalid("The address is within a subnetwork of the network."));
                }
                let taken =
                    |one: &Value| one["network"] == object["network"] && one["address"] == object["address"];
                if self.of_kind("addresses").any(|(_, one)| taken(one)) {
                    return Err(invalid("The address is reserved already."));
                }
            }
            (false, None | Some("GCE_ENDPOINT")) => {
                let path = path_of(text(&object["subnetwork"]), &request.target.project);
                object["address"] = self.next_address(&path)?.to_string().into();
                object["purpose"] = "GCE_ENDPOINT".into();
            }
            _ => return Err(invalid("Invalid value for field 'resource.purpose'")),
        }
        object["status"] = "RESERVED".into();
        Ok(())
    }

    pub(super) fn forwarding_rule(&mut self, request: &Request<'_>, object: &mut Value) -> Done {
        let name = text(&object["name"]);
        let target = text(&object["target"]);
        let region = request.target.scope.trim_start_matches("regions/");
        if request.target.scope == "global" {
            let is_short = name.len() <= 20 && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
            if !is_short {
                return Err(invalid("Such a rule's name has 1 to 20 lowercase letters and digits."));
            }
            if !["all-apis", "vpc-sc"].contains(&target) {
                return Err(invalid(format!("Invalid value for field 'resource.target': '{target}'")));
            }
        } else if !target.contains(&format!("/regions/{region}/serviceAttachments/")) {
            return Err(invalid(format!("Invalid value for field 'resource.target': '{target}'")));
        }
        let reference = text(&object["IPAddress"]);
        let address = self.ready(&path_of(reference, &request.target.project))?.clone();
        if self.of_kind("forwardingRules").any(|(_, one)| one["_address"] == address["selfLink"]) {
            bail!(400, "resourceInUseByAnotherResource", "The address is in use.");
        }
        object["IPAddress"] = address["address"].clone();
        object["_address"] = address["selfLink"].clone();
        object["pscConnectionId"] = (9_000_000 + self.made).to_string().into();
        object["pscConnectionStatus"] = "ACCEPTED".into();
        Ok(())
    }

    pub(super) fn firewall_policy(&self, object: &mut Value) {
        let everything = json!({"srcIpRanges": ["0.0.0.0/0"], "layer4Configs": [{"ipProtocol": "all"}]});
        object["rules"] = json!([{"kind": "compute#firewallPolicyRule", "priority": LAST, "action": "goto_next", "direction": "EGRESS", "match": everything}]);
        object["associations"] = json!([]);
        object["fingerprint"] = "42WmSpB8rSM=".into();
    }

    /// What verbs do to a policy.
    pub(super) fn adjust_policy(&mut self, request: &Request<'_>, path: &str, until: u64) -> Done {
        let mut policy = self.get(path)?.clone();
        let given = request.parameter("priority").and_then(|text| text.parse::<u64>().ok());
        let mut rules = items(&policy["rules"]);
        let place = |number: Option<u64>| rules.iter().position(|rule| rule["priority"].as_u64() == number);
        let missing = || invalid("The rule does not exist.");
        match request.target.verb.as_str() {
            "addRule" => {
                let number = request.body["priority"].as_u64();
                if number.is_none() || place(number).is_some() {
                    return Err(invalid("A rule needs a priority, and one that is free."));
                }
                check_rule(&request.body)?;
                let mut rule = request.body.clone();
                rule["kind"] = "compute#firewallPolicyRule".into();
                rules.push(rule);
            }
            "patchRule" => {
                let at = place(given).ok_or_else(missing)?;
                for (field, value) in request.body.as_object().into_iter().flatten() {
                    rules[at][field] = value.clone();
                }
                check_rule(&rules[at])?;
            }
            "removeRule" => drop(rules.remove(place(given).ok_or_else(missing)?)),
            "addAssociation" => {
                let reference = text(&request.body["attachmentTarget"]);
                let network = path_of(reference, &request.target.project);
                let link = self.ready(&network)?["selfLink"].clone();
                if self
                    .of_kind("firewallPolicies")
                    .any(|(_, one)| uses(one, link.as_str().unwrap_or_default()))
                {
                    return Err(invalid("The network has a policy already."));
                }
                let bound = json!({"name": request.body["name"], "attachmentTarget": link});
                policy["associations"].as_array_mut().into_iter().for_each(|list| list.push(bound.clone()));
            }
            "removeAssociation" => {
                let name = request.parameter("name").unwrap_or_default();
                let list = policy["associations"].as_array_mut();
                list.into_iter().for_each(|list| list.retain(|one| one["name"] != name.as_str()));
            }
            other => bail!(404, "notFound", "{other} is not simulated"),
        }
        policy["rules"] = rules.into();
        policy["_until"] = until.into();
        self.objects.insert(path.to_owned(), policy);
        Ok(())
    }

    /// What a network's policy lets an instance send at all, if it comes before the firewalls.
    pub(super) fn guard(&self, network: &Value, own: Option<Ipv4Addr>) -> Option<Firewall> {
        let link = network.as_str().unwrap_or_default();
        let vpc = self.objects.get(&path_of(link, ""))?;
        if vpc["networkFirewallPolicyEnforcementOrder"] != "BEFORE_CLASSIC_FIREWALL" {
            return None;
        }
        let (_, policy) = self.of_kind("firewallPolicies").find(|(_, one)| uses(one, link))?;
        let applies = |rule: &&Value| {
            let mut sources = list(&rule["match"]["srcIpRanges"]).peekable();
            let all = sources.peek().is_none();
            let hit = all || sources.filter_map(net).any(|net| own.is_some_and(|own| net.contains(&own)));
            rule["direction"] == "EGRESS" && rule["disabled"] != true && hit
        };
        let rules = list(&policy["rules"]).filter(applies);
        let mut lines: Vec<Line> = rules
            .flat_map(|rule| {
                let to = rule["match"]["destIpRanges"].as_array();
                let peers = to.map_or(vec![Ipv4Net::default()], |list| list.iter().filter_map(net).collect());
                let priority = u32::try_from(rule["priority"].as_u64().unwrap_or(LAST)).unwrap_or(u32::MAX);
                let configs = items(&rule["match"]["layer4Configs"]);
                configs
                    .into_iter()
                    .filter_map(move |one| {
                        line(&one, "ipProtocol", priority, rule["action"] != "deny", &peers)
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        lines.push(any(u32::MAX, true, vec![Ipv4Net::default()]));
        Some(Firewall(lines))
    }

    /// The routes of a region's instances to endpoints that are in no subnet.
    pub(super) fn global_routes(&self, subnet: &Value) -> Vec<(Ipv4Net, Hop)> {
        let beside = |one: &Value| one["network"] == subnet["network"] && one["region"] == subnet["region"];
        let mut subnets = self.of_kind("subnetworks");
        if !subnets.any(|(_, one)| beside(one) && one["privateIpGoogleAccess"] == true) {
            return Vec::new();
        }
        let here =
            self.endpoints().filter(|one| one["network"] == subnet["network"] && one["region"].is_null());
        let hop = Hop::Peer(wire_name(&subnet["network"], "global"));
        here.filter_map(|one| Some((Ipv4Net::from(address(one)?), hop.clone()))).collect()
    }

    fn endpoints(&self) -> impl Iterator<Item = &Value> {
        self.of_kind("forwardingRules").map(|(_, rule)| rule).filter(|rule| Self::is_there(rule))
    }

    /// Endpoints as hosts. Nothing stands in front of one but what Google does not carry to it.
    pub(super) fn join_endpoints(&self, wire: &mut Wire) {
        let subnets: Vec<&Value> = self.of_kind("subnetworks").map(|(_, subnet)| subnet).collect();
        for rule in self.endpoints() {
            let (network, region) = (&rule["network"], last(&rule["region"]));
            let home = wire_name(network, if region.is_empty() { "global" } else { region });
            if region.is_empty() {
                let place: &mut Network = wire.networks.entry(home.clone()).or_default();
                place.spaces.extend(address(rule).map(Ipv4Net::from));
                let own = subnets.iter().filter(|one| one["network"] == *network);
                place.routes = own
                    .flat_map(|one| {
                        let hop = Hop::Peer(wire_name(network, last(&one["region"])));
                        ranges(one).into_iter().map(move |range| (range, hop.clone()))
                    })
                    .collect();
            }
            let peers = self.active_peers(network);
            let near = region.is_empty() || rule["allowPscGlobalAccess"] == true;
            let refused = subnets.iter().filter(|one| {
                let far = one["network"] == *network && last(&one["region"]) != region && !near;
                peers.contains(&one["network"]) || far
            });
            let refused = refused.flat_map(|one| ranges(one)).collect();
            wire.hosts.push(Host {
                address: address(rule),
                network: home,
                inbound: Firewall(vec![any(1, false, refused), any(2, true, vec![Ipv4Net::default()])]),
                ..Host::default()
            });
        }
    }
}

fn address(rule: &Value) -> Option<Ipv4Addr> {
    rule["IPAddress"].as_str()?.parse().ok()
}

fn check_rule(rule: &Value) -> Done {
    // A rule that allows would pass over the firewalls, which the wire does not know.
    if !["deny", "goto_next"].iter().any(|action| rule["action"] == *action) {
        return Err(invalid(format!("Invalid value for field 'resource.action': {}", rule["action"])));
    }
    if rule["match"]["layer4Configs"].as_array().is_none_or(Vec::is_empty) {
        return Err(invalid("A rule needs layer4Configs."));
    }
    for field in ["srcIpRanges", "destIpRanges"] {
        for range in list(&rule["match"][field]) {
            if net(range).is_none_or(|net| net.trunc() != net) {
                return Err(invalid(format!("Invalid value for field 'resource.match.{field}': {range}")));
            }
        }
    }
    Ok(())
}
