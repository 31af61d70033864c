# discovery.sh PORTAL IQN...: the server has exactly these targets.
. /rig/jobs/lib.sh
. /rig/jobs/iscsi.sh

portal=$1
shift
start_iscsi
# Records of what was found would stand in the way of those that login makes.
found=$(iscsiadm -m discovery -t sendtargets -o nonpersistent -p "$portal" | awk '{ print $2 }' | sort -u)
wanted=$(printf '%s\n' "$@" | sort)
[ "$found" = "$wanted" ] || fail "found: $found; wanted: $wanted"
say "found $found"
