# The kernel's own initiator of ATA over Ethernet, and aoetools.
#
# aoe.sh find SHELF.SLOT INTERFACE MTU MIB INTERFACE,INTERFACE: it finds a target of so many MiB on an interface, and the tools agree with
#   it. They look for it by themselves, on all interfaces, of which these two lead there.
# aoe.sh find-over INTERFACE,INTERFACE SHELF.SLOT...: it has each of these targets over both interfaces.
# aoe.sh use INTERFACE...: commands go over each of these.
# aoe.sh filesystem KIND SHELF.SLOT: a small file system is made, filled, checked, and read again.
# aoe.sh leave: the driver goes, with all its devices.
. /rig/jobs/lib.sh

readonly DEVICES=/dev/etherd

find_target() {
    local target=$1 interface=$2 mtu=$3 mib=$4 interfaces=$5 device=$DEVICES/e$1 data_max=$((($3 - 36) / 512 * 512))
    ip link set "$interface" mtu "$mtu"
    modprobe aoe aoe_iflist="$interface"
    within 20 test -c $DEVICES/discover
    aoe-discover
    within 30 test -b "$device"
    [ "$(blockdev --getsize64 "$device")" = $((mib * 1048576)) ] || fail "$device has $(blockdev --getsize64 "$device") bytes"
    # As much data as fits into a frame, once the server has seen that these have another size.
    within 20 takes "$target" "$interface" "$data_max"
    agrees "$target" "$data_max" "$interfaces"
    say "$(aoe-stat)"
}

# agrees TARGET DATA_MAX INTERFACES: aoe-sancheck has it so; it does not wait for a target that is held up.
agrees() { (within 30 is_seen "$@") || fail "aoe-sancheck has no e$1: $(aoe-sancheck 2>&1)"; }
is_seen() { grep -E "^e$1[[:space:]]+2[[:space:]]+$2[[:space:]]+$3$" <<< "$(aoe-sancheck 2>&1)"; }

takes() {
    aoe-discover
    aoe-stat | grep -E "e$1 +[0-9.]+GB +$2 +$3 +up"
}

find_over() {
    local interfaces=$1 target
    modprobe aoe aoe_iflist="$interfaces"
    within 20 test -c $DEVICES/discover
    for target in "${@:2}"; do
        within 30 is_over "$target" "$interfaces"
    done
    for target in "${@:2}"; do agrees "$target" '[0-9]+' "$interfaces"; done
    say "$(aoe-stat)"
}

# In whichever order it has found them.
is_over() {
    local first=${2%,*} second=${2#*,}
    aoe-discover
    aoe-stat | grep -E "e$1 +[0-9.]+GB +($first,$second|$second,$first) +[0-9]+ +up"
}

sent() { cat "/sys/class/net/$1/statistics/tx_packets"; }
has_sent_more() { [ "$(sent "$1")" -gt "$2" ]; }

use() {
    local interface
    for interface in "$@"; do within 20 has_sent_more "$interface" $(($(sent "$interface") + 20)); done
}

filesystem() {
    local kind=$1 device=$DEVICES/e$2
    local -A make=([ext4]='mkfs.ext4 -q -F' [xfs]='mkfs.xfs -q -f') check=([ext4]='fsck.ext4 -f -n' [xfs]='xfs_repair -n')
    modprobe "$kind"
    # shellcheck disable=SC2086
    small ${make[$kind]} "$device"
    mount "$device" "$MOUNT_POINT"
    fill "$MOUNT_POINT/files" 12 > "$SCRATCH/sums"
    sync -f "$MOUNT_POINT"
    umount "$MOUNT_POINT"
    ${check[$kind]} "$device" > "$SCRATCH/check" 2>&1 || fail "$(cat "$SCRATCH/check")"
    # From the device, not from what the kernel remembers of it.
    blockdev --flushbufs "$device"
    echo 3 > /proc/sys/vm/drop_caches
    mount -o ro "$device" "$MOUNT_POINT"
    (cd "$MOUNT_POINT/files" && b2sum --quiet --check "$SCRATCH/sums")
    umount "$MOUNT_POINT"
    say "$kind was made, filled, checked and read"
}

leave() {
    modprobe -r aoe
    ! dmesg | grep -E 'aoe: .*(error|fail)|I/O error' || fail 'the kernel has complained'
}

case $1 in
    find) find_target "${@:2}" ;;
    find-over) find_over "${@:2}" ;;
    use) use "${@:2}" ;;
    filesystem) filesystem "${@:2}" ;;
    leave) leave ;;
    *) fail "$1 is nothing that this job does" ;;
esac
