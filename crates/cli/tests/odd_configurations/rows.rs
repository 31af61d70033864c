//! The rows: a configuration, what becomes of it, and a part of what is said.
//!
//! `DIR` stands for a directory with `password`, `empty`, `key` and `disk.img`, and `ID` for the id of a client.

use super::End::{self, Apart, Missing, Refused, Warned};

pub(crate) const ID: &str = "0123456789abcdef0123456789abcdef";

/// A volume `a`, for rows about something else.
macro_rules! with_volume {
    ($text:literal) => {
        concat!($text, "\n[[volume]]\nname = 'a'\nstore = 'ram:1M'\n")
    };
}

/// The volume on HyperSCSI over IP, for rows about clients and volumes.
macro_rules! on_ip {
    ($text:literal) => {
        concat!("wire = ['hs-ip:127.0.0.1']\n[[volume]]\nname = 'a'\nstore = 'ram:1M'\n", $text)
    };
}

/// The volume on iSCSI, with a target that has these keys.
macro_rules! on_iscsi {
    ($text:literal) => {
        concat!(
            "wire = ['iscsi:127.0.0.1']\nallow = ['any']\n[[volume]]\nname = 'a'\nstore = 'ram:1M'\n",
            "[[target]]\nname = 'iqn.2026-11.org.x:a'\n",
            $text
        )
    };
}

/// A volume with these keys, on HyperSCSI over IP.
macro_rules! volume {
    ($text:literal) => {
        concat!("[[volume]]\nname = 'a'\n", $text)
    };
}

/// A pool `p` with these keys, beside the volume.
macro_rules! with_pool {
    ($text:literal) => {
        concat!("[[volume]]\nname = 'a'\nstore = 'ram:1M'\n[[pool]]\nname = 'p'\n", $text)
    };
}

/// A volume `b` with these keys, derived from the volume.
macro_rules! derived {
    ($text:literal) => {
        concat!("[[volume]]\nname = 'a'\nstore = 'ram:1M'\n[[volume]]\nname = 'b'\nstore = 'dvd:a'\n", $text)
    };
}

pub(crate) const ROWS: &[(&str, End, &str)] = &[
    // The whole.
    ("", Warned, "no volume is configured: write [[volume]]"),
    (with_volume!("speed = 3"), Refused, "sanwire.toml:1: unknown field `speed`"),
    (with_volume!("name = 'a b'"), Refused, "'a b' is no server name"),
    (with_volume!("shards = 0"), Refused, "sanwire.toml:1: "),
    (with_volume!("shards = 1024"), Warned, "1024 shards on "),
    (with_volume!("shards = 2000"), Refused, "2000 shards are too many"),
    (with_volume!("engine = 'uring'"), Refused, "unknown variant `uring`"),
    (with_volume!("recovery = 'some'"), Refused, "unknown variant `some`"),
    (with_volume!("visa-mode = 'old'"), Refused, "unknown variant `old`"),
    (with_volume!("visa-checksum = 'md5'"), Refused, "unknown variant `md5`"),
    (with_volume!("visa-payload = '61K'"), Refused, "sanwire.toml:1: visa-payload: use 1K to 60K"),
    (with_volume!("log = 'loud'"), Refused, "unknown variant `loud`"),
    (with_volume!("log-format = 'xml'"), Refused, "unknown variant `xml`"),
    (with_volume!("control = 'c.sock'"), Warned, "control: c.sock is relative to the directory in which"),
    (with_volume!("audit-log = 'audit'"), Warned, "audit-log: audit is relative"),
    (with_volume!("state-directory = 'state'"), Warned, "state-directory: state is relative"),
    (with_volume!("key-file = 'k'"), Warned, "key-file: k is relative"),
    (with_volume!("key-file = 'DIR/password'"), Missing, "is no key file"),
    (with_volume!("metrics = { clients = 'yes' }"), Refused, "sanwire.toml:1: "),
    (with_volume!("metrics = { client = true }"), Refused, "unknown field `client`"),
    (with_volume!("http = ['localhost']"), Refused, "sanwire.toml:1: 'localhost' is no place for HTTP"),
    (with_volume!("http = ['0.0.0.0']\nhttp-plaintext = true"), Warned, "can be read on the way"),
    (with_volume!("http-plaintext = true"), Warned, "http-plaintext has no effect"),
    (with_volume!("http = ['0.0.0.0']\nhttp-key = '/k'"), Refused, "http-certificate and http-key: give both or none"),
    (with_volume!("http = ['0.0.0.0']\nhttp-key = 'k'\nhttp-certificate = '/c'"), Missing, "http-key: k is relative"),
    (
        with_volume!("http = ['0.0.0.0']\nhttp-key = '/k'\nhttp-certificate = '/c'"),
        Missing,
        "cannot read the key of the HTTP API in /k",
    ),
    (
        with_volume!("direct-copies = 'some'"),
        Refused,
        "sanwire.toml:1: 'some' does not say who may order direct copies",
    ),
    (
        with_volume!("direct-copy-to = ['localhost']"),
        Refused,
        "sanwire.toml:1: 'localhost' is no place for direct copies",
    ),
    (with_volume!("announce = ['10.0.0.300']"), Refused, "sanwire.toml:1: "),
    (with_volume!("announce = ['203.0.113.77']"), Warned, "announce: 203.0.113.77 is no address or interface of this"),
    (with_volume!("http = ['127.0.0.1', '127.0.0.1:5674']"), Refused, "stands in line 1 already"),
    (with_volume!("http = ['192.0.2.1']\nhttp-plaintext = true"), Missing, "this host cannot listen at 192.0.2.1"),
    (with_volume!("http-hosts = ['box']"), Warned, "http-hosts has no effect"),
    (with_volume!("http = ['127.0.0.1']\nhttp-hosts = ['http://box:80']"), Refused, "is no name of a host"),
    (with_volume!("compression = 'maybe'"), Refused, "sanwire.toml:1: "),
    (with_volume!("rekey-interval = 0"), Refused, "sanwire.toml:1: "),
    (with_volume!("security = 'rot13'"), Refused, "sanwire.toml:1: "),
    (with_volume!("password-file = '/nonexistent'"), Refused, "cannot read the password file /nonexistent"),
    (with_volume!("password-file = 'DIR/empty'"), Refused, "is empty"),
    (with_volume!("secret-file = '/nonexistent'"), Missing, "cannot read the secret file /nonexistent"),
    (with_volume!("password-file = 'DIR/password'\nsecret-file = 'DIR/key'"), Refused, "give one of them"),
    // Wires, and who is served there.
    (with_volume!("wire = ['eth0']"), Refused, "sanwire.toml:1: 'eth0' is no wire"),
    (with_volume!("wire = ['hdsp:eth0,path=tcp']"), Refused, "use path=auto, path=xdp or path=packet behind its name"),
    (with_volume!("wire = ['hs-eth:nosuch0']\nallow = ['any']"), Missing, "this host has no interface nosuch0"),
    (with_volume!("wire = ['hs-ip:192.0.2.1']\nallow = ['any']"), Missing, "this host cannot listen at 192.0.2.1"),
    (with_volume!("wire = ['hs-ip:127.0.0.1', 'hs-ip:127.0.0.1:5674']"), Refused, "stands in line 1 already"),
    (with_volume!("wire = ['iscsi:127.0.0.1,1', 'iscsi:127.0.0.1,2']"), Refused, "are one portal in two groups"),
    (with_volume!("wire = ['iser:127.0.0.1,path=xdp']"), Refused, "use path=tcp or path=rdma (by an RDMA adapter)"),
    (with_volume!("wire = ['iscsi:127.0.0.1,path=rdma']"), Refused, "iscsi: connections go over TCP alone"),
    (
        with_volume!("wire = ['iser:127.0.0.1,path=rdma', 'iser:127.0.0.1,2,path=rdma']"),
        Refused,
        "are one portal in two groups",
    ),
    (with_volume!("wire = ['hs-ip:0.0.0.0']"), Warned, "hs-ip:0.0.0.0:5674: only clients on this host are served"),
    (with_volume!("wire = ['iscsi:0.0.0.0']"), Warned, "iscsi:0.0.0.0:3260: only clients on this host are served"),
    (with_volume!("wire = ['hs-eth:lo']"), Warned, "hs-eth:lo: nobody is served there: without `allow`"),
    (
        with_volume!("wire = ['hs-eth:lo']\nallow = ['10.0.0.0/24']"),
        Warned,
        "hs-eth:lo: nobody is served there: no rule in `allow` is a MAC",
    ),
    (
        with_volume!("wire = ['hs-ip:127.0.0.1']\nallow = ['02:00:5e:10:00:01']"),
        Warned,
        "hs-ip:127.0.0.1:5674: nobody is served there",
    ),
    (
        with_volume!("wire = ['hs-ip:127.0.0.1']\nallow = ['02:00:5e:10:00:01', 'any']"),
        Warned,
        "allow: 02:00:5e:10:00:01 names nobody here, since it takes an hs-eth:, aoe: or hdsp: wire",
    ),
    (
        with_volume!("wire = ['hs-ip:127.0.0.1']\nallow = ['fe80::/10', '10.0.0.0/8']"),
        Warned,
        "allow: fe80::/10 names nobody here, since it takes a wire at an IPv6 address",
    ),
    (
        with_volume!("wire = ['hs-ip:127.0.0.1']\nallow = ['iqn.1993-08.org.debian:*', '10.0.0.1']"),
        Warned,
        "allow: iqn.1993-08.org.debian:* names nobody here, since it takes an iscsi: wire",
    ),
    (
        with_volume!("wire = ['iscsi:127.0.0.1']\nallow = ['ID', '10.0.0.1']"),
        Warned,
        "allow: ID names nobody here, since it takes a wire of HyperSCSI",
    ),
    (
        with_volume!("wire = ['iscsi:127.0.0.1']\nallow = ['ID']"),
        Warned,
        "iscsi:127.0.0.1:3260: nobody is served there",
    ),
    (with_volume!("allow = ['nobody']"), Refused, "'nobody' names nobody"),
    (with_volume!("allow = ['10.0.0.1/8']"), Refused, "write 10.0.0.0/8 for the network"),
    (with_volume!("allow = ['10.0.0.1', '10.0.0.1']"), Warned, "allow: 10.0.0.1 stands there twice"),
    (with_volume!("allow = ['any', '10.0.0.1']"), Warned, "allow: 10.0.0.1 changes nothing, since any stands there"),
    (
        with_volume!("allow = ['10.0.0.0/8', '10.1.0.0/16']"),
        Warned,
        "allow: 10.1.0.0/16 changes nothing, since 10.0.0.0/8 stands there",
    ),
    // What iSCSI does not have.
    (
        with_volume!("wire = ['iscsi:127.0.0.1']\nsecurity = 'aes-256-gcm'"),
        Warned,
        "iSCSI has no target: it has no encryption",
    ),
    (
        with_volume!("wire = ['iscsi:127.0.0.1']\nsecurity = 'aes-256-gcm'"),
        Warned,
        "volume a: nobody reaches it: it is a unit of no iSCSI target",
    ),
    (
        with_volume!("wire = ['iscsi:127.0.0.1']\nsecurity = 'none'"),
        Warned,
        "security has no effect: it is for HyperSCSI",
    ),
    (with_volume!("wire = ['iscsi:127.0.0.1']\ncompression = 'allowed'"), Warned, "compression has no effect"),
    (with_volume!("wire = ['iscsi:127.0.0.1']\nrekey-interval = 60"), Warned, "rekey-interval has no effect"),
    (with_volume!("wire = ['iscsi:127.0.0.1']\nrecovery = 'window'"), Warned, "recovery has no effect"),
    (with_volume!("wire = ['iscsi:127.0.0.1']\nvisa-mode = 'classic'"), Warned, "visa-mode has no effect"),
    (with_volume!("wire = ['iscsi:127.0.0.1']\nvisa-checksum = 'off'"), Warned, "visa-checksum has no effect"),
    (with_volume!("wire = ['iscsi:127.0.0.1']\nvisa-payload = '4K'"), Warned, "visa-payload has no effect"),
    (
        with_volume!("wire = ['iscsi:127.0.0.1']\n[[client]]\nid = 'ID'"),
        Warned,
        "[[client]] has no effect: it is for HyperSCSI",
    ),
    (
        with_volume!("wire = ['iscsi:127.0.0.1']\npassword-file = 'DIR/password'"),
        Refused,
        "the password or secret protects HyperSCSI only",
    ),
    // Volumes.
    (volume!("store = 'tape:1'"), Refused, "sanwire.toml:1: 'tape:1' is no store"),
    (volume!("store = 'ram:0'"), Refused, "sanwire.toml:1: invalid size '0': use at least one block, like ram:10G"),
    (volume!("store = 'ram:1M'\nspeed = 3"), Refused, "sanwire.toml:4: unknown field `speed`"),
    (
        volume!("store = 'ram:1M'\n[[volume]]\nname = 'a'\nstore = 'ram:1M'"),
        Refused,
        "the volume a stands in line 1 already",
    ),
    (volume!("store = 'ram:1M'\nsize = '2M'"), Refused, "size"),
    (volume!("store = 'ram:1M'\ndirect = true"), Refused, "direct is not for this store"),
    (volume!("store = 'ram:1M'\nexport = 'x'"), Refused, "export is not for this store"),
    (volume!("store = 'ram:1M'\nconnections = 2"), Refused, "connections is not for this store"),
    (volume!("store = 'ram:1M'\nreconnect = '3s'"), Refused, "reconnect is not for this store"),
    (volume!("store = 'ram:1M'\nexclusive = true"), Refused, "exclusive is not for this store"),
    (volume!("store = 'array:data'\ndiscover = ['nonsense']"), Refused, "the URL of a server or of an Ethernet"),
    (volume!("store = 'ram:1M'\ndiscover = ['hdsp://lan0']"), Refused, "discover is not for this store"),
    (volume!("store = 'array:data'\nmember = ['nonsense']"), Refused, "nonsense"),
    (volume!("store = 'array:data'\nunfenced = 'perhaps'"), Refused, "unfenced"),
    (volume!("store = 'ram:1M'\nunfenced = true"), Refused, "unfenced is not for this store"),
    (volume!("store = 'array:data'\nmember = ['file:DIR/one.img']\nsize = '1M'"), Refused, "size"),
    (volume!("store = 'ram:1M'\nceph-config = '/c'"), Refused, "ceph-config is not for this store"),
    (volume!("store = 'ram:1M'\nceph-user = 'c'"), Refused, "ceph-user is not for this store"),
    (volume!("store = 'ram:1M'\nserver-key = '00'"), Refused, "server-key is not for this store"),
    (volume!("store = 'hs+ip://127.0.0.1/x'\nserver-key = '00'"), Refused, "a public key of 64 hexadecimal digits"),
    (volume!("store = 'ram:1M'\niser-path = 'rdma'"), Refused, "iser-path is not for this store"),
    (volume!("store = 'array:data'\niser-path = 'udp'"), Refused, "invalid iser-path 'udp': use tcp or rdma"),
    (volume!("store = 'hs+ip://127.0.0.1/x'\niser-path = 'rdma'"), Refused, "only iSER goes by one or the other"),
    (
        volume!("store = 'iser://127.0.0.1/iqn.2026-11.org.x:a/0'\niser-path = 'udp'"),
        Refused,
        "invalid iser-path 'udp': use tcp or rdma",
    ),
    (volume!("store = 'ram:1M'\nserver-security = 'hash'"), Refused, "server-security is not for this store"),
    (volume!("store = 'hs+ip://127.0.0.1/x'\nserver-security = 'much'"), Refused, "none, hash, aes-128-gcm"),
    (
        volume!("store = 'aoe:///7.1'\nserver-security = 'hash'"),
        Refused,
        "only HyperSCSI, HDSP and VISA protect packets",
    ),
    (volume!("store = 'ram:1M'\ntakeover = true"), Refused, "takeover is not for this store"),
    (volume!("store = 'ram:1M'\nblock = 100"), Refused, "block"),
    (volume!("store = 'ram:1M'\ntype = 'tape'"), Refused, "type"),
    (volume!("store = 'ram:1M'\nremovable = 'yes'"), Refused, "removable"),
    (volume!("store = 'ram:1M'\nsecurity = 'much'"), Refused, "security"),
    (volume!("store = 'ram:1M'\ncompression = 'required'"), Refused, "compression"),
    (volume!("store = 'ram:1M'\nwhen-full = 'cry'"), Refused, "when-full"),
    (volume!("store = 'ram:1M'\nwhen-gone = 'wait:'"), Refused, "when-gone"),
    (volume!("store = 'ram:1M'\ndelay = 'long'"), Refused, "delay"),
    (volume!("store = 'ram:1M'\nerror = 'sometimes'"), Refused, "error"),
    (volume!("store = 'ram:1M'\nseed = 7"), Warned, "volume a: seed has no effect"),
    (volume!("store = 'ram:1M'\nreadonly = true\nthick = true"), Warned, "volume a: thick has no effect"),
    (volume!("store = 'ram:100000G'"), Warned, "the ram: volumes may take"),
    (volume!("store = 'none:'"), Refused, "only a drive, type=optical, can be empty"),
    (volume!("store = 'file:DIR/absent.img'"), Missing, "give it size=, and it is made"),
    (volume!("store = 'file:DIR/none/absent.img'\nsize = '1M'"), Missing, "it cannot be made in "),
    (volume!("store = 'file:DIR'"), Missing, "it is neither a file nor a block device"),
    (volume!("store = 'file:DIR/disk.img'\ngrow = true"), Refused, "grow"),
    (volume!("store = 'file:DIR/disk.img'\nsize = '1K'"), Warned, "disk.img has 4 KiB, more than the 1 KiB of size="),
    (volume!("store = 'file:DIR/disk.img'\nsize = '1M'"), Missing, "disk.img has 4 KiB (4096 bytes), not the 1 MiB"),
    (volume!("store = 'file:DIR/password'"), Missing, "password has 18 bytes, which is not a positive multiple of the"),
    (volume!("store = 'ram:10GB'"), Refused, "'10GB': use a size with a unit of 1024"),
    (volume!("store = 'file:disk.img'\nsize = '1M'"), Warned, "volume a: store: disk.img is relative"),
    (
        volume!("store = 'file:DIR/disk.img'\n[[volume]]\nname = 'b'\nstore = 'file:DIR/disk.img'"),
        Refused,
        "the volumes a and b both are ",
    ),
    (
        volume!("store = 'nbd:/x'\nlayers = 'p'\n[[volume]]\nname = 'b'\nstore = 'nbd:/x'"),
        Refused,
        "the volumes a and b both are nbd:/x: what is below layers is one volume",
    ),
    (volume!("store = 'ram:1M'\nlayers = 'p'"), Refused, "layers is not for this store: what is in memory"),
    (volume!("store = 'file:DIR/disk.img'\nlayers = 'p'"), Missing, "volume a: there is no pool called p"),
    (
        concat!("wire = ['iscsi:127.0.0.1']\nallow = ['any']\n", volume!("store = 'ram:1M'\ncompression = 'off'")),
        Warned,
        "volume a: compression has no effect",
    ),
    // Addresses for AoE.
    (volume!("store = 'ram:1M'\nshelf = 4095\nslot = 1"), Refused, "invalid shelf '4095': use a number from 0 to 4094"),
    (volume!("store = 'ram:1M'\nshelf = 1\nslot = 255"), Refused, "invalid slot '255': use a number from 0 to 254"),
    (volume!("store = 'ram:1M'\nshelf = 1"), Refused, "an address has both: give it a slot, too"),
    (volume!("store = 'ram:1M'\nslot = 1"), Refused, "an address has both: give it a shelf, too"),
    (
        volume!("store = 'ram:1M'\nshelf = 1\nslot = 1\n[[volume]]\nname = 'b'\nstore = 'ram:1M'\nshelf = 1\nslot = 1"),
        Refused,
        "the volumes a and b both are at shelf 1 and slot 1",
    ),
    (volume!("store = 'ram:1M'\nshelf = 1\nslot = 1"), Warned, "volume a: shelf has no effect: no aoe: wire is served"),
    (
        concat!("wire = ['aoe:lo']\nallow = ['any']\n", volume!("store = 'ram:1M'")),
        Warned,
        "aoe:lo: AoE guards nothing",
    ),
    (
        concat!("wire = ['aoe:lo']\nallow = ['10.0.0.0/8', 'ID']\n", volume!("store = 'ram:1M'")),
        Warned,
        "aoe:lo: nobody is served there: no rule in `allow` is a MAC address or any",
    ),
    (
        concat!("wire = ['aoe:lo']\nallow = ['any']\n", volume!("store = 'ram:1M'\nsecurity = 'hash'")),
        Warned,
        "volume a: not served over AoE: its security is hash",
    ),
    // Addresses for HDSP.
    (
        volume!("store = 'ram:1M'\ndisk-address = 255"),
        Refused,
        "invalid disk-address '255': use a number from 0 to 254",
    ),
    (
        volume!("store = 'ram:1M'\ndisk-address = 1\n[[volume]]\nname = 'b'\nstore = 'ram:1M'\ndisk-address = 1"),
        Refused,
        "the volumes a and b both have the disk address 1",
    ),
    (
        volume!("store = 'ram:1M'\ndisk-address = 1"),
        Warned,
        "volume a: disk-address has no effect: no hdsp: wire is served",
    ),
    (
        concat!("wire = ['hdsp:lo']\n", volume!("store = 'ram:1M'")),
        Warned,
        "hdsp:lo: nobody is served there: without `allow` only this host is",
    ),
    (
        concat!("wire = ['hdsp:lo']\nallow = ['any']\nrekey-interval = 60\n", volume!("store = 'ram:1M'")),
        Warned,
        "rekey-interval has no effect: it is for HyperSCSI",
    ),
    // Clients.
    (on_ip!("[[client]]\nid = 'alice'"), Refused, "'alice' is no id of a client"),
    (on_ip!("[[client]]\nid = 'ID'\n[[client]]\nid = 'ID'"), Refused, "the client ID stands in line"),
    (
        on_ip!("[[client]]\nid = 'ID'\nname = 'x'\n[[client]]\nid = 'ff23456789abcdef0123456789abcdef'\nname = 'x'"),
        Refused,
        "the name of a client x stands in line",
    ),
    (on_ip!("[[client]]\nid = 'ID'\nname = 'a b'"), Refused, "'a b' is no name for a client"),
    (on_ip!("[[client]]\nid = 'ID'\nvolumes = ['nosuch*']"), Warned, "client ID: no volume is called nosuch*"),
    (on_ip!("[[client]]\nid = 'ID'\nvolumes = []"), Warned, "client ID: it sees no volume"),
    (on_ip!("[[client]]\nid = 'ID'\ncap = '10'"), Warned, "client ID: a cap of 10 B/s is very low"),
    (on_ip!("[[client]]\nid = 'ID'\nweight = 0"), Refused, "weight"),
    (on_ip!("[[client]]\nid = 'ID'\nwindow = -1"), Refused, "sanwire.toml:7: "),
    (on_ip!("[[client]]\nid = 'ID'\nmax-transfer = '1'"), Refused, "client ID: "),
    (on_ip!("[[client]]\nid = 'ID'\npriority = 9"), Refused, "client ID: "),
    (on_ip!("[[client]]\nid = 'ID'\nmanage = 'yes'"), Refused, "sanwire.toml:7: "),
    (on_ip!("[[client]]\nid = 'ID'\nread-only = 1"), Refused, "sanwire.toml:7: "),
    (on_ip!("[[client]]\nid = 'ID'\nlock-media = 1"), Refused, "sanwire.toml:7: "),
    (
        on_ip!("[[client]]\nid = 'ID'\npassword-file = '/p'\nsecret-file = '/s'"),
        Refused,
        "give either password-file or secret-file",
    ),
    // Targets.
    (
        with_volume!("wire = ['hs-ip:127.0.0.1']\n[[target]]\nname = 'iqn.2026-11.org.x:a'\nlun.0 = 'a'"),
        Warned,
        "[[target]] has no effect: no iscsi: wire",
    ),
    (
        with_volume!("[discovery]\nchap = [{ user = 'u', secret-file = 'DIR/password' }]"),
        Warned,
        "[discovery] has no effect",
    ),
    (on_iscsi!("lun.0 = 'b'"), Refused, "logical unit 0 is to be volume b, which is not served"),
    (on_iscsi!("lun.x = 'a'"), Refused, "'x' is no logical unit number"),
    (on_iscsi!("lun = { 0 = 'a', 1 = 'a' }"), Refused, "target iqn.2026-11.org.x:a: volume a has two numbers"),
    (on_iscsi!("alias = 3\nlun.0 = 'a'"), Refused, "sanwire.toml:8: "),
    (
        on_iscsi!("lun.0 = 'a'\nportal-groups = [7]"),
        Warned,
        "no iscsi: wire is in portal group 7, so nobody reaches it",
    ),
    (on_iscsi!("lun.0 = 'a'\nportal-groups = [1, 7]"), Warned, "in portal group 7, so it is not reached there"),
    (on_iscsi!("lun.0 = 'a'\nrequire-digests = 'yes'"), Refused, "sanwire.toml:9: "),
    (on_iscsi!("lun.0 = 'a'\nredirect = '192.0.2.7'"), Warned, "its `lun` is never reached, since `redirect`"),
    (on_iscsi!("lun.0 = 'a'\nredirect-for-good = true"), Refused, "redirect-for-good says how"),
    (on_iscsi!("lun.0 = 'a'\nchap = [{ user = 'u' }]"), Refused, "give either secret or secret-file"),
    (on_iscsi!("lun.0 = 'a'\nchap = [{ user = 'u', secret = 'short' }]"), Refused, "the secret is too short"),
    (on_iscsi!("lun.0 = 'a'\nchap-algorithms = ['md5']"), Refused, "nobody is asked for CHAP here"),
    (
        on_iscsi!("lun.0 = 'a'\nmutual-chap = { user = 'u', secret-file = 'DIR/password' }"),
        Warned,
        "target iqn.2026-11.org.x:a: mutual-chap has no effect without chap",
    ),
    (
        on_iscsi!("lun.0 = 'a'\nallow = ['ID', 'any']"),
        Warned,
        "target iqn.2026-11.org.x:a: allow: ID names no iSCSI initiator",
    ),
    (on_iscsi!("lun.0 = 'a'\nallow = ['02:00:5e:10:00:01']"), Warned, "iscsi:127.0.0.1:3260: nobody is served there"),
    // Pools.
    (with_pool!("directory = 'pool'"), Refused, "sanwire.toml:4: 'p=pool' is no pool: use NAME=DIRECTORY"),
    (with_pool!("directory = 'DIR'\nlimit = '0'"), Refused, "sanwire.toml:4: '0' is no limit of a pool"),
    (with_pool!("directory = 'DIR'\ndefault = 'yes'"), Refused, "sanwire.toml:7: invalid type"),
    (with_pool!("directory = 'DIR'\nsnapshots = 'zfs'"), Refused, "'zfs' is no way to make snapshots"),
    (with_pool!("directory = 'DIR/none'"), Missing, "mount its file system, or make it"),
    (with_pool!("directory = 'DIR/empty'"), Missing, "it is no directory"),
    (
        with_pool!("directory = 'DIR'\n[[pool]]\nname = 'q'\ndirectory = 'DIR'"),
        Refused,
        "the pools p and q have the same directory",
    ),
    (volume!("store = 'pool:q'\nsize = '1M'\nprotected = true"), Missing, "volume a: there is no pool called q"),
    // Derived volumes.
    (derived!(""), Refused, "invalid principal ''"),
    (derived!("principal = 'iqn.x'"), Refused, "claimed: before an iSCSI name"),
    (derived!("principal = 'any'\nregion = ['0+0']"), Refused, "a length above 0"),
    (derived!("principal = 'any'\nregion = ['0+1K', '512+1K']"), Refused, "no byte in common"),
    (derived!("principal = 'any'\nallow-ops = 'format'"), Refused, "invalid allow-ops 'format'"),
    (derived!("principal = 'any'\nuntil = '2h'"), Refused, "volume b: until=2h would begin anew at each start"),
    (derived!("principal = 'any'\nprogram = ''"), Refused, "invalid program ''"),
    (derived!("principal = 'any'\nprogram = '/no/such'"), Apart, "volume b: its program /no/such: No such file"),
    (derived!("principal = 'any'\nprogram = 'DIR/password'"), Apart, "volume b: its program "),
    (derived!("principal = 'any'\nblock = 512"), Refused, "a derived volume has the blocks of its parent"),
    (derived!("principal = 'any'\nowner = ['me']"), Refused, "volume b: invalid owner 'me'"),
    (derived!("principal = 'chap:x'"), Warned, "nobody comes in as its principals chap:x"),
    (volume!("store = 'dvd:b'\nprincipal = 'any'"), Refused, "volume a: there is no volume called b"),
    (volume!("store = 'dvd:a'\nprincipal = 'any'"), Refused, "in a circle, a from a"),
    (volume!("store = 'ram:1M'\nprincipal = 'any'"), Refused, "principal is not for this store"),
];
