//! Two hosts and the link between them.

use std::fs::File;
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{Scratch, can_run, run, run_ok, wait_until};

/// The server's address.
pub const SERVER_ADDRESS: &str = "10.77.0.1";
/// The server's name.
pub const SERVER_NAME: &str = "box";

/// What the names of iSCSI targets begin with.
pub const AUTHORITY: &str = "iqn.2026-11.org.sanwire";

/// The client's address.
pub const CLIENT_ADDRESS: &str = "10.77.0.2";
const CLIENT_MAC: &str = "02:00:5e:77:00:02";
/// The interface of either host.
const INTERFACE: &str = "lan0";

const QUICK: Duration = Duration::from_secs(60);

/// A way from the client to the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wire {
    /// Raw Ethernet.
    Ethernet,
    /// UDP.
    Ip,
    /// iSCSI over TCP; only of a server that was started for it.
    Iscsi,
    /// HDSP, whose packets come to the server by AF_PACKET; only of a server that was started for it.
    Hdsp,
    /// The same by AF_XDP.
    HdspXdp,
    /// VISA over UDP; only of a server that was started for it.
    Visa,
    /// The same over TCP.
    VisaTcp,
}

impl Wire {
    /// The server over this wire.
    pub fn server_url(self) -> String {
        match self {
            Wire::Ethernet => format!("hs+eth://{INTERFACE}/{SERVER_NAME}"),
            Wire::Ip => format!("hs+ip://{SERVER_ADDRESS}"),
            Wire::Iscsi => format!("iscsi://{SERVER_ADDRESS}"),
            Wire::Hdsp | Wire::HdspXdp => format!("hdsp://{INTERFACE}/{SERVER_NAME}"),
            Wire::Visa => format!("visa://{SERVER_ADDRESS}"),
            Wire::VisaTcp => format!("visa+tcp://{SERVER_ADDRESS}"),
        }
    }

    /// A volume over this wire.
    pub fn url(self, volume: &str) -> String {
        match self {
            Wire::Iscsi => format!("{}/{AUTHORITY}:{volume}/0", self.server_url()),
            _ => format!("{}/{volume}", self.server_url()),
        }
    }
}

/// Two network namespaces joined by a veth link without offloads. They go away with it.
#[derive(Debug)]
pub struct World {
    /// The test's directory.
    pub scratch: Scratch,
    pub(super) server: String,
    pub(super) client: String,
}

impl World {
    /// Makes it, or says why this machine cannot run the test.
    pub fn new(test: &str, mtu: u32, tools: &[&str]) -> Option<World> {
        if !can_run(test, tools) || !can_run(test, &["ethtool", "nft"]) {
            return None;
        }
        let scratch = Scratch::new();
        let (server, client) = (format!("sanwire-s{}", scratch.label), format!("sanwire-c{}", scratch.label));
        let world = World { scratch, server, client };
        world.share_mounts();
        world.build(mtu);
        Some(world)
    }

    /// Makes the test's directory a shared mount, as systemd makes all of them: what is unmounted in it is then unmounted for
    /// programs with a copy of this machine's mounts too (`ip netns exec` makes one), and its device is free.
    fn share_mounts(&self) {
        let directory = self.scratch.directory();
        for arguments in [&["--bind", "."][..], &["--make-shared"]] {
            let mut mount = Command::new("mount");
            mount.current_dir(directory).args(arguments).arg(directory);
            run_ok(mount, QUICK);
        }
    }

    fn build(&self, mtu: u32) {
        let (server, client, mtu) = (self.server.as_str(), self.client.as_str(), mtu.to_string());
        ip(&["netns", "add", server]);
        ip(&["netns", "add", client]);
        let pair = ["type", "veth", "peer", "name", INTERFACE, "netns", client, "address", CLIENT_MAC];
        let mac = server_mac(0);
        let mut link = vec!["link", "add", INTERFACE, "address", &mac, "netns", server];
        link.extend(pair);
        ip(&link);
        for (host, address) in [(server, SERVER_ADDRESS), (client, CLIENT_ADDRESS)] {
            ip(&["-n", host, "link", "set", "lo", "up"]);
            ip(&["-n", host, "link", "set", INTERFACE, "mtu", &mtu, "up"]);
            ip(&["-n", host, "address", "add", &format!("{address}/24"), "dev", INTERFACE]);
            let mut ethtool = within(host, "ethtool");
            ethtool.args(["-K", INTERFACE, "gro", "off", "gso", "off", "tso", "off", "tx", "off", "rxvlan", "off"]);
            run_ok(ethtool, QUICK);
        }
    }

    /// A program on the client.
    pub fn on_client(&self, program: impl AsRef<Path>) -> Command {
        within(&self.client, program)
    }

    /// A program on the server.
    pub fn on_server(&self, program: impl AsRef<Path>) -> Command {
        within(&self.server, program)
    }

    /// Does something on the client, by the library: what it opens, and threads that it begins, are in the client's network.
    #[track_caller]
    pub fn as_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.client, work)
    }

    /// The same on the server's host.
    #[track_caller]
    pub fn as_server<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.server, work)
    }

    /// `sanwire` on the client, with a state directory of its own.
    pub fn sanwire(&self, arguments: &[&str]) -> Command {
        self.sanwire_of("client", arguments)
    }

    /// `sanwire` on the client as another client: one with its own key.
    pub fn sanwire_of(&self, who: &str, arguments: &[&str]) -> Command {
        let mut command = self.on_client(env!("CARGO_BIN_EXE_sanwire"));
        // What it keeps of servers is its own, not that of this host.
        command.args(arguments).env("XDG_STATE_HOME", self.state(who)).env("XDG_CONFIG_HOME", self.state(who));
        command.env_remove("SANWIRE_LOG");
        command
    }

    /// Where `sanwire` on a host keeps its keys and journals.
    pub fn state(&self, who: &str) -> PathBuf {
        self.scratch.path(&format!("{who}-state"))
    }

    /// The client's Ethernet address.
    pub fn client_mac(&self) -> &'static str {
        CLIENT_MAC
    }

    /// The server's Ethernet address.
    pub fn server_mac(&self) -> String {
        server_mac(0)
    }

    /// The name of the interface on either host.
    pub fn interface(&self) -> &'static str {
        INTERFACE
    }

    /// Joins the hosts by a second link; on the client a bridge over both makes one Ethernet of them. Gives the names of the
    /// second interface, the same on either host, and of the bridge.
    pub fn add_link(&self, server_mac: &str) -> [&'static str; 2] {
        let [interface, bridge] = ["lan1", "br0"];
        let pair = ["type", "veth", "peer", "name", interface, "netns", &self.client];
        let link = ["link", "add", interface, "address", server_mac, "netns", &self.server];
        ip(&[&link[..], &pair].concat());
        ip(&["-n", &self.server, "link", "set", interface, "up"]);
        ip(&["-n", &self.client, "link", "set", interface, "up"]);
        ip(&["-n", &self.client, "link", "add", bridge, "type", "bridge"]);
        for port in [INTERFACE, interface] {
            ip(&["-n", &self.client, "link", "set", port, "master", bridge]);
        }
        ip(&["-n", &self.client, "link", "set", bridge, "up"]);
        [interface, bridge]
    }

    /// Gives both hosts one more interface, with a link between them: `lan1`, `lan2` and so on, each with a subnet of its own.
    pub fn add_path(&self, number: u8, mtu: u32) {
        let (interface, mac, mtu) = (format!("lan{number}"), server_mac(number), mtu.to_string());
        let (server, client) = (self.server.as_str(), self.client.as_str());
        let pair = ["type", "veth", "peer", "name", &interface, "netns", client];
        ip(&[&["link", "add", &interface, "address", &mac, "netns", server][..], &pair].concat());
        for (host, last) in [(server, 1), (client, 2)] {
            ip(&["-n", host, "link", "set", &interface, "mtu", &mtu, "up"]);
            ip(&["-n", host, "address", "add", &format!("10.77.{number}.{last}/24"), "dev", &interface]);
        }
    }

    /// Takes a link away and makes it again, as another network card: the client's end has an address that nobody knows.
    pub fn replace_path(&self, number: u8, mtu: u32) {
        ip(&["-n", &self.server, "link", "delete", &format!("lan{number}")]);
        self.add_path(number, mtu);
    }

    /// The Ethernet address of the client's end of a link.
    pub fn client_path_mac(&self, number: u8) -> String {
        let mut show = Command::new("ip");
        show.args(["-n", &self.client, "-j", "link", "show", "dev", &format!("lan{number}")]);
        let told: serde_json::Value = serde_json::from_str(&run_ok(show, QUICK)).expect("JSON");
        told[0]["address"].as_str().expect("an address").to_owned()
    }

    /// Gives the client's end of a link the address of its first one, as a VLAN has that of its card.
    pub fn share_client_mac(&self, number: u8) {
        ip(&["-n", &self.client, "link", "set", &format!("lan{number}"), "address", CLIENT_MAC]);
    }

    /// Gives the server's end of a link another Ethernet address.
    pub fn set_server_mac(&self, number: u8, mac: &str) {
        ip(&["-n", &self.server, "link", "set", &format!("lan{number}"), "address", mac]);
    }

    /// Bytes that the client's end of a link has sent and received, as its kernel counts them.
    pub fn carried_bytes(&self, number: u8) -> u64 {
        let mut show = Command::new("ip");
        show.args(["-n", &self.client, "-j", "-s", "link", "show", "dev", &format!("lan{number}")]);
        let told: serde_json::Value = serde_json::from_str(&run_ok(show, QUICK)).expect("JSON");
        ["rx", "tx"].map(|way| told[0]["stats64"][way]["bytes"].as_u64().expect("a count")).iter().sum()
    }

    /// Takes the server's end of a link down, or up again: at the other end the carrier goes and comes.
    pub fn set_server_link(&self, number: u8, state: &str) {
        ip(&["-n", &self.server, "link", "set", &format!("lan{number}"), state]);
    }

    /// Lets no more than so much pass a link each way, with a queue of 64 KiB before it.
    pub fn shape(&self, number: u8, mbit_per_second: u32) {
        let (interface, rate) = (format!("lan{number}"), format!("{mbit_per_second}mbit"));
        for host in [&self.server, &self.client] {
            let mut tc = within(host, "tc");
            tc.args(["qdisc", "replace", "dev", &interface, "root", "tbf", "rate", &rate]);
            // A bucket that the largest frame fits in.
            tc.args(["burst", "16384", "limit", "65536"]);
            run_ok(tc, QUICK);
        }
    }

    /// Gives the server one more link, of which another program holds the other end.
    pub fn add_tap(&self, interface: &str, address: &str) {
        ip(&["-n", &self.server, "tuntap", "add", "dev", interface, "mode", "tap"]);
        ip(&["-n", &self.server, "address", "add", &format!("{address}/24"), "dev", interface]);
        ip(&["-n", &self.server, "link", "set", interface, "up"]);
    }

    /// The interfaces of the link take frames of this size from now on.
    pub fn set_mtu(&self, mtu: u32) {
        for host in [self.server.as_str(), self.client.as_str()] {
            ip(&["-n", host, "link", "set", INTERFACE, "mtu", &mtu.to_string()]);
        }
    }

    /// Takes the link down at both ends: neither has a carrier, an interface that is up, or a route.
    pub fn cut_link(&self) {
        self.set_link("down");
    }

    /// Brings it up again.
    pub fn restore_link(&self) {
        self.set_link("up");
    }

    fn set_link(&self, state: &str) {
        for host in [&self.server, &self.client] {
            ip(&["-n", host, "link", "set", INTERFACE, state]);
        }
    }

    /// The client's ports of its open connections to the server's iSCSI portal.
    pub fn iscsi_ports(&self) -> Vec<u16> {
        let mut ss = self.on_client("ss");
        ss.args(["-tnH", "state", "established", "( dport = :3260 )"]);
        let list = run_ok(ss, QUICK);
        let local = |line: &str| line.split_ascii_whitespace().nth(2)?.rsplit_once(':')?.1.parse().ok();
        list.lines().filter_map(local).collect()
    }

    /// Has the client's network answer by a reset whatever is sent on one of its iSCSI connections: the first on which anything is
    /// sent from now on, for one on which nothing is sent is not lost. Gives its port.
    pub fn reset_next_connection(&self) -> u16 {
        let rules = "table inet cutting {\n set lost {\n type inet_service\n size 1\n flags dynamic\n }\n \
                     chain leaving {\n type filter hook output priority 0;\n \
                     tcp dport 3260 add @lost { tcp sport } reject with tcp reset\n }\n}\n";
        let file = self.scratch.path("cutting.nft");
        std::fs::write(&file, rules).expect("the rules can be written");
        let mut nft = self.on_client("nft");
        nft.arg("-f").arg(&file);
        run_ok(nft, QUICK);
        let mut lost = None;
        wait_until("something is sent", QUICK, || {
            let mut nft = self.on_client("nft");
            nft.args(["list", "set", "inet", "cutting", "lost"]);
            let list = run_ok(nft, QUICK);
            let elements = list.split_once("elements = {").map(|(_, elements)| elements);
            lost = elements.and_then(|elements| elements.split('}').next()?.trim().parse().ok());
            lost.is_some()
        });
        lost.expect("the set has an element")
    }

    /// Drops so many of 100 frames that arrive, at both ends, until [`World::lose_nothing`].
    pub fn lose(&self, percent: u32) {
        for host in [&self.server, &self.client] {
            self.drop_frames(host, "ingress", percent);
        }
    }

    /// Ends [`World::lose`]; gives how many frames were dropped at the server and at the client.
    pub fn lose_nothing(&self) -> [u64; 2] {
        [&self.server, &self.client].map(|host| dropped_frames(host, "ingress"))
    }

    /// Drops so many of 100 frames that the client sends, and that come to it, until [`World::lose_nothing_at_client`]: what comes to
    /// the server by AF_XDP cannot be dropped there.
    pub fn lose_at_client(&self, percent: u32) {
        for hook in ["egress", "ingress"] {
            self.drop_frames(&self.client, hook, percent);
        }
    }

    /// Ends [`World::lose_at_client`]; gives how many frames were dropped that left the client and that came to it.
    pub fn lose_nothing_at_client(&self) -> [u64; 2] {
        ["egress", "ingress"].map(|hook| dropped_frames(&self.client, hook))
    }

    fn drop_frames(&self, host: &str, hook: &str, percent: u32) {
        let which = if percent < 100 { format!("numgen random mod 100 < {percent}") } else { String::new() };
        let rules = format!(
            "table netdev loss-{hook} {{\n chain lossy {{\n type filter hook {hook} device \"{INTERFACE}\" priority 0;\n \
             {which} counter drop\n }}\n}}\n"
        );
        let file = self.scratch.path("loss.nft");
        std::fs::write(&file, rules).expect("the rules can be written");
        let mut nft = within(host, "nft");
        nft.arg("-f").arg(&file);
        run_ok(nft, QUICK);
    }
}

/// Ends what [`World::drop_frames`] began; gives how many frames were dropped.
fn dropped_frames(host: &str, hook: &str) -> u64 {
    let table = format!("loss-{hook}");
    let mut list = within(host, "nft");
    list.args(["list", "table", "netdev", &table]);
    let text = run_ok(list, QUICK);
    let mut words = text.split_ascii_whitespace().skip_while(|word| *word != "packets");
    let dropped = words.nth(1).and_then(|word| word.parse().ok()).expect("a counter");
    let mut delete = within(host, "nft");
    delete.args(["delete", "table", "netdev", &table]);
    run_ok(delete, QUICK);
    dropped
}

impl Drop for World {
    fn drop(&mut self) {
        for host in [&self.server, &self.client] {
            let mut delete = Command::new("ip");
            delete.args(["netns", "delete", host]);
            run(delete, QUICK);
        }
        let mut unmount = Command::new("umount");
        unmount.arg("--lazy").arg(self.scratch.directory());
        run(unmount, QUICK);
    }
}

fn server_mac(number: u8) -> String {
    format!("02:00:5e:77:{number:02x}:01")
}

/// A program in the host's network, but with the mounts of this one: `ip netns exec` would give it a copy of them, in which
/// what another test has mounted stays busy.
pub(super) fn within(host: &str, program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{host}")).arg(program.as_ref());
    command
}

#[track_caller]
fn inside<T: Send>(host: &str, work: impl FnOnce() -> T + Send) -> T {
    let network = File::open(format!("/run/netns/{host}")).expect("the host's network");
    let work = move || {
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).expect("it can be entered");
        work()
    };
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| resume_unwind(panic))
}

#[track_caller]
pub(super) fn ip(arguments: &[&str]) {
    let mut command = Command::new("ip");
    command.args(arguments);
    run_ok(command, QUICK);
}
