# restart.sh start DEVICE [SIZE]: begins to write with verification, in the background. restart.sh finish: ends that when every
# write has been verified; none may have failed, whatever happened to the server between the two. It writes for a quarter of a minute or more:
# who kills the server meanwhile may be held up for some seconds.
. /rig/jobs/lib.sh

# The sectors that were written to a device: field 7 of Documentation/block/stat.rst.
written() { awk '{ print $7 }' "/sys/dev/block/$(stat -c %Hr:%Lr "$1")/stat"; }
has_written_more() { [ "$(written "$1")" -gt "$2" ]; }

start() {
    local device before size=${2:-24m}
    device=$(block_device "$1")
    before=$(written "$device")
    fio --name=restart --filename="$device" --ioengine=libaio --direct=1 --rw=randwrite --bs=16k --iodepth=16 --size="$size" \
        --rate_iops=200,80 --verify=crc32c --verify_fatal=1 --do_verify=1 > "$SCRATCH/restart" 2>&1 &
    echo $! > "$SCRATCH/restart.pid"
    within 20 has_written_more "$device" "$before"
    is_running || fail "$(cat "$SCRATCH/restart")"
}

is_running() { kill -0 "$(< "$SCRATCH/restart.pid")"; }
is_over() { ! is_running; }

finish() {
    is_running || fail "it was over before the server was back: $(cat "$SCRATCH/restart")"
    within 100 is_over
    grep -q 'err= 0' "$SCRATCH/restart" || fail "$(cat "$SCRATCH/restart")"
    ! dmesg | grep 'I/O error' || fail 'the kernel saw an I/O error'
}

"$@"
