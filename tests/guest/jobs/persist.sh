# persist.sh DEVICE PATH: persistent reservations; both are the same logical unit, seen by two initiator ports.
. /rig/jobs/lib.sh

device=$1 path=$2
readonly WRITE_EXCLUSIVE=1 EXCLUSIVE_ACCESS_REGISTRANTS_ONLY=6
# What sg3-utils make of RESERVATION CONFLICT.
readonly CONFLICT=24

change() { sg_persist --no-inquiry --out "$@" > /dev/null; }
ask() { sg_persist --no-inquiry --in "$@"; }
# A device may still have to say that something has changed: a unit attention is told once.
settle() { sg_turs "$1" > /dev/null 2>&1 || sg_turs "$1" > /dev/null 2>&1 || true; }
can_write() { dd if=/dev/zero of="$1" bs=4096 count=1 oflag=direct conv=notrunc status=none 2> /dev/null; }
conflicts() {
    local status=0
    "$@" > /dev/null 2>&1 || status=$?
    [ $status = $CONFLICT ] || fail "'$*' should be a conflict, and ended with status $status"
}

settle "$device"
settle "$path"
say 'registering'
change --register --param-sark=0xabc1 "$device"
change --register --param-sark=0xabc2 "$path"
expect '0xabc1' ask --read-keys "$device"
expect '0xabc2' ask --read-keys "$device"
conflicts change --register --param-rk=0xbad --param-sark=0x1 "$device"

say 'reserving for writing'
change --reserve --param-rk=0xabc1 --prout-type=$WRITE_EXCLUSIVE "$device"
expect 'Key=0xabc1' ask --read-reservation "$path"
expect 'Write Exclusive' ask --read-reservation "$path"
expect '0xabc1' ask --read-full-status "$path"
can_write "$device" || fail 'the holder cannot write'
! can_write "$path" || fail 'another one can write'
dd if="$path" of=/dev/null bs=4096 count=1 iflag=direct status=none
conflicts change --reserve --param-rk=0xabc2 --prout-type=$WRITE_EXCLUSIVE "$path"
change --release --param-rk=0xabc1 --prout-type=$WRITE_EXCLUSIVE "$device"
settle "$path"
can_write "$path" || fail 'after the release the other one cannot write'

say 'preempting'
change --reserve --param-rk=0xabc1 --prout-type=$EXCLUSIVE_ACCESS_REGISTRANTS_ONLY "$device"
can_write "$path" || fail 'a registrant cannot write'
change --preempt --param-rk=0xabc2 --param-sark=0xabc1 --prout-type=$EXCLUSIVE_ACCESS_REGISTRANTS_ONLY "$path"
settle "$device"
expect 'Key=0xabc2' ask --read-reservation "$path"
! can_write "$device" || fail 'who was preempted can write'

say 'clearing'
change --clear --param-rk=0xabc2 "$path"
settle "$device"
expect 'there are NO registered reservation keys' ask --read-keys "$device"
expect 'there is NO reservation held' ask --read-reservation "$device"
can_write "$device" || fail 'nobody has a reservation, and the device cannot be written'
