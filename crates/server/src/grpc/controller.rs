//! `invisinetspb.Controller`: what plugins ask of the controller, in the first three revisions of Paraglider's protocol.
//!
//! Which revision a caller speaks shows in what it fills in. Today's is `controller_today`.

use std::sync::Arc;

use drivers::namespaces::{NamespaceError, Namespaces};
use model::{LinkName, Segment, Site, change::What};
use orchestrator::execute::{JobOrPlan, JobState, Orchestrator};
use tonic::{Code, Request, Response, Status};
use wire::invisinetspb::{
    AddressSpace, AddressSpaceMapping, AddressSpaceMappingList, BasicResponse, ConnectCloudsRequest,
    FindUnusedAsnRequest, FindUnusedAsnResponse, Namespace, controller_server,
};

use crate::{audit, failure::Failure};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Grpc {
    pub orchestrator: Arc<Orchestrator>,
    pub namespaces: Namespaces,
}

#[tonic::async_trait]
impl controller_server::Controller for Grpc {
    async fn find_unused_address_space(&self, request: Request<Namespace>) -> Reply<AddressSpace> {
        let namespace = self.namespace(&request.get_ref().namespace).await?;
        let space = self.orchestrator.find_unused_space(namespace.as_ref()).await.map_err(Failure::from)?;
        Ok(Response::new(AddressSpace { address: space.to_string() }))
    }

    async fn get_used_address_spaces(&self, request: Request<Namespace>) -> Reply<AddressSpaceMappingList> {
        let namespace = self.namespace(&request.get_ref().namespace).await?;
        let spaces = self.orchestrator.used_spaces(namespace.as_ref()).map_err(Failure::from)?;
        let mapping = |(site, spaces): (Site, Vec<ipnet::Ipv4Net>)| AddressSpaceMapping {
            address_spaces: spaces.iter().map(ToString::to_string).collect(),
            cloud: site.cloud.to_string(),
            namespace: site.namespace.to_string(),
        };
        let address_space_mappings = spaces.into_iter().map(mapping).collect();
        Ok(Response::new(AddressSpaceMappingList { address_space_mappings }))
    }

    async fn find_unused_asn(&self, _: Request<FindUnusedAsnRequest>) -> Reply<FindUnusedAsnResponse> {
        let asn = self.orchestrator.find_unused_asn().map_err(Failure::from)?;
        Ok(Response::new(FindUnusedAsnResponse { asn }))
    }

    async fn connect_clouds(&self, request: Request<ConnectCloudsRequest>) -> Reply<BasicResponse> {
        let request = request.into_inner();
        let [a, b] = namespaces_of(&request)?;
        let what = connect(&self.orchestrator, (&request.cloud_a, a), (&request.cloud_b, b)).await?;
        Ok(Response::new(BasicResponse { success: true, message: what, updated_resource: None }))
    }
}

impl Grpc {
    /// One that there is. An empty one asks for all, as clients of later revisions do.
    async fn namespace(&self, text: &str) -> Result<Option<Segment>, Failure> {
        if text.is_empty() {
            return Ok(None);
        }
        let namespace = name(text)?;
        self.namespaces.get(&namespace).await.map_err(|err: NamespaceError| Failure::from(err))?;
        Ok(Some(namespace))
    }
}

/// The first revision has the address spaces third and fourth and the namespaces after them; in all others the namespaces
/// are third and fourth, and there is no more. Anything else is nobody's.
fn namespaces_of(request: &ConnectCloudsRequest) -> Result<[&str; 2], Failure> {
    let (early, late) = (
        [request.cloud_a_address_space.as_str(), request.cloud_b_address_space.as_str()],
        [request.cloud_a_namespace.as_str(), request.cloud_b_namespace.as_str()],
    );
    match (late[0].is_empty(), late[1].is_empty()) {
        (false, false) => Ok(late),
        (true, true) => Ok(early),
        _ => {
            let message = "cloudANamespace and cloudBNamespace (5 and 6) are there together or not at all";
            Err(Failure::new(Code::InvalidArgument, message))
        }
    }
}

/// Answers when the clouds are connected, or cannot be. A caller that gives up does not stop the work.
pub(super) async fn connect(
    orchestrator: &Arc<Orchestrator>,
    (cloud_a, namespace_a): (&str, &str),
    (cloud_b, namespace_b): (&str, &str),
) -> Result<String, Failure> {
    let a = Site { namespace: name(namespace_a)?, cloud: name(cloud_a)? };
    let b = Site { namespace: name(namespace_b)?, cloud: name(cloud_b)? };
    let link = LinkName::new(a, b).map_err(|err| Failure::invalid(&err))?;
    audit::changed(super::orchestrator::link_change(&link, What::Created));
    let JobOrPlan::Job(job) = orchestrator.connect(link, false).await? else {
        return Err(Failure::new(Code::Internal, "a plan where a job was asked for"));
    };
    let job = orchestrator.wait(&job.id).await?;
    match job.state {
        JobState::Done => Ok(job.what),
        _ => Err(Failure::new(Code::FailedPrecondition, format!("{}: {}", job.what, job.message))),
    }
}

pub(super) fn name(text: &str) -> Result<Segment, Failure> {
    text.parse().map_err(|err: model::NameError| Failure::invalid(&err))
}
