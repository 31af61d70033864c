# The program itself by an RDMA adapter in software: siw, which is iWARP over TCP, or rxe, which is RoCE; at an address of eth0.
#
# rdma-sanwire.sh whole siw|rxe ADDRESS MIB: it is server and client: copies there and back, a server that is killed and comes again
#   meanwhile, and a port where nobody is.
# rdma-sanwire.sh serve siw|rxe ADDRESS MIB: a server for others, which goes on.
# rdma-sanwire.sh end: it ends. The last line is the BLAKE2b sum of what it has stored.
# rdma-sanwire.sh copy siw|rxe URL MIB: it is a client of another server: copies there and back.
. /rig/jobs/lib.sh
. /rig/jobs/rdma.sh

# On the guest's disk: what a server has written is there when it comes again.
readonly DIRECTORY=/var/tmp/rdma SOCKET=$SCRATCH/rdma-control LOG=$SCRATCH/rdma-serve PORT=3270
readonly TARGET=iqn.2026-11.org.sanwire:disk
export XDG_STATE_HOME=$DIRECTORY/state XDG_CONFIG_HOME=$DIRECTORY/state

client() { /host/sanwire "$1" --iser-path rdma "${@:2}"; }
ctl() { /host/sanwire ctl --socket "$SOCKET" "$@"; }
is_over() { ! kill -0 "$1" 2> /dev/null; }

start() {
    /host/sanwire serve --allow any --wire "iser:$1:$PORT,path=rdma" --volume "disk=file:$DIRECTORY/disk,size=$2M" --control "$SOCKET" \
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
    ! grep -E 'ERROR|panic' "$LOG" || fail "$(cat "$LOG")"
    say "$(b2sum < "$DIRECTORY/disk" | cut -d ' ' -f 1)"
}

fresh() {
    rm -rf "$DIRECTORY" "$LOG"
    mkdir -p "$DIRECTORY"
    start_rdma "$1"
}

serve() {
    fresh "$1"
    start "$2" "$3"
    expect "iser:$2:$PORT,path=rdma" ctl status
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
    expect "${kind}0" client info "$url"
    image "$mib"
    client cp --overwrite --verify "$DIRECTORY/image" "$url"
    client cp --overwrite "$url" "$DIRECTORY/back"
    same "$DIRECTORY/back"
    say "$mib MiB there and back"
}

begins_alike() { cmp -s -n 65536 "$1" "$2"; }

whole() {
    local kind=$1 address=$2 mib=$3 url=iser://$2:$PORT/$TARGET/0 server copying
    serve "$kind" "$address" "$mib"
    copy "$kind" "$url" "$mib"
    same "$DIRECTORY/disk"

    image "$mib"
    client cp --overwrite --wait 60 --verify "$DIRECTORY/image" "$url" > "$SCRATCH/copy" 2>&1 &
    copying=$!
    within 20 begins_alike "$DIRECTORY/image" "$DIRECTORY/disk"
    server=$(< "$SCRATCH/rdma.pid")
    kill -KILL "$server"
    ! is_over $copying || fail "the copy was over before the server was killed: $(cat "$SCRATCH/copy")"
    within 10 is_over "$server"
    sleep 2
    start "$address" "$mib"
    wait $copying || fail "$(cat "$SCRATCH/copy" "$LOG")"
    same "$DIRECTORY/disk"
    say 'a server that was killed came again, and nothing was lost'

    refuse 'nobody at' client info --wait 1 "iser://$address:9/$TARGET/0"
    end
}

"$@"
