# optical.sh mount BYTES SUM: the drive has a disc of so many bytes, which udev knows for one; it is mounted, and its file has this sum.
# optical.sh asked: the server has asked for the disc, and udev ejects it although it is mounted. That is waited for: udev, which may be
# late, would otherwise eject the next disc.
# optical.sh release: the disc is unmounted and ejected, and cannot be read.
. /rig/jobs/lib.sh

readonly DRIVE=/dev/sr0
# As eject(1) does: CDROM_LOCKDOOR, because udev has the kernel keep a disc in that it has found, then CDROMEJECT, on a drive that is
# opened whatever is in it. udev may look at the drive meanwhile, and lock it again.
is_ejected() {
    perl -MFcntl -e 'sysopen(DRIVE, shift, O_RDONLY | O_NONBLOCK) && ioctl(DRIVE, 0x5329, 0) && ioctl(DRIVE, 0x5309, 0) or die "eject: $!\n"' $DRIVE
    is_open
}
is_open() { sg_requests "/dev/$(basename /sys/class/block/sr0/device/scsi_generic/sg*)" 2>&1 | grep 'tray open'; }
has_size() { [ "$(blockdev --getsize64 $DRIVE)" = "$1" ]; }

case $1 in
    mount)
        modprobe -a sr_mod isofs
        # Who opens the drive does not close the tray.
        echo 0 > /proc/sys/dev/cdrom/autoclose
        within 20 test -b $DRIVE
        within 30 has_size "$2"
        within 20 sh -c "udevadm info $DRIVE | grep -q ID_CDROM=1"
        mount -t iso9660 -o ro $DRIVE "$MOUNT_POINT"
        (cd "$MOUNT_POINT" && echo "$3  data.bin" | b2sum --quiet --check)
        say "a disc of $2 bytes is mounted"
        ;;
    asked)
        within 20 is_open
        udevadm settle
        say 'the disc was given out'
        ;;
    release)
        umount "$MOUNT_POINT" 2> /dev/null || umount -l "$MOUNT_POINT"
        within 20 is_ejected
        say 'the disc is out'
        ;;
    *) fail "$1 is nothing that this job does" ;;
esac
