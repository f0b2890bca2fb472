//! Calls about resources.

use std::collections::BTreeMap;

use cloud_api::{At, CloudError, ResourceSpec};
use model::{ResourceState, Segment};

use super::{ATTACHED_REGION, DEFAULT_REGION, Inner, full, network};
use crate::{
    attach::Attached,
    names, namespace,
    state::{Description, Resource, State},
};

impl Inner {
    pub(crate) async fn inspect_resource(
        &self,
        _: &At,
        _: &Segment,
        description: &str,
    ) -> Result<Segment, CloudError> {
        let read: Description = serde_json::from_str(description).map_err(|err| {
            CloudError::invalid(format!(
                "the description is not JSON like {{\"region\":\"west\",\"command\":\"sleep 1000\"}}, without network \
                 settings: {err}"
            ))
        })?;
        if let Some(why) = read.command.as_ref().and_then(|command| command.refusal()) {
            return Err(CloudError::invalid(format!("the description cannot be used: {why}")));
        }
        Ok(read.region.unwrap_or_else(|| DEFAULT_REGION.parse().expect("it is a legal name")))
    }

    pub(crate) async fn create_resource(
        &self,
        at: &At,
        spec: &ResourceSpec,
    ) -> Result<ResourceState, CloudError> {
        self.inspect_resource(at, &spec.name, &spec.description).await?;
        let _turn = self.turn.lock().await;
        let (name, home) = (full(at, &spec.name), network(at, &spec.region));
        if !names::fits(&self.names.resource(&name)) {
            return Err(CloudError::invalid(format!("{name} is too long a name for a network namespace")));
        }
        let mut next = State::clone(&self.state());
        let resource = match next.resources.get(&name) {
            Some(there) if there.description != spec.description => {
                return Err(CloudError::conflict(format!(
                    "resource {name} is there with another description"
                )));
            }
            Some(there) => there.clone(),
            None => {
                if !next.networks.contains_key(&home) {
                    return Err(CloudError::conflict(format!("there is no network {home}")));
                }
                let full = || CloudError::conflict(format!("network {home} is full"));
                let address = next.free_address(&home).ok_or_else(full)?;
                let description = spec.description.clone();
                let permit = BTreeMap::new();
                Resource { region: spec.region.clone(), address, description, permit, attached: None }
            }
        };
        next.resources.insert(name.clone(), resource.clone());
        let state = self.keep(next)?;
        self.make_resource(&state, &name, &resource).await?;
        Ok(self.resource_state(&name, &resource))
    }

    pub(crate) async fn attach_resource(
        &self,
        at: &At,
        name: &Segment,
        id: &str,
    ) -> Result<ResourceState, CloudError> {
        let _turn = self.turn.lock().await;
        let region: Segment = ATTACHED_REGION.parse().expect("it is a legal name");
        let (name, home) = (full(at, name), network(at, &region));
        let attached = Attached::parse(id)?;
        let mut next = State::clone(&self.state());
        let resource = match next.resources.get(&name) {
            Some(there) if there.attached.as_ref() != Some(&attached) => {
                return Err(CloudError::conflict(format!("resource {name} is there and is something else")));
            }
            Some(there) => there.clone(),
            None => {
                self.inspect_attachment(&next, id).await?;
                let full = || CloudError::conflict(format!("network {home} is full or not there"));
                let address = next.free_address(&home).ok_or_else(full)?;
                Resource {
                    region,
                    address,
                    description: id.to_owned(),
                    permit: BTreeMap::new(),
                    attached: Some(attached),
                }
            }
        };
        next.resources.insert(name.clone(), resource.clone());
        let state = self.keep(next)?;
        self.make_resource(&state, &name, &resource).await?;
        Ok(self.resource_state(&name, &resource))
    }

    pub(crate) async fn delete_resource(&self, at: &At, name: &Segment) -> Result<(), CloudError> {
        let _turn = self.turn.lock().await;
        let name = full(at, name);
        let mut next = State::clone(&self.state());
        let Some(home) = next.network_of(&name) else { return Ok(()) };
        let Some(gone) = next.resources.remove(&name) else { return Ok(()) };
        match &gone.attached {
            Some(attached) => self.detach(attached, &self.names.network(&home), &gone).await?,
            None => {
                self.stop_command(&name).await;
                namespace::delete(&self.names.resource(&name)).await?;
            }
        }
        let state = self.keep(next)?;
        self.unlist(&state, &home, &gone).await
    }
}
