# The program itself by an RDMA adapter in software: siw, which is iWARP over TCP, or rxe, which is RoCE; at an address of eth0.
#
# rdma-sanwire.sh whole siw|rxe ADDRESS MIB: it is server and client: copies there and back, a server that is killed and comes again
#   meanwhile, and a port where nobody is.
# rdma-sanwire.sh whole-of-somebody siw|rxe ADDRESS MIB: the same by a user who is not root.
# rdma-sanwire.sh crowd siw|rxe ADDRESS COUNT: a server has so many sessions at once, which end at once.
# rdma-sanwire.sh absence siw|rxe ADDRESS: the adapter of a server goes, and one of the other kind comes.
# rdma-sanwire.sh silence GATEWAY: a host behind that router that does not answer.
# rdma-sanwire.sh serve siw|rxe ADDRESS MIB: a server for others, which goes on.
# rdma-sanwire.sh end: it ends. The last line is the BLAKE2b sum of what it has stored.
# rdma-sanwire.sh copy siw|rxe URL MIB: it is a client of another server: copies there and back.
. /rig/jobs/lib.sh
. /rig/jobs/rdma.sh

# On the guest's disk: what a server has written is there when it comes again.
readonly DIRECTORY=/var/tmp/rdma SOCKET=$SCRATCH/rdma-control LOG=$SCRATCH/rdma-serve PORT=3270
readonly TARGET=iqn.2026-11.org.sanwire:disk
export XDG_STATE_HOME=$DIRECTORY/state XDG_CONFIG_HOME=$DIRECTORY/state

# As whom the program runs.
AS=()

client() { "${AS[@]}" /host/sanwire "$1" --iser-path rdma "${@:2}"; }
ctl() { /host/sanwire ctl --socket "$SOCKET" "$@"; }
is_over() { ! kill -0 "$1" 2> /dev/null; }

# as_somebody: from now on as a user who is not root, and who may lock as much memory as users may.
as_somebody() {
    AS=(prlimit --memlock=8388608:8388608 setpriv --reuid 65534 --regid 65534 --clear-groups)
    chown -R 65534:65534 "$DIRECTORY"
}

# host ADDRESS: as it is written before a port.
host() { case $1 in *:*) say "[$1]" ;; *) say "$1" ;; esac; }
url() { say "iser://$(host "$1"):$PORT/$TARGET/0"; }

# have ADDRESS: eth0 has one of IPv4 from the start.
have() { [[ $1 != *:* ]] || ip address replace "$1/64" dev eth0 nodad; }

start() {
    "${AS[@]}" /host/sanwire serve --allow any --wire "iser:$(host "$1"):$PORT,path=rdma" --volume "disk=file:$DIRECTORY/disk,size=$2M" --control "$SOCKET" \
        >> "$LOG" 2>&1 &
    echo $! > "$SCRATCH/rdma.pid"
    within 30 ctl status
}

# There is a program that serves RDMA, and it has nothing to complain about.
end() {
    local server
    server=$(< "$SCRATCH/rdma.pid")
    kill -TERM "$server"
    within 30 is_over "$server"
    ! grep -E 'ERROR|panic' "$LOG" | grep -v 'the RDMA adapter of .* is gone' || fail "$(cat "$LOG")"
    say "$(b2sum < "$DIRECTORY/disk" | cut -d ' ' -f 1)"
}

fresh() {
    rm -rf "$DIRECTORY" "$LOG" "$SOCKET"
    mkdir -p "$DIRECTORY"
    start_rdma "$1"
}

serve() {
    have "$2"
    fresh "$1"
    start "$2" "$3"
    # Brackets mean something else in a pattern.
    expect "iser:$(host "$2" | tr '[]' '..'):$PORT,path=rdma" ctl status
}

# image MIB: another one.
image() { head -c "${1}M" /dev/urandom > "$DIRECTORY/image"; }

# same PATH...: what the image is.
same() {
    local path
    for path in "$@"; do cmp "$DIRECTORY/image" "$path" || fail "$path is not what was copied"; done
}

copy() {
    local kind=$1 url=$2 mib=$3
    [ -d "$DIRECTORY" ] || fresh "$kind"
    expect "${kind}0 (.*), path MTU [0-9]" client info "$url"
    image "$mib"
    client cp --overwrite --verify "$DIRECTORY/image" "$url"
    client cp --overwrite "$url" "$DIRECTORY/back"
    same "$DIRECTORY/back"
    say "$mib MiB there and back"
}

begins_alike() { cmp -s -n 65536 "$1" "$2"; }

whole() {
    serve "$1" "$2" "$3"
    round "$@"
}

whole-of-somebody() {
    have "$2"
    fresh "$1"
    as_somebody
    start "$2" "$3"
    round "$@"
}

round() {
    local kind=$1 address=$2 mib=$3 url server copying
    url=$(url "$address")
    copy "$kind" "$url" "$mib"
    same "$DIRECTORY/disk"

    server=$(< "$SCRATCH/rdma.pid")
    for _ in 1 2 3 4 5; do
        image "$mib"
        client cp --overwrite --wait 60 --verify "$DIRECTORY/image" "$url" > "$SCRATCH/copy" 2>&1 &
        copying=$!
        within 20 begins_alike "$DIRECTORY/image" "$DIRECTORY/disk"
        kill -STOP "$server"
        # One that was over before this job was let go on is none that a death of the server interrupts.
        is_over $copying || break
        kill -CONT "$server"
        wait $copying || fail "$(cat "$SCRATCH/copy" "$LOG")"
    done
    kill -KILL "$server"
    ! is_over $copying || fail "the copy was over before the server was killed: $(cat "$SCRATCH/copy")"
    within 10 is_over "$server"
    sleep 2
    start "$address" "$mib"
    wait $copying || fail "$(cat "$SCRATCH/copy" "$LOG")"
    same "$DIRECTORY/disk"
    say 'a server that was killed came again, and nothing was lost'

    refuse 'nobody at' client info --wait 1 "iser://$(host "$address"):9/$TARGET/0"
    end
}

# has_sessions KIND COUNT: so many by that adapter.
has_sessions() { [ "$(ctl sessions --json | grep -o "\"adapter\": *\"${1}0" | wc -l)" = "$2" ]; }

crowd() {
    local kind=$1 address=$2 count=$3 clients=() number
    serve "$kind" "$address" 8
    for number in $(seq "$count"); do
        # Each is another initiator.
        XDG_STATE_HOME=$DIRECTORY/state-$number /host/sanwire attach --iser-path rdma --again --wait 60 --as nbd \
            --socket "$SCRATCH/crowd-$number.nbd" "$(url "$address")" > "$SCRATCH/crowd-$number" 2>&1 &
        clients+=($!)
    done
    (within 30 has_sessions "$kind" "$count") || fail "$(ctl sessions; cat "$SCRATCH"/crowd-*[0-9] "$LOG")"
    kill -KILL "${clients[@]}"
    within 30 has_sessions "$kind" 0
    # It has room for others.
    expect "${kind}0" client info "$(url "$address")"
    end
    say "$count sessions at once"
}

# tells LINE: the log of the server has it.
tells() { grep -q "$1" "$LOG"; }

# What programs have open is taken from the kernel's adapters in software only when they have let go of it, which librdmacm does when it
# finds another one: so one of the other kind takes the place of the first.
absence() {
    local kind=$1 address=$2 other=rxe deleting
    [ "$kind" = siw ] || other=siw
    serve "$kind" "$address" 8
    rdma link delete "${kind}0" &
    deleting=$!
    within 10 tells 'the RDMA adapter of .* is gone'
    ctl status > /dev/null
    add_rdma "$other"
    within 10 tells 'the RDMA adapter of .* is back'
    expect "${other}0" client info --wait 20 "$(url "$address")"
    within 10 is_over "$deleting"
    wait "$deleting"
    end
    say 'an adapter went, and another one took its place'
}

silence() {
    local begun=$SECONDS
    start_rdma siw
    ip route replace 198.51.100.1 via "$1" dev eth0
    # siw asks by TCP, which goes on for two minutes; whoever is asked on a slow machine has some time.
    refuse 'iser://198.51.100.1' client info --wait 2 "$(url 198.51.100.1)"
    [ $((SECONDS - begun)) -lt 60 ] || fail "a silent host has held its client for $((SECONDS - begun)) s"
    say 'nobody is held by a host that does not answer'
}

"$@"
