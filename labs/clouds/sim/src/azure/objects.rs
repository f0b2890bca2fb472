//! What makes, replaces and deletes objects, and the children that live inside them.

use serde_json::{Value, json};

use super::{
    Done, Outcome, Refusal, Target,
    clusters::CLUSTERS,
    is, refuse,
    state::{Azure, LOCATIONS, Request, key},
};
use crate::rest::{list, text};

const PROVIDERS: [&str; 3] = ["Microsoft.Network", "Microsoft.Compute", "Microsoft.ContainerService"];
/// Kinds as Azure writes them.
const KINDS: [&str; 10] = [
    "virtualNetworks",
    "networkSecurityGroups",
    "networkInterfaces",
    "publicIPAddresses",
    "natGateways",
    "virtualNetworkGateways",
    "localNetworkGateways",
    "connections",
    "virtualMachines",
    CLUSTERS,
];

/// Elements of a list in an object's properties.
pub(super) fn listed<'o>(object: &'o Value, field: &str) -> impl Iterator<Item = &'o Value> {
    list(&object["properties"][field])
}

/// `80 letters, digits, dots, lines; begins with a letter or digit.`
fn is_name(name: &str) -> bool {
    (1..=80).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

impl Azure {
    pub(super) fn put(
        &mut self,
        request: &Request<'_>,
        id: &str,
        there: Option<&Value>,
    ) -> Result<Value, Refusal> {
        let Target { provider, kind, name, .. } = request.target;
        if !is_name(name) {
            bail!(400, "InvalidResourceName", "Resource name {name} is invalid.");
        }
        let mut object = request.body.clone();
        let location = text(&object["location"]).replace(' ', "").to_ascii_lowercase();
        if !LOCATIONS.contains(&location.as_str()) {
            bail!(
                400,
                "LocationNotAvailableForResourceType",
                "The provided location '{location}' is not available for resource type '{kind}'."
            );
        }
        if there.is_some_and(|there| there["location"] != location.as_str()) {
            bail!(409, "InvalidResourceLocation", "The resource {name} exists in another location.");
        }
        let kind = KINDS.iter().find(|known| is(known, kind)).copied().unwrap_or_default();
        let provider = PROVIDERS.iter().find(|known| is(known, provider)).copied().unwrap_or_default();
        let is_network = provider == "Microsoft.Network";
        self.made += 1;
        object["id"] = there.map_or_else(|| id.into(), |there| there["id"].clone());
        object["name"] = there.map_or_else(|| name.as_str().into(), |there| there["name"].clone());
        object["type"] = format!("{provider}/{kind}").into();
        object["location"] = location.into();
        if is_network {
            object["etag"] = format!("W/\"00000000-0000-0000-0000-{:012}\"", self.made).into();
            object["properties"]["resourceGuid"] = there.map_or_else(
                || format!("00000000-0000-0000-0001-{:012}", self.made).into(),
                |there| there["properties"]["resourceGuid"].clone(),
            );
        }
        match kind {
            "virtualNetworks" => self.check_vnet(&mut object, there)?,
            "networkSecurityGroups" => super::check::group(&mut object)?,
            "networkInterfaces" => self.check_interface(&mut object, there)?,
            "publicIPAddresses" => self.check_address(&mut object, there)?,
            "natGateways" => self.check_nat(&object)?,
            "virtualNetworkGateways" => self.check_gateway(&mut object, there)?,
            "localNetworkGateways" => super::check::peer(&object)?,
            "connections" => self.check_connection(&mut object, there)?,
            "virtualMachines" => self.check_machine(&mut object)?,
            CLUSTERS => self.check_cluster(&mut object, there)?,
            _ => bail!(404, "InvalidResourceType", "{kind} is not simulated"),
        }
        self.objects.insert(key(id), object);
        if kind == CLUSTERS && there.is_none() {
            self.put_endpoint(id);
        }
        Ok(Value::Null)
    }

    /// Replaces the tags.
    pub(super) fn retag(&mut self, request: &Request<'_>, id: &str) -> Result<Value, Refusal> {
        let given = request.body.get("tags");
        if let (Some(object), Some(tags)) = (self.objects.get_mut(&key(id)), given) {
            object["tags"] = tags.clone();
        }
        Ok(Value::Null)
    }

    /// Refused while others refer to it.
    pub(super) fn delete(&mut self, id: &str) -> Result<Value, Refusal> {
        let (lower, is_vnet) = (key(id), key(id).contains("/virtualnetworks/"));
        let refers = |(other, object): &(&String, &Value)| {
            let written = object["properties"].to_string().to_ascii_lowercase();
            // A peering does not hold a network.
            let counts = !(is_vnet && other.contains("/virtualnetworks/"));
            **other != lower
                && counts
                && (written.contains(&format!("\"{lower}\"")) || written.contains(&format!("\"{lower}/")))
        };
        let Some((user, _)) = self.objects.iter().find(refers) else { return Ok(Value::Null) };
        let code = match lower.split("/providers/").nth(1).and_then(|rest| rest.split('/').nth(1)) {
            Some("virtualnetworks") => "InUseSubnetCannotBeDeleted",
            Some("networksecuritygroups") => "InUseNetworkSecurityGroupCannotBeDeleted",
            Some("natgateways") => "InUseNatGatewayCannotBeDeleted",
            Some("publicipaddresses") => "PublicIPAddressCannotBeDeleted",
            Some("networkinterfaces") => "NicInUse",
            _ => "InUseResourceCannotBeDeleted",
        };
        Err(refuse(400, code, format!("{id} is in use by {user} and cannot be deleted.")))
    }

    /// An object is gone, and with it what goes along.
    pub(super) fn vanish(&mut self, id: &str) {
        let Some(gone) = self.objects.remove(id) else { return };
        let interfaces = gone["properties"]["networkProfile"]["networkInterfaces"].as_array();
        for interface in interfaces.into_iter().flatten() {
            if interface["properties"]["deleteOption"] == "Delete" {
                self.objects.remove(&key(text(&interface["id"])));
            }
        }
        if id.contains("/virtualnetworks/") {
            self.cut_peerings(id, None);
        }
    }

    pub(super) fn get_child(&self, request: &Request<'_>) -> Outcome {
        let parent = self.show(self.get(&request.target.id())?);
        let Target { child_kind, child, .. } = request.target;
        let field = children(child_kind);
        if child.is_empty() {
            return Ok(Done::now(json!({"value": listed(&parent, field).collect::<Vec<_>>()})));
        }
        let found = listed(&parent, field).find(|one| is(text(&one["name"]), child));
        let missing = || refuse(404, "NotFound", format!("Resource {child} not found."));
        found.cloned().map(Done::now).ok_or_else(missing)
    }

    pub(super) fn put_child(&mut self, request: &Request<'_>) -> Result<Value, Refusal> {
        let Target { child_kind, child, .. } = request.target;
        let (id, field) = (request.target.id(), children(child_kind));
        if !is_name(child) {
            bail!(400, "InvalidResourceName", "Resource name {child} is invalid.");
        }
        let mut parent = self.get(&id)?.clone();
        let mut new = request.body.clone();
        new["name"] = child.as_str().into();
        if field == "virtualNetworkPeerings" {
            self.check_peering(&id, &mut new)?;
        }
        let mut all: Vec<Value> =
            listed(&parent, field).filter(|one| !is(text(&one["name"]), child)).cloned().collect();
        all.push(new);
        parent["properties"][field] = all.into();
        match field {
            "subnets" => self.check_vnet(&mut parent, Some(self.get(&id)?.clone()).as_ref())?,
            "securityRules" => super::check::group(&mut parent)?,
            _ => {}
        }
        self.objects.insert(key(&id), parent);
        if field == "virtualNetworkPeerings" {
            self.meet_peering(&id, child);
        }
        let shown = self.show(self.get(&id)?);
        Ok(listed(&shown, field).find(|one| is(text(&one["name"]), child)).cloned().unwrap_or_default())
    }

    /// False if there was nothing to delete.
    pub(super) fn delete_child(&mut self, request: &Request<'_>) -> Result<bool, Refusal> {
        let Target { child_kind, child, .. } = request.target;
        let (id, field) = (request.target.id(), children(child_kind));
        let mut parent = self.get(&id)?.clone();
        let (gone, kept): (Vec<Value>, Vec<Value>) =
            listed(&parent, field).cloned().partition(|one| is(text(&one["name"]), child));
        let Some(gone) = gone.first() else { return Ok(false) };
        if field == "subnets" {
            self.delete(&format!("{id}/subnets/{child}"))?;
        }
        parent["properties"][field] = kept.into();
        self.objects.insert(key(&id), parent);
        if field == "virtualNetworkPeerings" {
            let far = text(&gone["properties"]["remoteVirtualNetwork"]["id"]).to_owned();
            self.cut_peerings(&id, Some(&far));
        }
        Ok(true)
    }
}

/// The field in which a parent keeps its children.
fn children(kind: &str) -> &'static str {
    let known = ["subnets", "virtualNetworkPeerings", "securityRules", "defaultSecurityRules"];
    known.into_iter().find(|name| is(name, kind)).unwrap_or_default()
}
