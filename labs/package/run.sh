#!/bin/bash
# What `make dist` makes, as people take it: apt takes the package from the repository, in a Debian of its own (debootstrap), with its real
# dependencies; an older version is upgraded, removed and purged; the archive's binary runs there too; checksums, signature and SBOM hold; made
# twice it is the same, byte for byte. Needs root and Debian's mirror. TRESTLE names a binary to package; SUITE another release.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [[ $(id -u) != 0 ]]; then
  echo "NOT RUN: labs/package makes a root of its own, which needs root" >&2
  exit 0
fi
scripts/test-deps labs/package/packages
suite=${SUITE:-bookworm}
trestle=${TRESTLE:-$PWD/target/release/trestle}
[[ -x $trestle ]] || { scripts/page; cargo build --release --locked -p trestle; }
cached=$PWD/target/debian-$suite.tar
work=$(mktemp -d)
world=$work/world
finish() {
  umount -R "$world/proc" "$world/dev" 2>/dev/null || true
  rm -rf --one-file-system "$work"
}
trap finish EXIT
fail() { echo "labs/package: $1" >&2; exit 1; }

echo "Made twice, it is the same:"
export GNUPGHOME=$work/keys
mkdir -m 700 "$GNUPGHOME"
gpg --batch --quiet --passphrase '' --quick-generate-key 'lab <lab@localhost>' ed25519 sign never 2>/dev/null
export TRESTLE_SIGNING_KEY=lab@localhost
for time in one two; do
  scripts/dist --fast --binary "$trestle" --out "$work/$time" >/dev/null
done
# A signature has its own time in it.
differs=$(diff <(grep -v -e Release.gpg -e InRelease "$work/one/SHA256SUMS") <(grep -v -e Release.gpg -e InRelease "$work/two/SHA256SUMS")) || fail "it is not: $differs"
dist=$work/one
(cd "$dist" && sha256sum --quiet --check SHA256SUMS && cut -d' ' -f3 SHA256SUMS)
version=$("$trestle" version | cut -d' ' -f2)
python3 - "$dist/trestle-$version.cdx.json" <<'PY'
import json, sys
document = json.load(open(sys.argv[1]))
names = {one["name"] for one in document["components"]}
assert {"tokio", "rustls", "preact", "server"} <= names and "esbuild" not in names, "the SBOM is of something else"
refs = {one["bom-ref"] for one in document["components"]} | {document["metadata"]["component"]["bom-ref"]}
assert all(set(one["dependsOn"]) <= refs for one in document["dependencies"]), "the SBOM names what it does not describe"
assert all(one.get("hashes") for one in document["components"] if "purl" in one), "a component of the SBOM has no checksum"
print(f"SBOM: {len(refs)} components")
PY

echo "A Debian $suite of its own:"
if [[ ! -e $cached ]]; then
  mkdir -p "${cached%/*}" "$work/new"
  debootstrap --variant=minbase "$suite" "$work/new" >"$work/debootstrap.log" || fail "$(tail -5 "$work/debootstrap.log")"
  tar -C "$work/new" -cf "$cached.new" . && mv "$cached.new" "$cached"
  rm -rf --one-file-system "$work/new"
fi
mkdir "$world"
tar -C "$world" -xf "$cached"
mount -t proc none "$world/proc"
mount --bind /dev "$world/dev"
cp /etc/resolv.conf "$world/etc/"
# What reaches the mirror from this machine does so from there.
cp -rL /etc/ssl/certs "$world/etc/ssl/" 2>/dev/null || true
cp /etc/apt/apt.conf.d/*proxy* "$world/etc/apt/apt.conf.d/" 2>/dev/null || true
inside() { chroot "$world" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C "$@"; }

# An older version: the same but for its number.
dpkg-deb --raw-extract "$dist"/trestle_*.deb "$work/older"
sed -i 's/^Version: .*/Version: 0.0.1/' "$work/older/DEBIAN/control"
dpkg-deb --root-owner-group -Zgzip --build "$work/older" "$work/trestle_0.0.1_amd64.deb" >/dev/null
mkdir "$world/repository"
cp -r "$dist/debian/." "$world/repository/"
scripts/debian-repository "$world/repository" "$work/trestle_0.0.1_amd64.deb"
install -D -m 644 "$world/repository/trestle.gpg" "$world/etc/apt/keyrings/trestle.gpg"
echo 'deb [signed-by=/etc/apt/keyrings/trestle.gpg] file:/repository stable main' >"$world/etc/apt/sources.list.d/trestle.list"

quietly() { "$@" >"$work/log" 2>&1 || fail "$*: $(tail -5 "$work/log")"; }
quietly inside apt-get update
grep -q 'file:/repository stable' "$work/log" || fail "apt has not read the repository"
quietly inside apt-get install -y --no-install-recommends trestle=0.0.1
[[ $(inside dpkg-query -W -f '${Version} ${Status}' trestle) == '0.0.1 install ok installed' ]] || fail "0.0.1 is not installed"
# The libraries are those of that Debian, as the package asks for.
if inside ldd /usr/bin/trestle | grep -q 'not found'; then fail "a library is missing"; fi
inside trestle version
inside sh -c 'test "$(stat -c %U:%a /var/lib/trestle)" = trestle:700' || fail "the data directory is open"

echo "It serves as its user, is upgraded, and keeps configuration and data:"
serves() {
  unshare --net bash -c "ip link set lo up; exec chroot '$world' /usr/bin/env -i PATH=/usr/bin:/bin HOME=/tmp setpriv --reuid trestle --regid trestle --clear-groups sh -c '
    /usr/bin/trestle serve --config /etc/trestle/trestle.yaml 2>/tmp/log &
    for i in \$(seq 300); do
      trestle status --server https://127.0.0.1:8081 --ca /var/lib/trestle/pki/ca.pem --token-file /var/lib/trestle/admin.token >/tmp/status 2>&1 && break
      sleep 0.2
    done
    $1
    kill -TERM \$! && wait \$!; cat /tmp/status'" >"$work/log" 2>&1 || fail "it does not serve: $(cat "$work/log")"
  grep -q 'Nothing needs attention' "$work/log" || fail "it does not serve: $(cat "$work/log" "$world/tmp/log")"
}
called() { echo "trestle $* --server https://127.0.0.1:8081 --ca /var/lib/trestle/pki/ca.pem --token-file /var/lib/trestle/admin.token"; }
serves "$(called tag set kept --ip 192.0.2.1)"
echo '# mine' >>"$world/etc/trestle/trestle.yaml"
quietly inside apt-get install -y --only-upgrade trestle
[[ $(inside dpkg-query -W -f '${Version}' trestle) == "$version" ]] || fail "it was not upgraded"
grep -q '^# mine$' "$world/etc/trestle/trestle.yaml" || fail "the configuration is lost"
serves "$(called tag get kept) >/tmp/kept"
grep -q 192.0.2.1 "$world/tmp/kept" || fail "what was stored is lost"

echo "It goes, and purged leaves nothing:"
quietly inside apt-get remove -y trestle
inside test ! -e /usr/bin/trestle -a -s /var/lib/trestle/admin.token -a -e /etc/trestle/trestle.yaml || fail "removed is not removed, or too much"
quietly inside apt-get purge -y trestle
left=$(find "$world/usr" "$world/etc" "$world/var" -path "$world/etc/apt" -prune -o -path "$world/var/lib/apt" -prune -o -name '*trestle*' -print)
[[ -z $left ]] || fail "left behind: $left"
if inside getent passwd trestle; then fail "its user is left behind"; fi

echo "The archive, without a package:"
tar -C "$world/tmp" -xf "$dist/trestle-$version-$(uname -m).tar.xz"
inside /tmp/trestle-"$version"-"$(uname -m)"/trestle version
echo "Installed by apt, served, upgraded, removed and purged in Debian $suite."
