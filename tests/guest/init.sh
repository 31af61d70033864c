#!/bin/bash
# The first process of the guest: makes it a host with a network, then runs jobs, or a shell for a person.
#
# A job is one line on the port of the agent: a time limit in seconds and a command. The answer is what the command wrote,
# each line after a `|`, and a line with `=` and its exit status (124 and 137 mean that its time was over). What a job
# starts in the background lives on until the guest ends. When the other side closes the port, the guest switches itself off.

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=vt100

switch_off() {
    sync
    busybox poweroff -f
    # Process 1 must not end before the machine does.
    sleep infinity
}

make_host() {
    mount -t proc proc /proc
    mount -t sysfs sys /sys
    mount -t tmpfs -o mode=755 run /run
    mount -t tmpfs tmp /tmp
    mkdir -p /dev/pts /dev/shm /run/lock/iscsi
    mount -t devpts devpts /dev/pts
    mount -t tmpfs shm /dev/shm
    hostname guest
    # As udev has it on hosts with systemd: the kernel asks drives every two seconds whether they have another disc.
    echo 2000 > /sys/module/block/parameters/events_dfl_poll_msecs
    /lib/systemd/systemd-udevd --daemon
    # Only what jobs look for: each event takes an emulated processor a moment, and may load a driver that nobody needs.
    udevadm trigger --action=add --subsystem-match=block --subsystem-match=net --subsystem-match=virtio-ports
    udevadm settle
    ip link set lo up
    local number=0 address
    for address in ${addresses//,/ }; do
        ip address add "$address" dev eth$number
        ip link set eth$number up
        number=$((number + 1))
    done
    [ -z "$has_host" ] || mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose host /host
    # From here on the console shows what the kernel says about its devices.
    dmesg --console-level debug
}

run_jobs() {
    local limit_s command status
    until [ -e /dev/virtio-ports/agent ]; do sleep 0.1; done
    exec 3<> /dev/virtio-ports/agent
    echo '=ready' >&3
    while read -r limit_s command <&3; do
        echo "guest: at $(cut -d ' ' -f 1 /proc/uptime) s: $command" > /dev/console
        # To a file, not to a pipe: the job is over when its first process is, whatever it leaves behind.
        timeout --kill-after 5 "$limit_s" bash -c "$command" < /dev/null > /run/job.log 2>&1 3>&-
        status=$?
        sed -e 's/^/|/' -e '$a\' /run/job.log >&3
        echo "=$status" >&3
    done
}

# A host as people have it: systemd with its network, and the agent as a service.
become_systemd() {
    mount -t tmpfs -o mode=755 run /run
    [ -z "$has_host" ] || mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144,cache=loose host /host
    local units=/run/systemd/system number=0 address
    mkdir -p "$units/multi-user.target.wants" "$units/network-online.target.wants" /run/systemd/network
    for address in ${addresses//,/ }; do
        printf '[Match]\nName=eth%s\n[Network]\nAddress=%s\n' $number "$address" > /run/systemd/network/eth$number.network
        number=$((number + 1))
    done
    ln -s /lib/systemd/system/systemd-networkd.service "$units/multi-user.target.wants/"
    ln -s /lib/systemd/system/systemd-networkd-wait-online.service "$units/network-online.target.wants/"
    # The agent is there also when something else never is.
    printf '%s\n' '[Unit]' 'After=systemd-udevd.service' '[Service]' 'ExecStart=/bin/bash /rig/init.sh agent' 'StandardError=tty' \
        > "$units/rig-agent.service"
    ln -s ../rig-agent.service "$units/multi-user.target.wants/"
    hostname guest
    mkdir -p /var/log/journal
    umount /proc
    exec /lib/systemd/systemd
}

addresses=
is_agent=
has_host=
is_systemd=
read_command_line() {
    local word
    for word in $(cat /proc/cmdline); do
        case $word in
            rig.addresses=*) addresses=${word#*=} ;;
            rig.agent) is_agent=yes ;;
            rig.host) has_host=yes ;;
            rig.systemd) is_systemd=yes ;;
        esac
    done
}

if [ "${1:-}" = agent ]; then
    run_jobs
    systemctl poweroff
    exit
fi
mount -t proc proc /proc
read_command_line
[ -z "$is_systemd" ] || become_systemd
make_host
if [ -n "$is_agent" ]; then
    run_jobs
else
    echo 'The jobs are in /rig/jobs; Ctrl-D switches the guest off.'
    setsid --ctty bash --login < /dev/ttyS0 > /dev/ttyS0 2>&1
fi
switch_off
