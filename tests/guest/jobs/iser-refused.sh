# iser-refused.sh PORTAL IQN: a target that insists on digests lets nobody in over iSER, which has none.
. /rig/jobs/lib.sh
. /rig/jobs/iscsi.sh
. /rig/jobs/iser.sh

start_iser
start_iscsi
add_target "$1" "$2" iface.transport_name=iser node.session.initial_login_retry_max=1
refuse 'Could not log' iscsiadm -m node -T "$2" -p "$1" --login
! [ -e "$(device_of "$1" "$2")" ] || fail 'it has a device'
