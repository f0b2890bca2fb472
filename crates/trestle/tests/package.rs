//! The Debian package: what is in it, and that it installs, starts and goes without a trace.
//!
//! It is installed into a directory that is the root of its own little world (chroot, own mounts and processes), made
//! of this machine's `/usr` read-only. This machine is not touched.

#![allow(clippy::unwrap_used, reason = "a test may fail where it stands")]

mod harness;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use harness::{TRESTLE, text};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn built(dir: &Path) -> PathBuf {
    let script = repository().join("scripts/dist");
    let output =
        Command::new(script).args(["--quick", "--binary", TRESTLE, "--out"]).arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let package = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    package.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "deb")).unwrap()
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}{}", text(&output.stdout), text(&output.stderr));
    output
}

/// Plays a story in a world of its own, and returns what it says.
fn within(dir: &Path, package: &Path, story: &str) -> String {
    let file = dir.join("story.sh");
    fs::write(&file, format!("{WORLD}{story}")).unwrap();
    let output = run(Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--net", "--ipc", "--uts", "--cgroup", "--kill-child", "bash"])
        .arg(&file)
        .arg(dir)
        .arg(package));
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn the_package_installs_starts_and_goes_without_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let package = built(dir.path());
    let listed = text(&run(Command::new("dpkg-deb").arg("--contents").arg(&package)).stdout);
    for file in [
        "./usr/bin/trestle",
        "./etc/trestle/trestle.yaml",
        "./lib/systemd/system/trestle.service",
        "./usr/share/man/man1/trestle.1.gz",
        "./usr/share/man/man1/trestle-rule-add.1.gz",
        "./usr/share/bash-completion/completions/trestle",
        "./usr/share/zsh/vendor-completions/_trestle",
        "./usr/share/fish/vendor_completions.d/trestle.fish",
        "./usr/share/doc/trestle/copyright",
    ] {
        assert!(listed.contains(file), "{file} is not in the package:\n{listed}");
    }
    let said = within(dir.path(), &package, STORY);
    for step in ["installed", "served", "upgraded, configuration kept", "removed, data kept", "purged"] {
        assert!(said.contains(step), "{step} is missing:\n{said}");
    }
}

/// A root of its own: this machine's programs read-only, everything that is written in memory.
const WORLD: &str = r#"
set -euo pipefail
dir=$1 package=$2
world=$dir/world
mkdir "$world"
mount -t tmpfs none "$world"
mkdir -p "$world"/{usr,etc,var/lib/dpkg/{info,updates,triggers},var/log,run,proc,sys,dev,tmp,root}
mkdir "$dir"/{upper,work} && mount -t tmpfs none "$dir/upper" && mkdir "$dir/upper"/{u,w}
mount -t overlay overlay -o "lowerdir=/usr,upperdir=$dir/upper/u,workdir=$dir/upper/w" "$world/usr"
for link in bin sbin lib lib64; do ln -s "usr/$link" "$world/$link"; done
cp -a /etc/{passwd,group,shadow,gshadow,ld.so.cache,alternatives} "$world/etc/" 2>/dev/null || true
cp /etc/adduser.conf /etc/deluser.conf "$world/etc/" 2>/dev/null || true
sed -i '/^trestle:/d' "$world"/etc/{passwd,group,shadow,gshadow}
touch "$world/var/lib/dpkg"/{status,available}
mount -t proc none "$world/proc"
cp "$package" "$world/root/trestle.deb"
ip link set lo up
"#;

const STORY: &str = r#"
mount --rbind /dev "$world/dev"
inside() { chroot "$world" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }
# Dependencies are this machine's own; its package database is not looked at.
dpkg_inside() { inside dpkg --force-depends --log=/dev/null "$@"; }

dpkg_inside -i /root/trestle.deb >/dev/null 2>&1 || dpkg_inside -i /root/trestle.deb
inside getent passwd trestle >/dev/null
inside sh -c 'test -x /usr/bin/trestle && test "$(stat -c %U:%a /var/lib/trestle)" = trestle:700'
inside trestle version
echo installed

# As its unit starts it, but for systemd.
grep -q '^ExecStart=/usr/bin/trestle serve --config /etc/trestle/trestle.yaml$' "$world/lib/systemd/system/trestle.service"
chroot "$world" /usr/bin/setpriv --reuid trestle --regid trestle --clear-groups \
  /usr/bin/trestle serve --config /etc/trestle/trestle.yaml 2>"$dir/log" &
served=$!
for _ in $(seq 200); do
  inside test -s /var/lib/trestle/admin.token && inside trestle status --server https://127.0.0.1:8081 \
    --ca /var/lib/trestle/pki/ca.pem --token-file /var/lib/trestle/admin.token >"$dir/status" 2>/dev/null && break
  sleep 0.1
done
grep -q 'Nothing needs attention' "$dir/status" || { cat "$dir/status" "$dir/log" >&2; exit 1; }
kill -TERM "$served" && wait "$served"
echo served

echo '# mine' >>"$world/etc/trestle/trestle.yaml"
dpkg_inside -i /root/trestle.deb >/dev/null
grep -q '^# mine$' "$world/etc/trestle/trestle.yaml"
inside test -s /var/lib/trestle/admin.token
echo 'upgraded, configuration kept'

dpkg_inside -r trestle >/dev/null
inside sh -c 'test ! -e /usr/bin/trestle && test -s /var/lib/trestle/admin.token && test -e /etc/trestle/trestle.yaml'
echo 'removed, data kept'

dpkg_inside -P trestle >/dev/null
inside sh -c 'test ! -e /var/lib/trestle && test ! -e /etc/trestle && ! getent passwd trestle'
left=$(find "$dir/upper/u" -name '*trestle*' -not -type c)
[[ -z $left ]] || { echo "left behind: $left" >&2; exit 1; }
echo purged
"#;

/// The units as systemd runs them: the controller from the package, the agent from `trestle join`.
#[test]
fn systemd_starts_what_the_package_and_joining_install() {
    let dir = tempfile::tempdir().unwrap();
    let package = built(dir.path());
    fs::write(dir.path().join("units.sh"), UNITS).unwrap();
    let outside = within(dir.path(), &package, BOOT);
    let said = fs::read_to_string(dir.path().join("said")).unwrap();
    let log = || outside.clone() + &fs::read_to_string(dir.path().join("log")).unwrap();
    for step in ["served", "joined", "guarded", "came back", "left", "purged"] {
        assert!(said.lines().any(|line| line == step), "{step} is missing:\n{said}{}", log());
    }
}

/// The world's first process is systemd, which plays [`UNITS`] and ends. Its cgroups are below this test's own.
const BOOT: &str = r#"
mount -t tmpfs none "$world/dev"
for node in null zero full random urandom tty; do touch "$world/dev/$node"; mount --bind "/dev/$node" "$world/dev/$node"; done
ln -s /proc/self/fd "$world/dev/fd"; ln -s pts/ptmx "$world/dev/ptmx"; mkdir "$world/dev"/{shm,pts,mqueue,hugepages}
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$world/dev/pts"
mount -t sysfs -o ro sysfs "$world/sys"
mount -t tmpfs none "$world/sys/fs/cgroup"
mkdir "$world/sys/fs/cgroup/systemd"
if ! mount -t cgroup -o none,name=systemd cgroup "$world/sys/fs/cgroup/systemd" 2>/dev/null; then
  umount "$world/sys/fs/cgroup"; mount -t cgroup2 none "$world/sys/fs/cgroup"
fi
mount -t tmpfs none "$world/run"
for file in said log; do touch "$dir/$file" "$world/$file"; mount --bind "$dir/$file" "$world/$file"; done
: >"$world/etc/machine-id"
mkdir -p "$world/etc/systemd/system"
# Of this machine's own services none is of interest.
for unit in systemd-udevd.service systemd-modules-load.service systemd-journal-flush.service dev-hugepages.mount \
  dev-mqueue.mount sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount systemd-remount-fs.service; do
  ln -s /dev/null "$world/etc/systemd/system/$unit"
done
cat >"$world/etc/systemd/system/story.service" <<'UNIT'
[Unit]
After=sysinit.target
[Service]
Type=oneshot
StandardOutput=append:/said
StandardError=append:/log
Environment=HOME=/root
ExecStart=/bin/bash /units.sh
ExecStopPost=/bin/sh -c 'journalctl --no-pager --lines=300 >>/log; systemctl exit 0 --no-block'
UNIT
cp "$dir/units.sh" "$world/units.sh"
# Units have mounts of their own, which systemd does not make in a chroot.
mkdir "$world/outside"
cd "$world"
pivot_root . outside
exec env -i container=trestle-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
  sh -c 'umount -l /outside && rmdir /outside && exec /lib/systemd/systemd --unit=story.service --log-target=journal --show-status=0'
"#;

const UNITS: &str = r#"
set -euxo pipefail
not() { ! "$@"; }
eventually() { set +x; for _ in $(seq 150); do "$@" >/dev/null 2>&1 && return; sleep 0.2; done; "$@"; }
dpkg --force-depends --log=/dev/null -i /root/trestle.deb >&2
export TRESTLE_SERVER=https://127.0.0.1:8081 TRESTLE_CA=/var/lib/trestle/pki/ca.pem
export TRESTLE_TOKEN_FILE=/var/lib/trestle/admin.token
eventually trestle status
systemctl is-active --quiet trestle.service
echo served

token=$(trestle token create --join --for 1h)
trestle join "$TRESTLE_SERVER" "$token" --name web-1 >&2
systemctl is-active --quiet trestle-agent.service
systemctl is-enabled --quiet trestle-agent.service trestle-agent-boot.service
eventually sh -c 'trestle node list | grep -q web-1'
echo joined

nft list table inet trestle-policy >/dev/null
echo guarded

before=$(systemctl show --property MainPID --value trestle-agent.service)
systemctl kill --signal KILL trestle-agent.service
again() { now=$(systemctl show --property MainPID --value trestle-agent.service); [ "$now" != 0 ] && [ "$now" != "$before" ]; }
eventually again
systemctl restart trestle.service
in_sync() { trestle agent status -o json | grep -q '"connected": true'; }
eventually in_sync
echo 'came back'

trestle leave >&2
not systemctl is-active --quiet trestle-agent.service
not systemctl is-enabled --quiet trestle-agent.service
not sh -c 'trestle host list | grep -q web-1'
echo left

dpkg -P trestle >&2
not systemctl is-active --quiet trestle.service
echo purged
"#;
