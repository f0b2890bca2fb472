//! Machines that join as hosts: tokens, names, keys, and all that can go wrong with them.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt as _;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use testkit_controllers::controller::{Client, Fixture};
use tonic::{
    Code, Status,
    transport::{Channel, Identity},
};
use wire::{
    tagservicepb::{Tag, tag_service_client::TagServiceClient},
    trestle::v1::{
        ChallengeRequest, CreateJoinTokenRequest, FromNode, GetHostRequest, HostInfo,
        IssueCertificateRequest, JoinRequest, JoinResponse, LeaveRequest, ListHostsRequest,
        ListTokensRequest, NodeHello, RemoveHostRequest, RenewRequest, RevokeCertificateRequest,
        RevokeTokenRequest, Role, WhoAmIRequest, access_client::AccessClient, from_node,
        hosts_client::HostsClient, join_client::JoinClient, join_request::Proof,
        node_feed_client::NodeFeedClient,
    },
};

fn request(key: &KeyPair, nonce: &str) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, nonce);
    params.serialize_request(key).unwrap().der().to_vec()
}

/// With a token or another proof, or with the key alone.
pub async fn join_over(
    door: Channel,
    key: &KeyPair,
    name: &str,
    token: &str,
) -> Result<JoinResponse, Status> {
    let mut client = JoinClient::new(door);
    let nonce = client.challenge(ChallengeRequest {}).await?.into_inner().nonce;
    let proof = (!token.is_empty()).then(|| Proof::Token(token.to_owned()));
    let request = JoinRequest { request: request(key, &nonce), name: name.to_owned(), proof };
    Ok(client.join(request).await?.into_inner())
}

struct House {
    fixture: Fixture,
    door: Channel,
}

impl House {
    async fn start() -> Self {
        let fixture = Fixture::start().await;
        let door = fixture.channel().await;
        Self { fixture, door }
    }

    async fn token(&self, request: CreateJoinTokenRequest) -> String {
        let mut access = AccessClient::new(self.fixture.admin().await);
        access.create_join_token(request).await.unwrap().into_inner().token
    }

    async fn uses(&self, uses: u32) -> String {
        self.token(CreateJoinTokenRequest { uses, tags: vec!["web".into()], ..Default::default() }).await
    }

    /// With a token, or with the key alone.
    async fn join(&self, key: &KeyPair, name: &str, token: &str) -> Result<JoinResponse, Status> {
        join_over(self.door.clone(), key, name, token).await
    }

    async fn hosts(&self) -> HostsClient<Client> {
        HostsClient::new(self.fixture.admin().await)
    }

    async fn list(&self) -> Vec<HostInfo> {
        self.hosts().await.list_hosts(ListHostsRequest {}).await.unwrap().into_inner().hosts
    }

    async fn remove(&self, name: &str) -> Result<String, Status> {
        let request = RemoveHostRequest { name: name.to_owned() };
        Ok(self.hosts().await.remove_host(request).await?.into_inner().notice)
    }

    /// A connection that a host's certificate proves.
    async fn host(&self, joined: &JoinResponse, key: &KeyPair) -> Channel {
        let identity = Identity::from_pem(&joined.certificate_pem, key.serialize_pem());
        self.fixture.endpoint(Some(identity)).connect().await.unwrap()
    }

    async fn members(&self, tag: &str) -> Vec<String> {
        let mut tags = TagServiceClient::new(self.fixture.admin().await);
        let tag = Tag { tag_name: tag.to_owned() };
        tags.get_tag(tag).await.map(|reply| reply.into_inner().child_tags).unwrap_or_default()
    }

    async fn uses_left(&self, token: &str) -> u32 {
        let id = id(token);
        let mut access = AccessClient::new(self.fixture.admin().await);
        let tokens = access.list_tokens(ListTokensRequest {}).await.unwrap().into_inner().tokens;
        tokens.into_iter().find(|info| info.id == id).unwrap().join.unwrap().uses_left
    }
}

fn id(token: &str) -> String {
    token.split('-').nth(2).unwrap().to_owned()
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

#[track_caller]
fn refused<T: std::fmt::Debug>(outcome: Result<T, Status>, code: Code, why: &str) {
    let status = outcome.unwrap_err();
    assert_eq!(status.code(), code, "{}", status.message());
    assert!(status.message().contains(why), "{}", status.message());
}

#[tokio::test]
async fn a_machine_joins_renews_comes_back_and_leaves() {
    let house = House::start().await;
    let labels = BTreeMap::from([("tier".to_owned(), "front".to_owned())]);
    let asked = CreateJoinTokenRequest {
        uses: 2,
        names: "web-*".into(),
        tags: vec!["web".into()],
        labels: labels.clone(),
        ttl_seconds: None,
    };
    let token = house.token(asked).await;
    let own = key();
    refused(house.join(&own, "db-1", &token).await, Code::PermissionDenied, "web-*");
    let joined = house.join(&own, "web-1", &token).await.unwrap();
    let host = joined.host.clone().unwrap();
    assert_eq!((host.name.as_str(), host.tag.as_str(), &host.labels), ("web-1", "host.web-1", &labels));
    assert_eq!(house.list().await, std::slice::from_ref(&host));
    assert_eq!(house.members("web").await, ["host.web-1"]);
    assert_eq!(house.uses_left(&token).await, 1);

    // It is a node of that name, and nothing else.
    let channel = house.host(&joined, &own).await;
    let me = AccessClient::new(channel.clone()).who_am_i(WhoAmIRequest {}).await.unwrap().into_inner();
    assert_eq!((me.name.as_str(), wire::json::role_name(me.role).as_str()), ("web-1", "node"));
    let list = HostsClient::new(channel.clone()).list_hosts(ListHostsRequest {}).await;
    assert_eq!(list.unwrap_err().code(), Code::PermissionDenied);

    // The join was cut after the controller's answer: the same command again is the same host, and costs no use.
    let again = house.join(&own, "web-1", &token).await.unwrap();
    assert_ne!(again.certificate_pem, joined.certificate_pem);
    assert_eq!((house.uses_left(&token).await, house.list().await.len()), (1, 1));

    // Renewed over its own connection. That of an earlier certificate gets it no other key.
    let renew = |channel: &Channel, key: &KeyPair| {
        let (mut client, request) = (JoinClient::new(channel.clone()), request(key, "x"));
        async move { client.renew(RenewRequest { request }).await.map(tonic::Response::into_inner) }
    };
    let first = own;
    refused(renew(&channel, &key()).await, Code::PermissionDenied, "another key");
    let next = renew(&channel, &first).await.unwrap();
    let (channel, own) = (house.host(&next, &first).await, key());
    let next = renew(&channel, &own).await.unwrap();
    assert_ne!(next.host.as_ref().unwrap().fingerprint, host.fingerprint);
    // The answer was lost: asked again, it is the same.
    renew(&channel, &own).await.unwrap();
    refused(renew(&channel, &key()).await, Code::PermissionDenied, "another key");
    let channel = house.host(&next, &own).await;

    // Months away: the key alone brings it back, under the name it has. The one before it is a copy's, or a thief's.
    refused(house.join(&first, "", "").await, Code::PermissionDenied, "an earlier key of host web-1");
    refused(
        house.join(&first, "web-1", &token).await,
        Code::PermissionDenied,
        "an earlier key of host web-1",
    );
    let back = house.join(&own, "", "").await.unwrap();
    assert_eq!(back.host.unwrap().name, "web-1");
    refused(house.join(&key(), "web-1", "").await, Code::Unauthenticated, "no host's");

    // It leaves; whoever has what it had, has nothing.
    let mut leaving = JoinClient::new(channel);
    // The answer may be cut with the certificate that the call was made with.
    if let Err(status) = leaving.leave(LeaveRequest {}).await {
        assert_eq!(status.code(), Code::Unauthenticated);
    }
    assert_eq!(leaving.leave(LeaveRequest {}).await.unwrap_err().code(), Code::Unauthenticated);
    assert!(house.list().await.is_empty() && house.members("web").await.is_empty());
    refused(house.join(&own, "", "").await, Code::PermissionDenied, "was removed");
    refused(house.join(&own, "web-1", &token).await, Code::PermissionDenied, "was removed");
    assert_eq!(house.uses_left(&token).await, 1, "a use is not given back");
}

#[tokio::test]
async fn one_name_and_one_key_are_one_host() {
    let house = House::start().await;
    let token = house.uses(5).await;
    let (first, second) = (key(), key());
    let joined = house.join(&first, "web-1", &token).await.unwrap();
    refused(house.join(&second, "web-1", &token).await, Code::AlreadyExists, "trestle host remove web-1");
    // A copy of the first one's disk, under a name of its own.
    refused(house.join(&first, "web-2", &token).await, Code::FailedPrecondition, "trestle leave --local");
    assert_eq!(house.uses_left(&token).await, 4);

    // A removed host is nobody at once, and the way back is told.
    let channel = house.host(&joined, &first).await;
    let notice = house.remove("web-1").await.unwrap();
    assert!(notice.contains(&format!("trestle token revoke {}", id(&token))), "{notice}");
    let refused_call = AccessClient::new(channel).who_am_i(WhoAmIRequest {}).await.unwrap_err();
    assert_eq!(refused_call.code(), Code::Unauthenticated);
    refused(house.join(&first, "web-1", &token).await, Code::PermissionDenied, "trestle leave");
    refused(house.remove("web-1").await, Code::NotFound, "trestle host list");
    // Another machine takes its place.
    house.join(&second, "web-1", &token).await.unwrap();

    // A certificate that an administrator revoked has no successor.
    let third = key();
    let joined = house.join(&third, "web-3", &token).await.unwrap();
    let mut access = AccessClient::new(house.fixture.admin().await);
    let serial = serial(&joined.certificate_pem);
    access.revoke_certificate(RevokeCertificateRequest { serial, with_made: false }).await.unwrap();
    refused(house.join(&third, "", "").await, Code::PermissionDenied, "was revoked");
    let gone = house.hosts().await.get_host(GetHostRequest { name: "nobody".into() }).await;
    refused(gone, Code::NotFound, "nobody");
    refused(house.remove("../x").await, Code::InvalidArgument, "name");
}

#[tokio::test]
async fn nobody_becomes_a_node_that_is_there_already_or_is_taken_for_another() {
    let house = House::start().await;
    let token = house.uses(3).await;
    let mut access = AccessClient::new(house.fixture.admin().await);
    let by_hand = IssueCertificateRequest {
        role: Role::Node as i32,
        name: "worker-7".into(),
        ..IssueCertificateRequest::default()
    };
    access.issue_certificate(by_hand).await.unwrap();
    refused(house.join(&key(), "worker-7", &token).await, Code::AlreadyExists, "issued by hand");
    refused(house.join(&key(), "vms_web", &token).await, Code::InvalidArgument, "underscore");
    assert_eq!(house.uses_left(&token).await, 3);
    // The agent of ExternalNode vms/web would have this name, and cloud aws has the other one's key.
    for (name, other) in [("vms.web", "vms/web"), ("cloud.aws", "cloud/aws")] {
        let own = key();
        let joined = house.join(&own, name, &token).await.unwrap();
        let channel = house.host(&joined, &own).await;
        for (said, code) in [(other, Some(Code::PermissionDenied)), (name, None)] {
            let hello = NodeHello { node: said.to_owned(), ..NodeHello::default() };
            let hello = FromNode { message: Some(from_node::Message::Hello(hello)) };
            let stream = futures::stream::iter([hello]).chain(futures::stream::pending());
            let first = match NodeFeedClient::new(channel.clone()).connect(stream).await {
                Ok(answers) => answers.into_inner().message().await,
                Err(status) => Err(status),
            };
            assert_eq!(first.err().map(|status| status.code()), code, "{name} as {said}");
        }
    }
}

/// The serial of a certificate.
fn serial(pem: &str) -> String {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
    server::pki::identify(&pem.contents).unwrap().1
}

#[tokio::test]
async fn a_hundred_machines_with_one_token_get_exactly_as_many_places_as_it_has() {
    let house = House::start().await;
    let token = house.uses(10).await;
    let joining = (0..100).map(|number| {
        let (house, token) = (&house, &token);
        async move {
            let door = house.fixture.endpoint(None).connect_lazy();
            let joined = join_over(door, &key(), &format!("web-{number}"), token).await;
            joined.map(drop).map_err(|status| (status.code(), std::error::Error::source(&status).is_some()))
        }
    });
    let outcomes = futures::future::join_all(joining).await;
    let let_in = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let refusals: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
    // There are only so many places and connections for strangers at once: who found none was told to come again, or its
    // connection was closed, which has a cause on this side and no answer from the other.
    let told = |(code, closed): &(Code, bool)| match code {
        Code::ResourceExhausted | Code::Unavailable => true,
        Code::Unknown => *closed,
        _ => false,
    };
    assert!(refusals.iter().all(told), "{refusals:?}");
    assert_eq!((let_in, house.list().await.len(), house.uses_left(&token).await), (10, 10, 0));
    assert_eq!(house.members("web").await.len(), 10);
    refused(house.join(&key(), "late", &token).await, Code::ResourceExhausted, "10 hosts");
}

#[tokio::test]
async fn strangers_learn_nothing_and_garbage_is_refused() {
    let house = House::start().await;
    let token = house.uses(5).await;
    let parts: Vec<&str> = token.split('-').collect();
    let (id, secret, ca) = (parts[2], parts[3], parts[4]);
    let zeros = "0".repeat(32);
    let told = |token: String| {
        let house = &house;
        async move {
            let status = house.join(&key(), "web-1", &token).await.unwrap_err();
            (status.code(), status.message().to_owned())
        }
    };
    let wrong = told(format!("trestle-join-{id}-{zeros}-{ca}")).await;
    let unknown = told(format!("trestle-join-{}-{secret}-{ca}", "0".repeat(16))).await;
    assert_eq!(wrong, unknown, "whether there is a token of an id is nobody's business");
    assert_eq!(wrong.0, Code::Unauthenticated);
    assert_eq!(told("x".into()).await.0, Code::InvalidArgument);

    let mut client = JoinClient::new(house.door.clone());
    let nonce = client.challenge(ChallengeRequest {}).await.unwrap().into_inner().nonce;
    let send = |request: Vec<u8>, name: &str| {
        let mut client = client.clone();
        let asked = JoinRequest { request, name: name.to_owned(), proof: Some(Proof::Token(token.clone())) };
        async move { client.join(asked).await }
    };
    for garbage in [vec![], b"garbage".to_vec(), vec![0x30; 3 << 10]] {
        refused(send(garbage, "web-1").await, Code::InvalidArgument, "certificate request");
    }
    refused(send(vec![0x30; 5 << 10], "web-1").await, Code::InvalidArgument, "at most");
    let huge = send(vec![0x30; 65 << 10], "web-1").await.unwrap_err();
    assert!(matches!(huge.code(), Code::OutOfRange | Code::ResourceExhausted), "{huge}");
    refused(
        send(request(&key(), "made up"), "web-1").await,
        Code::FailedPrecondition,
        "not given by this controller",
    );
    for name in ["", "a b", "10.0.0.1", "../../etc", &"a".repeat(241)] {
        refused(send(request(&key(), &nonce), name).await, Code::InvalidArgument, "name");
    }
    assert!(house.list().await.is_empty());
    assert_eq!(house.uses_left(&token).await, 5);

    // A token that was revoked, and one that has expired.
    let mut access = AccessClient::new(house.fixture.admin().await);
    let brief = house.token(CreateJoinTokenRequest { ttl_seconds: Some(1), ..Default::default() }).await;
    access.revoke_token(RevokeTokenRequest { id: id.to_owned(), with_made: false }).await.unwrap();
    assert_eq!(told(token.clone()).await, wrong);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    refused(house.join(&key(), "web-1", &brief).await, Code::Unauthenticated, "has expired");

    // Tokens that could let nobody in, or into what is not theirs, are not made.
    for bad in [
        CreateJoinTokenRequest { tags: vec!["host.web-1".into()], ..Default::default() },
        CreateJoinTokenRequest { tags: vec!["a b".into()], ..Default::default() },
        CreateJoinTokenRequest { names: "a b".into(), ..Default::default() },
        CreateJoinTokenRequest { uses: u32::MAX, ..Default::default() },
    ] {
        assert_eq!(access.create_join_token(bad).await.unwrap_err().code(), Code::InvalidArgument);
    }
}
