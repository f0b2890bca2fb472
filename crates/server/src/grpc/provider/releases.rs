//! The messages of OCS's releases, and what they say in the provider's words.

use storage_backend::{ClientState, ConsumerState};
use storage_provider::{Client, ConnectionItem};
use wire::provider_raw::{
    AlertInfo, ExternalResource, GetDesiredClientStateResponse, KubeClientOp, KubeObject,
    OnboardConsumerRequest, ReportStatusRequest,
};

/// The part of a grant in use from which on its client is warned.
const NEARLY_FULL: f64 = 0.85;

/// Field 3, which changed its meaning, and the rest.
pub(super) fn client(message: &OnboardConsumerRequest) -> (&str, Client) {
    let name = [&message.consumer_name, &message.client_name].into_iter().find(|name| !name.is_empty());
    let client = Client {
        name: name.cloned().unwrap_or_default(),
        id: message.client_id.clone(),
        operator_version: String::new(),
        platform_version: message.client_platform_version.clone(),
        operator_namespace: message.client_operator_namespace.clone(),
        cluster_id: message.cluster_id.clone(),
        cluster_name: message.cluster_name.clone(),
    };
    (&message.client_operator_version, client)
}

pub(super) fn reporting(message: &ReportStatusRequest) -> Client {
    Client {
        name: message.client_name.clone(),
        id: message.client_id.clone(),
        operator_version: message.client_operator_version.clone(),
        platform_version: message.client_platform_version.clone(),
        operator_namespace: message.client_operator_namespace.clone(),
        cluster_id: message.cluster_id.clone(),
        cluster_name: message.cluster_name.clone(),
    }
}

pub(super) fn external(item: &ConnectionItem) -> ExternalResource {
    let data = serde_json::to_vec(&item.data).expect("a map of strings always serialises");
    ExternalResource { name: item.name.clone(), kind: item.kind.clone(), data }
}

pub(super) fn kubernetes(state: ClientState) -> GetDesiredClientStateResponse {
    let object =
        |bytes: &Vec<u8>| KubeObject { bytes: bytes.clone(), op: KubeClientOp::CreateOrUpdate.into() };
    GetDesiredClientStateResponse {
        kube_objects: state.objects.iter().map(object).collect(),
        kube_resources: state.objects,
        desired_state_hash: state.hash,
        client_operator_channel: state.channel,
        maintenance_mode: false,
        mirror_enabled: false,
    }
}

/// Storage that is out of order, and storage that is nearly used up.
pub(super) fn alerts(state: &ConsumerState) -> Vec<AlertInfo> {
    let alert = |name: &str, value: f64, label: (&str, &str)| AlertInfo {
        alert_name: name.to_owned(),
        labels: [(label.0.to_owned(), label.1.to_owned())].into(),
        value,
    };
    let failed =
        state.failed.as_deref().map(|reason| alert("StorageConsumerFailed", 1.0, ("reason", reason)));
    let full = state.used.filter(|used| *used >= NEARLY_FULL);
    let full = full.map(|used| alert("StorageConsumerNearlyFull", used, ("severity", "warning")));
    failed.into_iter().chain(full).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_warned_of_what_is_so() {
        let names = |failed: Option<&str>, used| {
            let state = ConsumerState { failed: failed.map(str::to_owned), used };
            alerts(&state).into_iter().map(|alert| alert.alert_name).collect::<Vec<_>>()
        };
        assert!(names(None, None).is_empty() && names(None, Some(0.5)).is_empty());
        assert_eq!(names(None, Some(0.9)), ["StorageConsumerNearlyFull"]);
        assert_eq!(names(Some("disk"), None), ["StorageConsumerFailed"]);
    }
}
