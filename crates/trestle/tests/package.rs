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
    let story = dir.path().join("story.sh");
    fs::write(&story, STORY).unwrap();
    let output = run(Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--net", "--ipc", "--kill-child", "bash"])
        .arg(&story)
        .arg(dir.path())
        .arg(&package));
    let said = text(&output.stdout);
    for step in ["installed", "served", "upgraded, configuration kept", "removed, data kept", "purged"] {
        assert!(said.contains(step), "{step} is missing:\n{said}{}", text(&output.stderr));
    }
}

/// A root of its own: this machine's programs read-only, everything that is written in memory.
const STORY: &str = r#"
set -euo pipefail
dir=$1 package=$2
world=$dir/world
mkdir "$world"
mount -t tmpfs none "$world"
mkdir -p "$world"/{usr,etc,var/lib/dpkg/{info,updates,triggers},var/log,run,proc,dev,tmp,root}
mkdir "$dir"/{upper,work} && mount -t tmpfs none "$dir/upper" && mkdir "$dir/upper"/{u,w}
mount -t overlay overlay -o "lowerdir=/usr,upperdir=$dir/upper/u,workdir=$dir/upper/w" "$world/usr"
for link in bin sbin lib lib64; do ln -s "usr/$link" "$world/$link"; done
cp -a /etc/{passwd,group,shadow,gshadow,ld.so.cache,alternatives} "$world/etc/" 2>/dev/null || true
cp /etc/adduser.conf /etc/deluser.conf "$world/etc/" 2>/dev/null || true
sed -i '/^trestle:/d' "$world"/etc/{passwd,group,shadow,gshadow}
touch "$world/var/lib/dpkg"/{status,available}
mount -t proc none "$world/proc"
mount --rbind /dev "$world/dev"
cp "$package" "$world/tmp/trestle.deb"
ip link set lo up
inside() { chroot "$world" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root "$@"; }
# Dependencies are this machine's own; its package database is not looked at.
dpkg_inside() { inside dpkg --force-depends --log=/dev/null "$@"; }

dpkg_inside -i /tmp/trestle.deb >/dev/null 2>&1 || dpkg_inside -i /tmp/trestle.deb
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
dpkg_inside -i /tmp/trestle.deb >/dev/null
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
