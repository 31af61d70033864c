# package.sh STEP [ARGUMENTS...]: the package on a host with systemd, which serves two volumes to itself, and attaches one when it starts.
. /rig/jobs/lib.sh

readonly FILES=/srv/data UNIT=sanwire-attach@data.service
step=$1
shift

version() { dpkg-query -W -f '${Version}' sanwire; }
main_pid() { systemctl show --property MainPID --value "$1"; }

# by_socket PATH: GET over the unix socket of the HTTP API.
by_socket() {
    perl -MIO::Socket::UNIX -e '
        my $socket = IO::Socket::UNIX->new(Peer => "/run/sanwire/server/http.sock") or die "$!";
        print $socket "GET $ARGV[0] HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        print while <$socket>' "$1"
}

# install PACKAGE: what is installed works at once, and serves nothing.
install() {
    dpkg -i "$1"
    systemctl is-active sanwire.service || fail "$(journalctl -u sanwire --no-pager)"
    expect '^  on hs-ip:127.0.0.1' sanwire ctl status
    expect '^sanwire_build_info' busybox wget -q -O - http://127.0.0.1:5674/metrics
    expect '^HTTP/1.1 200' by_socket /api/v1/server
    expect "#code=" sanwire ctl web-login
    systemd-analyze verify --man=no sanwire.service sanwire-attach@data.service
    man_pages=$(dpkg -L sanwire | grep -c '/man[15]/.*\.gz$')
    [ "$man_pages" -gt 20 ] || fail "$man_pages manual pages"
    [ "$(stat -c '%U %a' /var/lib/sanwire/server /run/sanwire/server | sort -u)" = "sanwire 700" ]
    [ "$(stat -c '%U %a' /var/lib/sanwire /run/sanwire | sort -u)" = "root 755" ]
}

# wires: what the unit takes away is in the way of nothing: each wire, stores of several kinds, snapshots, HTTP.
wires() {
    local disk url name
    ip link add near type veth peer name far
    ip link set near up
    ip link set far up
    truncate -s 8M /root/disk.img
    disk=$(losetup --find --show /root/disk.img)
    mkdir -p /etc/systemd/system/sanwire.service.d
    printf '[Service]\nSupplementaryGroups=disk\n' > /etc/systemd/system/sanwire.service.d/wires.conf
    cp /etc/sanwire/sanwire.toml /root/sanwire.toml
    {
        echo 'name = "box"'
        echo 'wire = ["hs-ip:127.0.0.1", "hs-eth:near", "iscsi:127.0.0.1"]'
        echo 'allow = ["any"]'
        echo 'engine = "io-uring"'
        echo 'http = ["127.0.0.1:8090"]'
        printf '[[pool]]\nname = "p"\ndirectory = "/var/lib/sanwire/volumes"\nsnapshots = "layers"\n'
        printf '[[volume]]\nname = "pooled"\nstore = "pool:p"\nsize = "8M"\n'
        printf '[[volume]]\nname = "direct"\nstore = "file:/var/lib/sanwire/volumes/direct"\nsize = "8M"\ndirect = true\n'
        printf '[[volume]]\nname = "disk"\nstore = "%s"\n' "$disk"
        printf '[[volume]]\nname = "memory"\nstore = "ram:8M"\n'
    } > /etc/sanwire/sanwire.toml
    systemctl daemon-reload
    systemctl restart sanwire.service || fail "$(journalctl -u sanwire --no-pager)"
    for name in pooled direct disk memory; do
        for url in hs+ip://127.0.0.1/$name hs+eth://far/box/$name iscsi://127.0.0.1/iqn.2026-11.org.sanwire:$name/0; do
            head -c 8388608 /dev/urandom > /root/content
            sanwire cp --overwrite /root/content $url
            sanwire cp --overwrite $url /root/copy
            cmp /root/content /root/copy
            [ $name != pooled ] || sanwire ctl snapshot pooled s$(sanwire ctl snapshots | wc -l)
        done
    done
    expect '^sanwire_volume_info.*"pooled"' busybox wget -q -O - http://127.0.0.1:8090/metrics
    ! journalctl -u sanwire --no-pager | grep -E 'EPERM|not permitted' || fail "$(journalctl -u sanwire --no-pager)"
    systemctl stop sanwire.service
    losetup -d "$disk"
    rm -r /etc/systemd/system/sanwire.service.d /var/lib/sanwire/volumes/* /var/lib/sanwire/volumes/.s* /var/lib/sanwire/server/*
    mv /root/sanwire.toml /etc/sanwire/sanwire.toml
    ip link del near
    systemctl daemon-reload
    systemctl start sanwire.service
}

# serve: two volumes, with a password that the service manager hands over.
serve() {
    (umask 077 && echo 'correct horse' > /etc/sanwire/password)
    mkdir -p /etc/systemd/system/sanwire.service.d
    printf '[Service]\nLoadCredential=password:/etc/sanwire/password\n' > /etc/systemd/system/sanwire.service.d/password.conf
    {
        echo 'name = "box"'
        echo 'wire = ["hs-ip:127.0.0.1"]'
        echo 'password-file = "/run/credentials/sanwire.service/password"'
        for volume in data more; do
            printf '[[volume]]\nname = "%s"\nstore = "file:/var/lib/sanwire/volumes/%s.img"\nsize = "96M"\n' $volume $volume
        done
    } > /etc/sanwire/sanwire.toml
    systemctl daemon-reload
    systemctl restart sanwire.service || fail "$(journalctl -u sanwire --no-pager)"
    expect '^0 +data +96 MiB' sanwire ctl status
    expect 'Status: "box serves on hs-ip:127.0.0.1' systemctl status sanwire.service
    echo 'nonsense = 1' >> /etc/sanwire/sanwire.toml
    refuse '.' systemctl reload sanwire.service
    sed -i '$d' /etc/sanwire/sanwire.toml
    systemctl reload sanwire.service
}

# attach: as the documents say.
attach() {
    local line
    line=$(sanwire attach --save data hs+ip://127.0.0.1/data --password-file /etc/sanwire/password | grep '^ */dev/sanwire/')
    sanwire attach --check
    systemctl enable --now $UNIT || fail "$(journalctl -u $UNIT --no-pager)"
    expect '/dev/sanwire/box/data' sanwire ls
    refuse 'is attached on this host already as /dev/loop' sanwire attach hs+ip://127.0.0.1:5674/data --password-file /etc/sanwire/password
    mkfs.ext4 -q /dev/sanwire/box/data
    mkdir -p $FILES
    echo "$line" | sed "s|SERVER|box|; s|/mnt/data|$FILES|; s| auto | ext4 |" >> /etc/fstab
    systemctl daemon-reload
    mount $FILES
    fill $FILES/files 12 > /root/sums
    cat /etc/fstab
}

# again: the host has restarted, in order, and has its files.
again() {
    within 150 mountpoint -q $FILES
    [ "$(findmnt -n -o SOURCE $FILES)" = "$(readlink -f /dev/sanwire/box/data)" ] || fail "$(findmnt $FILES)"
    (cd $FILES/files && b2sum --quiet -c /root/sums)
    local order
    order=$(journalctl -b -1 -o cat --no-pager | sed -n '/^Unmounted srv-data/,$p' | grep -E '^(Unmounted|Stopp)')
    ordered "$order" 'Unmounted srv-data' 'Stopped.*Sanwire volume' 'Stopped.*Sanwire storage server' 'Stopping.*Network Configuration'
    ! journalctl -b -1 -k --no-pager | grep -E 'I/O error|EXT4-fs error' || fail 'the disk was gone before its file system'
    expect 'clean' tune2fs -l /dev/sanwire/box/data
}

# ordered TEXT PATTERN...: the text has lines for all patterns, in this order.
ordered() {
    local text=$1 pattern before=0 at
    shift
    for pattern in "$@"; do
        at=$(grep -nE -m 1 -- "$pattern" <<< "$text" | cut -d : -f 1)
        [ "${at:-0}" -gt $before ] || fail "'$pattern' is not behind line $before of: $text"
        before=$at
    done
}

# Until the upgrade is over, and beyond it.
write_and_verify() {
    local is_last=
    until [ -n "$is_last" ]; do
        [ ! -e /tmp/is-upgraded ] || is_last=yes
        fio --name load --directory $FILES --size 4M --rw randwrite --bs 16k --direct 1 --ioengine libaio --iodepth 4 \
            --verify crc32c --do_verify 1 || return 1
    done
}

# upgrade PACKAGE: while fio writes and verifies, which sees a pause.
upgrade() {
    local before server attachment load
    before=$(version) server=$(main_pid sanwire.service) attachment=$(main_pid $UNIT)
    rm -f /tmp/is-upgraded
    write_and_verify > /tmp/fio 2>&1 &
    load=$!
    sleep 2
    dpkg -i "$1"
    [ "$(version)" != "$before" ] && [ "$(main_pid sanwire.service)" != "$server" ] || fail "$before is not replaced"
    [ "$(main_pid $UNIT)" = "$attachment" ] || fail 'the attachment was restarted'
    expect '^0 +data ' sanwire ctl status
    touch /tmp/is-upgraded
    wait $load || fail "$(cat /tmp/fio)"
    ! dmesg | grep -E 'I/O error|EXT4-fs error' || fail 'the disk has had errors'
    (cd $FILES/files && b2sum --quiet -c /root/sums)
}

# spoiled PACKAGE: a file that was edited since, and is wrong, keeps the server that runs.
spoiled() {
    local server
    server=$(main_pid sanwire.service)
    echo 'nonsense = 1' >> /etc/sanwire/sanwire.toml
    expect 'goes on with the program that it has' dpkg -i "$1"
    [ "$(main_pid sanwire.service)" = "$server" ] || fail 'the server was restarted'
    sed -i '$d' /etc/sanwire/sanwire.toml
}

# renumbered: a device of the number that a killed attachment had, over another file, does not get the name.
renumbered() {
    local attached device
    sanwire attach hs+ip://127.0.0.1/data --password-file /etc/sanwire/password > /root/attached 2>&1 &
    attached=$!
    within 60 test -e /dev/sanwire/box/data
    device=$(readlink -f /dev/sanwire/box/data)
    kill -9 $attached
    losetup -d "$device"
    truncate -s 1M /root/other.img
    within 60 losetup "$device" /root/other.img
    udevadm settle
    [ ! -e /dev/sanwire/box/data ] || fail "$(ls -lR /dev/sanwire /run/sanwire/udev)"
    losetup -d "$device"
    sanwire ls
}

# remove: what is attached is in the way; then what runs ends, and what was kept stays.
remove() {
    refuse 'volumes are attached by sanwire-attach@data.service' dpkg -r sanwire
    umount $FILES
    systemctl disable --now $UNIT
    [ ! -e /dev/sanwire/box/data ] || fail "$(ls -lR /dev/sanwire)"
    renumbered
    dpkg -r sanwire
    ! systemctl is-active sanwire.service || fail 'the server runs'
    [ -s /var/lib/sanwire/volumes/data.img ] && [ -s /var/lib/sanwire/server/server.key ] && [ -s /etc/sanwire/attach.toml ]
}

"$step" "$@"
