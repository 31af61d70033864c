# The program itself as a server, on a card whose driver puts packets into its memory (AF_XDP in zero-copy mode).
#
# zero-copy.sh serve NAME INTERFACE MIB HOST [strict]: serves a volume of so many MiB, which is a file of this name, over HDSP on an
#   interface, and asks the host for echoes all the while. With `strict` no packet may have been dropped. Each time it forgets the host's MAC address, so it asks for that too.
# zero-copy.sh lengthen INTERFACE MTU HOST: its packets may be longer than the pages of that memory from now on, and come all the same.
# zero-copy.sh end NAME SIGNAL HOST: ends the server by this signal, when every echo has come. The last line is what has become of the
#   data of writes, in bytes, and what the file has: `KEPT COPIED SUM`.
. /rig/jobs/lib.sh

readonly SOCKET=$SCRATCH/control ECHOES=20
# On the guest's disk: it takes data from where it is.
readonly DIRECTORY=/var/tmp
export XDG_STATE_HOME=$SCRATCH/state

ctl() { /host/sanwire ctl --socket "$SOCKET" "$@"; }

# echoes HOST [BYTES]: so many questions, each of which is answered.
echoes() { expect " $ECHOES received, 0% packet loss" ping -q -c $ECHOES -i 0.05 -W 20 -s "${2:-56}" "$1"; }

ask_on() {
    while [ -e "$SCRATCH/asking" ]; do
        ip neigh flush dev "$2"
        echoes "$1"
        echo $ECHOES >> "$SCRATCH/echoes"
    done
}

serve() {
    local name=$1 interface=$2 mib=$3 host=$4 strict=${5:-} sockets
    rm -f "$SCRATCH/strict"
    [ -z "$strict" ] || touch "$SCRATCH/strict"
    modprobe xsk_diag
    rm -f "$SCRATCH/echoes"
    /host/sanwire serve --allow any --wire "hdsp:$interface" --volume "disk=file:$DIRECTORY/$name,size=${mib}M,direct" --control "$SOCKET" \
        > "$SCRATCH/serve" 2>&1 &
    echo $! > "$SCRATCH/serve.pid"
    within 30 ctl status
    expect "hdsp:$interface by AF_XDP, zero-copy" ctl status
    # The kernel says so too, of each socket.
    sockets=$(ss --xdp --all --extended)
    { grep -q 'umem.*,zc:1,' <<< "$sockets" && ! grep -q 'zc:0' <<< "$sockets"; } || fail "$sockets"
    touch "$SCRATCH/asking"
    ask_on "$host" "$interface" > "$SCRATCH/asked" 2>&1 &
    echo $! > "$SCRATCH/asking.pid"
    within 30 test -s "$SCRATCH/echoes"
}

# written MEMORY: bytes of HDSP's writes.
written() { ctl metrics | sed -n "s/^sanwire_hdsp_written_bytes_total{memory=\"$1\"} //p"; }

is_over() { ! kill -0 "$1"; }

# Nobody asks any more, and until now every question was answered. What is for the server may come faster than it has processor time, is
# dropped then, and comes again.
hush() {
    rm "$SCRATCH/asking"
    within 60 is_over "$(< "$SCRATCH/asking.pid")"
    [ ! -s "$SCRATCH/asked" ] || fail "$(cat "$SCRATCH/asked")"
    say "$(awk '{ sum += $1 } END { print sum }' "$SCRATCH/echoes") echoes have come"
    say "dropped: $(ctl metrics | sed -n 's/^sanwire_wire_kernel_dropped_packets_total//p')"
    [ ! -e "$SCRATCH/strict" ] || expect 'kernel_dropped_packets_total\{.*\} 0$' ctl metrics
    ! grep -E 'WARN|ERROR|panic' "$SCRATCH/serve" || fail "$(cat "$SCRATCH/serve")"
}

# The kernel has none of those sockets any more.
comes_another_way() { ctl status | grep "hdsp:$1 by AF_PACKET" && ! ss --xdp --all --no-header | grep .; }

lengthen() {
    hush
    ip link set "$1" mtu "$2"
    within 30 comes_another_way "$1"
    # The IP and ICMP headers are 28 bytes.
    echoes "$3" $(($2 - 28))
}

end() {
    local name=$1 signal=$2 host=$3 kept copied pid
    [ ! -e "$SCRATCH/asking" ] || hush
    kept=$(written 'where they came') copied=$(written copied)
    pid=$(< "$SCRATCH/serve.pid")
    kill -"$signal" "$pid"
    within 20 is_over "$pid"
    # The card is as it was before.
    echoes "$host"
    ! dmesg | grep -E 'BUG|WARNING|Call Trace' || fail 'the kernel has complained'
    say "$kept $copied $(b2sum < "$DIRECTORY/$name" | cut -d ' ' -f 1)"
}

"$@"
