# fio-verify.sh DEVICE: writes 16 MiB in blocks of all lengths in random order, many at a time, and verifies every one.
. /rig/jobs/lib.sh

device=$(block_device "$1")
fio --name=verify --filename="$device" --ioengine=libaio --direct=1 --rw=randwrite --bsrange=4k-256k --iodepth=32 --size=16m \
    --verify=crc32c --verify_fatal=1 --do_verify=1 --randrepeat=1 --output-format=terse --minimal > "$SCRATCH/fio" 2>&1 ||
    fail "$(tail -n 20 "$SCRATCH/fio")"
say 'verified'
