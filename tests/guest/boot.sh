#!/usr/bin/env bash
# Boots the Linux guest of build.sh, and runs until it is switched off. What it writes to its disk is forgotten.
#
#   tests/guest/boot.sh                     a root shell on this terminal; Ctrl-D in it switches the guest off
#   tests/guest/boot.sh --agent CONSOLE     run jobs: orders on stdin, answers on stdout (see init.sh), the console to a file
#
#   --tap INTERFACE=ADDRESS/PREFIX          a network card on this tap device, and its address in the guest (repeatable);
#                                           without any, the guest has qemu's own network, and the host is 10.0.2.2
#   --share DIRECTORY                       is /host in the guest, read-only
#   --systemd                               its first process is systemd, and it can restart
#   --new-kernel                            the newer kernel, and cards whose driver there has AF_XDP's zero-copy mode
#
# The processor is emulated: it runs everywhere, and proves correctness, never speed.

set -euo pipefail

readonly MEMORY_MIB=1024
here=$(cd "$(dirname "$0")" && pwd)
console=
addresses=
share=
is_systemd=
suffix=
network=()

# ADDRESS/PREFIX and the arguments of -netdev: no boot ROM is needed.
add_card() {
    local count=$((${#network[@]} / 4))
    addresses+=${addresses:+,}$1
    network+=(-netdev "$2,id=net$count" -device "virtio-net-pci,netdev=net$count,mac=52:54:00:77:00:0$count,romfile=")
}

while [ $# -gt 0 ]; do
    case $1 in
        --agent) console=${2:?a file} ;;
        --tap) add_card "${2#*=}" "tap,ifname=${2%%=*},script=no,downscript=no" ;;
        --share) share=${2:?a directory} ;;
        --systemd) is_systemd=yes; shift; continue ;;
        --new-kernel) suffix=-new; shift; continue ;;
        *) echo "boot.sh: $1 is not an option: see the beginning of $0" >&2; exit 2 ;;
    esac
    shift 2 || { echo "boot.sh: $1 takes a value" >&2; exit 2; }
done
[ ${#network[@]} -gt 0 ] || add_card 10.0.2.15/24 user
guest=$("$here/build.sh")

kernel="console=ttyS0 quiet panic=-1 net.ifnames=0 mitigations=off no5lvl no_timer_check random.trust_cpu=on rig.addresses=$addresses"
# What no job uses takes time to set up, and what guards against faults and attacks takes it all along.
kernel+=" modprobe.blacklist=kvm_amd,kvm_intel,ata_piix,ata_generic,floppy,i2c_piix4,pcspkr"
kernel+=" audit=0 apparmor=0 init_on_alloc=0 nokaslr nowatchdog rcupdate.rcu_expedited=1 tsc=reliable"
# One processor: they would take turns on one thread anyway (with one for each, QEMU before 8.1 may translate an instruction while another
# processor patches it, and the kernel dies of an int3 that it has taken back), and one alone keeps the time by its own counter, not by
# a device, and takes no locks. What is left out of its features is slower emulated than what programs and kernel do without: to copy
# by single bytes (erms), vectors of 32 bytes and their state, and what brackets each access to memory of programs (smap).
machine=(-accel tcg,thread=single -cpu max,-erms,-smap,-smep,-pku,-avx,-avx2,-f16c,-fma,-vaes -m $MEMORY_MIB -smp 1)
machine+=(-nodefaults -no-user-config -display none)
# What ends by itself ends qemu, unless it is to come again.
if [ -n "$is_systemd" ]; then kernel+=" rig.systemd"; else machine+=(-no-reboot); fi
machine+=(-kernel "$guest/vmlinuz$suffix" -initrd "$guest/initramfs$suffix")
machine+=(-drive "file=$guest/root.img,if=virtio,format=raw,snapshot=on,cache=unsafe")
machine+=(-virtfs "local,path=$here,mount_tag=rig,security_model=none,readonly=on")
# The driver has that mode only where the card gets at memory by the kernel's DMA.
[ -z "$suffix" ] || machine+=(-global virtio-net-pci.disable-legacy=on -global virtio-net-pci.iommu_platform=on)
if [ -n "$share" ]; then
    machine+=(-virtfs "local,path=$share,mount_tag=host,security_model=none,readonly=on")
    kernel+=" rig.host"
fi
if [ -n "$console" ]; then
    machine+=(-chardev "file,id=console,path=$console,append=on" -serial chardev:console -chardev stdio,id=agent,signal=off)
    machine+=(-device virtio-serial-pci -device virtserialport,chardev=agent,name=agent)
    kernel+=" rig.agent"
else
    machine+=(-serial mon:stdio)
fi
exec qemu-system-x86_64 "${machine[@]}" "${network[@]}" -append "$kernel"
