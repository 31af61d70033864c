# multipath.sh PORTAL_1 PORTAL_2 IQN [SETTING=VALUE]...: one device over two portals. Each link is cut in turn while fio writes: no write fails,
# and the path comes back.
. /rig/jobs/lib.sh
. /rig/jobs/iscsi.sh
. /rig/jobs/paths.sh

join_paths "$@"
begin_writing "$device"
for card in eth0 eth1; do
    say "without $card"
    ip link set $card down
    within 60 count_paths failed 1
    sleep 2
    ip link set $card up
    within 60 count_paths active 2
done
end_writing "$writer"
bash /rig/jobs/fio-verify.sh "$device"
part_paths "${@:1:3}" "$device"
