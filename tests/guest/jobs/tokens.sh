# tokens.sh DEVICE OTHER_DEVICE: tokens that stand for data. Both devices have blocks of 512 bytes and
# are of one server; their first 2 MiB are overwritten.
. /rig/jobs/lib.sh
. /rig/jobs/rod.sh

device=$1 other=$2

expect '[Pp]opulate token' sg_opcodes "$device"
expect '[Ww]rite using token' sg_opcodes "$device"
expect '[Rr]ange [Dd]escriptors: 64' sg_vpd -p 0x8f "$device"
expect '[Dd]efault [Ii]nactivity [Tt]imeout: 30 seconds' sg_vpd -p 0x8f "$device"
expect '[Tt]oken [Tt]ransfer [Ss]ize: 2097152' sg_vpd -p 0x8f "$device"
expect '800001|hange [Vv]ulnerable' sg_vpd -p 0x8f "$device"
say 'the page is read'

head -c 2M /dev/urandom > "$SCRATCH/data"
dd if="$SCRATCH/data" of="$device" bs=1M oflag=direct conv=notrunc status=none
dd if=/dev/zero of="$other" bs=1M count=2 oflag=direct conv=notrunc status=none
expect 'Good' populate "$device" 07 "$(range 64 1000)" "$(range 8 24)"
token "$device" 07 "$SCRATCH/token"
expect 'Good' write_token "$other" 08 "$SCRATCH/token" 4 "$(range 100 1000)" "$(range 3000 20)"
{
    dd if="$SCRATCH/data" bs=512 skip=68 count=996 status=none
    dd if="$SCRATCH/data" bs=512 skip=8 count=4 status=none
} > "$SCRATCH/wanted"
same_blocks "$other" 100 1000 "$SCRATCH/wanted"
dd if="$SCRATCH/data" bs=512 skip=12 count=20 status=none > "$SCRATCH/wanted"
same_blocks "$other" 3000 20 "$SCRATCH/wanted"
say 'a token was written'

dd if="$SCRATCH/data" of="$device" bs=512 seek=70 count=1 oflag=direct conv=notrunc status=none
refuse 'oken cancelled|asc=23|23 08' write_token "$other" 08 "$SCRATCH/token" 0 "$(range 0 8)"
head -c 4096 /dev/zero > "$SCRATCH/wanted"
same_blocks "$other" 0 8 "$SCRATCH/wanted"
say 'a token of data that has changed is refused'

bytes ffff0001 000001f8 > "$SCRATCH/zeroes"
head -c 504 /dev/zero >> "$SCRATCH/zeroes"
expect 'Good' write_token "$other" 08 "$SCRATCH/zeroes" 0 "$(range 100 100)"
head -c 51200 /dev/zero > "$SCRATCH/wanted"
blockdev --flushbufs "$other"
same_blocks "$other" 100 100 "$SCRATCH/wanted"
say 'zeroes were written'
