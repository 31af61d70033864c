# A server by an RDMA adapter in software, for who uses it in the guest itself.
#
# rdma-server.sh serve siw|rxe ADDRESS MIB: it has two targets at this address of eth0: `disk`, which has so many MiB, and `strict`, which
#   insists on digests.
# rdma-server.sh kill: it is killed.
# rdma-server.sh again: it comes again.
# rdma-server.sh end: it ends, and has had nothing to complain about.
. /rig/jobs/lib.sh
. /rig/jobs/rdma.sh

# On the guest's disk: what it has written is there when it comes again.
readonly DIRECTORY=/var/tmp/rdma-server SOCKET=$SCRATCH/rdma-server.control LOG=$SCRATCH/rdma-server.log PID=$SCRATCH/rdma-server.pid
readonly PORT=3270 PREFIX=iqn.2026-11.org.sanwire
export XDG_STATE_HOME=$DIRECTORY/state

is_over() { ! kill -0 "$(< "$PID")" 2> /dev/null; }

again() {
    /host/sanwire serve --config "$DIRECTORY/sanwire.toml" --control "$SOCKET" >> "$LOG" 2>&1 &
    echo $! > "$PID"
    (within 30 /host/sanwire ctl --socket "$SOCKET" status) || fail "$(cat "$LOG")"
}

serve() {
    rm -rf "$DIRECTORY" "$LOG"
    mkdir -p "$DIRECTORY"
    start_rdma "$1"
    cat > "$DIRECTORY/sanwire.toml" << CONFIG
wire = ["iser:$2:$PORT,path=rdma"]

[[volume]]
name = "disk"
store = "file:$DIRECTORY/disk"
size = "$3M"

[[volume]]
name = "other"
store = "ram:8M"

[[target]]
name = "$PREFIX:disk"
lun = { 0 = "disk" }
allow = ["any"]

[[target]]
name = "$PREFIX:strict"
lun = { 0 = "other" }
allow = ["any"]
require-digests = true
CONFIG
    again
}

kill_it() {
    kill -KILL "$(< "$PID")"
    within 10 is_over
}

end() {
    kill -TERM "$(< "$PID")"
    within 30 is_over
    ! grep -E 'ERROR|panic' "$LOG" || fail "$(cat "$LOG")"
}

case $1 in
    kill) kill_it ;;
    *) "$@" ;;
esac
