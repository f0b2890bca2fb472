use super::*;

fn now() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
}

fn names() -> Vec<String> {
    ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec()
}

#[test]
fn the_ca_is_made_once_and_its_key_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let first = Pki::open(dir.path(), now()).unwrap().ca_pem().to_owned();
    assert_eq!(Pki::open(dir.path(), now()).unwrap().ca_pem(), first);
    let mode = fs::metadata(dir.path().join("ca.key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0);
}

#[test]
fn half_a_ca_is_reported_and_never_replaced() {
    let dir = tempfile::tempdir().unwrap();
    Pki::open(dir.path(), now()).unwrap();
    fs::remove_file(dir.path().join("ca.key")).unwrap();
    assert!(matches!(Pki::open(dir.path(), now()), Err(PkiError::HalfCa { .. })));
    assert!(!dir.path().join("ca.key").exists());
}

#[test]
fn a_damaged_ca_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    Pki::open(dir.path(), now()).unwrap();
    fs::write(dir.path().join("ca.key"), "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")
        .unwrap();
    assert!(matches!(Pki::open(dir.path(), now()), Err(PkiError::Unusable { .. })));
}

#[test]
fn the_server_certificate_is_kept_until_a_third_is_left_or_names_or_clock_change() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path(), now()).unwrap();
    let first = pki.server_certificate(&names(), now()).unwrap().0;
    let at = |days| pki.server_certificate(&names(), now() + Duration::days(days)).unwrap().0;
    assert_eq!(at(0), first);
    assert_eq!(at(50), first);
    let renewed = at(70);
    assert_ne!(renewed, first);
    let before_its_start = at(-400);
    assert_ne!(before_its_start, renewed);
    let more = [names(), vec!["example.org".to_owned()]].concat();
    assert_ne!(pki.server_certificate(&more, now() - Duration::days(400)).unwrap().0, before_its_start);
}

#[test]
fn a_client_certificate_names_its_subject() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path(), now()).unwrap();
    let subject = Subject { role: model::Role::Node, name: "node-1.lab".parse().unwrap() };
    let issued = pki.issue_client(&subject, now(), Duration::days(1)).unwrap();
    let (_, pem) = x509_parser::pem::parse_x509_pem(issued.certificate_pem.as_bytes()).unwrap();
    assert_eq!(identify(&pem.contents), Some((subject, issued.serial)));
}

#[test]
fn the_servers_own_certificate_names_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path(), now()).unwrap();
    let (pem, _) = pki.server_certificate(&names(), now()).unwrap();
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
    assert_eq!(identify(&pem.contents), None);
    assert_eq!(identify(b"not a certificate"), None);
}

#[test]
fn the_controllers_own_certificate_is_for_it_and_for_no_role() {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path(), now()).unwrap();
    let der = |issued: &Issued| {
        x509_parser::pem::parse_x509_pem(issued.certificate_pem.as_bytes()).unwrap().1.contents
    };
    let own = der(&pki.issue_controller(now()).unwrap());
    assert!(is_for(&own, CONTROLLER, now()) && identify(&own).is_none());
    assert!(!is_for(&own, CONTROLLER, now() + Duration::days(365 * CA_YEARS)));
    assert!(!is_for(&own, CONTROLLER, now() - Duration::days(2)));
    let subject = Subject { role: model::Role::Admin, name: "controller".parse().unwrap() };
    let other = der(&pki.issue_client(&subject, now(), Duration::days(1)).unwrap());
    assert!(!is_for(&other, CONTROLLER, now()) && is_for(&other, "spiffe://trestle/admin/controller", now()));
}
