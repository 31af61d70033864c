# discovery.sh PORTAL IQN...: the server has exactly these targets.
. /rig/jobs/lib.sh
. /rig/jobs/iscsi.sh

discover default "$@"
