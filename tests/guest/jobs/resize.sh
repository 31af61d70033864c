# resize.sh DEVICE BYTES: after a rescan the device has this size, and its last bytes can be written and read.
. /rig/jobs/lib.sh

device=$1 bytes=$2
has_size() { [ "$(blockdev --getsize64 "$device")" = "$bytes" ]; }

iscsiadm -m session --rescan > "$SCRATCH/rescan" || fail "$(cat "$SCRATCH/rescan")"
within 20 has_size
head -c 1M /dev/urandom > "$SCRATCH/end"
dd if="$SCRATCH/end" of="$device" bs=64k seek=$(((bytes - 1048576) / 65536)) oflag=direct status=none
dd if="$device" bs=64k skip=$(((bytes - 1048576) / 65536)) iflag=direct status=none | cmp - "$SCRATCH/end"
say "$device has $bytes bytes"
