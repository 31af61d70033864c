# fio-verify.sh DEVICE: writes blocks of all lengths in random order, many at a time, and verifies every one.
. /rig/jobs/lib.sh

fio --name=verify --filename="$1" --ioengine=libaio --direct=1 --rw=randwrite --bsrange=4k-256k --iodepth=32 --size=48m \
    --verify=crc32c --verify_fatal=1 --do_verify=1 --randrepeat=1 --output-format=terse --minimal > "$SCRATCH/fio" 2>&1 ||
    fail "$(tail -n 20 "$SCRATCH/fio")"
say 'verified'
