#!/bin/bash
# Runs a command as root in a throw-away VM with Debian's kernel. Its / is the host's, read-only under a scratch layer.
# Exits as the command does. usage: run.sh COMMAND [ARGUMENT...]
# It is also a runner for cargo: CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER=labs/vm/run.sh cargo test ...
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=${VM_KERNEL:-$(ls /lib/modules | grep -- '-amd64$' | sort -V | tail -1)}
cache=${VM_CACHE:-$here/../../target/vm}
mkdir -p "$cache"
[ -f "$cache/initrd-$version" ] || "$here/initrd.sh" "$cache/initrd-$version" "$version"
job=$(mktemp -d)
trap 'rm -rf "$job"' EXIT
{
    echo 'export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8'
    echo 'mkdir -p /dev/pts /dev/shm; mount -t devpts pts /dev/pts; mount -t tmpfs shm /dev/shm'
    printf 'ip link set lo up; cd %q\n' "$PWD"
    printf '%q ' "$@"
    echo
    echo 'echo $? > /run/job/exit; sync; poweroff -f; echo o > /proc/sysrq-trigger'
} > "$job/start"
# Software emulation works everywhere; nested KVM does not. One CPU is faster than two that are shared. On a busy host
# the kernel would find its timer too late to be one, hence no_timer_check.
timeout "${VM_TIMEOUT:-600}" qemu-system-x86_64 -M q35 -accel "${VM_ACCEL:-tcg}" -cpu max -smp 1 -m "${VM_MEMORY:-2048}" \
    -nodefaults -no-user-config -nographic -no-reboot -serial stdio -device virtio-rng-pci \
    -kernel "/boot/vmlinuz-$version" -initrd "$cache/initrd-$version" \
    -append 'console=ttyS0 quiet loglevel=3 panic=-1 mitigations=off nokaslr random.trust_cpu=on tsc=unstable no_timer_check' \
    -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
    -virtfs "local,path=$job,mount_tag=job,security_model=none,multidevs=remap" < /dev/null | stdbuf -oL tr -d '\r'
exit "$(cat "$job/exit" 2>/dev/null || echo 99)"
