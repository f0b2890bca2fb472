//! The calls in the OCS design's words: each row of its tables once.

use uuid::Uuid;

use super::*;
use crate::{CapacityForm, Code, GrantError, MintRequest, SigningKey, TicketLimit, consumer::tests::example};

const NOW: u64 = 1_000;
const SEAL: SealKeyId = SealKeyId(1);

struct Provider {
    keys: KeyRing,
    ticket: TicketText,
}

fn mint_request(limit: Option<u64>) -> MintRequest {
    MintRequest {
        id: "t".into(),
        now: NOW,
        lifetime: 10,
        limit,
        sources: sources(&["10.1.0.0/16"]),
        rates: Rates::default(),
        encrypted: false,
    }
}

impl Provider {
    fn new(limit: Option<u64>) -> Self {
        let keys = KeyRing::new(Some(SigningKey::from_seed(&[1; 32]).unwrap()), vec![]);
        let minted = keys.mint(&mint_request(limit)).unwrap();
        Self { ticket: TicketText::parse(minted.text.expose()).unwrap(), keys }
    }

    fn view<'a>(
        &'a self,
        ticket: Option<&'a TicketRecord>,
        consumer: Option<&'a Consumer>,
        granted: u64,
    ) -> OnboardView<'a> {
        OnboardView {
            ticket,
            consumer,
            holdings: Holdings { total: 100, ledger: Ledger { granted } },
            terms: Terms::unbounded(),
            keys: &self.keys,
            now: NOW,
        }
    }

    fn ask(&self, text: &str, client: Option<&'static str>) -> OnboardRequest<'_> {
        OnboardRequest {
            ticket: &self.ticket,
            capacity: Some(capacity(text)),
            says: None,
            sources: Sources::default(),
            client,
        }
    }
}

fn capacity(text: &str) -> Capacity {
    Capacity::parse(text, CapacityForm::Text).unwrap()
}

fn sources(texts: &[&str]) -> Sources {
    Sources::parse(texts).unwrap()
}

fn fresh() -> ConsumerId {
    ConsumerId::new(Uuid::from_u128(7))
}

fn ready(granted: u64) -> Consumer {
    Consumer { phase: Phase::Ready, ..example(7, granted) }
}

#[test]
fn a_good_ticket_makes_a_consumer_that_is_being_configured() {
    let provider = Provider::new(None);
    let answer =
        decide_onboard(&provider.ask("40", None), &provider.view(None, None, 10), fresh(), SEAL).unwrap();
    let Onboard::Create { consumer, ticket, ledger } = answer else { panic!("a consumer is made") };
    assert_eq!((consumer.granted, consumer.phase.name(), ledger.granted), (40, "Configuring", 50));
    assert_eq!(ticket.state, TicketState::Used { consumer: consumer.id });
    assert_eq!(ticket.hash, consumer.ticket);
}

#[test]
fn the_grant_is_bounded_by_what_is_left_and_by_the_ticket() {
    let provider = Provider::new(Some(30));
    let granted = |left: u64| match decide_onboard(
        &provider.ask("99", None),
        &provider.view(None, None, 100 - left),
        fresh(),
        SEAL,
    ) {
        Ok(Onboard::Create { consumer, .. }) => Ok(consumer.granted),
        Ok(Onboard::Existing(_)) => panic!("the ticket is new"),
        Err(refusal) => Err(refusal),
    };
    assert_eq!(granted(80), Ok(30));
    assert_eq!(granted(20), Ok(20));
    let refusal = granted(0).unwrap_err();
    assert_eq!(refusal, Refusal::Grant(GrantError::NothingLeft { total: 100, granted: 100 }));
    assert_eq!(refusal.code(), Code::Internal);
}

#[test]
fn the_same_ticket_is_the_same_consumer_even_when_it_has_expired() {
    let provider = Provider::new(None);
    let Onboard::Create { consumer, ticket, .. } =
        decide_onboard(&provider.ask("40", None), &provider.view(None, None, 0), fresh(), SEAL).unwrap()
    else {
        panic!("a consumer is made")
    };
    let mut view = provider.view(Some(&ticket), Some(&consumer), 40);
    view.now = NOW + 1_000_000;
    let other = ConsumerId::new(Uuid::from_u128(8));
    assert_eq!(
        decide_onboard(&provider.ask("1", None), &view, other, SEAL),
        Ok(Onboard::Existing(consumer.clone()))
    );
    let gone = OnboardView { consumer: None, ..provider.view(Some(&ticket), None, 0) };
    assert_eq!(decide_onboard(&provider.ask("1", None), &gone, other, SEAL), Err(TicketError::Spent.into()));
    let revoked = ticket.revoked(NOW);
    let view = provider.view(Some(&revoked), Some(&consumer), 40);
    assert_eq!(
        decide_onboard(&provider.ask("1", None), &view, other, SEAL),
        Err(TicketError::Revoked.into())
    );
}

#[test]
fn an_expired_ticket_is_an_invalid_argument() {
    let provider = Provider::new(None);
    let mut view = provider.view(None, None, 0);
    view.now = NOW + 10;
    assert!(decide_onboard(&provider.ask("1", None), &view, fresh(), SEAL).is_ok());
    view.now = NOW + 11;
    let refusal = decide_onboard(&provider.ask("1", None), &view, fresh(), SEAL).unwrap_err();
    assert_eq!(
        (refusal.code(), &refusal),
        (Code::InvalidArgument, &Refusal::Ticket(TicketError::Expired { seconds: 1 }))
    );
}

#[test]
fn a_bound_consumer_answers_to_its_own_certificate_only() {
    let provider = Provider::new(None);
    let Onboard::Create { mut consumer, ticket, .. } =
        decide_onboard(&provider.ask("40", Some("a")), &provider.view(None, None, 0), fresh(), SEAL).unwrap()
    else {
        panic!("a consumer is made")
    };
    consumer.phase = Phase::Ready;
    let view = provider.view(Some(&ticket), Some(&consumer), 40);
    assert_eq!(
        decide_onboard(&provider.ask("1", Some("b")), &view, fresh(), SEAL),
        Err(Refusal::ForeignClient)
    );
    for client in [None, Some("b")] {
        assert_eq!(decide_config(Some(&consumer), client), Err(Refusal::ForeignClient));
        assert_eq!(decide_offboard(Some(&consumer), client, None), Err(Refusal::ForeignClient));
        assert!(
            decide_resize(
                Some(&consumer),
                client,
                &capacity("50"),
                None,
                holdings(100, 40),
                in_use(0),
                false
            )
            .is_err()
        );
    }
    assert_eq!(decide_config(Some(&consumer), Some("a")), Ok(()));
}

#[test]
fn config_answers_by_phase() {
    let at =
        |phase| decide_config(Some(&Consumer { phase, ..ready(10) }), None).map_err(|refusal| refusal.code());
    assert_eq!(at(Phase::Ready), Ok(()));
    assert_eq!(at(Phase::Configuring), Err(Code::Unavailable));
    assert_eq!(at(Phase::Failed { reason: "disk".into() }), Err(Code::Internal));
    assert_eq!(at(Phase::Deleting { reason: None }), Err(Code::InvalidArgument));
    assert_eq!(decide_config(None, None).unwrap_err().code(), Code::InvalidArgument);
}

#[test]
fn capacity_grows_to_what_is_left_and_shrinks_to_what_is_used() {
    let ledger = Ledger { granted: 60 };
    let resize = |text: &str, used| {
        decide_resize(Some(&ready(40)), None, &capacity(text), None, holdings(100, 60), in_use(used), false)
    };
    assert_eq!(resize("50", 0), Ok(Resize::Grow { to: 50 }));
    assert_eq!(resize("1000", 0), Ok(Resize::Grow { to: 80 }));
    assert_eq!(resize("40", 0), Ok(Resize::Unchanged { bytes: 40 }));
    assert_eq!(resize("30", 30), Ok(Resize::Shrink { to: 30 }));
    assert_eq!(resize("29", 30), Err(Refusal::BelowUse { requested: 29, used: 30 }));
    // The pool shrank below its promises: a wish for more changes nothing.
    assert_eq!(
        decide_resize(Some(&ready(40)), None, &capacity("50"), None, holdings(50, 60), in_use(0), false),
        Ok(Resize::Unchanged { bytes: 40 })
    );
    let (consumer, ledger) = settle_resize(&ready(40), &capacity("50"), 50, ledger).unwrap();
    assert_eq!((consumer.granted, ledger.granted, consumer.phase), (50, 70, Phase::Ready));
}

fn holdings(total: u64, granted: u64) -> Holdings {
    Holdings { total, ledger: Ledger { granted } }
}

fn in_use(used: u64) -> Floor {
    Floor { used, volumes: 0 }
}

#[test]
fn a_shrink_takes_what_was_asked_however_much_is_promised() {
    // 900 of the 1000 promised bytes are this one's; the disk has shrunk to 200.
    let resize = |text: &str, total| {
        decide_resize(
            Some(&ready(900)),
            None,
            &capacity(text),
            None,
            holdings(total, 1000),
            in_use(10),
            false,
        )
    };
    for total in [200, 0] {
        assert_eq!(resize("890", total), Ok(Resize::Shrink { to: 890 }));
        assert_eq!(resize("11", total), Ok(Resize::Shrink { to: 11 }));
        assert_eq!(resize("900", total), Ok(Resize::Unchanged { bytes: 900 }));
        assert_eq!(resize("2000", total), Ok(Resize::Unchanged { bytes: 900 }));
    }
}

#[test]
fn a_shrink_below_a_mounted_volume_must_be_forced() {
    let floor = Floor { used: 10, volumes: 900 };
    let resize = |text: &str, force| {
        decide_resize(Some(&ready(900)), None, &capacity(text), None, holdings(1000, 900), floor, force)
    };
    assert_eq!(resize("890", false), Err(Refusal::BelowVolumes { requested: 890, volumes: 900 }));
    assert_eq!(resize("890", true), Ok(Resize::Shrink { to: 890 }));
    assert_eq!(resize("9", true), Err(Refusal::BelowUse { requested: 9, used: 10 }));
}

#[test]
fn capacity_changes_only_when_ready() {
    let at = |phase| {
        let consumer = Consumer { phase, ..ready(40) };
        decide_resize(Some(&consumer), None, &capacity("50"), None, holdings(100, 40), in_use(0), false)
            .map_err(|r| r.code())
    };
    assert_eq!(at(Phase::Configuring), Err(Code::Internal));
    assert_eq!(at(Phase::Failed { reason: String::new() }), Err(Code::Internal));
    assert_eq!(at(Phase::Deleting { reason: None }), Err(Code::InvalidArgument));
    assert!(at(Phase::Ready).is_ok());
    assert_eq!(
        decide_resize(None, None, &capacity("50"), None, holdings(1, 0), in_use(0), false),
        Err(Refusal::UnknownConsumer)
    );
}

fn accepted(decided: Result<Offboard, Refusal>) -> Consumer {
    match decided {
        Ok(Offboard::Accepted(consumer)) => *consumer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn offboarding_is_accepted_once_and_repeatable() {
    let gone = accepted(decide_offboard(Some(&ready(40)), None, None));
    assert!(gone.is_deleting());
    assert_eq!(decide_offboard(Some(&gone), None, None), Ok(Offboard::Repeated));
    assert_eq!(decide_offboard(None, None, None), Err(Refusal::UnknownConsumer));
}

#[test]
fn who_is_put_off_can_be_taken_back_while_the_data_is_kept() {
    let leaving = accepted(decide_offboard(Some(&ready(40)), None, Some(NOW + 10)));
    assert!(leaving.is_deleting() && leaving.permitted().is_empty());
    let back = decide_keep(Some(&leaving), NOW + 9).unwrap();
    assert_eq!((&back.phase, back.kept_until), (&Phase::Configuring, None));
    for (consumer, now) in [(&leaving, NOW + 10), (&back, NOW)] {
        assert!(matches!(decide_keep(Some(consumer), now), Err(Refusal::NotKept { .. })));
    }
    // Later cannot be said twice, now can be said any time.
    assert_eq!(decide_offboard(Some(&leaving), None, Some(NOW + 99)), Ok(Offboard::Repeated));
    let gone = accepted(decide_offboard(Some(&leaving), None, None));
    assert!(!gone.is_kept_at(0));
    assert_eq!(decide_offboard(Some(&gone), None, Some(NOW + 99)), Ok(Offboard::Repeated));
}

#[test]
fn a_consumer_is_called_what_people_say() {
    assert_eq!(decide_name(Some(&ready(1)), "shop, Berlin").unwrap().name, "shop, Berlin");
    for bad in [" x", "x\n", &"x".repeat(64)] {
        assert_eq!(decide_name(Some(&ready(1)), bad), Err(Refusal::Name), "{bad:?}");
    }
}

#[test]
fn addresses_are_granted_within_the_ticket_and_by_an_administrator_without_bounds() {
    let provider = Provider::new(None);
    let view = provider.view(None, None, 0);
    let ask = |texts: &[&str]| OnboardRequest { sources: sources(texts), ..provider.ask("1", None) };
    for (said, granted) in [(&[][..], "10.1.0.0/16"), (&["10.1.7.0/24"], "10.1.7.0/24")] {
        let Ok(Onboard::Create { consumer, ticket, .. }) = decide_onboard(&ask(said), &view, fresh(), SEAL)
        else {
            panic!("a consumer is made")
        };
        assert_eq!(consumer.permitted().to_string(), granted);
        assert_eq!(ticket.sources, sources(&["10.1.0.0/16"]));
    }
    let refusal = decide_onboard(&ask(&["10.2.0.1"]), &view, fresh(), SEAL).unwrap_err();
    assert_eq!(refusal.code(), Code::InvalidArgument);
    assert!(refusal.message().ends_with("from 10.2.0.1; it allows 10.1.0.0/16"), "{}", refusal.message());

    let mut consumer = decide_permit(Some(&ready(1)), sources(&["192.0.2.1"])).unwrap();
    assert_eq!((consumer.permitted(), &consumer.phase), (sources(&["192.0.2.1"]), &Phase::Ready));
    consumer.handle(Event::Offboarded).unwrap();
    assert!(consumer.permitted().is_empty(), "who leaves comes from nowhere");
    assert!(decide_permit(Some(&consumer), sources(&["192.0.2.1"])).is_err());
    assert_eq!(decide_permit(None, Sources::default()), Err(Refusal::UnknownConsumer));
}

/// A client of a release: who it is, and what it asks for.
fn release<'a>(provider: &'a Provider, id: &str, capacity: Option<Capacity>) -> OnboardRequest<'a> {
    let says = Client { name: "storageconsumer-1".into(), id: id.to_owned(), ..Client::default() };
    OnboardRequest { capacity, says: Some(says), ..provider.ask("1", None) }
}

#[test]
fn a_client_that_names_no_capacity_is_granted_its_tickets() {
    let granted = |limit, terms, total| {
        let provider = Provider::new(limit);
        let view = OnboardView { terms, holdings: holdings(total, 0), ..provider.view(None, None, 0) };
        match decide_onboard(&release(&provider, "u", None), &view, fresh(), SEAL) {
            Ok(Onboard::Create { consumer, .. }) => consumer.granted,
            other => panic!("{other:?}"),
        }
    };
    let terms = Terms { capacity: 40, ..Terms::default() };
    assert_eq!(granted(Some(30), terms, 100), 30);
    assert_eq!(granted(Some(30), terms, 20), 20);
    assert_eq!(granted(None, terms, 1000), 40);
    // A ticket without a limit is good for half of what there is.
    assert_eq!(granted(None, terms, 60), 30);
    assert_eq!(granted(None, Terms { limit: TicketLimit::Bytes(7), ..terms }, 1000), 7);
}

#[test]
fn storage_is_encrypted_by_the_terms_or_by_the_ticket() {
    let mut provider = Provider::new(None);
    let encrypted = |provider: &Provider, terms| {
        let view = OnboardView { terms, ..provider.view(None, None, 0) };
        match decide_onboard(&release(provider, "u", None), &view, fresh(), SEAL) {
            Ok(Onboard::Create { consumer, ticket, .. }) => (consumer.encrypted, ticket.encrypted),
            other => panic!("{other:?}"),
        }
    };
    let terms = Terms::default();
    assert_eq!(encrypted(&provider, terms), (false, false));
    assert_eq!(encrypted(&provider, Terms { encrypted: true, ..terms }), (true, false));
    let mint = MintRequest { encrypted: true, ..mint_request(None) };
    provider.ticket = TicketText::parse(provider.keys.mint(&mint).unwrap().text.expose()).unwrap();
    assert_eq!(encrypted(&provider, terms), (true, true));
}

#[test]
fn one_ticket_without_a_limit_never_takes_everything() {
    let provider = Provider::new(None);
    let view = OnboardView { terms: Terms::default(), ..provider.view(None, None, 0) };
    let Ok(Onboard::Create { consumer, .. }) =
        decide_onboard(&provider.ask("99", None), &view, fresh(), SEAL)
    else {
        panic!("a consumer is made")
    };
    assert_eq!(consumer.granted, 50);
    let limit = Terms::default().limit(consumer.ticket_limit, 100);
    let grow = |limit| {
        decide_resize(Some(&ready(50)), None, &capacity("99"), limit, holdings(100, 50), in_use(0), false)
    };
    assert_eq!(grow(limit), Ok(Resize::Unchanged { bytes: 50 }));
    // An administrator is not bound by it.
    assert_eq!(grow(None), Ok(Resize::Grow { to: 99 }));
}

#[test]
fn a_used_ticket_is_its_own_clients_only() {
    let provider = Provider::new(None);
    let Ok(Onboard::Create { consumer, ticket, .. }) =
        decide_onboard(&release(&provider, "u", None), &provider.view(None, None, 0), fresh(), SEAL)
    else {
        panic!("a consumer is made")
    };
    assert_eq!((consumer.name.as_str(), consumer.granted), ("storageconsumer-1", 100));
    let view = provider.view(Some(&ticket), Some(&consumer), 40);
    let again = |id| decide_onboard(&release(&provider, id, None), &view, fresh(), SEAL);
    assert_eq!(again("u"), Ok(Onboard::Existing(consumer.clone())));
    assert_eq!(again("v"), Err(Refusal::OtherClient));

    let says = |id: &str, version: &str| Client {
        id: id.to_owned(),
        operator_version: version.to_owned(),
        ..Client::default()
    };
    let told = decide_report(Some(&consumer), None, &says("u", "4.19.1")).unwrap().unwrap();
    assert_eq!(told.client.as_ref().unwrap().operator_version, "4.19.1");
    assert_eq!(decide_report(Some(&told), None, &says("", "4.19.1")), Ok(None));
    assert_eq!(decide_report(Some(&told), None, &says("v", "")), Err(Refusal::OtherClient));
    let gone = accepted(decide_offboard(Some(&told), None, None));
    assert_eq!(decide_report(Some(&gone), None, &says("u", "")), Err(Refusal::UnknownConsumer));
}

#[test]
fn labels_are_replaced_as_a_whole_and_must_be_legal() {
    let label = |key: &str, value: &str| BTreeMap::from([(key.to_owned(), value.to_owned())]);
    let first = decide_labels(Some(&ready(10)), &label("example.org/team", "shop")).unwrap();
    assert_eq!(decide_labels(Some(&first), &label("a", "")).unwrap().labels, label("a", ""));
    for bad in [label("", "x"), label("a b", "x"), label("a", "x y"), label("a", &"x".repeat(64))] {
        assert!(matches!(decide_labels(Some(&first), &bad), Err(Refusal::Labels { .. })), "{bad:?}");
    }
    let many = (0..65).map(|n| (format!("l{n}"), String::new())).collect();
    assert!(matches!(decide_labels(Some(&first), &many), Err(Refusal::Labels { .. })));
    assert!(matches!(decide_labels(None, &BTreeMap::new()), Err(Refusal::UnknownConsumer)));
}
