# sum.sh DEVICE: says the BLAKE2b sum of what is on it.
. /rig/jobs/lib.sh

device=$(block_device "$1")
blockdev --flushbufs "$device"
dd if="$device" bs=1M iflag=direct status=none | b2sum | cut -d ' ' -f 1
