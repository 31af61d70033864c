# dvd-file.sh id: prints the id by which servers know this host.
# dvd-file.sh serve DEVICE URL PORTAL IQN: DEVICE is the volume `disk` of the server at URL, by the kernel's iSCSI initiator. A file of an ext4 on
# it becomes the volume `movie`, which this host uses by the target IQN. It is the file, and is revoked when that is truncated.
. /rig/jobs/lib.sh
. /rig/jobs/iscsi.sh

export XDG_STATE_HOME=$SCRATCH/state
if [ "$1" = id ]; then
    exec /host/sanwire id
fi
shift
disk=$(block_device "$1") url=$2 portal=$3 iqn=$4
file=$MOUNT_POINT/movie log=$SCRATCH/watch
# Neither whole pages nor whole blocks.
readonly BYTES=3000001
modprobe ext4
trap 'cat "$log" || true; umount "$MOUNT_POINT" 2> /dev/null || true' EXIT

mkfs.ext4 -q -F "$disk"
mount "$disk" "$MOUNT_POINT"
head -c $BYTES /dev/urandom > "$file"
sync -f "$MOUNT_POINT"
/host/sanwire dvd create disk movie --file "$file" --principal any --at "$url" > "$log" 2>&1 &
watch=$!
within 60 grep -q 'as long as this command runs' "$log"

login "$portal" "$iqn"
dvd=$(block_device "$(device_of "$portal" "$iqn")")
blocks=$(((BYTES + 511) / 512))
[ "$(blockdev --getsize64 "$dvd")" = $((blocks * 512)) ] || fail "$dvd has $(blockdev --getsize64 "$dvd") bytes"
[ "$(blockdev --getro "$dvd")" = 1 ] || fail "$dvd can be written"
# As the kernel reads it, and by commands of its own making. Behind the end of the file are zeroes.
head -c $((blocks * 512 - BYTES)) /dev/zero | cat "$file" - > "$SCRATCH/padded"
dd if="$dvd" bs=512 count=$blocks iflag=direct status=none | cmp - "$SCRATCH/padded"
sg_dd if="$dvd" blk_sgio=1 of="$SCRATCH/copy" bs=512 bpt=64 count=$blocks 2> "$SCRATCH/sg_dd" || fail "$(cat "$SCRATCH/sg_dd")"
cmp "$SCRATCH/copy" "$SCRATCH/padded"
say "$dvd is $file"

kill -0 $watch || fail 'nobody watches the file'
truncate -s 8192 "$file"
status=0
wait $watch || status=$?
[ $status = 1 ] || fail "the command ends with status $status"
expect 'volume movie is revoked: it has 8192 bytes now, and had 3000001' cat "$log"
# The server has no such target any more.
within 60 iscsiadm -m node -T "$iqn" -p "$portal" --logout
refuse 'login fail' iscsiadm -m node -T "$iqn" -p "$portal" --login
umount "$MOUNT_POINT"
fsck.ext4 -f -n "$disk" > "$SCRATCH/check" 2>&1 || fail "$(cat "$SCRATCH/check")"
