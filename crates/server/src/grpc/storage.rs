//! `trestle.v1.Storage`: tickets and consumers, for administrators.

mod volumes;

use std::{collections::BTreeMap, pin::Pin, sync::Arc, time::Duration};

use drivers::storage::Storage;
use futures::{Stream, stream};
use model::change::{Change, What};
use storage_backend::{BackendError, Report, Usage};
use storage_provider::{
    Capacity, CapacityForm, Consumer, ConsumerId, Phase, Rates, Sources, TicketRecord, TicketStatus,
};
use tonic::{Code, Request, Response, Status, Streaming};
use wire::trestle::v1::{
    self, AdoptVolumeRequest, CreateTicketRequest, CreateTicketResponse, CreateVolumeRequest,
    DeleteVolumeRequest, DeleteVolumeResponse, ExportVolumeRequest, GetConsumerRequest, ImportVolumeRequest,
    KeepConsumerRequest, KeepVolumeRequest, LabelConsumerRequest, LimitConsumerRequest, ListConsumersRequest,
    ListConsumersResponse, ListTicketsRequest, ListTicketsResponse, ListVolumesRequest, ListVolumesResponse,
    NameConsumerRequest, OffboardConsumerRequest, OffboardConsumerResponse, PermitConsumerRequest,
    PublishVolumeRequest, RecreateVolumeRequest, ResizeConsumerRequest, ResizeVolumeRequest,
    RestoreVolumeRequest, RevokeTicketRequest, RevokeTicketResponse, RotateTicketKeyRequest,
    RotateTicketKeyResponse, SnapshotVolumeRequest, UnpublishVolumeRequest, VolumePart, storage_server,
};

use self::volumes::Whose;
use super::provider::refuse;
use crate::{audit, failure::Failure};

type Reply<T> = Result<Response<T>, Status>;

/// How long a ticket is good unless asked otherwise, and at most. Keys that were rotated out verify as long.
const LIFETIME: u64 = 48 * 3600;
const LONGEST: u64 = 365 * 24 * 3600;

#[derive(Clone)]
pub(crate) struct Grpc(pub Option<Arc<Storage>>);

/// The storage, or that there is none.
pub(super) fn enabled(storage: &Option<Arc<Storage>>) -> Result<&Storage, Failure> {
    storage.as_deref().ok_or_else(|| {
        Failure::new(
            Code::FailedPrecondition,
            "this controller provides no storage: `storage` is not in its configuration, or could not be used, which `trestle status` tells",
        )
    })
}

#[tonic::async_trait]
impl storage_server::Storage for Grpc {
    async fn create_ticket(&self, request: Request<CreateTicketRequest>) -> Reply<CreateTicketResponse> {
        let request = request.into_inner();
        let lifetime = match request.lifetime_seconds {
            0 => LIFETIME,
            seconds if seconds <= LONGEST => seconds,
            seconds => {
                let text =
                    format!("a ticket of {seconds} seconds is too long; at most {LONGEST} are allowed");
                return Err(Failure::new(Code::InvalidArgument, text).into());
            }
        };
        let limit = match request.limit.as_str() {
            "" => None,
            text => {
                Some(Capacity::parse(text, CapacityForm::Text).map_err(|err| Failure::invalid(&err))?.bytes())
            }
        };
        let storage = enabled(&self.0)?;
        let sources = sources(storage, &request.sources)?;
        if request.encrypted && !storage.encrypts() {
            let text = "storage on Ceph is not encrypted by its provider: clients encrypt their images, or the cluster its disks";
            return Err(Failure::new(Code::FailedPrecondition, text).into());
        }
        let minted = storage
            .provider
            .create_ticket(lifetime, limit, sources, rates(request.rates)?, request.encrypted)
            .await
            .map_err(refuse)?;
        audit::changed(ticket_change(&minted.record.id, What::Created));
        let ticket = Some(ticket(&minted.record));
        Ok(Response::new(CreateTicketResponse { ticket, text: minted.text.expose().to_owned() }))
    }

    async fn list_tickets(&self, _: Request<ListTicketsRequest>) -> Reply<ListTicketsResponse> {
        let tickets = enabled(&self.0)?.provider.tickets().await;
        let mut tickets = tickets.map_err(|err| Failure::from_error(Code::Unavailable, &err))?;
        tickets.sort_by(|a, b| (a.issued_at, &a.id).cmp(&(b.issued_at, &b.id)));
        Ok(Response::new(ListTicketsResponse { tickets: tickets.iter().map(ticket).collect() }))
    }

    async fn revoke_ticket(&self, request: Request<RevokeTicketRequest>) -> Reply<RevokeTicketResponse> {
        let id = request.into_inner().id;
        match enabled(&self.0)?.provider.revoke_ticket(&id).await.map_err(refuse)? {
            true => {
                audit::changed(ticket_change(&id, What::Changed));
                Ok(Response::new(RevokeTicketResponse {}))
            }
            false => Err(Failure::new(Code::NotFound, format!("there is no ticket {id:?}")).into()),
        }
    }

    async fn rotate_ticket_key(&self, _: Request<RotateTicketKeyRequest>) -> Reply<RotateTicketKeyResponse> {
        let rotated = enabled(&self.0)?.rotate_ticket_key(Duration::from_secs(LONGEST));
        let key = rotated.map_err(|err| Failure::from_error(Code::Internal, &err))?;
        audit::changed(Change::named(format!("ticket key {key}"), What::Created));
        Ok(Response::new(RotateTicketKeyResponse { key }))
    }

    async fn list_consumers(&self, _: Request<ListConsumersRequest>) -> Reply<ListConsumersResponse> {
        let storage = enabled(&self.0)?;
        let consumers = storage.provider.consumers().await;
        let mut consumers = consumers.map_err(|err| Failure::from_error(Code::Unavailable, &err))?;
        consumers.sort_by_key(|consumer| (consumer.created_at, consumer.id));
        let usage = storage.provider.usage_all().await;
        let consumers = consumers.into_iter().map(|one| {
            let used = usage.as_ref().map(|usage| usage.get(&one.id).cloned());
            let report = storage.provider.report_of(one.id);
            let heard = storage.provider.last_heard(one.id);
            consumer(one, used, report, heard)
        });
        Ok(Response::new(ListConsumersResponse { consumers: consumers.collect() }))
    }

    async fn get_consumer(&self, request: Request<GetConsumerRequest>) -> Reply<v1::Consumer> {
        let (storage, id) = (enabled(&self.0)?, consumer_id(&request.get_ref().id)?);
        Ok(Response::new(self.find(storage, id).await?))
    }

    async fn resize_consumer(&self, request: Request<ResizeConsumerRequest>) -> Reply<v1::Consumer> {
        let request = request.into_inner();
        let (storage, id) = (enabled(&self.0)?, consumer_id(&request.id)?);
        let before = stored(storage, id).await?;
        let resized = storage.provider.resize(id, &request.capacity, request.force).await.map_err(refuse)?;
        audit::changed(consumer_change(&before, &stored(storage, id).await?));
        let mut consumer = self.find(storage, id).await?;
        if resized.bytes < resized.requested {
            let less = format!(
                "granted {} of the {} asked for: it is what is left, or what the ticket allows",
                resized.granted, request.capacity
            );
            consumer.notice = [less, consumer.notice]
                .into_iter()
                .filter(|it| !it.is_empty())
                .collect::<Vec<_>>()
                .join("; ");
        }
        Ok(Response::new(consumer))
    }

    async fn permit_consumer(&self, request: Request<PermitConsumerRequest>) -> Reply<v1::Consumer> {
        let request = request.into_inner();
        let (storage, id) = (enabled(&self.0)?, consumer_id(&request.id)?);
        managed(storage)?;
        let sources = sources(storage, &request.sources)?;
        let before = stored(storage, id).await?;
        storage.permit(id, &sources).await.map_err(refuse)?;
        audit::changed(consumer_change(&before, &stored(storage, id).await?));
        Ok(Response::new(self.find(storage, id).await?))
    }

    async fn offboard_consumer(
        &self,
        request: Request<OffboardConsumerRequest>,
    ) -> Reply<OffboardConsumerResponse> {
        let (storage, id) = (enabled(&self.0)?, consumer_id(&request.get_ref().id)?);
        self.find(storage, id).await?;
        storage.provider.put_off(id, request.get_ref().now).await.map_err(refuse)?;
        audit::changed(Change::named(format!("consumer {id}"), What::Deleted));
        Ok(Response::new(OffboardConsumerResponse {}))
    }

    async fn keep_consumer(&self, request: Request<KeepConsumerRequest>) -> Reply<v1::Consumer> {
        let (storage, id) = (enabled(&self.0)?, consumer_id(&request.get_ref().id)?);
        let before = stored(storage, id).await?;
        storage.provider.keep(id).await.map_err(refuse)?;
        audit::changed(consumer_change(&before, &stored(storage, id).await?));
        Ok(Response::new(self.find(storage, id).await?))
    }

    async fn name_consumer(&self, request: Request<NameConsumerRequest>) -> Reply<v1::Consumer> {
        let request = request.into_inner();
        let (storage, id) = (enabled(&self.0)?, consumer_id(&request.id)?);
        let before = stored(storage, id).await?;
        storage.provider.name(id, &request.name).await.map_err(refuse)?;
        audit::changed(consumer_change(&before, &stored(storage, id).await?));
        Ok(Response::new(self.find(storage, id).await?))
    }

    async fn adopt_volume(&self, request: Request<AdoptVolumeRequest>) -> Reply<v1::Consumer> {
        let (storage, id) = (enabled(&self.0)?, consumer_id(&request.get_ref().consumer)?);
        let before = stored(storage, id).await?;
        storage.provider.adopt(id).await.map_err(refuse)?;
        audit::changed(consumer_change(&before, &stored(storage, id).await?));
        Ok(Response::new(self.find(storage, id).await?))
    }

    async fn recreate_volume(&self, request: Request<RecreateVolumeRequest>) -> Reply<v1::Consumer> {
        let request = request.into_inner();
        let (storage, id) = (enabled(&self.0)?, consumer_id(&request.consumer)?);
        if !request.data_is_lost {
            let text =
                "what the consumer stored would be given up; say so with data_is_lost (--data-is-lost)";
            return Err(Failure::new(Code::InvalidArgument, text).into());
        }
        let before = stored(storage, id).await?;
        storage.provider.recreate(id).await.map_err(refuse)?;
        audit::changed(consumer_change(&before, &stored(storage, id).await?));
        Ok(Response::new(self.find(storage, id).await?))
    }

    async fn limit_consumer(&self, request: Request<LimitConsumerRequest>) -> Reply<v1::Consumer> {
        let request = request.into_inner();
        let (storage, id) = (enabled(&self.0)?, consumer_id(&request.id)?);
        let before = stored(storage, id).await?;
        storage.provider.limit(id, rates(request.rates)?).await.map_err(refuse)?;
        audit::changed(consumer_change(&before, &stored(storage, id).await?));
        Ok(Response::new(self.find(storage, id).await?))
    }

    async fn label_consumer(&self, request: Request<LabelConsumerRequest>) -> Reply<v1::Consumer> {
        let request = request.into_inner();
        let (storage, id) = (enabled(&self.0)?, consumer_id(&request.id)?);
        let before = stored(storage, id).await?;
        let labels: BTreeMap<_, _> = request.labels.into_iter().collect();
        storage.provider.label(id, &labels).await.map_err(refuse)?;
        audit::changed(consumer_change(&before, &stored(storage, id).await?));
        Ok(Response::new(self.find(storage, id).await?))
    }

    async fn list_volumes(&self, request: Request<ListVolumesRequest>) -> Reply<ListVolumesResponse> {
        Ok(Response::new(self.volumes(Whose::of(&request), request.into_inner()).await?))
    }

    async fn create_volume(&self, request: Request<CreateVolumeRequest>) -> Reply<v1::Volume> {
        Ok(Response::new(self.create(Whose::of(&request), request.into_inner()).await?))
    }

    async fn resize_volume(&self, request: Request<ResizeVolumeRequest>) -> Reply<v1::Volume> {
        Ok(Response::new(self.resize(Whose::of(&request), request.into_inner()).await?))
    }

    async fn delete_volume(&self, request: Request<DeleteVolumeRequest>) -> Reply<DeleteVolumeResponse> {
        self.delete(Whose::of(&request), request.into_inner()).await?;
        Ok(Response::new(DeleteVolumeResponse {}))
    }

    async fn keep_volume(&self, request: Request<KeepVolumeRequest>) -> Reply<v1::Volume> {
        Ok(Response::new(self.take_back(Whose::of(&request), request.into_inner()).await?))
    }

    async fn snapshot_volume(&self, request: Request<SnapshotVolumeRequest>) -> Reply<v1::Volume> {
        Ok(Response::new(self.snapshot(Whose::of(&request), request.into_inner()).await?))
    }

    async fn restore_volume(&self, request: Request<RestoreVolumeRequest>) -> Reply<v1::Volume> {
        Ok(Response::new(self.restore(Whose::of(&request), request.into_inner()).await?))
    }

    async fn publish_volume(&self, request: Request<PublishVolumeRequest>) -> Reply<v1::Volume> {
        Ok(Response::new(self.publish(Whose::of(&request), request.into_inner()).await?))
    }

    async fn unpublish_volume(&self, request: Request<UnpublishVolumeRequest>) -> Reply<v1::Volume> {
        Ok(Response::new(self.unpublish(Whose::of(&request), request.into_inner()).await?))
    }

    type ExportVolumeStream = Pin<Box<dyn Stream<Item = Result<VolumePart, Status>> + Send>>;

    async fn export_volume(&self, request: Request<ExportVolumeRequest>) -> Reply<Self::ExportVolumeStream> {
        let parts = self.export(Whose::of(&request), request.into_inner()).await?;
        Ok(Response::new(Box::pin(parts)))
    }

    type ImportVolumeStream = Pin<Box<dyn Stream<Item = Result<v1::Volume, Status>> + Send>>;

    async fn import_volume(
        &self,
        request: Request<Streaming<ImportVolumeRequest>>,
    ) -> Reply<Self::ImportVolumeStream> {
        let (service, whose, parts) = (self.clone(), Whose::of(&request), request.into_inner());
        // The answer begins now, so that it may take as long as it takes.
        let import = async move { service.import(whose, parts).await.map_err(Status::from) };
        Ok(Response::new(Box::pin(stream::once(import))))
    }
}

impl Grpc {
    async fn find(&self, storage: &Storage, id: ConsumerId) -> Result<v1::Consumer, Failure> {
        let found = stored(storage, id).await?;
        let usage = match storage.provider.usage(id).await {
            Err(BackendError::NoStorage { .. }) => Ok(None),
            usage => usage.map(Some),
        };
        let (report, heard) = (storage.provider.report_of(id), storage.provider.last_heard(id));
        Ok(consumer(found, usage.as_ref().cloned(), report, heard))
    }
}

async fn stored(storage: &Storage, id: ConsumerId) -> Result<Consumer, Failure> {
    let found = storage.provider.consumer(id).await;
    let found = found.map_err(|err| Failure::from_error(Code::Unavailable, &err))?;
    found.ok_or_else(|| Failure::new(Code::NotFound, format!("there is no consumer {id}")))
}

fn ticket_change(id: &str, what: What) -> Change {
    Change::named(format!("ticket {id}"), what)
}

pub(super) fn consumer_change(before: &Consumer, after: &Consumer) -> Change {
    let shown = |consumer: &Consumer| serde_json::to_value(consumer).unwrap_or_default();
    Change::between(format!("consumer {}", after.id), Some(&shown(before)), Some(&shown(after)))
}

fn rates(rates: Option<v1::Rates>) -> Result<Rates, Failure> {
    let v1::Rates { operations, bytes } = rates.unwrap_or_default();
    Rates::new(operations, bytes).map_err(|err| Failure::invalid(&err))
}

/// Nothing where there is no limit.
fn told_rates(rates: Rates) -> Option<v1::Rates> {
    let Rates { operations, bytes } = rates;
    (!rates.is_unlimited()).then_some(v1::Rates { operations, bytes })
}

/// Addresses are taken only where something comes of them.
fn sources(storage: &Storage, texts: &[String]) -> Result<Sources, Failure> {
    if !texts.is_empty() {
        managed(storage)?;
    }
    Sources::parse(texts).map_err(|err| Failure::invalid(&err))
}

fn managed(storage: &Storage) -> Result<(), Failure> {
    if storage.provider.manages_network() {
        return Ok(());
    }
    let text = "this controller does not manage the network before its storage; set `storage.permit` in its configuration";
    Err(Failure::new(Code::FailedPrecondition, text))
}

fn consumer_id(text: &str) -> Result<ConsumerId, Failure> {
    text.parse()
        .map_err(|_| Failure::new(Code::InvalidArgument, format!("{text:?} is not the id of a consumer")))
}

/// A consumer by its id, or by a name that one alone has.
async fn consumer_named(storage: &Storage, named: &str) -> Result<ConsumerId, Failure> {
    if let Ok(id) = named.parse() {
        return Ok(id);
    }
    let invalid = |text: String| Failure::new(Code::InvalidArgument, text);
    if named.is_empty() {
        return Err(invalid("say whose volumes are meant: a consumer's id or name".to_owned()));
    }
    let consumers = storage.provider.consumers().await;
    let consumers = consumers.map_err(|err| Failure::from_error(Code::Unavailable, &err))?;
    let mut called = consumers.into_iter().filter(|consumer| consumer.name == named);
    match (called.next(), called.next()) {
        (Some(only), None) => Ok(only.id),
        (Some(_), Some(_)) => Err(invalid(format!("several consumers are called {named:?}; give an id"))),
        (None, _) => Err(Failure::new(Code::NotFound, format!("there is no consumer {named:?}"))),
    }
}

/// `usage` is `Ok(None)` where the consumer has no storage, and an error where the storage cannot say.
fn consumer(
    consumer: Consumer,
    usage: Result<Option<Usage>, &BackendError>,
    report: Option<Report>,
    heard: Option<u64>,
) -> v1::Consumer {
    let (usage, unknown) = match usage {
        Ok(usage) => (usage, String::new()),
        Err(error) => (None, common::chain(error)),
    };
    let used_at = usage.as_ref().and_then(|usage| usage.last_used);
    let reason = match &consumer.phase {
        Phase::Failed { reason } | Phase::Deleting { reason: Some(reason) } => reason.clone(),
        Phase::Configuring | Phase::Ready | Phase::Deleting { reason: None } => String::new(),
    };
    v1::Consumer {
        id: consumer.id.to_string(),
        phase: consumer.phase.name().to_owned(),
        reason,
        requested: consumer.requested.to_string(),
        granted_bytes: consumer.granted,
        created_at: consumer.created_at,
        used_bytes: usage.as_ref().map(|usage| usage.used),
        notice: usage.and_then(|usage| usage.notice).unwrap_or(unknown),
        sources: consumer.sources.to_texts(),
        name: consumer.name,
        kept_until: consumer.kept_until,
        client: consumer.client.map(|client| v1::ConsumerClient {
            name: client.name,
            id: client.id,
            operator_version: client.operator_version,
            platform_version: client.platform_version,
            operator_namespace: client.operator_namespace,
            cluster_id: client.cluster_id,
            cluster_name: client.cluster_name,
            reported_at: report.map(|report| report.at),
            used: report.and_then(|report| report.used),
        }),
        rates: told_rates(consumer.rates),
        encrypted: consumer.encrypted,
        labels: consumer.labels,
        last_seen: heard.max(used_at),
    }
}

fn ticket(record: &TicketRecord) -> v1::Ticket {
    let now = jiff::Timestamp::now().as_second().unsigned_abs();
    let state = match record.status_at(now) {
        TicketStatus::Valid => "valid",
        TicketStatus::Used => "used",
        TicketStatus::Revoked => "revoked",
        TicketStatus::Expired => "expired",
    };
    v1::Ticket {
        id: record.id.clone(),
        key: record.key.as_str().to_owned(),
        issued_at: record.issued_at,
        expires_at: record.expires_at,
        limit_bytes: record.limit,
        state: state.to_owned(),
        consumer: record.consumer().map(|id| id.to_string()).unwrap_or_default(),
        rates: told_rates(record.rates),
        encrypted: record.encrypted,
        sources: record.sources.to_texts(),
    }
}
