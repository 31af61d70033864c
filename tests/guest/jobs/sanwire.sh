# sanwire.sh [--OPTION=VALUE]... VOLUME_URL JOB ARGUMENTS...: the program itself on the guest's kernel: attaches a volume as a block device
# with these options, runs a job with the device as its last argument, and detaches. The program was built for the host: the guest has the
# same C library.
. /rig/jobs/lib.sh

options=()
while [[ $1 = --* ]]; do
    options+=("$1")
    shift
done
url=$1 job=$2
shift 2
export XDG_STATE_HOME=$SCRATCH/state
modprobe -a fuse loop
/host/sanwire attach "$url" "${options[@]}" --wait 60 > "$SCRATCH/attach" 2>&1 &
attachment=$!
within 60 grep -q 'is attached as' "$SCRATCH/attach" || fail "$(cat "$SCRATCH/attach")"
device=$(sed -n '/is attached as$/{n;p}' "$SCRATCH/attach")
say "$url is $device"
bash "/rig/jobs/$job.sh" "$@" "$device"
/host/sanwire detach "$device"
wait $attachment || fail "$(cat "$SCRATCH/attach")"
