# iser-multipath.sh PORTAL_1 PORTAL_2 IQN: as multipath.sh, over iSER.
. /rig/jobs/lib.sh
. /rig/jobs/iser.sh

start_iser eth0 eth1
bash /rig/jobs/multipath.sh "$@" iface.transport_name=iser
