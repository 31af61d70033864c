# idle.sh DEVICE: when nothing happens on it any more, the program takes no processor: neither what serves it nor what has it attached, as
# far as they run here. What an emulated processor is taken away for counts too, so the best of three times is looked at.
. /rig/jobs/lib.sh

readonly WATCH_S=5 PERCENT_MAX=10 TRIES=3

# ticks PID: the time in user mode and in the kernel, in hundredths of a second (fields 14 and 15 of /proc/PID/stat).
ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'; }

# watch: the largest share of a processor that one of them takes, in percent.
watch() {
    local pid largest=0 used
    local -A before
    for pid in "${pids[@]}"; do before[$pid]=$(ticks "$pid"); done
    sleep $WATCH_S
    for pid in "${pids[@]}"; do
        used=$((($(ticks "$pid") - before[$pid]) / WATCH_S))
        [ $used -le $largest ] || largest=$used
    done
    echo $largest
}

dd if="$1" of=/dev/null bs=1M count=8 iflag=direct status=none
read -ra pids <<< "$(pidof sanwire)"
[ ${#pids[@]} -gt 0 ] || fail 'the program does not run'
for try in $(seq 1 $TRIES); do
    sleep 1
    share=$(watch)
    say "${#pids[@]} idle processes take at most $share % of a processor each"
    [ "$share" -ge $PERCENT_MAX ] || exit 0
done
fail "they are not idle, after $try times"
