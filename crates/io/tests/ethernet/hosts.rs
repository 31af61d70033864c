//! Two network namespaces that are made for each test, and what is sent between them.

use std::process::Command;
use std::time::Duration;

use sanwire_buffer::{Frame, Head, Packet};
use sanwire_core::{MacAddress, Peer};
use sanwire_io::{Clock, PacketPort, Poller, Port, RING_BYTES_DEFAULT, STEERING_OFFSET_BYTES, XdpWish, interface};

pub(crate) const ETHERTYPE: u16 = 0x88b5;
pub(crate) const OTHER_ETHERTYPE: u16 = 0x88b6;

/// What answers have set in their first byte.
pub(crate) const ANSWER: u8 = 8;

/// Where data begins in the packets of these tests.
pub(crate) const DATA_AT: usize = 28;

/// Two hosts joined by a cable: namespaces `swioXa` and `swioXb`, interface `wire` in each.
pub(crate) struct Hosts {
    pub(crate) names: [String; 2],
}

impl Hosts {
    /// `None`, with a message, where namespaces cannot be made.
    pub(crate) fn new(test: &str, mtu: usize) -> Option<Hosts> {
        // SAFETY: no memory is involved.
        if unsafe { libc::geteuid() } != 0 {
            sanwire_testing::skip(test, "it takes root");
            return None;
        }
        let id = std::process::id();
        let hosts = Hosts { names: ["a", "b"].map(|end| format!("swio{id}{test}{end}")) };
        let [a, b] = &hosts.names;
        for name in [a, b] {
            if !ip(&["netns", "add", name]) {
                sanwire_testing::skip(test, "no network namespaces can be made here");
                return None;
            }
        }
        assert!(ip(&["link", "add", "wire", "netns", a, "type", "veth", "peer", "name", "wire", "netns", b]));
        for name in [a, b] {
            assert!(ip(&["-n", name, "link", "set", "wire", "mtu", &mtu.to_string(), "up"]));
            hosts.set_offload(name, "rxvlan", "off");
        }
        Some(hosts)
    }

    pub(crate) fn set_offload(&self, name: &str, offload: &str, value: &str) {
        let arguments = ["netns", "exec", name, "ethtool", "-K", "wire", offload, value];
        assert!(ip(&arguments), "ethtool is needed");
    }

    /// Does something as if on that host.
    pub(crate) fn on<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.names[host]);
        let namespace = std::fs::File::open(path).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                use std::os::fd::AsRawFd;
                // SAFETY: it moves only this thread, which ends with the work.
                assert_eq!(unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
                work()
            });
            thread.join().unwrap()
        })
    }

    pub(crate) fn open(&self, host: usize) -> Port {
        self.open_with(host, ETHERTYPE, RING_BYTES_DEFAULT)
    }

    pub(crate) fn open_with(&self, host: usize, ethertype: u16, ring_bytes: usize) -> Port {
        self.on(host, || PacketPort::open("wire", ethertype, ring_bytes)).unwrap().into()
    }

    pub(crate) fn open_shards(&self, host: usize, shards: u32, group: u16) -> Vec<Port> {
        let open =
            || PacketPort::open_shards("wire", ETHERTYPE, RING_BYTES_DEFAULT, (STEERING_OFFSET_BYTES, shards), group);
        self.on(host, open).unwrap().into_iter().map(Port::from).collect()
    }

    /// Ports by AF_XDP, one for each shard.
    pub(crate) fn open_xdp(
        &self,
        host: usize,
        ethertype: u16,
        shards: u32,
        ring_bytes: usize,
    ) -> std::io::Result<Vec<Port>> {
        self.open_xdp_again(host, ethertype, (shards, false), ring_bytes)
    }

    /// The same, while others that have these packets are about to go.
    pub(crate) fn open_xdp_again(
        &self,
        host: usize,
        ethertype: u16,
        (shards, is_reopened): (u32, bool),
        ring_bytes: usize,
    ) -> std::io::Result<Vec<Port>> {
        let wish = XdpWish { data_at: DATA_AT, answer_bits: ANSWER, is_reopened, zero_copy_only: false };
        let open = || PacketPort::open_xdp("wire", ethertype, ring_bytes, (STEERING_OFFSET_BYTES, shards), wish);
        Ok(self.on(host, open)?.into_iter().map(Port::from).collect())
    }

    pub(crate) fn mac(&self, host: usize) -> MacAddress {
        self.on(host, || interface::by_name("wire")).unwrap().mac_address.unwrap()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            ip(&["netns", "del", name]);
        }
    }
}

pub(crate) fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).output().is_ok_and(|output| output.status.success())
}

pub(crate) fn packet(number: u32, length_bytes: usize) -> Packet {
    let mut head = Head::new();
    head.extend(&[0; 8]);
    head.extend(&number.to_be_bytes());
    let payload: Vec<u8> = (12..length_bytes).map(|i| (i as u32 + number) as u8).collect();
    Packet::new(head, Some(Frame::from(payload).freeze()))
}

pub(crate) fn bytes(packet: &Packet) -> Vec<u8> {
    packet.to_vec()
}

pub(crate) fn send(port: &mut Port, to: MacAddress, packets: &[Packet]) {
    for packet in packets {
        if let Err(packet) = port.queue(Peer::Ethernet(to), packet.clone()) {
            port.flush().unwrap();
            port.queue(Peer::Ethernet(to), packet).unwrap();
        }
    }
    port.flush().unwrap();
}

/// What comes until `count` packets are there, or none has arrived for so long that even a busy host would have brought it.
pub(crate) fn receive(port: &mut Port, count: usize) -> Vec<(Peer, Vec<u8>)> {
    receive_within(port, count, Duration::from_secs(10))
}

/// What comes until `count` packets are there, or none has arrived for so long.
pub(crate) fn receive_within(port: &mut Port, count: usize, quiet: Duration) -> Vec<(Peer, Vec<u8>)> {
    let (clock, mut poller, mut all) = (Clock::new(), Poller::new(), Vec::new());
    while all.len() < count {
        let deadline = clock.now() + quiet;
        if poller.wait(std::slice::from_ref(port), &[], None, Some(deadline), &clock).unwrap().is_timeout() {
            break;
        }
        port.receive(7, &mut |peer, bytes| all.push((peer, bytes.to_vec()))).unwrap();
    }
    all
}
