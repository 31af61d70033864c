# iser-discovery.sh PORTAL IQN...: the server has exactly these targets, asked over iSER.
. /rig/jobs/lib.sh
. /rig/jobs/iscsi.sh
. /rig/jobs/iser.sh

start_iser
discover iser "$@"
