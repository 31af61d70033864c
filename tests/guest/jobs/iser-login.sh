# iser-login.sh PORTAL IQN [SETTING=VALUE]...: logs in over iSER, and stays so for the jobs that follow.
. /rig/jobs/lib.sh
. /rig/jobs/iscsi.sh
. /rig/jobs/iser.sh

start_iser
login "$1" "$2" iface.transport_name=iser "${@:3}"
expect 'Iface Transport: iser' iscsiadm -m session -P 1
