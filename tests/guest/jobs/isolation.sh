# isolation.sh PORTAL PREFIX ALICES_SECRET BOBS_SECRET FIRST SECOND 1|2: two CHAP users of one server, alice and bob, and what one of them does
# harms the other in nothing. The target PREFIX:alice has alice's unit, PREFIX:bob has bob's, and PREFIX:both has the first one as LUN 0 and
# the second one as LUN 1. Both units are parts of one disk, and are overwritten. LUN 1 of PREFIX:alice is a part of alice's unit, of 12 MiB,
# with a program that ends no read between its second and its tenth MiB; that of PREFIX:bob is one of bob's. The attacker does all that its own
# unit allows, while the victim works: the first one of them, and of 2 then the other one. At the end the job says what is on each unit: `alice SUM`.
. /rig/jobs/lib.sh
. /rig/jobs/iscsi.sh
. /rig/jobs/rod.sh

portal=$1 prefix=$2
declare -A secret=([alice]=$3 [bob]=$4) lun=([alice]=0 [bob]=1) kind=([alice]=ext4 [bob]=xfs) own=() beside=() load=()
readonly EXCLUSIVE_ACCESS=3 WRITE_EXCLUSIVE=1
# A read of 4 KiB, while somebody else asks for all that is possible: its longest time, and that of 99 of 100, which may be so many times that
# of before. The guest is slow, and the host may be busy.
readonly LONGEST_US=30000000 SLOWER_MAX=20 SLOW_US=1000000
# EREMOTEIO, of which the kernel tells when a command ends with a hardware error.
readonly REMOTE_IO_ERROR=121

# be IFACE NAME: this interface is the initiator of this name.
be() {
    iscsiadm -m iface -I "$1" -o new > /dev/null
    iscsiadm -m iface -I "$1" -o update -n iface.initiatorname -v "iqn.2026-11.org.example:$2" > /dev/null
}

# generic DEVICE: the same by which the kernel passes commands on as they are.
generic() { echo /dev/"$(ls "/sys/block/${1##*/}/device/scsi_generic")"; }

# enter IFACE TARGET USER SECRET: logs in as an initiator of its own.
enter() {
    local setting record=(iscsiadm -m node -T "$prefix:$2" -p "$portal" -I "$1")
    "${record[@]}" -o delete > /dev/null 2>&1 || true
    "${record[@]}" -o new > /dev/null
    for setting in session.auth.authmethod=CHAP session.auth.username="$3" session.auth.password="$4" session.queue_depth=128; do
        "${record[@]}" -o update -n "node.${setting%%=*}" -v "${setting#*=}"
    done
    "${record[@]}" --login
}

# unit TARGET LUN: its device.
unit() { block_device "/dev/disk/by-path/ip-$portal:3260-iscsi-$prefix:$1-lun-$2"; }

arrive() {
    local who
    start_iscsi
    modprobe -a ext4 xfs sg
    for who in alice bob; do
        be $who $who
        enter $who $who $who "${secret[$who]}" > /dev/null
        enter $who both $who "${secret[$who]}" > /dev/null
        own[$who]=$(unit $who 0)
        beside[$who]=$(unit both "${lun[$who]}")
    done
}

# make WHO: a file system with files.
make() {
    local who=$1
    case ${kind[$who]} in
        ext4) mkfs.ext4 -q -F "${own[$who]}" ;;
        xfs) small mkfs.xfs -q -f "${own[$who]}" ;;
    esac
    mkdir -p "/mnt/$who"
    mount "${own[$who]}" "/mnt/$who"
    fill "/mnt/$who/files" 16 > "$SCRATCH/sums-$who"
    sync -f "/mnt/$who"
}

# begin_load WHO: writes, and reads what was written, until it is ended.
begin_load() {
    fio --name="$1" --directory="/mnt/$1" --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=4 --size=4m --time_based --runtime=3600 \
        --rate_iops=60 --verify=crc32c --verify_backlog=32 --verify_fatal=1 > "$SCRATCH/load-$1" 2>&1 &
    load[$1]=$!
}

end_load() {
    kill "${load[$1]}" || fail "the load of $1 has ended: $(cat "$SCRATCH/load-$1")"
    wait "${load[$1]}" || true
    grep -q 'err= 0' "$SCRATCH/load-$1" && ! grep -qiE 'error=|verify:|Input/output' "$SCRATCH/load-$1" || fail "$(cat "$SCRATCH/load-$1")"
}

# unmount WHO: what is there is whole, read from the device.
unmount() {
    local who=$1
    umount "/mnt/$who"
    blockdev --flushbufs "${own[$who]}"
    echo 3 > /proc/sys/vm/drop_caches
    case ${kind[$who]} in
        ext4) fsck.ext4 -f -n "${own[$who]}" ;;
        xfs) xfs_repair -n "${own[$who]}" ;;
    esac > "$SCRATCH/check" 2>&1 || fail "$(cat "$SCRATCH/check")"
    mount -o ro "${own[$who]}" "/mnt/$who"
    (cd "/mnt/$who/files" && b2sum --quiet --check "$SCRATCH/sums-$who")
    umount "/mnt/$who"
}

# state WHO: all that the others may not change. A command that did not end well, also one that the kernel repeated because the unit had something
# to tell, is in `ioerr_cnt`.
state() {
    local device
    for device in "${own[$1]}" "${beside[$1]}"; do
        sg_turs "$device" || say "not ready: $?"
        cat "/sys/block/${device##*/}/device/ioerr_cnt" "/sys/block/${device##*/}/device/state"
        blockdev --getro --getsize64 "$device"
    done
    device=${own[$1]}
    sg_persist --no-inquiry --in --read-full-status "$device"
    sg_persist --no-inquiry --in --read-reservation "$device"
    # MODE SENSE (10) of all pages and subpages, as they are.
    sg_raw -r 1024 "$device" 5a 00 3f ff 00 00 00 04 00 00 2>&1
    sg_vpd -H -p di "$device"
    sg_vpd -H -p lbpv "$device"
    sg_readcap --16 "$device"
    sg_luns "$device"
}

# unharmed WHO WHAT: it has noticed nothing.
unharmed() {
    state "$1" > "$SCRATCH/now" 2>&1
    cmp -s "$SCRATCH/before-$1" "$SCRATCH/now" || fail "$2 of another one is noticed by $1: $(diff "$SCRATCH/before-$1" "$SCRATCH/now")"
    kill -0 "${load[$1]}" 2> /dev/null || fail "$2 of another one ends the work of $1: $(cat "$SCRATCH/load-$1")"
    say "at $SECONDS s: $2: $1 notices nothing"
}

# probe WHO SECONDS: reads as long as that, counted from the first one, and how long they take: p99_us and longest_us.
probe() {
    local line
    fio --name=probe --filename="${own[$1]}" --readonly --ioengine=libaio --direct=1 --rw=randread --bs=4k --rate_iops=50 --time_based \
        --runtime="$2" --output-format=terse --terse-version=3 --output="$SCRATCH/probe" > /dev/null 2>&1 || true
    line=$(grep '^3;' "$SCRATCH/probe") || fail "no line of fio: $(cat "$SCRATCH/probe")"
    [ "$(cut -d ';' -f 5 <<< "$line")" = 0 ] && [ "$(cut -d ';' -f 6 <<< "$line")" -gt 0 ] || fail "reads fail: $line"
    longest_us=$(cut -d ';' -f 15 <<< "$line")
    p99_us=$(grep -o '99\.000000%=[0-9]*' <<< "$line" | head -n 1 | cut -d = -f 2)
}

# is_writing DEVICE: writes are under way there.
is_writing() { [ "$(awk '{print $2}' "/sys/block/${1##*/}/inflight")" -gt 0 ]; }

# judge_probe: the reads in between have not taken much longer than before the attacks.
judge_probe() {
    say "99 of 100 reads take $quiet_us us, and $p99_us us meanwhile; the longest $longest_us us"
    [ "$longest_us" -lt $LONGEST_US ] || fail 'a read takes too long'
    [ "$p99_us" -lt $((quiet_us * SLOWER_MAX)) ] || [ "$p99_us" -lt $SLOW_US ] || fail 'reads take too long'
}

settle() { sg_turs "$1" > /dev/null 2>&1 || sg_turs "$1" > /dev/null 2>&1 || true; }
change() { sg_persist --no-inquiry --out "$@" > /dev/null; }
reserve() {
    change --register --param-sark="$2" "${own[$1]}"
    change --reserve --param-rk="$2" --prout-type="$3" "${own[$1]}"
}

# attack_names WHO VICTIM: as somebody else, and without the other one's secret.
attack_names() {
    local who=$1 victim=$2
    refuse 'authorization failure' enter "$who" "$victim" "$who" "${secret[$who]}"
    refuse 'authorization failure' enter "$who" "$victim" "$victim" "${secret[$who]}"
    be "not-$victim" "$victim"
    refuse 'authorization failure' enter "not-$victim" "$victim" "$who" "${secret[$who]}"
    expect "lun-list length = 8|Lun list length = 8" sg_luns "${beside[$who]}"
    unharmed "$victim" 'logging in'
}

attack_reservations() {
    local who=$1 victim=$2 key
    reserve "$who" 0xa1 $EXCLUSIVE_ACCESS
    unharmed "$victim" 'a reservation'
    for key in 0xb1 0xa1; do
        change --preempt-abort --param-rk=0xa1 --param-sark=$key --prout-type=$EXCLUSIVE_ACCESS "${own[$who]}" || true
    done
    change --register-ignore --param-sark=0xb1 "${own[$who]}"
    change --clear --param-rk=0xb1 "${own[$who]}"
    unharmed "$victim" 'the end of reservations'
}

attack_addresses() {
    local who=$1 victim=$2 lba
    head -c 512 /dev/urandom > "$SCRATCH/block"
    for lba in "$(printf '%016x' $(($(blockdev --getsz "${own[$who]}"))))" 7fffffffffffffff ffffffffffffffff; do
        local hex
        hex=$(sed 's/../& /g' <<< "$lba")
        # shellcheck disable=SC2086
        refuse 'out of range' sg_raw -r 512 "${own[$who]}" 88 00 $hex 00 00 00 01 00 00
        # shellcheck disable=SC2086
        refuse 'out of range' sg_raw -s 512 -i "$SCRATCH/block" "${own[$who]}" 8a 00 $hex 00 00 00 01 00 00
    done
    unharmed "$victim" 'reading and writing past the end'
}

attack_copies() {
    local who=$1 victim=$2
    local mine=${own[$1]} theirs=${own[$2]}
    sg_xcopy if="$mine" of="$mine" --on_src bs=512 count=64 skip=0 seek=128
    refuse 'opy' sg_xcopy if="$mine" of="$theirs" --on_src bs=512 count=64
    refuse 'opy' sg_xcopy if="$theirs" of="$mine" --on_dst bs=512 count=64
    unharmed "$victim" 'EXTENDED COPY'
    expect 'Good' populate "$theirs" 07 "$(range 0 64)"
    token "$theirs" 07 "$SCRATCH/token"
    refuse 'oken|asc=23|23 0[24]' write_token "$mine" 08 "$SCRATCH/token" 0 "$(range 0 64)"
    unharmed "$victim" 'a token'
}

attack_modes() {
    local who=$1 victim=$2
    local mine=${own[$1]} bit
    # Control page: D_SENSE, and SWP.
    for bit in 04,00 00,08; do
        local bytes=${bit%,*},00,${bit#*,},00,00,00,00,00,00,00
        sg_wr_mode --page=0x0a --contents="0a,0a,$bytes" --mask="00,00,$bytes" "$mine"
        unharmed "$victim" 'a mode'
    done
    ! dd if=/dev/zero of="$mine" bs=4096 count=1 oflag=direct conv=notrunc status=none 2> /dev/null || fail 'it is not write protected'
    # The kernel opens it for reading only by now.
    sg_wr_mode --page=0x0a --contents=0a,0a,00,00,00,00,00,00,00,00,00,00 --mask=00,00,04,00,08,00,00,00,00,00,00,00 "$(generic "$mine")"
    echo 1 > "/sys/block/${mine##*/}/device/rescan"
    within 10 dd if=/dev/zero of="$mine" bs=4096 count=1 oflag=direct conv=notrunc status=none
    sg_start --stop "$mine"
    ! sg_turs "$mine" 2> /dev/null || fail 'it is not stopped'
    unharmed "$victim" 'stopping'
    sg_start --start "$mine"
}

attack_resets() {
    local who=$1 victim=$2 scope
    for scope in device target; do
        sg_reset --no-escalate --$scope "${own[$who]}" || true
        unharmed "$victim" "a reset of the $scope"
        sg_reset --no-escalate --$scope "${beside[$who]}" || true
        unharmed "$victim" "a reset of the $scope by the target of both"
    done
    within 30 sg_turs "${own[$who]}"
    within 30 sg_turs "${beside[$who]}"
}

attack_content() {
    local who=$1 victim=$2
    local mine=${own[$1]}
    blkdiscard "$mine"
    blkdiscard --zeroout "$mine"
    unharmed "$victim" 'discarding all'
    sg_sanitize --block --quick --wait "$mine" > /dev/null
    unharmed "$victim" 'SANITIZE'
}

# attack_time WHO VICTIM: as much at a time as the initiator sends.
attack_time() {
    local who=$1 victim=$2 command pid pids=()
    local mine=${own[$1]}
    probe "$victim" 4
    quiet_us=$p99_us
    say "at $SECONDS s: 99 of 100 reads take $quiet_us us"
    head -c 1024 /dev/urandom > "$SCRATCH/both"
    touch "$SCRATCH/stalling"
    nice fio --name=stall --filename="$mine" --ioengine=libaio --direct=1 --rw=randwrite --bs=256k --iodepth=128 --time_based --runtime=3600 \
        > /dev/null 2>&1 &
    local stall=$!
    # shellcheck disable=SC2016
    for command in 'blkdiscard --zeroout "$0"' 'sg_compare_and_write --in="$1" --lba=8 --num=1 --xferlen=1024 "$0"'; do
        (while [ -e "$SCRATCH/stalling" ]; do nice bash -c "$command" "$mine" "$SCRATCH/both"; done) > /dev/null 2>&1 &
        pids+=($!)
    done
    within 60 is_writing "$mine"
    probe "$victim" 6
    kill -0 $stall 2> /dev/null || fail 'nothing stalls'
    rm "$SCRATCH/stalling"
    # Not SIGINT: what bash has in the background ignores it until it has a handler of its own.
    kill $stall
    for pid in $stall "${pids[@]}"; do wait "$pid" || true; done
    # Not before: the processors of a guest without KVM do nothing else meanwhile.
    unharmed "$victim" 'asking for much'
    judge_probe
}

has_failed() { [ $(($(cat "/sys/block/${1##*/}/device/ioerr_cnt"))) -gt "$2" ]; }

# attack_fuel WHO VICTIM: many reads at a time, of each of which a program takes all the fuel that it can get, until the device ends it.
# The victim's reads are compared with those before attack_time.
attack_fuel() {
    local who=$1 victim=$2 spinning failed spin
    spinning=$(unit "$who" 1)
    failed=$(($(cat "/sys/block/${spinning##*/}/device/ioerr_cnt")))
    nice fio --name=spin --filename="$spinning" --readonly --ioengine=libaio --direct=1 --rw=randread --bs=4k --offset=2m --size=8m \
        --iodepth=32 --time_based --runtime=3600 --continue_on_error=read --ignore_error=$REMOTE_IO_ERROR > "$SCRATCH/spin" 2>&1 &
    spin=$!
    (within 60 has_failed "$spinning" $((failed + 100))) || fail "$(tail -n 5 "$SCRATCH/spin")"
    probe "$victim" 4
    kill -0 $spin 2> /dev/null || fail 'nothing spins'
    kill $spin
    wait $spin || true
    unharmed "$victim" 'a program that spins'
    judge_probe
}

# contend WHO VICTIM: the first one attacks.
contend() {
    local who=$1 victim=$2 attack
    reserve "$victim" 0xb1 $WRITE_EXCLUSIVE
    settle "${beside[$victim]}"
    settle "${beside[$who]}"
    begin_load "$victim"
    begin_load "$who"
    sleep 1
    state "$victim" > "$SCRATCH/before-$victim" 2>&1
    ! grep 'not ready' "$SCRATCH/before-$victim" || fail "$(cat "$SCRATCH/before-$victim")"
    for attack in names reservations addresses; do "attack_$attack" "$who" "$victim"; done
    end_load "$who"
    unmount "$who"
    # From here on what is done ends its own file system.
    for attack in copies modes resets content time fuel; do "attack_$attack" "$who" "$victim"; done
    unharmed "$victim" 'all'
    end_load "$victim"
    change --clear --param-rk=0xb1 "${own[$victim]}"
    unmount "$victim"
}

trap 'jobs -p | xargs -r kill 2> /dev/null || true' EXIT
arrive
make alice
make bob
contend "$5" "$6"
if [ "$7" = 2 ]; then
    # The second one's file system is as it was, and is the attacker's now.
    make "$5"
    mount "${own[$6]}" "/mnt/$6"
    contend "$6" "$5"
fi
for who in alice bob; do
    say "$who $(dd if="${own[$who]}" bs=1M iflag=direct status=none | b2sum | cut -d ' ' -f 1)"
done
iscsiadm -m node --logoutall=all > /dev/null
