//! `provider.OCSProvider` on the OCS design's wire and on that of its releases. A ticket or a sealed id proves the caller,
//! and whose the connection is; nothing of them is logged.

mod releases;

use std::sync::Arc;

use drivers::storage::Storage;
use model::{
    Role, Subject,
    change::{Change, What},
};
use prost::Message as _;
use releases::{alerts, client, external, kubernetes};
use storage_backend::{Details, Onboarded};
use storage_provider::{ConsumerId, Refusal};
use tonic::{Code, Request, Response, Status};
use wire::provider_raw::{
    AcknowledgeOnboardingRequest, AcknowledgeOnboardingResponse, FulfillStorageClaimRequest,
    FulfillStorageClaimResponse, GetClientAlertsRequest, GetClientAlertsResponse,
    GetDesiredClientStateRequest, GetDesiredClientStateResponse, OffBoardConsumerRequest,
    OffBoardConsumerResponse, OnBoardConsumerRequest, OnBoardConsumerResponse, OnboardConsumerRequest,
    OnboardConsumerResponse, ReportStatusRequest, ReportStatusResponse, RevokeStorageClaimResponse,
    StorageClaimConfigResponse, StorageClaimRequest, StorageConfigRequest, StorageConfigResponse,
    UpdateCapacityRequest, UpdateCapacityResponse, fulfill_storage_claim_request::StorageType,
    ocs_provider_server::OcsProvider,
};

use crate::{
    access::{Caller, Peer},
    audit,
    crowd::Guest,
    failure::Failure,
};

type Reply<T> = Result<Response<T>, Status>;

pub(super) struct Grpc(pub Option<Arc<Storage>>);

#[tonic::async_trait]
impl OcsProvider for Grpc {
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
        let (storage_consumer_uuid, granted_capacity) = made(onboarded.map_err(refuse)?, &origin);
        Ok(Response::new(OnBoardConsumerResponse { storage_consumer_uuid, granted_capacity }))
    }

    async fn onboard_consumer(
        &self,
        request: Request<OnboardConsumerRequest>,
    ) -> Reply<OnboardConsumerResponse> {
        let origin = Origin::of(&request);
        let message = request.into_inner();
        if self.provider()?.is_good(&message.onboarding_ticket) {
            audit::begin(None)?;
        }
        let (third, says) = client(&message);
        let onboarded = self
            .provider()?
            .onboard_client(&message.onboarding_ticket, third, says, &message.sources, origin.caller())
            .await;
        let (storage_consumer_uuid, granted) = made(onboarded.map_err(refuse)?, &origin);
        let granted_capacity = String::from_utf8(granted).expect("a quantity is text");
        Ok(Response::new(OnboardConsumerResponse { storage_consumer_uuid, granted_capacity }))
    }

    async fn acknowledge_onboarding(
        &self,
        request: Request<AcknowledgeOnboardingRequest>,
    ) -> Reply<AcknowledgeOnboardingResponse> {
        self.known(&request, &request.get_ref().storage_consumer_uuid).await?;
        Ok(Response::new(AcknowledgeOnboardingResponse {}))
    }

    async fn get_storage_config(
        &self,
        request: Request<StorageConfigRequest>,
    ) -> Reply<StorageConfigResponse> {
        let sealed = &request.get_ref().storage_consumer_uuid;
        let origin = self.known(&request, sealed).await?;
        let details = self.provider()?.storage_config(sealed, origin.caller()).await.map_err(refuse)?;
        let data = match details {
            Details::Document(document) => vec![document],
            Details::Items(items) => items.iter().map(|item| external(item).encode_to_vec()).collect(),
        };
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

    async fn get_desired_client_state(
        &self,
        request: Request<GetDesiredClientStateRequest>,
    ) -> Reply<GetDesiredClientStateResponse> {
        let sealed = &request.get_ref().storage_consumer_uuid;
        let origin = self.known(&request, sealed).await?;
        let state = self.provider()?.desired_state(sealed, origin.caller()).await.map_err(refuse)?;
        Ok(Response::new(kubernetes(state)))
    }

    async fn report_status(&self, request: Request<ReportStatusRequest>) -> Reply<ReportStatusResponse> {
        let origin = self.known(&request, &request.get_ref().storage_consumer_uuid).await?;
        let message = request.into_inner();
        let (id, says) = (&message.storage_consumer_uuid, releases::reporting(&message));
        let provider = self.provider()?;
        // Clients report every minute: only news are on record.
        if provider.is_news(id, &says, origin.caller()).await.map_err(refuse)? {
            audit::begin(None)?;
        }
        let used = message.storage_quota_utilization_ratio;
        let reported = provider.report_status(id, says, used, origin.caller()).await.map_err(refuse)?;
        if reported.changed {
            audit::object(reported.consumer);
            audit::changed(Change::named(format!("consumer {}", reported.consumer), What::Changed));
        }
        Ok(Response::new(ReportStatusResponse {
            desired_client_operator_channel: reported.channel,
            desired_config_hash: reported.hash,
        }))
    }

    async fn get_client_alerts(
        &self,
        request: Request<GetClientAlertsRequest>,
    ) -> Reply<GetClientAlertsResponse> {
        let sealed = &request.get_ref().storage_consumer_uuid;
        let origin = self.known(&request, sealed).await?;
        let state = self.provider()?.state_of(sealed, origin.caller()).await.map_err(refuse)?;
        Ok(Response::new(GetClientAlertsResponse { alerts: alerts(&state) }))
    }

    async fn fulfill_storage_class_claim(
        &self,
        request: Request<FulfillStorageClaimRequest>,
    ) -> Reply<FulfillStorageClaimResponse> {
        let message = request.get_ref();
        let origin = self.known(&request, &message.storage_consumer_uuid).await?;
        let on_files = message.storage_type() == StorageType::Sharedfile;
        let claim = self.provider()?.claim(&message.storage_consumer_uuid, on_files, origin.caller()).await;
        match claim {
            // Asked for its configuration, it is told to wait.
            Ok(_) | Err(Refusal::Configuring) => Ok(Response::new(FulfillStorageClaimResponse {})),
            Err(refusal) => Err(refuse(refusal).into()),
        }
    }

    async fn get_storage_class_claim_config(
        &self,
        request: Request<StorageClaimRequest>,
    ) -> Reply<StorageClaimConfigResponse> {
        let sealed = &request.get_ref().storage_consumer_uuid;
        let origin = self.known(&request, sealed).await?;
        let items = self.provider()?.claim(sealed, false, origin.caller()).await.map_err(refuse)?;
        let Details::Items(items) = items else {
            let text = "claims are of consumers that came by OnboardConsumer; ask GetStorageConfig";
            return Err(Failure::new(Code::FailedPrecondition, text).into());
        };
        let external_resource = items.iter().map(external).collect();
        Ok(Response::new(StorageClaimConfigResponse { external_resource }))
    }

    async fn revoke_storage_class_claim(
        &self,
        request: Request<StorageClaimRequest>,
    ) -> Reply<RevokeStorageClaimResponse> {
        self.known(&request, &request.get_ref().storage_consumer_uuid).await?;
        Ok(Response::new(RevokeStorageClaimResponse {}))
    }

    async fn fulfill_storage_claim(
        &self,
        request: Request<FulfillStorageClaimRequest>,
    ) -> Reply<FulfillStorageClaimResponse> {
        self.fulfill_storage_class_claim(request).await
    }

    async fn get_storage_claim_config(
        &self,
        request: Request<StorageClaimRequest>,
    ) -> Reply<StorageClaimConfigResponse> {
        self.get_storage_class_claim_config(request).await
    }

    async fn revoke_storage_claim(
        &self,
        request: Request<StorageClaimRequest>,
    ) -> Reply<RevokeStorageClaimResponse> {
        self.revoke_storage_class_claim(request).await
    }
}

/// What an onboarding is answered with; it is on record, and the connection is the consumer's.
fn made(onboarded: Onboarded, origin: &Origin) -> (String, Vec<u8>) {
    origin.is(onboarded.consumer);
    audit::object(onboarded.consumer);
    audit::changed(Change::named(format!("consumer {}", onboarded.consumer), What::Created));
    (onboarded.id.expose().to_owned(), onboarded.granted)
}

impl Grpc {
    /// Where a call comes from whose sealed id is good. It is proven also if what is asked for is not ready yet.
    async fn known<T>(&self, request: &Request<T>, sealed: &str) -> Result<Origin, Failure> {
        let origin = Origin::of(request);
        let consumer = self.provider()?.consumer_of(sealed).await.map_err(refuse)?;
        if origin.is_stranger() {
            origin.is(consumer);
        }
        Ok(origin)
    }

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
        storage_provider::Code::FailedPrecondition => Code::FailedPrecondition,
        storage_provider::Code::Internal => Code::Internal,
        storage_provider::Code::Unavailable => Code::Unavailable,
    };
    Failure::from_error(code, &refusal)
}
