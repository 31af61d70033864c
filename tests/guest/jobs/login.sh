# login.sh PORTAL IQN [SETTING=VALUE]...: logs in, and stays so for the jobs that follow.
. /rig/jobs/lib.sh
. /rig/jobs/iscsi.sh

login "$@"
