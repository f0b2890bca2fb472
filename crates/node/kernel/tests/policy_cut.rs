//! Connections that the node forwards are cut when a new policy on the node forbids them. Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod support;

use std::net::{SocketAddr, UdpSocket};

use model::policy::output::{Action, Direction, Member, MemberKind, Protocol};
use node_kernel::policy::PolicyExecutor;
use node_policy::{Change, LocalChange, Options, SetKind};
use support::{
    lab::{Lab, within},
    pods::{policy, port, remove_policy, rule},
    probe::{Fate, patience},
};
use testkit::namespaces::{in_namespace, run};

use Direction::{In, Out};

/// Two networks that the node routes between, and a container within it: the third link is an inner one.
const OUTSIDE: [&str; 2] = ["192.0.2.9", "2001:db8::9"];
const LAN: [&str; 2] = ["10.97.0.2", "fd97::2"];
const CONTAINER: [&str; 2] = ["172.18.0.2", "fd18::2"];

fn lab() -> Lab {
    let mut lab = Lab::new();
    lab.host(&OUTSIDE, &[80, 81]).host(&LAN, &[80, 81]).host(&CONTAINER, &[80]);
    run("nft add table inet engine
         nft 'add chain inet engine pre { type nat hook prerouting priority dstnat; }'
         nft add rule inet engine pre ip daddr 192.168.0.2 udp dport 9000 dnat ip to 172.18.0.2:80
         nft add rule inet engine pre ip6 daddr fd00:168::2 udp dport 9000 dnat ip6 to [fd18::2]:80
         nft 'add chain inet engine post { type nat hook postrouting priority srcnat; }'
         nft add rule inet engine post ip saddr 172.18.0.0/16 oifname != v3 masquerade
         nft add rule inet engine post ip6 saddr fd18::/64 oifname != v3 masquerade");
    lab
}

/// A conversation that is established.
struct Talk(UdpSocket);

impl Talk {
    fn start(lab: &Lab, from: &str, to: &'static str) -> Self {
        let (source, target) = (from.parse().unwrap(), to.parse::<SocketAddr>().unwrap());
        let namespace = lab.namespace_of(source).unwrap().to_owned();
        let socket = within(&namespace, move || UdpSocket::bind((source, 0)).unwrap());
        socket.set_read_timeout(Some(patience(Fate::Dropped))).unwrap();
        socket.connect(target).unwrap();
        let talk = Self(socket);
        assert!(talk.goes_on() && talk.goes_on(), "{from} to {to}: not even begun");
        talk
    }

    /// Asked several times, since a busy machine may be slow to answer.
    fn goes_on(&self) -> bool {
        (0..5).any(|_| {
            self.0.send(b"who").unwrap();
            self.0.recv(&mut [0; 64]).is_ok()
        })
    }
}

fn on_node() -> Change {
    let node = Member {
        kind: MemberKind::Node,
        enforced: true,
        namespace: "".into(),
        name: "n1".into(),
        addresses: [].into_iter().collect(),
        ports: Box::default(),
        node: Some("n1".into()),
    };
    let name = "on-node".into();
    Change::PutSet { kind: SetKind::AppliedTo, name, replace: true, put: vec![node], removed: Vec::new() }
}

#[test]
fn what_the_node_forwards_is_cut_as_what_it_does_itself() {
    in_namespace(|| {
        let lab = lab();
        let options = Options {
            node: "n1".into(),
            inner_prefixes: vec!["v3".into()],
            cut_established: true,
            ..Options::default()
        };
        let mut executor = PolicyExecutor::open(options).unwrap();
        executor.apply([on_node()], [LocalChange::Host { fail_safes: Vec::new() }]).unwrap();
        for family in 0..2 {
            let talks =
                |to: [&'static str; 2], from: [&'static str; 2]| Talk::start(&lab, from[family], to[family]);
            let published = talks(["192.168.0.2:9000", "[fd00:168::2]:9000"], OUTSIDE);
            let routed = talks(["10.97.0.2:80", "[fd97::2]:80"], OUTSIDE);
            let other_port = talks(["10.97.0.2:81", "[fd97::2]:81"], OUTSIDE);
            let hidden = talks(["192.0.2.9:81", "[2001:db8::9]:81"], CONTAINER);
            let inner = talks(["172.18.0.2:80", "[fd18::2]:80"], OUTSIDE);

            // Port 80 may still come in: 9000 was asked for, whatever it is in the container.
            let anybody: &[(&str, &[&str])] = &[("0.0.0.0/0", &[]), ("::/0", &[])];
            let web = [port(Protocol::Udp, 80, 80)];
            let comes_in = rule(In, Some(Action::Allow), &[], anybody, &web);
            let outcome = executor.apply([policy("in", None, "on-node", vec![comes_in])], []).unwrap();
            assert_eq!(outcome.cut, 2, "{outcome:?}");
            let going_on = [&published, &routed, &other_port, &hidden, &inner].map(Talk::goes_on);
            assert_eq!(going_on, [false, true, false, true, true], "what comes in, family {family}");

            let goes_out = rule(Out, Some(Action::Allow), &[], anybody, &web);
            let outcome = executor.apply([policy("out", None, "on-node", vec![goes_out])], []).unwrap();
            assert!(outcome.cut >= 1, "{outcome:?}");
            let going_on = [&routed, &hidden, &inner].map(Talk::goes_on);
            assert_eq!(going_on, [true, false, true], "what goes out, family {family}");
            executor.apply([remove_policy("in"), remove_policy("out")], []).unwrap();
        }
    });
}
