//! `provider.OCSProvider` on the OCS design's wire. A ticket or a sealed id proves the caller; nothing of them is logged.

use std::sync::Arc;

use drivers::storage::Storage;
use model::{
    Role,
    change::{Change, What},
};
use storage_provider::{ConsumerId, Refusal};
use tonic::{Code, Request, Response, Status};
use wire::provider_raw::{
    OffBoardConsumerRequest, OffBoardConsumerResponse, OnBoardConsumerRequest, OnBoardConsumerResponse,
    StorageConfigRequest, StorageConfigResponse, UpdateCapacityRequest, UpdateCapacityResponse,
    ocs_provider_server::OcsProvider,
};

use crate::{access::Caller, audit, failure::Failure};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Service(pub Option<Arc<Storage>>);

#[tonic::async_trait]
impl OcsProvider for Service {
    async fn on_board_consumer(
        &self,
        request: Request<OnBoardConsumerRequest>,
    ) -> Reply<OnBoardConsumerResponse> {
        let client = client(&request);
        let message = request.into_inner();
        let caller = storage_backend::Caller { client: client.as_deref() };
        if self.provider()?.is_good(&message.token) {
            audit::begin(None)?;
        }
        let onboarded =
            self.provider()?.onboard(&message.token, &message.capacity, &message.sources, caller).await;
        let onboarded = onboarded.map_err(refuse)?;
        audit::object(onboarded.consumer);
        audit::changed(Change::named(format!("consumer {}", onboarded.consumer), What::Created));
        let storage_consumer_uuid = onboarded.id.expose().to_owned();
        Ok(Response::new(OnBoardConsumerResponse {
            storage_consumer_uuid,
            granted_capacity: onboarded.granted,
        }))
    }

    async fn onboard_consumer(
        &self,
        request: Request<OnBoardConsumerRequest>,
    ) -> Reply<OnBoardConsumerResponse> {
        self.on_board_consumer(request).await
    }

    async fn get_storage_config(
        &self,
        request: Request<StorageConfigRequest>,
    ) -> Reply<StorageConfigResponse> {
        let client = client(&request);
        let caller = storage_backend::Caller { client: client.as_deref() };
        let data = self.provider()?.storage_config(&request.get_ref().storage_consumer_uuid, caller).await;
        Ok(Response::new(StorageConfigResponse { data: data.map_err(refuse)? }))
    }

    async fn update_capacity(
        &self,
        request: Request<UpdateCapacityRequest>,
    ) -> Reply<UpdateCapacityResponse> {
        let client = client(&request);
        let message = request.into_inner();
        let caller = storage_backend::Caller { client: client.as_deref() };
        let id = self.proven(&message.storage_consumer_uuid).await?;
        let granted =
            self.provider()?.update_capacity(&message.storage_consumer_uuid, &message.capacity, caller).await;
        let granted_capacity = granted.map_err(refuse)?;
        audit::changed(Change::named(format!("consumer {id}"), What::Changed));
        Ok(Response::new(UpdateCapacityResponse { granted_capacity }))
    }

    async fn offboard_consumer(
        &self,
        request: Request<OffBoardConsumerRequest>,
    ) -> Reply<OffBoardConsumerResponse> {
        let client = client(&request);
        let caller = storage_backend::Caller { client: client.as_deref() };
        let id = self.proven(&request.get_ref().storage_consumer_uuid).await?;
        let done = self.provider()?.offboard(&request.get_ref().storage_consumer_uuid, caller).await;
        done.map_err(refuse)?;
        audit::changed(Change::named(format!("consumer {id}"), What::Deleted));
        Ok(Response::new(OffBoardConsumerResponse {}))
    }

    async fn off_board_consumer(
        &self,
        request: Request<OffBoardConsumerRequest>,
    ) -> Reply<OffBoardConsumerResponse> {
        self.offboard_consumer(request).await
    }
}

impl Service {
    /// Whose sealed id it is; the call is on record from then on.
    async fn proven(&self, sealed: &str) -> Result<ConsumerId, Failure> {
        let id = self.provider()?.consumer_of(sealed).await.map_err(refuse)?;
        audit::object(id);
        audit::begin(None)?;
        Ok(id)
    }

    fn provider(
        &self,
    ) -> Result<
        &storage_backend::Provider<impl storage_backend::Records, impl storage_backend::Backend>,
        Failure,
    > {
        Ok(&super::storage::enabled(&self.0)?.provider)
    }
}

/// The consumer a client certificate names; other credentials do not bind a consumer to a client.
fn client<T>(request: &Request<T>) -> Option<String> {
    let caller = request.extensions().get::<Caller>()?;
    (caller.role() == Role::Consumer).then(|| caller.subject.name.to_string())
}

pub(super) fn refuse(refusal: Refusal) -> Failure {
    let code = match refusal.code() {
        storage_provider::Code::InvalidArgument => Code::InvalidArgument,
        storage_provider::Code::Internal => Code::Internal,
        storage_provider::Code::Unavailable => Code::Unavailable,
    };
    Failure::from_error(code, &refusal)
}
