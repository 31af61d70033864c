#!/usr/bin/env bash
# Two hosts on one machine: network namespaces joined by a veth link. One serves a disk, the other finds it on raw Ethernet,
# attaches it as a block device, makes ext4, copies files and checks them; then the speed of both wires is measured.
# Everything it makes is taken away again at the end, however it ends.
#
#   sudo tests/demo.sh [PROGRAM]      PROGRAM is the sanwire to show [default: target/release/sanwire]
#   MTU=1500 sudo -E tests/demo.sh    the link's MTU [default: 9000]

set -euo pipefail

readonly MTU=${MTU:-9000}
readonly LABEL=$$
readonly SERVER=sanwire-demo-s$LABEL CLIENT=sanwire-demo-c$LABEL
readonly SIZE_MIB=512
export PATH=$PATH:/usr/sbin:/sbin

here=$(cd "$(dirname "$0")/.." && pwd)
program=$(realpath -m "${1:-$here/target/release/sanwire}")
directory=
server_pid=
attach_pid=
local_device=
rows=()

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
show() { printf '   $ %s\n' "$*"; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }

# Starts sanwire on a host, in the background: in the host's network, but with the mounts of this one. No function may stand
# between, for $! to be its process.
start() {
    local log=$directory/$1 host=$2
    shift 2
    XDG_STATE_HOME=$directory/$host nsenter --net="/run/netns/$host" "$program" "$@" > "$log" 2>&1 &
}

check() {
    [ "$(id -u)" = 0 ] || fail "it makes network namespaces and mounts a file system, so it takes root: run 'sudo make demo'"
    [ -x "$program" ] || fail "$program is not there: build it with 'cargo build --release', or name another one"
    local tool
    for tool in ip nsenter losetup mkfs.ext4 fsck.ext4 mount dd sha256sum ethtool; do
        command -v "$tool" > /dev/null || fail "the program $tool is missing: install iproute2, util-linux, e2fsprogs and ethtool"
    done
    [ -e /dev/fuse ] || fail "/dev/fuse is missing: load the kernel's module with 'modprobe fuse'"
    [ -e /dev/loop-control ] || fail "/dev/loop-control is missing: load the kernel's module with 'modprobe loop'"
}

clean_up() {
    local status=$?
    set +e
    if [ "$status" != 0 ] && ls "$directory"/*.log > /dev/null 2>&1; then
        printf 'demo: this is what the server and the attachment said:\n' >&2
        cat "$directory"/*.log >&2
    fi
    take_away 2> /dev/null
    rm -rf "$directory"
    exit "$status"
}

take_away() {
    mountpoint -q "$directory/mnt" && umount --lazy "$directory/mnt"
    if [ -n "$attach_pid" ]; then kill "$attach_pid"; wait "$attach_pid"; fi
    if [ -n "$server_pid" ]; then kill "$server_pid"; wait "$server_pid"; fi
    [ -n "$local_device" ] && losetup --detach "$local_device"
    ip netns delete "$SERVER"
    ip netns delete "$CLIENT"
    umount --lazy "$directory"
}

make_hosts() {
    say "Two hosts: namespaces $SERVER (10.77.0.1) and $CLIENT (10.77.0.2), joined by a veth link with MTU $MTU"
    ip netns add "$SERVER"
    ip netns add "$CLIENT"
    ip link add lan0 netns "$SERVER" type veth peer name lan0 netns "$CLIENT"
    local host address=1
    for host in "$SERVER" "$CLIENT"; do
        ip -n "$host" link set lo up
        ip -n "$host" address add "10.77.0.$address/24" dev lan0
        ip -n "$host" link set lan0 mtu "$MTU" up
        # As on a real wire: every packet is one frame.
        nsenter --net="/run/netns/$host" ethtool -K lan0 gro off gso off tso off tx off > /dev/null
        address=2
    done
}

# Waits until a log has a line; the process must live on.
wait_for() {
    local text=$1 log=$2 pid=$3
    for _ in $(seq 200); do
        grep -q -- "$text" "$log" && return
        kill -0 "$pid" 2> /dev/null || fail "the program has ended before it said '$text'"
        sleep 0.1
    done
    fail "the program has not said '$text' in 20 s"
}

serve() {
    say "The first host serves a disk of $SIZE_MIB MiB, kept in a file on tmpfs, on raw Ethernet and over IP"
    mkdir "$directory/memory"
    local arguments=(serve --name box --volume "disk0=file:$directory/memory/disk0.img,size=${SIZE_MIB}M"
        --wire hs-eth:lan0 --wire hs-ip:10.77.0.1 --allow 10.77.0.2
        --allow "$(client_mac)")
    show "sanwire ${arguments[*]}"
    start server.log "$SERVER" "${arguments[@]}"
    server_pid=$!
    wait_for "  on hs-" "$directory/server.log" "$server_pid"
}

client_mac() { ip -n "$CLIENT" -o link show lan0 | sed 's/.*link\/ether \([0-9a-f:]*\).*/\1/'; }

sanwire() {
    show "sanwire $*"
    XDG_STATE_HOME=$directory/$CLIENT nsenter --net="/run/netns/$CLIENT" "$program" "$@" | sed 's/^/   /'
}

# Attaches a volume and sets $device.
attach() {
    show "sanwire attach $1"
    start attach.log "$CLIENT" attach "$1" --mount-point "$directory/volume"
    attach_pid=$!
    wait_for "is attached as" "$directory/attach.log" "$attach_pid"
    device=$(grep -m 1 '^/dev/' "$directory/attach.log")
    printf '   %s\n' "$device"
}

detach() {
    sanwire detach "$device"
    wait "$attach_pid"
    attach_pid=
}

use_disk() {
    say "The second host finds it on raw Ethernet"
    sanwire discover --interface lan0
    sanwire ls hs+eth://lan0/box
    say "... attaches it as a block device"
    attach hs+eth://lan0/box/disk0
    say "... makes ext4 on it, and copies files there"
    show "mkfs.ext4 $device; mount $device mnt; cp -r files mnt; umount mnt"
    mkfs.ext4 -q -F "$device"
    mkdir "$directory/files" "$directory/mnt"
    local number
    for number in $(seq 24); do
        head -c "$((number * 300000))" /dev/urandom > "$directory/files/file-$number"
    done
    (cd "$directory/files" && sha256sum -- * > "$directory/checksums")
    mount "$device" "$directory/mnt"
    cp -r "$directory/files/." "$directory/mnt/"
    umount "$directory/mnt"
    detach
    say "... attaches it again, over IP this time, and finds every file as it was"
    attach hs+ip://10.77.0.1/disk0
    show "fsck.ext4 -f -n $device; mount $device mnt; sha256sum --check"
    fsck.ext4 -f -n "$device" > /dev/null 2>&1 || fail "the file system is damaged"
    mount "$device" "$directory/mnt"
    (cd "$directory/mnt" && sha256sum --quiet --check "$directory/checksums") || fail "files have changed"
    printf '   %s files, %s: all checksums agree\n' "$(wc -l < "$directory/checksums")" "$(du -sh "$directory/files" | cut -f 1)"
    umount "$directory/mnt"
    detach
}

# Prints the MB/s of one pass of dd over a device.
pass() {
    local start end
    start=$(date +%s%N)
    dd "$@" bs=1M count=$SIZE_MIB status=none
    end=$(date +%s%N)
    printf '%d' $((SIZE_MIB * 1048576 * 1000 / (end - start)))
}

# Measures a device twice and keeps the better pass of each kind.
measure() {
    local name=$1 path=$2 write=0 read=0 rate
    for _ in 1 2; do
        rate=$(pass if=/dev/zero of="$path" oflag=direct conv=fsync,notrunc)
        [ "$rate" -gt "$write" ] && write=$rate
        rate=$(pass if="$path" of=/dev/null iflag=direct)
        [ "$rate" -gt "$read" ] && read=$rate
    done
    rows+=("$(printf '   %-28s %10d %10d' "$name" "$write" "$read")")
}

measure_all() {
    say "How fast: dd with 1 MiB and direct I/O on the block devices, the disk's file always on tmpfs"
    truncate -s "${SIZE_MIB}M" "$directory/memory/local.img"
    local_device=$(losetup --find --show "$directory/memory/local.img")
    measure "local (loop device)" "$local_device"
    losetup --detach "$local_device"
    local_device=
    attach hs+eth://lan0/box/disk0
    measure "HS/eth (loop over FUSE)" "$device"
    detach
    attach hs+ip://10.77.0.1/disk0
    measure "HS/IP (loop over FUSE)" "$device"
    detach
    printf '\n   %-28s %10s %10s\n' "MB/s, MTU $MTU" "write" "read"
    printf '%s\n' "${rows[@]}"
}

finish() {
    say "The server ends in order, and everything is taken away"
    kill "$server_pid"
    wait "$server_pid" || fail "the server ended with an error"
    server_pid=
}

check
directory=$(mktemp -d /tmp/sanwire-demo.XXXXXX)
trap clean_up EXIT
trap 'exit 130' INT TERM
# A shared mount, as systemd makes all of them: what is unmounted below it is free at once, whoever has a copy of our mounts.
mount -t tmpfs -o "size=$((SIZE_MIB * 3))M" tmpfs "$directory"
mount --make-shared "$directory"
make_hosts
serve
use_disk
measure_all
finish
