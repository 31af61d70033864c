# One device over two portals that are two target port groups, whose states change while fio writes.
# alua.sh start PORTAL_1 PORTAL_2 IQN: begins. alua.sh only PATH: everything goes by path 0 or 1. alua.sh both: by both of them.
# alua.sh finish PORTAL_1 PORTAL_2 IQN: no write has failed.
. /rig/jobs/lib.sh
. /rig/jobs/iscsi.sh
. /rig/jobs/paths.sh

readonly STATE=$SCRATCH/alua

start() {
    join_paths "$@"
    begin_writing "$device"
    declare -p paths device writer > "$STATE"
    both
}

# The sectors that were written by a path: field 7 of Documentation/block/stat.rst.
written() { awk '{ print $7 }' "/sys/block/${paths[$1]}/stat"; }

# goes_by FIRST SECOND: whether something is written by these paths in half a second, 1 for yes.
goes_by() {
    local before=("$(written 0)" "$(written 1)") path
    sleep 0.5
    for path in 0 1; do
        [ "$(($(written $path) > before[path]))" = "$1" ] || return 1
        shift
    done
}

only() { within 200 goes_by $((1 - $1)) "$1"; }
both() { within 200 goes_by 1 1; }

finish() {
    end_writing "$writer"
    bash /rig/jobs/fio-verify.sh "$device"
    part_paths "$@" "$device"
}

[ "$1" = start ] || . "$STATE"
"$@"
say "$*: so it is"
