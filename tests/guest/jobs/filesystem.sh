# filesystem.sh FS DEVICE: makes a file system, fills it, checks it, reads it again, and gives unused blocks back.
. /rig/jobs/lib.sh

kind=$1 device=$2
case $kind in
    ext4) make=(mkfs.ext4 -q -F) check=(fsck.ext4 -f -n) ;;
    xfs) make=(mkfs.xfs -q -f) check=(xfs_repair -n) ;;
    btrfs) make=(mkfs.btrfs -q -f) check=(btrfs check) ;;
    *) fail "$kind is no file system of this job" ;;
esac
modprobe "$kind"
trap 'umount "$MOUNT_POINT" 2> /dev/null || true' EXIT

# From the device, not from what the kernel remembers of it.
compare() {
    blockdev --flushbufs "$device"
    echo 3 > /proc/sys/vm/drop_caches
    mount "$device" "$MOUNT_POINT"
    (cd "$MOUNT_POINT/files" && b2sum --quiet --check "$SCRATCH/sums")
}

say "making $kind"
small "${make[@]}" "$device"
mount "$device" "$MOUNT_POINT"
say 'filling it'
fill "$MOUNT_POINT/files" 24 > "$SCRATCH/sums"
fill "$MOUNT_POINT/passing" 8 > /dev/null
sync -f "$MOUNT_POINT"
umount "$MOUNT_POINT"
say 'checking it'
"${check[@]}" "$device" > "$SCRATCH/check" 2>&1 || fail "$(cat "$SCRATCH/check")"
compare
say 'removing files, and discarding their blocks'
rm -r "$MOUNT_POINT/passing"
sync -f "$MOUNT_POINT"
fstrim --verbose "$MOUNT_POINT"
umount "$MOUNT_POINT"
"${check[@]}" "$device" > "$SCRATCH/check" 2>&1 || fail "$(cat "$SCRATCH/check")"
compare
umount "$MOUNT_POINT"
