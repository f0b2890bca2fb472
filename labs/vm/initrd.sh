#!/bin/bash
# Makes the small initramfs of the test VM: busybox, and the modules to mount the host's root read-only over 9p.
# usage: initrd.sh OUTPUT KERNEL_VERSION
set -euo pipefail
output=$1 version=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir"/{bin,modules,proc,sys,dev,host,scratch,root}
cp /bin/busybox "$dir/bin/"
: > "$dir/modules/order"
for module in virtio_pci 9pnet_virtio 9p overlay; do
    modprobe -S "$version" --show-depends "$module" | sed -n 's/^insmod \([^ ]*\).*/\1/p'
done | awk '!seen[$0]++' | while read -r file; do
    cp "$file" "$dir/modules/"
    basename "$file" >> "$dir/modules/order"
done
cat > "$dir/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
for module in $($b cat /modules/order); do $b insmod "/modules/$module"; done
options=trans=virtio,version=9p2000.L,msize=512000
$b mount -t 9p -o "ro,cache=loose,$options" host /host || $b poweroff -f
$b mount -t tmpfs scratch /scratch
$b mkdir /scratch/upper /scratch/work
$b mount -t overlay -o lowerdir=/host,upperdir=/scratch/upper,workdir=/scratch/work overlay /root
for dir in proc sys dev; do $b mount --move "/$dir" "/root/$dir"; done
$b mount -t tmpfs run /root/run
$b mkdir -p /root/run/job
$b mount -t 9p -o "$options" job /root/run/job
exec $b switch_root /root /bin/sh /run/job/start
INIT
chmod +x "$dir/init"
(cd "$dir" && find . | cpio --quiet -o -H newc | gzip -1) > "$output.new"
mv "$output.new" "$output"
