//! `invisinetspb.Controller`: what plugins ask of the controller, on Paraglider's wire.

use std::sync::Arc;

use drivers::namespaces::Namespaces;
use model::{
    LinkName, Segment, Site,
    change::{Change, What},
};
use orchestrator::execute::{JobState, Orchestrator, Outcome};
use tonic::{Code, Request, Response, Status};
use wire::invisinetspb::{
    AddressSpace, AddressSpaceMapping, AddressSpaceMappingList, BasicResponse, ConnectCloudsRequest,
    Namespace, controller_server,
};

use crate::{audit, failure::Failure};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Service {
    pub orchestrator: Arc<Orchestrator>,
    pub namespaces: Namespaces,
}

#[tonic::async_trait]
impl controller_server::Controller for Service {
    async fn find_unused_address_space(&self, request: Request<Namespace>) -> Reply<AddressSpace> {
        let namespace = name(&request.get_ref().namespace)?;
        self.namespaces.get(&namespace).await.map_err(Failure::from)?;
        let space = self.orchestrator.find_unused_space(&namespace).await.map_err(Failure::from)?;
        audit::changed(Change::named(format!("address space {space}"), What::Created));
        Ok(Response::new(AddressSpace { address: space.to_string() }))
    }

    async fn get_used_address_spaces(&self, request: Request<Namespace>) -> Reply<AddressSpaceMappingList> {
        // An empty namespace asks for all, as later clients of Paraglider do.
        let namespace = match request.get_ref().namespace.as_str() {
            "" => None,
            text => Some(name(text)?),
        };
        let spaces = self.orchestrator.used_spaces(namespace.as_ref()).map_err(Failure::from)?;
        let mapping = |(site, spaces): (Site, Vec<ipnet::Ipv4Net>)| AddressSpaceMapping {
            address_spaces: spaces.iter().map(ToString::to_string).collect(),
            cloud: site.cloud.to_string(),
            namespace: site.namespace.to_string(),
        };
        let address_space_mappings = spaces.into_iter().map(mapping).collect();
        Ok(Response::new(AddressSpaceMappingList { address_space_mappings }))
    }

    /// Answers when the clouds are connected, or cannot be. A caller that gives up does not stop the work.
    async fn connect_clouds(&self, request: Request<ConnectCloudsRequest>) -> Reply<BasicResponse> {
        let request = request.into_inner();
        let a = Site { namespace: name(&request.cloud_a_namespace)?, cloud: name(&request.cloud_a)? };
        let b = Site { namespace: name(&request.cloud_b_namespace)?, cloud: name(&request.cloud_b)? };
        let link = LinkName::new(a, b).map_err(|err| Failure::invalid(&err))?;
        audit::changed(super::orchestrator::link_change(&link, What::Created));
        let orchestrator = &self.orchestrator;
        let Outcome::Job(job) = orchestrator.connect(link, false).await.map_err(Failure::from)? else {
            return Err(Status::internal("a plan where a job was asked for"));
        };
        let job = orchestrator.wait(&job.id).await.map_err(Failure::from)?;
        match job.state {
            JobState::Done => {
                Ok(Response::new(BasicResponse { success: true, message: job.what, updated_resource: None }))
            }
            _ => Err(Failure::new(Code::FailedPrecondition, format!("{}: {}", job.what, job.message)).into()),
        }
    }
}

fn name(text: &str) -> Result<Segment, Failure> {
    text.parse().map_err(|err: model::NameError| Failure::invalid(&err))
}
