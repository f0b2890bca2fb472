//! `provider.OCSProvider` on the OCS design's wire. A ticket or a sealed id proves the caller, and whose the connection is;
//! nothing of them is logged.

use std::sync::Arc;

use drivers::storage::Storage;
use model::{
    Role, Subject,
    change::{Change, What},
};
use storage_provider::{ConsumerId, Refusal};
use tonic::{Code, Request, Response, Status};
use wire::provider_raw::{
    OffBoardConsumerRequest, OffBoardConsumerResponse, OnBoardConsumerRequest, OnBoardConsumerResponse,
    StorageConfigRequest, StorageConfigResponse, UpdateCapacityRequest, UpdateCapacityResponse,
    ocs_provider_server::OcsProvider,
};

use crate::{
    access::{Caller, Peer},
    audit,
    crowd::Guest,
    failure::Failure,
};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Service(pub Option<Arc<Storage>>);

#[tonic::async_trait]
impl OcsProvider for Service {
    async fn on_board_consumer(
        &self,
        request: Request<OnBoardConsumerRequest>,
    ) -> Reply<OnBoardConsumerResponse> {
        let origin = Origin::of(&request);
        let message = request.into_inner();
        if self.provider()?.is_good(&message.token) {
            audit::begin(None)?;
        }
        let onboarded = self
            .provider()?
            .onboard(&message.token, &message.capacity, &message.sources, origin.caller())
            .await;
        let onboarded = onboarded.map_err(refuse)?;
        origin.is(onboarded.consumer);
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
        let origin = Origin::of(&request);
        let sealed = &request.get_ref().storage_consumer_uuid;
        // It is proven also if what is asked for is not ready yet.
        if origin.is_stranger() {
            origin.is(self.provider()?.consumer_of(sealed).await.map_err(refuse)?);
        }
        let data = self.provider()?.storage_config(sealed, origin.caller()).await.map_err(refuse)?;
        Ok(Response::new(StorageConfigResponse { data }))
    }

    async fn update_capacity(
        &self,
        request: Request<UpdateCapacityRequest>,
    ) -> Reply<UpdateCapacityResponse> {
        let origin = Origin::of(&request);
        let message = request.into_inner();
        let id = self.proven(&message.storage_consumer_uuid, &origin).await?;
        let granted = self
            .provider()?
            .update_capacity(&message.storage_consumer_uuid, &message.capacity, origin.caller())
            .await;
        let granted_capacity = granted.map_err(refuse)?;
        audit::changed(Change::named(format!("consumer {id}"), What::Changed));
        Ok(Response::new(UpdateCapacityResponse { granted_capacity }))
    }

    async fn offboard_consumer(
        &self,
        request: Request<OffBoardConsumerRequest>,
    ) -> Reply<OffBoardConsumerResponse> {
        let origin = Origin::of(&request);
        let sealed = &request.get_ref().storage_consumer_uuid;
        let id = self.proven(sealed, &origin).await?;
        let done = self.provider()?.offboard(sealed, origin.caller()).await;
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
    async fn proven(&self, sealed: &str, origin: &Origin) -> Result<ConsumerId, Failure> {
        let id = self.provider()?.consumer_of(sealed).await.map_err(refuse)?;
        origin.is(id);
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

/// Where a call comes from.
struct Origin {
    /// The consumer a client certificate names; other credentials do not bind a consumer to a client.
    client: Option<String>,
    connection: Option<Arc<Guest>>,
}

impl Origin {
    fn of<T>(request: &Request<T>) -> Self {
        let caller = request.extensions().get::<Caller>();
        let client = caller.filter(|caller| caller.role() == Role::Consumer);
        let connection = request.extensions().get::<Peer>().map(|peer| Arc::clone(&peer.guest));
        Self { client: client.map(|caller| caller.subject.name.to_string()), connection }
    }

    fn caller(&self) -> storage_backend::Caller<'_> {
        storage_backend::Caller { client: self.client.as_deref() }
    }

    /// Nobody has proven yet whose the connection is, not by what a call carried.
    fn is_stranger(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.owner().is_none())
    }

    /// The call has proven whose it is, and so whose the connection is.
    fn is(&self, consumer: ConsumerId) {
        if let Some(connection) = &self.connection {
            let name = || consumer.to_string().parse().expect("the id of a consumer is a legal name");
            connection.is_of(|| Subject { role: Role::Consumer, name: name() });
        }
    }
}

pub(super) fn refuse(refusal: Refusal) -> Failure {
    let code = match refusal.code() {
        storage_provider::Code::InvalidArgument => Code::InvalidArgument,
        storage_provider::Code::Internal => Code::Internal,
        storage_provider::Code::Unavailable => Code::Unavailable,
    };
    Failure::from_error(code, &refusal)
}
