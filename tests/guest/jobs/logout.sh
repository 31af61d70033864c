# logout.sh PORTAL IQN
. /rig/jobs/lib.sh
. /rig/jobs/iscsi.sh

logout "$@"
