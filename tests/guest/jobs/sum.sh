# sum.sh DEVICE: says the SHA-256 of what is on it.
. /rig/jobs/lib.sh

device=$(block_device "$1")
blockdev --flushbufs "$device"
dd if="$device" bs=1M iflag=direct status=none | sha256sum | cut -d ' ' -f 1
