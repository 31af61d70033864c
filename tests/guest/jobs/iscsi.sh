# What the jobs of iSCSI share: the initiator of the kernel with the programs of open-iscsi.
# A target is named by two arguments: PORTAL, an address with or without a port, and IQN.

start_iscsi() {
    pidof iscsid > /dev/null && return
    modprobe iscsi_tcp
    mkdir -p /run/lock/iscsi
    iscsid
}

# The device of a target's LUN 0: by path, so that two portals are two devices.
device_of() {
    local portal=$1 iqn=$2
    case $portal in *:*) ;; *) portal+=:3260 ;; esac
    echo "/dev/disk/by-path/ip-$portal-iscsi-$iqn-lun-0"
}

# add_target PORTAL IQN [SETTING=VALUE]...: makes its record, anew.
add_target() {
    local portal=$1 iqn=$2 setting
    shift 2
    iscsiadm -m node -T "$iqn" -p "$portal" -o delete > /dev/null 2>&1 || true
    iscsiadm -m node -T "$iqn" -p "$portal" -o new > /dev/null
    for setting in "$@"; do
        iscsiadm -m node -T "$iqn" -p "$portal" -o update -n "${setting%%=*}" -v "${setting#*=}"
    done
}

# login PORTAL IQN [SETTING=VALUE]...: logs in, and waits for the device of LUN 0.
login() {
    start_iscsi
    add_target "$@"
    iscsiadm -m node -T "$2" -p "$1" --login
    within 20 test -b "$(device_of "$1" "$2")"
}

# discover INTERFACE PORTAL IQN...: the server has exactly these targets.
discover() {
    local interface=$1 portal=$2 found wanted
    shift 2
    start_iscsi
    # Records of what was found would stand in the way of those that login makes.
    found=$(iscsiadm -m discovery -t sendtargets -o nonpersistent -I "$interface" -p "$portal" | awk '{ print $2 }' | sort -u)
    wanted=$(printf '%s\n' "$@" | sort)
    [ "$found" = "$wanted" ] || fail "found: $found; wanted: $wanted"
    say "found $found"
}

logout() {
    iscsiadm -m node -T "$2" -p "$1" --logout
}
