//! Calls about resources.

use std::collections::BTreeMap;

use async_trait::async_trait;
use cloud_api::{At, Attachment, Attachments, CloudError, ResourceSpec, Resources, Result};
use model::{ResourceState, Segment};

use super::{ATTACHED_REGION, DEFAULT_REGION, LinuxCloud, full, network};
use crate::{
    attach::Attached,
    names, namespace,
    state::{Description, Resource, State},
};

#[async_trait]
impl Resources for LinuxCloud {
    async fn inspect_resource(&self, _: &At, _: &Segment, description: &str) -> Result<Segment> {
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

    async fn create_resource(&self, at: &At, spec: &ResourceSpec) -> Result<ResourceState> {
        self.inspect_resource(at, &spec.name, &spec.description).await?;
        let _turn = self.inner.turn.lock().await;
        let (name, home) = (full(at, &spec.name), network(at, &spec.region));
        if !names::fits(&self.inner.names.resource(&name)) {
            return Err(CloudError::invalid(format!("{name} is too long a name for a network namespace")));
        }
        let mut next = State::clone(&self.inner.state());
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
        let state = self.inner.keep(next)?;
        self.inner.make_resource(&state, &name, &resource).await?;
        Ok(self.inner.resource_state(&name, &resource))
    }

    async fn delete_resource(&self, at: &At, name: &Segment) -> Result {
        let _turn = self.inner.turn.lock().await;
        let name = full(at, name);
        let mut next = State::clone(&self.inner.state());
        let Some(home) = next.network_of(&name) else { return Ok(()) };
        let Some(gone) = next.resources.remove(&name) else { return Ok(()) };
        match &gone.attached {
            Some(attached) => self.inner.detach(attached, &self.inner.names.network(&home), &gone).await?,
            None => {
                self.inner.stop_command(&name).await;
                namespace::delete(&self.inner.names.resource(&name)).await?;
            }
        }
        let state = self.inner.keep(next)?;
        self.inner.unlist(&state, &home, &gone).await
    }
}

#[async_trait]
impl Attachments for LinuxCloud {
    async fn inspect_attachment(&self, _: &At, id: &str) -> Result<Attachment> {
        self.inner.inspect_attachment(&self.inner.state(), id).await
    }

    async fn attach_resource(&self, at: &At, name: &Segment, id: &str) -> Result<ResourceState> {
        let _turn = self.inner.turn.lock().await;
        let region: Segment = ATTACHED_REGION.parse().expect("it is a legal name");
        let (name, home) = (full(at, name), network(at, &region));
        let attached = Attached::parse(id)?;
        let mut next = State::clone(&self.inner.state());
        let resource = match next.resources.get(&name) {
            Some(there) if there.attached.as_ref() != Some(&attached) => {
                return Err(CloudError::conflict(format!("resource {name} is there and is something else")));
            }
            Some(there) => there.clone(),
            None => {
                self.inner.inspect_attachment(&next, id).await?;
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
        let state = self.inner.keep(next)?;
        self.inner.make_resource(&state, &name, &resource).await?;
        Ok(self.inner.resource_state(&name, &resource))
    }
}
