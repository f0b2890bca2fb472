//! Tickets, own and foreign, good and bad. The RSA fixtures were made with OpenSSL, not with this code.

use super::*;
use crate::rates::Rates;

const NOW: u64 = 1_700_000_000;
const SPKI: &str = include_str!("../../tests/data/upstream-spki.pem");
const PKCS1: &str = include_str!("../../tests/data/upstream-pkcs1.pem");
const UPSTREAM: &str = include_str!("../../tests/data/upstream-ticket.txt");
const UPSTREAM_EXPIRES: u64 = 1_900_000_000;

fn ring() -> KeyRing {
    KeyRing::new(Some(SigningKey::from_seed(&[1; 32]).unwrap()), vec![])
}

fn request(limit: Option<u64>) -> MintRequest {
    MintRequest {
        id: "0c9f7f4e".into(),
        now: NOW,
        lifetime: 100,
        limit,
        sources: Sources::default(),
        rates: Rates::default(),
        encrypted: false,
    }
}

fn verify(text: &str, keys: &KeyRing, now: u64) -> Result<VerifiedTicket, TicketError> {
    let ticket = TicketText::parse(text)?.verify(keys, now)?;
    ticket.check_at(now)?;
    Ok(ticket)
}

#[test]
fn a_minted_ticket_verifies_until_its_last_second() {
    let keys = ring();
    let minted = keys.mint(&request(Some(5))).unwrap();
    let ticket = verify(minted.text.expose(), &keys, NOW + 100).unwrap();
    assert_eq!((ticket.id.as_str(), ticket.limit, ticket.expires_at), ("0c9f7f4e", Some(5), NOW + 100));
    assert_eq!(ticket.hash, minted.record.hash);
    assert_eq!(verify(minted.text.expose(), &keys, NOW + 101), Err(TicketError::Expired { seconds: 1 }));
    assert_eq!(verify(&format!(" {}\n", minted.text.expose()), &keys, NOW).unwrap().hash, ticket.hash);
    assert!(!format!("{minted:?}").contains(minted.text.expose()));
    assert!(!serde_json::to_string(&minted.record).unwrap().contains(&minted.text.expose()[..40]));
}

#[test]
fn every_flipped_bit_is_noticed() {
    let keys = ring();
    let minted = keys.mint(&request(None)).unwrap();
    let (payload, signature) = minted.text.expose().split_once('.').unwrap();
    let (payload, signature) = (STANDARD.decode(payload).unwrap(), STANDARD.decode(signature).unwrap());
    let whole = [payload.clone(), signature].concat();
    for bit in 0..whole.len() * 8 {
        let mut forged = whole.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let (p, s) = forged.split_at(payload.len());
        let text = format!("{}.{}", STANDARD.encode(p), STANDARD.encode(s));
        assert!(verify(&text, &keys, NOW).is_err(), "bit {bit}");
    }
}

#[test]
fn what_does_not_look_like_a_ticket_is_refused() {
    let keys = ring();
    let text = keys.mint(&request(None)).unwrap().text.expose().to_owned();
    let (payload, signature) = text.split_once('.').unwrap();
    for (bad, error) in [
        ("", TicketError::Form),
        ("abc", TicketError::Form),
        (payload, TicketError::Form),
        (&format!("{text}.x"), TicketError::Form),
        (&format!("{payload}."), TicketError::Form),
        (&format!(".{signature}"), TicketError::Form),
        (&format!("!{payload}.{signature}"), TicketError::Encoding),
        (&format!("{}.{signature}", payload.trim_end_matches('=').to_owned() + "-"), TicketError::Encoding),
        (&"A".repeat(9 << 10), TicketError::Form),
    ] {
        assert_eq!(verify(bad, &keys, NOW), Err(error), "{bad}");
    }
}

#[test]
fn a_signed_payload_must_still_make_sense() {
    let key = SigningKey::from_seed(&[1; 32]).unwrap();
    let kid = key.id().as_str().to_owned();
    let keys = ring();
    let check = |json: String| {
        let signature = key.sign(json.as_bytes());
        verify(&format!("{}.{}", STANDARD.encode(&json), STANDARD.encode(signature)), &keys, NOW)
    };
    let later = NOW + 1;
    assert!(check(format!(r#"{{"id":"a","expirationDate":"{later}","kid":"{kid}"}}"#)).is_ok());
    assert!(
        check(format!(
            r#"{{"id":"a","expirationDate":"{later}","kid":"{kid}","subjectRole":"ocs-client","new":1}}"#
        ))
        .is_ok()
    );
    assert_eq!(
        check(format!(r#"{{"id":"a","expirationDate":"{later}","kid":"{kid}","subjectRole":"ocs-peer"}}"#)),
        Err(TicketError::Role)
    );
    let quota =
        check(format!(r#"{{"id":"a","expirationDate":"{later}","kid":"{kid}","storageQuotaInGiB":2}}"#))
            .unwrap();
    assert_eq!(quota.limit, Some(2 << 30));
    for bad in [
        format!(r#"{{"id":"a","expirationDate":{later},"kid":"{kid}"}}"#),
        format!(r#"{{"id":"a","expirationDate":"+{later}","kid":"{kid}"}}"#),
        format!(r#"{{"id":"a","expirationDate":" {later}","kid":"{kid}"}}"#),
        format!(r#"{{"id":"a","expirationDate":"","kid":"{kid}"}}"#),
        format!(r#"{{"id":"a","expirationDate":"99999999999999999999","kid":"{kid}"}}"#),
        format!(r#"{{"id":"","expirationDate":"{later}","kid":"{kid}"}}"#),
        format!(r#"{{"expirationDate":"{later}","kid":"{kid}"}}"#),
        format!(r#"{{"id":"a","expirationDate":"{later}","kid":"{kid}","maxBytes":"-1"}}"#),
        format!(r#"{{"id":"a","expirationDate":"-5","kid":"{kid}"}}"#),
    ] {
        assert!(check(bad.clone()).is_err(), "{bad}");
    }
}

#[test]
fn upstream_tickets_verify_with_either_encoding_of_their_key() {
    for pem in [SPKI, PKCS1] {
        let keys = KeyRing::new(None, vec![VerifyingKey::rsa_from_pem(pem).unwrap()]);
        let ticket = verify(UPSTREAM, &keys, UPSTREAM_EXPIRES).unwrap();
        assert_eq!(ticket.id, "4f0c6a2e-0000-4000-8000-00000000beef");
        assert_eq!(verify(UPSTREAM, &keys, UPSTREAM_EXPIRES + 1), Err(TicketError::Expired { seconds: 1 }));
    }
    assert_eq!(verify(UPSTREAM, &ring(), NOW), Err(TicketError::Signature));
    let mut both = ring();
    both.trust(VerifyingKey::rsa_from_pem(SPKI).unwrap());
    assert!(verify(UPSTREAM, &both, NOW).is_ok());
    let own = both.mint(&request(None)).unwrap();
    assert!(verify(own.text.expose(), &both, NOW).is_ok());
    let tampered = UPSTREAM.trim().replacen('e', "f", 1);
    assert!(verify(&tampered, &both, NOW).is_err());
}

#[test]
fn keys_that_are_no_rsa_keys_are_refused() {
    assert_eq!(VerifyingKey::rsa_from_pem("ssh-rsa AAAA"), Err(KeyError::NotPem));
    assert_eq!(
        VerifyingKey::rsa_from_pem("-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----"),
        Err(KeyError::NotPem)
    );
    assert_eq!(
        VerifyingKey::rsa_from_pem("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"),
        Err(KeyError::NotRsa)
    );
}

#[test]
fn a_rotated_key_verifies_through_its_overlap_and_a_withdrawn_one_does_not() {
    let mut keys = ring();
    let old = keys.mint(&MintRequest { lifetime: 10_000, ..request(None) }).unwrap();
    let first = keys.signing().unwrap().id().clone();
    keys.rotate(SigningKey::from_seed(&[2; 32]).unwrap(), NOW, 1000);
    let new = keys.mint(&request(None)).unwrap();
    assert_ne!(new.record.key, first);
    assert!(verify(old.text.expose(), &keys, NOW + 1000).is_ok());
    assert_eq!(verify(old.text.expose(), &keys, NOW + 1001), Err(TicketError::Signature));
    assert!(verify(new.text.expose(), &keys, NOW).is_ok());
    keys.withdraw(&first).unwrap();
    assert_eq!(verify(old.text.expose(), &keys, NOW), Err(TicketError::Signature));
    assert_eq!(keys.withdraw(&first), Err(KeyError::Unknown { id: first }));
    keys.rotate(SigningKey::from_seed(&[3; 32]).unwrap(), NOW, 1);
    keys.rotate(SigningKey::from_seed(&[4; 32]).unwrap(), NOW + 5, 1);
    assert_eq!(keys.verifying().len(), 1, "only the last one is still within its overlap");
}

#[test]
fn a_ticket_claiming_one_key_is_not_tried_with_another() {
    let mut keys = ring();
    keys.trust(VerifyingKey::rsa_from_pem(SPKI).unwrap());
    let stranger = SigningKey::from_seed(&[9; 32]).unwrap();
    let forged = mint(&stranger, &request(None));
    assert_eq!(verify(forged.text.expose(), &keys, NOW), Err(TicketError::Signature));
}

#[test]
fn a_record_tells_how_a_ticket_stands() {
    let record = ring().mint(&request(None)).unwrap().record;
    assert_eq!(record.status_at(NOW + 100), TicketStatus::Valid);
    assert_eq!(record.status_at(NOW + 101), TicketStatus::Expired);
    assert!(record.may_be_forgotten_at(NOW + 101) && !record.may_be_forgotten_at(NOW + 100));
    let revoked = record.revoked(NOW);
    assert_eq!(revoked.status_at(NOW), TicketStatus::Revoked);
    assert_eq!(revoked.revoked(NOW + 9), revoked);
    let json = serde_json::to_string(&revoked).unwrap();
    assert_eq!(serde_json::from_str::<TicketRecord>(&json).unwrap(), revoked);
}

#[test]
fn a_ticket_carries_where_its_consumer_may_come_from() {
    let keys = ring();
    let sources = Sources::parse(&["10.1.0.0/16", "192.0.2.7"]).unwrap();
    let minted = keys.mint(&MintRequest { sources: sources.clone(), ..request(None) }).unwrap();
    assert_eq!(verify(minted.text.expose(), &keys, NOW).unwrap().sources, sources);
    assert_eq!(minted.record.sources, sources);
    let rates = Rates { operations: Some(500), bytes: None };
    let paced = keys.mint(&MintRequest { rates, ..request(None) }).unwrap();
    assert_eq!(verify(paced.text.expose(), &keys, NOW).unwrap().rates, rates);
    assert!(verify(minted.text.expose(), &keys, NOW).unwrap().rates.is_unlimited());
    let encrypted = keys.mint(&MintRequest { encrypted: true, ..request(None) }).unwrap();
    assert!(encrypted.record.encrypted && verify(encrypted.text.expose(), &keys, NOW).unwrap().encrypted);
    assert!(!minted.record.encrypted && !verify(minted.text.expose(), &keys, NOW).unwrap().encrypted);
    // Tickets made elsewhere carry none, and open no network.
    let upstream = TicketText::parse(UPSTREAM.trim()).unwrap();
    let mut trusting = ring();
    trusting.trust(VerifyingKey::rsa_from_pem(SPKI).unwrap());
    assert!(upstream.verify(&trusting, NOW).unwrap().sources.is_empty());
}
