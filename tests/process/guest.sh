# shellcheck shell=bash
# guest.sh: sourced by tests that boot a virtual machine on an image: a Debian kernel, an initramfs of busybox, one virtio disk over
# NBD. Under KVM where it works, else emulated; a boot takes 5 to 20 seconds.
#
#   guest_prepare FOLDER                        makes FOLDER/initramfs; fails saying what is missing
#   guest_run FOLDER SOCKET EXPORT write|check  boots, works, powers off; fails unless the guest said GUEST-OK
#
# write: makes a file system, files with random content and their sums, trims. check: verifies them, as the next boot.

guest_kernel() {
  find /boot -name 'vmlinuz-*-cloud-amd64' | sort -V | tail -1
}

guest_prepare() {
  local kernel modules root=$1/root name
  kernel=$(guest_kernel)
  [ -n "$kernel" ] || { echo "guest: no kernel (package linux-image-cloud-amd64)"; return 1; }
  [ -x /bin/busybox ] || { echo "guest: no busybox (package busybox-static)"; return 1; }
  modules=/lib/modules/${kernel#/boot/vmlinuz-}/kernel/drivers
  mkdir -p "$root/bin" "$root/dev" "$root/proc" "$root/sys" "$root/mnt" "$root/modules"
  cp /bin/busybox "$root/bin/"
  for name in virtio/virtio_ring virtio/virtio virtio/virtio_pci_legacy_dev virtio/virtio_pci_modern_dev virtio/virtio_pci \
    block/virtio_blk; do
    cp "$modules/$name.ko" "$root/modules/" || return 1
  done
  for name in /sbin/mke2fs /sbin/e2fsck; do
    # Each library, and the loader itself, at the path where it is looked for.
    (ldd $name | grep -o '/[^ ]*'; echo $name) | xargs -I{} cp -L --parents {} "$root" || return 1
  done
  guest_init >"$root/init"
  chmod 755 "$root/init"
  (cd "$root" && find . | /bin/busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$1/initramfs"
}

guest_init() {
  cat <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t devtmpfs none /dev
mount -t proc none /proc
mount -t sysfs none /sys
for name in virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk; do
  insmod /modules/$name.ko || echo "GUEST-FAILED insmod $name"
done
end() { echo "$1"; sync; poweroff -f; }
for i in $(seq 100); do [ -b /dev/vda ] && break; sleep 0.1; done
[ -b /dev/vda ] || end "GUEST-FAILED no disk"
case $(cat /proc/cmdline) in
  *work=write*)
    /sbin/mke2fs -q -t ext4 -E lazy_itable_init=0 /dev/vda && mount -t ext4 /dev/vda /mnt || end "GUEST-FAILED mkfs"
    for i in 1 2 3 4 5 6 7 8; do
      dd if=/dev/urandom of=/mnt/file.$i bs=64k count=64 2>/dev/null || end "GUEST-FAILED write $i"
      dd if=/mnt/file.$i of=/mnt/copy.$i bs=4k conv=fsync 2>/dev/null || end "GUEST-FAILED copy $i"
      echo "GUEST-WROTE $i"
    done
    (cd /mnt && sha256sum file.* copy.* >sums) && rm /mnt/copy.8 && sync && fstrim /mnt
    umount /mnt || end "GUEST-FAILED umount"
    end GUEST-OK ;;
  *work=check*)
    /sbin/e2fsck -fn /dev/vda >/dev/null 2>&1 || end "GUEST-FAILED fsck"
    mount -t ext4 -o ro /dev/vda /mnt || end "GUEST-FAILED mount"
    (cd /mnt && grep -v copy.8 sums | sha256sum -c -s) || end "GUEST-FAILED sums"
    end GUEST-OK ;;
esac
end "GUEST-FAILED nothing to do"
INIT
}

guest_run() {
  local folder=$1 log=$1/console.$4
  : >"$log"
  timeout "${GUEST_SECONDS_MAX:-150}" qemu-system-x86_64 -accel tcg -m 256 -smp 1 -nodefaults -no-user-config -display none \
    -no-reboot -serial "file:$log" -kernel "$(guest_kernel)" -initrd "$folder/initramfs" \
    -append "console=ttyS0 quiet panic=-1 work=$4" \
    -blockdev "driver=nbd,node-name=disk,server.type=unix,server.path=$2,export=$3,reconnect-delay=60,discard=unmap" \
    -device virtio-blk-pci,drive=disk >"$folder/qemu.log" 2>&1
  tr -d '\r' <"$log" | grep -q '^GUEST-OK' && return
  tail -n 5 "$folder/qemu.log"; tail -n 5 "$log"
  return 1
}
