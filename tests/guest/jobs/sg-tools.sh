# sg-tools.sh DEVICE OTHER_DEVICE: what the disk says of itself, and its commands beyond reading and writing, by sg3-utils. Both
# devices have blocks of 512 bytes and are of one server; their first 4 MiB are overwritten.
. /rig/jobs/lib.sh

device=$1 other=$2
readonly BLOCK=512

inquiry() {
    expect 'PDT=0|Peripheral device type: disk' sg_inq "$device"
    local page
    for page in 0x80 0x83 0xb0 0xb1 0xb2; do
        expect "$page|\\[$page\\]|$page " sg_vpd -p sv -l "$device"
    done
    expect 'Unit serial number: .' sg_vpd -p sn "$device"
    expect 'designator type: NAA|NAA' sg_vpd -p di "$device"
    expect 'Target port group|Relative target port' sg_vpd -p di "$device"
    expect 'Maximum transfer length: [1-9]' sg_vpd -p bl "$device"
    expect 'Maximum compare and write length: [1-9]' sg_vpd -p bl "$device"
    expect 'Maximum unmap LBA count: (-1|[1-9])' sg_vpd -p bl "$device"
    expect 'Unmap command supported \(LBPU\): 1' sg_vpd -p lbpv "$device"
    [ "$(sg_vpd -p sn "$device")" != "$(sg_vpd -p sn "$other")" ] || fail 'both devices have one serial number'
    sg_turs "$device"
    expect 'No Sense|Good' sg_requests "$device"
}

capacity() {
    local bytes
    bytes=$(blockdev --getsize64 "$device")
    expect "Number of logical blocks=$((bytes / BLOCK))\$" sg_readcap "$device"
    expect "Number of logical blocks=$((bytes / BLOCK))\$" sg_readcap --16 "$device"
    expect "Logical block length=$BLOCK bytes" sg_readcap --16 "$device"
    expect 'lbpme=1' sg_readcap --16 "$device"
}

luns() {
    expect 'Lun list length = [1-9]' sg_luns "$device"
}

opcodes() {
    sg_opcodes "$device" > "$SCRATCH/opcodes"
    local name
    for name in 'Read\(10\)' 'Write\(16\)' 'Compare and write' 'Unmap' 'Extended copy' 'Persistent reserve in' 'Report target port groups' \
        'Write same\(16\)' 'Synchronize cache'; do
        grep -qiE "$name" "$SCRATCH/opcodes" || fail "no '$name' in: $(cat "$SCRATCH/opcodes")"
    done
}

target_port_groups() {
    expect 'asymmetric access state ?: ?0x0' sg_rtpg "$device"
    expect 'active/optimized' sg_rtpg --decode "$device"
}

unmap() {
    head -c 1M /dev/urandom > "$SCRATCH/data"
    dd if="$SCRATCH/data" of="$device" bs=1M oflag=direct conv=notrunc status=none
    expect "LBA: 0x0+ .* mapped" sg_get_lba_status --lba=0 "$device"
    sg_unmap --force --lba=256 --num=512 "$device"
    cp "$SCRATCH/data" "$SCRATCH/wanted"
    dd if=/dev/zero of="$SCRATCH/wanted" bs=$BLOCK seek=256 count=512 conv=notrunc status=none
    blockdev --flushbufs "$device"
    same_blocks "$device" 0 2048 "$SCRATCH/wanted"
    expect 'deallocated' sg_get_lba_status --lba=256 "$device"
}

write_same() {
    head -c $BLOCK /dev/urandom > "$SCRATCH/block"
    sg_write_same --16 --in="$SCRATCH/block" --lba=64 --num=64 "$device" > /dev/null
    for _ in $(seq 64); do cat "$SCRATCH/block"; done > "$SCRATCH/wanted"
    same_blocks "$device" 64 64 "$SCRATCH/wanted"
    sg_write_same --16 --unmap --lba=64 --num=64 "$device" > /dev/null
    head -c $((64 * BLOCK)) /dev/zero > "$SCRATCH/wanted"
    same_blocks "$device" 64 64 "$SCRATCH/wanted"
    sg_sync "$device"
    sg_verify --lba=0 --count=64 "$device"
}

compare_and_write() {
    head -c $BLOCK /dev/urandom > "$SCRATCH/old"
    head -c $BLOCK /dev/urandom > "$SCRATCH/new"
    cat "$SCRATCH/old" "$SCRATCH/new" > "$SCRATCH/both"
    dd if="$SCRATCH/old" of="$device" bs=$BLOCK seek=8 oflag=direct conv=notrunc status=none
    sg_compare_and_write --in="$SCRATCH/both" --lba=8 --num=1 --xferlen=$((2 * BLOCK)) "$device"
    same_blocks "$device" 8 1 "$SCRATCH/new"
    # 14 is what sg3-utils make of MISCOMPARE.
    local status=0
    sg_compare_and_write --in="$SCRATCH/both" --lba=8 --num=1 --xferlen=$((2 * BLOCK)) "$device" 2> /dev/null || status=$?
    [ $status = 14 ] || fail "a comparison that must fail ended with status $status"
    same_blocks "$device" 8 1 "$SCRATCH/new"
}

extended_copy() {
    head -c 2M /dev/urandom > "$SCRATCH/data"
    dd if="$SCRATCH/data" of="$device" bs=1M oflag=direct conv=notrunc status=none
    dd if=/dev/zero of="$other" bs=1M count=3 oflag=direct conv=notrunc status=none
    expect 'Implemented descriptor|descriptor list|Maximum' sg_copy_results --params "$device"
    sg_xcopy if="$device" of="$other" bs=$BLOCK count=4096 seek=64
    same_blocks "$other" 64 4096 "$SCRATCH/data"
    # Within one unit.
    sg_xcopy if="$device" of="$device" bs=$BLOCK count=1024 skip=0 seek=4096
    head -c $((1024 * BLOCK)) "$SCRATCH/data" > "$SCRATCH/wanted"
    same_blocks "$device" 4096 1024 "$SCRATCH/wanted"
}

for part in ${3:-inquiry capacity luns opcodes target_port_groups unmap write_same compare_and_write extended_copy}; do
    say "$part"
    $part
done
