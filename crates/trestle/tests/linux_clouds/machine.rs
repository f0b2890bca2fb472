//! The machine before and after: a controller with two linked clouds comes and goes, and every namespace, link, route,
//! table, process and file is as it was.
//!
//! It runs in a world of its own (mounts and network), so that what others do on the machine meanwhile is not seen.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use super::{Lab, sh};

struct World {
    holder: Child,
}

impl World {
    fn new() -> Self {
        let script = "mount -t tmpfs none /run && mount -t tmpfs none /var/lib && mkdir /run/netns && \
                      ip link set lo up && echo ready && exec sleep 600";
        let mut holder = Command::new("unshare")
            .args(["--mount", "--net", "--propagation", "private", "sh", "-c", script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "a world of mounts and network can be made");
        Self { holder }
    }

    fn enter(&self) -> String {
        format!("nsenter --target {} --mount --net", self.holder.id())
    }

    /// All there is in this world, one thing a line.
    fn look(&self) -> String {
        let inside = "ip netns list; ip -d -o link; ip address; ip rule; ip route show table all; \
                      ip -6 route show table all; nft list ruleset; \
                      sysctl net.ipv4.ip_forward net.ipv6.conf.all.forwarding; find /run /var/lib | sort";
        let found = sh(&format!("{} sh -c '{inside}'", self.enter()));
        let mounts = std::fs::read_link(format!("/proc/{}/ns/mnt", self.holder.id())).unwrap();
        let of_world = |entry: std::fs::DirEntry| {
            let here = std::fs::read_link(entry.path().join("ns/mnt")).is_ok_and(|it| it == mounts);
            let command = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            here.then_some(format!("process {command}"))
        };
        let mut processes: Vec<String> =
            std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).filter_map(of_world).collect();
        processes.sort();
        found + &processes.concat()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn after_clean_up_the_machine_is_as_it_was() {
    let world = World::new();
    let before = world.look();
    let enter = world.enter();
    let prefix: Vec<&str> = enter.split(' ').collect();
    let mut lab = Lab::with(&prefix, &["--cloud", "a=linux", "--cloud", "b=linux"]);
    lab.ok("resource create a.web");
    lab.ok("resource create b.db");
    lab.ok("rule add a.web --ping default.b.db");
    lab.ok("rule add b.db --ping default.a.web");
    assert!(lab.pings("a.web", &lab.address("b.db")));
    assert_ne!(world.look(), before, "there is something to see");
    // Also what a crash leaves half done.
    lab.crash();
    lab.ok("resource delete a.web");
    lab.ok("resource delete b.db");
    lab.until("the clouds are empty", |lab| lab.ok("link list -o json") == "[]\n");
    let dir = lab.up.take().unwrap().stop();
    let after = world.look();
    assert_eq!(before, after, "the machine is as it was");
    drop(dir);
}
