//! What inserts, patches, deletes and verbs do.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{
    Refusal, refuse,
    state::{Gce, Request, path_of},
    wire::ranges,
};
use crate::rest::{list, text};

type Done = Result<(), Refusal>;

impl Gce {
    pub(super) fn insert(&mut self, request: &Request<'_>, path: &str, until: u64) -> Done {
        let target = request.target;
        self.made += 1;
        let mut object = request.body.clone();
        let link = |path: &str| format!("{}/compute/v1/{path}", request.ask.origin);
        object["id"] = (7_000_000 + self.made).to_string().into();
        object["selfLink"] = link(path).into();
        object["creationTimestamp"] = "2026-10-01T00:00:00.000-07:00".into();
        object["kind"] = format!("compute#{}", target.collection.trim_end_matches('s')).into();
        if let Some((kind @ ("regions" | "zones"), place)) = target.scope.split_once('/') {
            let region = place.trim_end_matches("-a").trim_end_matches("-b");
            if !super::state::REGIONS.contains(&region) {
                bail!(404, "notFound", "The resource '{kind}/{place}' was not found");
            }
            object[kind.trim_end_matches('s')] =
                link(&format!("projects/{}/{kind}/{place}", target.project)).into();
        }
        // References are answered in full.
        for field in ["network", "subnetwork", "vpnGateway", "peerExternalGateway", "router"] {
            if let Some(reference) = object[field].as_str() {
                object[field] = self.ready(&path_of(reference, &target.project))?["selfLink"].clone();
            }
        }
        match target.collection.as_str() {
            "networks" => {
                object["peerings"] = json!([]);
                if object["routingConfig"].is_null() {
                    object["routingConfig"] = json!({"routingMode": "REGIONAL"});
                }
            }
            "subnetworks" => self.check_subnet(request, &mut object)?,
            "firewalls" => super::check::firewall(&mut object)?,
            "instances" => self.place_instance(request, &mut object)?,
            "vpnGateways" => {
                let address = |made: u64, number: u64| {
                    format!("34.{}.{}.{}", 100 + number, made >> 8 & 255, made & 255)
                };
                let made = self.made;
                let interface = |number: u64| json!({"id": number, "ipAddress": address(made, number)});
                object["vpnInterfaces"] = json!([interface(0), interface(1)]);
                object["labelFingerprint"] = "42WmSpB8rSM=".into();
            }
            "externalVpnGateways" => super::check::external(&object)?,
            "vpnTunnels" => self.check_tunnel(&mut object)?,
            "routers" => self.check_router(request, &mut object)?,
            "addresses" => self.reserve(request, &mut object)?,
            "forwardingRules" => self.forwarding_rule(request, &mut object)?,
            "firewallPolicies" => self.firewall_policy(&mut object),
            _ => bail!(404, "notFound", "not simulated"),
        }
        object["_until"] = until.into();
        self.objects.insert(path.to_owned(), object);
        Ok(())
    }

    fn check_subnet(&mut self, request: &Request<'_>, object: &mut Value) -> Done {
        let network = text(&object["network"]).to_owned();
        let text = text(&object["ipCidrRange"]);
        let bad =
            || refuse(400, "invalid", format!("Invalid value for field 'resource.ipCidrRange': '{text}'"));
        let net: Ipv4Net = text.parse().map_err(|_| bad())?;
        if net.trunc() != net || net.prefix_len() > 29 {
            return Err(bad());
        }
        let mut near = vec![network.clone()];
        if let Ok(network) = self.get(&path_of(&network, &request.target.project)) {
            let peers = list(&network["peerings"]);
            near.extend(peers.filter_map(|peering| peering["network"].as_str().map(str::to_owned)));
        }
        let wanted = ranges(object);
        let apart = |a: &Ipv4Net, b: &Ipv4Net| !a.contains(b) && !b.contains(a);
        for (place, range) in wanted.iter().enumerate() {
            let whole = range.trunc() == *range && range.prefix_len() <= 29;
            if !whole || !wanted[place + 1..].iter().all(|other| apart(range, other)) {
                bail!(400, "invalid", "Invalid value for field 'resource.secondaryIpRanges'");
            }
        }
        for (path, other) in self.of_kind("subnetworks") {
            let overlaps = ranges(other).iter().any(|there| !wanted.iter().all(|net| apart(there, net)));
            if overlaps && near.iter().any(|network| other["network"] == network.as_str()) {
                bail!(400, "invalid", "IP space of '{path}' conflicts with {net}");
            }
        }
        object["fingerprint"] = "abcd1234abc=".into();
        object["gatewayAddress"] = Ipv4Addr::from(u32::from(net.network()) + 1).to_string().into();
        object["_used"] = 1.into();
        Ok(())
    }

    fn place_instance(&mut self, request: &Request<'_>, object: &mut Value) -> Done {
        for needed in ["machineType", "disks"] {
            if object[needed].is_null() {
                bail!(400, "required", "Required field 'resource.{needed}' not specified");
            }
        }
        let reference = text(&object["networkInterfaces"][0]["subnetwork"]);
        let path = path_of(reference, &request.target.project);
        let subnet = self.ready(&path)?.clone();
        let zone = request.target.scope.trim_start_matches("zones/");
        if !subnet["region"]
            .as_str()
            .is_some_and(|region| region.rsplit('/').next().is_some_and(|region| zone.starts_with(region)))
        {
            bail!(400, "invalid", "The subnetwork is in another region");
        }
        let address = self.next_address(&path)?;
        let interface = &mut object["networkInterfaces"][0];
        interface["subnetwork"] = subnet["selfLink"].clone();
        interface["network"] = subnet["network"].clone();
        interface["networkIP"] = address.to_string().into();
        interface["name"] = "nic0".into();
        object["status"] = "PROVISIONING".into();
        set_tags(object, &request.body["tags"]["items"])?;
        object["labelFingerprint"] = "42WmSpB8rSM=".into();
        object["fingerprint"] = "42WmSpB8rSM=".into();
        Ok(())
    }

    /// The next address of a subnet that is ready.
    pub(super) fn next_address(&mut self, path: &str) -> Result<Ipv4Addr, Refusal> {
        let subnet = self.ready(path)?.clone();
        let net: Ipv4Net = subnet["ipCidrRange"]
            .as_str()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| refuse(500, "backendError", "subnet"))?;
        let used = subnet["_used"].as_u64().unwrap_or(1) + 1;
        let address = Ipv4Addr::from(u32::from(net.network()) + u32::try_from(used).unwrap_or(u32::MAX));
        if !net.contains(&address) {
            bail!(400, "invalid", "IP_SPACE_EXHAUSTED");
        }
        if let Some(subnet) = self.objects.get_mut(path) {
            subnet["_used"] = used.into();
        }
        Ok(address)
    }

    /// All allowing firewalls go, and all rules of policies that hand over to them; and policies are put out of force.
    pub(crate) fn vandalise(&mut self) {
        self.objects.retain(|path, object| !path.contains("/firewalls/") || object["allowed"].is_null());
        let policies: Vec<String> = self.of_kind("firewallPolicies").map(|(path, _)| path.clone()).collect();
        for policy in &policies {
            let Some(policy) = self.objects.get_mut(policy) else { continue };
            if let Some(rules) = policy["rules"].as_array_mut() {
                rules.retain(|rule| rule["action"] == "deny");
            }
            policy["associations"] = json!([]);
        }
    }

    pub(super) fn of_kind<'g>(
        &'g self,
        collection: &'g str,
    ) -> impl Iterator<Item = (&'g String, &'g Value)> {
        let middle = format!("/{collection}/");
        self.objects.iter().filter(move |(path, _)| path.contains(&middle))
    }

    pub(super) fn patch(&mut self, request: &Request<'_>, path: &str, until: u64) -> Done {
        let mut object = self.get(path)?.clone();
        if request.target.method.ends_with("update") {
            // What a replacement leaves out is no more; these are not the client's to say.
            let stays = ["id", "kind", "name", "selfLink", "creationTimestamp", "region", "network"];
            let fields = object.as_object_mut().into_iter();
            fields.for_each(|all| {
                all.retain(|name, _| name.starts_with('_') || stays.contains(&name.as_str()))
            });
        }
        for (field, value) in request.body.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        // References are answered in full.
        if let Some(reference) = object["network"].as_str() {
            let full = path_of(reference, &request.target.project);
            object["network"] = self.get(&full)?["selfLink"].clone();
        }
        match request.target.collection.as_str() {
            "firewalls" => {
                let fields = object.as_object_mut().into_iter();
                fields.for_each(|fields| fields.retain(|_, value| !value.is_null()));
                super::check::firewall(&mut object)?;
            }
            "routers" => self.check_router(request, &mut object)?,
            "subnetworks" if request.body["fingerprint"] != self.get(path)?["fingerprint"] => {
                bail!(412, "conditionNotMet", "Fingerprint is not up to date.");
            }
            _ => {}
        }
        object["_until"] = until.into();
        self.objects.insert(path.to_owned(), object);
        Ok(())
    }

    pub(super) fn delete(&mut self, request: &Request<'_>, path: &str, until: u64) -> Done {
        let link = self.get(path)?["selfLink"].as_str().unwrap_or_default().to_owned();
        let peered = self.get(path)?["peerings"].as_array().is_some_and(|list| !list.is_empty());
        let refers = |object: &Value| {
            let direct = ["network", "subnetwork", "vpnGateway", "peerExternalGateway", "router"];
            let interfaces =
                ["networkInterfaces", "interfaces"].iter().flat_map(|field| list(&object[*field]));
            direct.iter().any(|field| object[*field] == link.as_str())
                || super::endpoints::uses(object, &link)
                || super::clusters::uses(object, &link)
                || super::zones::uses(object, &link)
                || super::links::translates(object, &link)
                || interfaces
                    .flat_map(|one| {
                        ["network", "subnetwork", "linkedVpnTunnel"].map(|field| one[field].clone())
                    })
                    .any(|one| one == link.as_str())
        };
        let user = self
            .objects
            .iter()
            .find(|(other, object)| *other != path && refers(object))
            .map(|(user, _)| user.clone());
        let bound = self.get(path)?["associations"].as_array().is_some_and(|list| !list.is_empty());
        let user = user.or_else(|| bound.then(|| "an association".to_owned()));
        if let Some(user) = user.or_else(|| peered.then(|| "a peering".to_owned())) {
            bail!(
                400,
                "resourceInUseByAnotherResource",
                "The {} resource '{path}' is already being used by '{user}'",
                request.target.collection
            );
        }
        if let Some(object) = self.objects.get_mut(path) {
            object["_until"] = until.into();
            object["_gone"] = true.into();
            if object["kind"] == "compute#instance" {
                object["status"] = "STOPPING".into();
            }
        }
        Ok(())
    }

    pub(super) fn act(&mut self, request: &Request<'_>, path: &str, until: u64) -> Done {
        match request.target.verb.as_str() {
            _ if request.target.collection == "firewallPolicies" => self.adjust_policy(request, path, until),
            "setPrivateIpGoogleAccess" => {
                let object = self.objects.get_mut(path).ok_or_else(|| refuse(404, "notFound", path))?;
                object["privateIpGoogleAccess"] = request.body["privateIpGoogleAccess"].clone();
                object["_until"] = until.into();
                Ok(())
            }
            "addPeering" => self.add_peering(request, path, until),
            "removePeering" => self.remove_peering(request, path, until),
            "setTags" => {
                let object = self.objects.get_mut(path).ok_or_else(|| refuse(404, "notFound", path))?;
                if object["tags"]["fingerprint"] != request.body["fingerprint"] {
                    bail!(
                        412,
                        "conditionNotMet",
                        "Supplied fingerprint does not match current tags fingerprint."
                    );
                }
                set_tags(object, &request.body["items"])?;
                object["_until"] = until.into();
                Ok(())
            }
            "setLabels" => {
                let object = self.objects.get_mut(path).ok_or_else(|| refuse(404, "notFound", path))?;
                object["labels"] = request.body["labels"].clone();
                Ok(())
            }
            other => Err(refuse(404, "notFound", format!("{other} is not simulated"))),
        }
    }

    fn add_peering(&mut self, request: &Request<'_>, path: &str, until: u64) -> Done {
        let wanted = &request.body["networkPeering"];
        let other_path = path_of(text(&wanted["network"]), &request.target.project);
        let busy = "There is a peering operation in progress on the local or peer network. Try again later.";
        let other = self.ready(&other_path).map_err(|refusal| match refusal.code {
            "resourceNotReady" => refuse(400, "badRequest", busy),
            _ => refusal,
        })?;
        let other_link = other["selfLink"].clone();
        let own_link = self.get(path)?["selfLink"].clone();
        let back = list(&other["peerings"]).any(|one| one["network"] == own_link);
        let subnets = |link: &Value| -> Vec<Ipv4Net> {
            let inside = self.of_kind("subnetworks").filter(|(_, subnet)| subnet["network"] == *link);
            inside.flat_map(|(_, subnet)| ranges(subnet)).collect()
        };
        let (near, far) = (subnets(&own_link), subnets(&other_link));
        if near.iter().any(|a| far.iter().any(|b| a.contains(b) || b.contains(a))) {
            bail!(400, "invalid", "An IP range in the peer network overlaps with a local one.");
        }
        if self.get(path)?["peerings"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|one| one["network"] == other_link || one["name"] == wanted["name"])
        {
            bail!(400, "invalid", "There is already a peering with that network or of that name.");
        }
        let mut peering = wanted.clone();
        peering["network"] = other_link;
        for flag in ["exportCustomRoutes", "importCustomRoutes"] {
            peering[flag] = (wanted[flag] == true).into();
        }
        peering["state"] = if back { "ACTIVE" } else { "INACTIVE" }.into();
        if let Some(own) = self.objects.get_mut(path) {
            own["peerings"].as_array_mut().into_iter().for_each(|list| list.push(peering.clone()));
            own["_until"] = until.into();
        }
        self.set_peering_state(&other_path, &own_link, if back { "ACTIVE" } else { "INACTIVE" });
        Ok(())
    }

    fn set_peering_state(&mut self, path: &str, towards: &Value, state: &str) {
        let peerings = self.objects.get_mut(path).and_then(|object| object["peerings"].as_array_mut());
        for peering in peerings.into_iter().flatten().filter(|one| one["network"] == *towards) {
            peering["state"] = state.into();
        }
    }

    fn remove_peering(&mut self, request: &Request<'_>, path: &str, until: u64) -> Done {
        let own_link = self.get(path)?["selfLink"].clone();
        let name = &request.body["name"];
        let peerings = self.get(path)?["peerings"].as_array().cloned().unwrap_or_default();
        let Some(gone) = peerings.iter().find(|one| one["name"] == *name) else {
            bail!(400, "invalid", "There is no peering {name}");
        };
        let other = path_of(text(&gone["network"]), &request.target.project);
        if let Some(own) = self.objects.get_mut(path) {
            own["peerings"] = peerings.iter().filter(|one| one["name"] != *name).cloned().collect();
            own["_until"] = until.into();
        }
        self.set_peering_state(&other, &own_link, "INACTIVE");
        Ok(())
    }
}

/// Sets an instance's tags, and with them the mark of their version. No tags are shown as none.
fn set_tags(instance: &mut Value, items: &Value) -> Done {
    let items: Vec<&str> = items.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if let Some(bad) = items.iter().find(|tag| !super::state::is_name(tag)) {
        bail!(400, "invalid", "Invalid value for field 'tags.items': '{bad}'");
    }
    if items.len() > 64 {
        bail!(400, "invalid", "An instance has 64 tags at most.");
    }
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in items.join(" ").bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    instance["tags"] = json!({"fingerprint": format!("{hash:016x}")});
    if !items.is_empty() {
        instance["tags"]["items"] = json!(items);
    }
    Ok(())
}
