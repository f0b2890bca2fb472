//! Records and the tags that follow them, on a store of their own.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use ::tags::{Request, TagView};
use model::{Admission, Host, Joined, Member};

use super::*;

struct House {
    store: Store,
    tags: Arc<Tags>,
    hosts: Arc<Hosts>,
    _life: Life,
}

async fn house(store: Store) -> House {
    let life = Life::default();
    let tags = Tags::start(store.clone(), &life);
    let hosts = Hosts::start(store.clone(), Arc::clone(&tags), &life);
    tags.progress().reach(Revision(0)).await;
    hosts.progress().reach(Revision(0)).await;
    House { store, tags, hosts, _life: life }
}

fn name(text: &str) -> TagName {
    text.parse().unwrap()
}

fn addresses(list: &[&str]) -> BTreeSet<IpAddr> {
    list.iter().map(|text| text.parse().unwrap()).collect()
}

fn record(of: &str, key: char) -> HostRecord {
    let host = Host {
        name: name(of),
        labels: BTreeMap::new(),
        tags: BTreeSet::from([name("web")]),
        addresses: addresses(&["10.0.0.1"]),
        fingerprint: key.to_string().repeat(64).parse().unwrap(),
        joined: Joined { by: Admission::Token { id: "t".to_owned() }, at: 1 },
    };
    HostRecord { host, certificates: BTreeMap::new(), newest: None, tagged: false, leaving: false }
}

impl House {
    fn members(&self, tag: &str) -> Option<Vec<String>> {
        let snapshot = self.tags.snapshot().unwrap();
        match snapshot.graph.get(&name(tag)) {
            Ok(TagView::Group(members)) => Some(members.iter().map(Member::to_string).collect()),
            Ok(TagView::Leaf(_)) => panic!("{tag} is a leaf"),
            Err(_) => None,
        }
    }

    async fn eventually(&self, what: &str, is: impl Fn(&Self) -> bool) {
        for _ in 0..3000 {
            if is(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{what} never came true");
    }
}

fn with(list: &[&str]) -> Option<Vec<String>> {
    Some(list.iter().map(|text| (*text).to_owned()).collect())
}

#[tokio::test]
async fn a_hosts_tags_follow_its_record_and_go_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let house = house(crate::open_store(&crate::StoreKind::Embedded, dir.path()).await.unwrap()).await;
    let (hosts, web) = (&house.hosts, name("web-1"));
    hosts.commit(plan::admit(&record("web-1", 'a'))).await.unwrap();
    house.eventually("the tags", |house| house.members("web") == with(&["host.web-1"])).await;
    assert_eq!(house.members("host.web-1"), with(&["10.0.0.1"]));
    house.eventually("the note", |house| house.hosts.get(&web).unwrap().tagged).await;

    // Two hosts of one name or of one key there are not.
    for other in [record("web-1", 'b'), record("web-2", 'a')] {
        let refused = hosts.commit(plan::admit(&other)).await;
        assert!(matches!(refused, Err(TransactError::Conflict { .. })), "{refused:?}");
    }

    let seen = hosts.changes().borrow().unwrap();
    assert!(hosts.report_addresses(&web, addresses(&["10.0.0.1"])).await.unwrap().is_none());
    assert_eq!(hosts.changes().borrow().unwrap(), seen, "the same addresses are no write");
    let moved = hosts.report_addresses(&web, addresses(&["10.0.0.2", "2001:db8::2"])).await.unwrap();
    assert!(moved.is_some());
    assert_eq!(house.members("host.web-1"), with(&["10.0.0.2", "2001:db8::2"]));
    let none = hosts.report_addresses(&name("nobody"), addresses(&[])).await;
    assert!(matches!(none, Err(HostsError::NotFound { .. })));

    // An address of one that is away, which another one has now.
    let mut second = record("web-2", 'c');
    second.host.tags.clear();
    hosts.commit(plan::admit(&second)).await.unwrap();
    let (other, taken) = (name("web-2"), addresses(&["10.0.0.2"]));
    hosts.report_addresses(&other, taken.clone()).await.unwrap();
    hosts.take_addresses(&other, &taken, |_| false).await.unwrap();
    assert_eq!(house.members("host.web-1"), with(&["10.0.0.2", "2001:db8::2"]), "it is here and says so");
    hosts.take_addresses(&other, &taken, |_| true).await.unwrap();
    assert_eq!(house.members("host.web-1"), with(&["2001:db8::2"]));
    assert_eq!(hosts.get(&other).unwrap().host.addresses, taken);

    // What the controller keeps users leave alone; what they take a host out of, it stays out of.
    let tag = name("host.web-1");
    for request in [
        Request::DeleteTag { tag: tag.clone() },
        Request::SetGroup { tag: tag.clone(), members: BTreeSet::from(["10.9.9.9".parse().unwrap()]) },
        Request::DeleteMembers { tag: tag.clone(), members: BTreeSet::from(["10.0.0.2".parse().unwrap()]) },
    ] {
        assert!(matches!(house.tags.request(request).await, Err(TagError::Kept { .. })));
    }
    let own = BTreeSet::from([Member::Tag(tag.clone())]);
    house.tags.request(Request::DeleteMembers { tag: name("web"), members: own }).await.unwrap();
    hosts.report_addresses(&web, addresses(&["10.0.0.3"])).await.unwrap();
    assert_eq!(house.members("web"), with(&[]));

    hosts.remove(&web, 7, |_| Transaction::new()).await.unwrap();
    assert!(hosts.get(&web).is_none() && hosts.newest(&web).await.unwrap().is_none());
    assert_eq!(house.members("host.web-1"), None);
    let key = hosts.of_key(&record("web-1", 'a').host.fingerprint).await.unwrap().unwrap().0;
    assert_eq!((key.host, key.removed), (web.clone(), Some(7)), "its key is remembered");
    let again = hosts.remove(&web, 8, |_| Transaction::new()).await;
    assert!(matches!(again, Err(HostsError::NotFound { .. })));
}

/// The process fell after the first transaction of an admission, and of a removal.
#[tokio::test]
async fn what_was_half_done_is_done_by_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    let store = crate::open_store(&crate::StoreKind::Embedded, dir.path()).await.unwrap();
    let (new, old) = (record("new", 'a'), record("old", 'b'));
    store.transact(plan::admit(&new)).await.unwrap();
    let at = store.transact(plan::admit(&old)).await.unwrap().revision;
    store.transact(plan::leave(&old, at, 7)).await.unwrap();
    let house = house(store).await;
    house.eventually("the tags of the new one", |house| house.members("web") == with(&["host.new"])).await;
    for _ in 0..3000 {
        if house.hosts.newest(&name("old")).await.unwrap().is_none() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(house.store.get(&plan::host_key(&name("old"))).await.unwrap().is_none());
    assert_eq!(house.members("host.old"), None);
    assert_eq!(house.hosts.list().len(), 1);
}
