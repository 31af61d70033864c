#!/usr/bin/env bash
# Builds the Linux guest, once: a stock Debian with a stock kernel, for qemu to boot. Prints the directory that holds it.
#
#   tests/guest/build.sh            build it if it is not there, which takes some 4 minutes, root and a Debian mirror
#   tests/guest/build.sh --where    only print the directory
#
# It is kept in $SANWIRE_GUEST_CACHE [default: ~/.cache/sanwire], in a directory named after what this file and siw.sh say: a guest
# that would be built otherwise is another one. Two builds at once do not disturb each other: the second waits for the first.

set -euo pipefail
export PATH=$PATH:/usr/sbin:/sbin LC_ALL=C

readonly SUITE=bookworm
# The kernel is a newer one than the suite's: its initiators, its target and its ublk are what people run. Beside it is one whose
# virtio_net has AF_XDP's zero-copy mode, which it has from Linux 6.13 on.
readonly KERNEL=linux-image-amd64 KERNEL_SUITE=$SUITE-backports NEW_KERNEL_SUITE=trixie-backports
readonly DEFAULT_MIRROR=http://deb.debian.org/debian
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
readonly PACKAGES=(
    systemd-sysv dbus busybox-static iproute2 iputils-ping kmod procps udev ethtool tcpdump strace
    open-iscsi multipath-tools rdma-core libibverbs1 librdmacm1 ibverbs-providers ibverbs-utils rdmacm-utils nbd-client aoetools fuse3
    sg3-utils ddpt lsscsi mt-st mtx fio
    xfsprogs btrfs-progs e2fsprogs dosfstools
)
# What the initramfs needs to reach the root file system and the directories of the host.
readonly EARLY_MODULES=(virtio_pci virtio_blk virtio_net virtio_console ext4 9p 9pnet_virtio)
# No hardware of this kind is in the guest.
readonly USELESS_MODULES=(sound drivers/gpu drivers/media drivers/net/wireless drivers/staging drivers/iio drivers/input
    drivers/hwmon drivers/usb net/bluetooth net/mac80211 net/wireless)
readonly FREE_MIB=512

say() { printf 'guest: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }
# What is needed from elsewhere cannot be had now (EX_TEMPFAIL): nothing here is wrong.
unavailable() { say "$*"; exit 75; }

here=$(cd "$(dirname "$0")" && pwd)
. "$here/siw.sh"

[ $# = 0 ] || [ "$*" = --where ] || { echo "usage: tests/guest/build.sh [--where]" >&2; exit 2; }
version=$(cat "$0" "$here/siw.sh" | sha256sum | cut -c -12)
cache=${SANWIRE_GUEST_CACHE:-${XDG_CACHE_HOME:-${HOME:?is not set, nor is SANWIRE_GUEST_CACHE}/.cache}/sanwire}
guest=$cache/guest-$version
if [ $# = 1 ] || [ -d "$guest" ]; then
    echo "$guest"
    exit 0
fi

check() {
    [ "$(id -u)" = 0 ] || fail "the Linux guest is not built, and building it takes root: sudo tests/guest/build.sh"
    local tool
    for tool in debootstrap mke2fs chroot unshare flock apt-get dpkg xz make gcc strip; do
        command -v "$tool" > /dev/null || fail "the program $tool is missing: 'make setup' installs it"
    done
    [ -r $KEYRING ] || fail "$KEYRING is missing: install debian-archive-keyring"
    [ "$(dpkg --print-architecture)" = amd64 ] || fail "the guest is built on amd64 only"
}

# The mirror that this host's apt uses, which may be the only one it reaches.
find_mirror() {
    local uri
    while read -r uri; do
        case $uri in http://* | https://*) echo "${uri%/}"; return ;; esac
    done < <(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Release: $SUITE" 'Component: main')
    echo $DEFAULT_MIRROR
}

# apt with lists and settings of its own in the directory $apt: the host's are not touched, but its proxy is used.
private_apt() {
    local program=$1
    shift
    "$program" -qq -o Dir::State="$apt" -o Dir::State::status="$apt/status" -o Dir::Cache="$apt/cache" \
        -o Dir::Etc::SourceList="$apt/sources.list" -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::Preferences=/dev/null \
        -o Dir::Etc::PreferencesParts=/dev/null -o APT::Sandbox::User=root -o APT::Install-Recommends=false "$@"
}

# add_kernel DIRECTORY SUITE SUFFIX: unpacks the kernel of a suite, without installing it: its image to vmlinuz$SUFFIX, its modules into
# the root file system, and what loads them first to initramfs$SUFFIX.
add_kernel() {
    local apt=$1/apt$3 kernel=$1/kernel$3 package release packages file modules image
    mkdir -p "$apt/lists/partial" "$apt/cache/archives/partial"
    touch "$apt/status"
    echo "deb [signed-by=$KEYRING] $mirror $2 main" > "$apt/sources.list"
    private_apt apt-get update >&2 || unavailable "$mirror has no $2, or is not reachable"
    package=$(private_apt apt-cache depends $KERNEL | sed -n 's/^ *Depends: \(linux-image-[0-9]\S*\)$/\1/p')
    [ -n "$package" ] || fail "$KERNEL of $2 names no kernel"
    say "unpacking $package"
    release=${package#linux-image-}
    # From 7.x on the image and the modules are packages of their own, of the same release.
    mapfile -t packages < <(private_apt apt-cache depends "$package" | sed -n "s/^ *Depends: \(linux-\S*-$release\)$/\1/p")
    (cd "$apt" && private_apt apt-get download "$package" "${packages[@]}" >&2) || unavailable "$package cannot be downloaded from $mirror"
    for file in "$apt"/*.deb; do dpkg -x "$file" "$kernel"; done
    # In the image's own file system /lib is a link to /usr/lib.
    if [ -d "$kernel/lib" ]; then modules=$kernel/lib/modules/$release; else modules=$kernel/usr/lib/modules/$release; fi
    image=$kernel/boot/vmlinuz-$release
    [ -e "$image" ] || image=$modules/vmlinuz
    mv "$image" "$1/vmlinuz$3"
    (cd "$modules/kernel" && rm -rf "${USELESS_MODULES[@]}")
    mkdir -p "$1/root/usr/lib/modules"
    mv "$modules" "$1/root/usr/lib/modules/"
    # The newer kernel is built with options that this suite's compiler does not have.
    [ -n "$3" ] || add_siw "$1" "$release"
    chroot "$1/root" depmod "$release"
    make_initramfs "$1" "$release" "$3"
}

# The root file system is read from a disk image, so something small must load its driver and mount it first.
make_initramfs() {
    local release=$2 tree=$1/initramfs$3.d module
    mkdir -p "$tree"/{bin,modules,dev,proc,sys,root}
    cp "$1/root/bin/busybox" "$tree/bin/"
    chroot "$1/root" modprobe -S "$release" -a --show-depends "${EARLY_MODULES[@]}" | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' \
        > "$1/modules"
    while read -r module; do
        module=${module%.xz}
        xz --decompress --stdout < "$1/root$module.xz" > "$tree/modules/${module##*/}"
        echo "insmod /modules/${module##*/}"
    done < "$1/modules" > "$tree/load"
    cat > "$tree/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
. /load
mount -t ext4 /dev/vda /root
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144,cache=none rig /root/rig
umount /proc /sys
mount --move /dev /root/dev
exec switch_root /root /bin/bash /rig/init.sh
INIT
    chmod +x "$tree/init"
    (cd "$tree" && find . | "$1/root/bin/busybox" cpio -o -H newc 2> /dev/null | gzip -1) > "$1/initramfs$3"
}

make_root_image() {
    local root=$1/root
    rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale,info}/* "$root"/boot/*
    mkdir -p "$root/rig" "$root/host"
    local size_mib=$(($(du -sm "$root" | cut -f 1) * 11 / 10 + FREE_MIB))
    mke2fs -q -t ext4 -E lazy_itable_init=0 -d "$root" "$1/root.img" "${size_mib}M" > /dev/null
}

build() {
    local directory=$1 mirror include
    mirror=$(find_mirror)
    include=$(IFS=,; echo "${PACKAGES[*]}")
    say "unpacking Debian $SUITE from $mirror"
    debootstrap --variant=minbase --keyring=$KEYRING --include="$include" $SUITE "$directory/root" "$mirror" \
        > "$directory/debootstrap.log" 2>&1 || {
        tail -n 20 "$directory/debootstrap.log" >&2
        unavailable "debootstrap failed: is $mirror reachable?"
    }
    add_kernel "$directory" $KERNEL_SUITE ''
    add_kernel "$directory" $NEW_KERNEL_SUITE -new
    make_root_image "$directory"
    mkdir "$directory/guest"
    mv "$directory"/{vmlinuz,initramfs}{,-new} "$directory/root.img" "$directory/guest/"
    # The last step and the only one that anybody sees.
    mv "$directory/guest" "$guest"
}

# What debootstrap mounts goes away with the namespace, whatever happens.
if [ "${SANWIRE_GUEST_BUILDS:-}" != "$guest" ]; then
    check
    SANWIRE_GUEST_BUILDS=$guest exec unshare --mount --propagation private bash "$0"
fi
# What others have mounted on disks of their own is theirs alone: a copy of it here keeps such a disk busy after they have unmounted it.
awk '$2 != "/" && ($1 ~ "^/dev/(loop|nbd|ublkb)" || $3 ~ "^fuse") { print $2 }' /proc/self/mounts | while read -r place; do
    umount --lazy "$place" || true
done
mkdir -p "$cache"
exec 9> "$cache/lock"
flock --nonblock 9 || { say "waiting for another build to end"; flock 9; }
if [ ! -d "$guest" ]; then
    # We hold the lock, so these are the remains of builds that were killed.
    rm -rf --one-file-system "$cache"/building.*
    directory=$(mktemp -d "$cache/building.XXXXXX")
    # debootstrap's programs are not all run by root in the guest.
    chmod 755 "$directory"
    trap 'rm -rf --one-file-system "$directory"' EXIT
    build "$directory" 9>&-
    say "built in $SECONDS s: $(du -sh "$guest" | cut -f 1) in $guest"
    for other in "$cache"/guest-*; do
        [ "$other" = "$guest" ] || say "$other is another version: remove it when nobody uses it"
    done
fi
echo "$guest"
