//! `csi.v1.Identity`: who this driver is, what it can do, whether it can do it now.

use tonic::{Request, Response, Status};

use crate::{
    Driver,
    proto::{
        GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
        GetPluginInfoResponse, PluginCapability, ProbeRequest, ProbeResponse, identity_server,
        plugin_capability::{self, service, volume_expansion},
    },
};

/// As StorageClasses name it.
pub(crate) const NAME: &str = "csi.trestle.dev";

#[tonic::async_trait]
impl identity_server::Identity for Driver {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let manifest = [("storage".to_owned(), self.account.mark().to_owned())].into();
        Ok(Response::new(GetPluginInfoResponse { name: NAME.to_owned(), vendor_version: version, manifest }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        use plugin_capability::{Service, Type, VolumeExpansion};
        let service = |kind: service::Type| Type::Service(Service { r#type: kind as i32 });
        let mut all = vec![
            service(service::Type::VolumeAccessibilityConstraints),
            service(service::Type::SnapshotAccessibilityConstraints),
            Type::VolumeExpansion(VolumeExpansion { r#type: volume_expansion::Type::Online as i32 }),
        ];
        if self.services.controller {
            all.insert(0, service(service::Type::ControllerService));
        }
        let capabilities = all.into_iter().map(|kind| PluginCapability { r#type: Some(kind) }).collect();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    /// Not ready on a node that cannot attach anything, with the reason in the log: what asks wants to know no more.
    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        let ready = match (&self.attacher, self.services.node) {
            (Some(attacher), true) => match attacher.ready().await {
                Ok(()) => true,
                Err(error) => {
                    tracing::error!(error = %common::chain(&error), "volumes cannot be attached on this node");
                    return Err(Status::failed_precondition(common::chain(&error)));
                }
            },
            _ => true,
        };
        Ok(Response::new(ProbeResponse { ready: Some(ready) }))
    }
}
