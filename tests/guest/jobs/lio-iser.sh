# lio-iser.sh ADDRESS IQN MIB: Linux' own target serves a disk of so many MiB there over iSER, to everybody.
. /rig/jobs/lib.sh
. /rig/jobs/iser.sh

address=$1 iqn=$2 mib=$3
start_iser
modprobe -a target_core_file iscsi_target_mod ib_isert
mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
target=/sys/kernel/config/target
disk=$target/core/fileio_0/disk
group=$target/iscsi/$iqn/tpgt_1
mkdir -p "$disk" "$group/lun/lun_0"
truncate -s "${mib}M" "$SCRATCH/lio.img"
echo "fd_dev_name=$SCRATCH/lio.img,fd_dev_size=$((mib << 20))" > "$disk/control"
echo 1 > "$disk/enable"
ln -s "$disk" "$group/lun/lun_0/disk"
echo 0 > "$group/attrib/authentication"
echo 1 > "$group/attrib/generate_node_acls"
echo 0 > "$group/attrib/demo_mode_write_protect"
# A portal begins as one of plain iSCSI, whose port siw cannot have too, for it takes its port from TCP. So that one begins in a
# network where nobody is.
ip netns add aside
ip -n aside link set lo up
ip -n aside address add "$address/32" dev lo
nsenter --net=/run/netns/aside mkdir "$group/np/$address:3260"
echo 1 > "$group/np/$address:3260/iser"
echo 1 > "$group/enable"
say "$iqn is served"
