//! Raw Ethernet between two network namespaces that are made for each test. Needs root; skipped without.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use sanwire_buffer::{Frame, Head, Packet};
use sanwire_core::{MacAddress, Peer};
use sanwire_io::{
    BATCH_PACKETS, Clock, PacketPort, Poller, Port, RING_BYTES_DEFAULT, STEERING_OFFSET_BYTES, Waker, interface,
};

const ETHERTYPE: u16 = 0x88b5;
const OTHER_ETHERTYPE: u16 = 0x88b6;

/// Two hosts joined by a cable: namespaces `swioXa` and `swioXb`, interface `wire` in each.
struct Hosts {
    names: [String; 2],
}

impl Hosts {
    /// `None`, with a message, where namespaces cannot be made.
    fn new(test: &str, mtu: usize) -> Option<Hosts> {
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
        }
        Some(hosts)
    }

    /// Does something as if on that host.
    fn on<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> T {
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

    fn open(&self, host: usize) -> Port {
        self.open_with(host, ETHERTYPE, RING_BYTES_DEFAULT)
    }

    fn open_with(&self, host: usize, ethertype: u16, ring_bytes: usize) -> Port {
        self.on(host, || PacketPort::open("wire", ethertype, ring_bytes)).unwrap().into()
    }

    fn open_shards(&self, host: usize, shards: u32, group: u16) -> Vec<Port> {
        let open =
            || PacketPort::open_shards("wire", ETHERTYPE, RING_BYTES_DEFAULT, (STEERING_OFFSET_BYTES, shards), group);
        self.on(host, open).unwrap().into_iter().map(Port::from).collect()
    }

    fn mac(&self, host: usize) -> MacAddress {
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

fn ip(arguments: &[&str]) -> bool {
    Command::new("ip").args(arguments).output().is_ok_and(|output| output.status.success())
}

fn packet(number: u32, length_bytes: usize) -> Packet {
    let mut head = Head::new();
    head.extend(&[0; 8]);
    head.extend(&number.to_be_bytes());
    let payload: Vec<u8> = (12..length_bytes).map(|i| (i as u32 + number) as u8).collect();
    Packet { head, payload: Some(Frame::from(payload).freeze()) }
}

fn bytes(packet: &Packet) -> Vec<u8> {
    [&packet.head[..], packet.payload.as_deref().unwrap()].concat()
}

fn send(port: &mut Port, to: MacAddress, packets: &[Packet]) {
    for packet in packets {
        if let Err(packet) = port.queue(Peer::Ethernet(to), packet.clone()) {
            port.flush().unwrap();
            port.queue(Peer::Ethernet(to), packet).unwrap();
        }
    }
    port.flush().unwrap();
}

/// What comes until `count` packets are there, or none has arrived for so long that even a busy host would have brought it.
fn receive(port: &mut Port, count: usize) -> Vec<(Peer, Vec<u8>)> {
    receive_within(port, count, Duration::from_secs(10))
}

/// What comes until `count` packets are there, or none has arrived for so long.
fn receive_within(port: &mut Port, count: usize, quiet: Duration) -> Vec<(Peer, Vec<u8>)> {
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

#[test]
fn packets_and_answers_cross_the_wire() {
    for mtu in [1500, 9000] {
        let Some(hosts) = Hosts::new("exchange", mtu) else { return };
        let (mut a, mut b) = (hosts.open(0), hosts.open(1));
        assert_eq!(b.payload_max_bytes(), mtu);
        let packets: Vec<_> = (0..200).map(|n| packet(n, [12, 64, 1000, mtu][n as usize % 4])).collect();
        send(&mut a, hosts.mac(1), &packets);
        let got = receive(&mut b, packets.len());
        assert_eq!(got.len(), packets.len());
        for ((peer, got), sent) in got.iter().zip(&packets) {
            assert_eq!(*peer, Peer::Ethernet(hosts.mac(0)));
            assert!(got.starts_with(&bytes(sent)) && got.len() <= sent.length_bytes().max(46));
        }
        send(&mut b, hosts.mac(0), &packets[..3]);
        assert_eq!(receive(&mut a, 3).len(), 3, "and nothing of what it sent itself");
        assert_eq!((a.counters().sent, b.counters().received, b.counters().kernel_drops), (200, 200, 0));
    }
}

#[test]
fn a_broadcast_reaches_the_other_end() {
    let Some(hosts) = Hosts::new("broadcast", 1500) else { return };
    let (mut a, mut b) = (hosts.open(0), hosts.open(1));
    send(&mut a, MacAddress::BROADCAST, &[packet(1, 100)]);
    assert_eq!(receive(&mut b, 1).len(), 1);
    assert_eq!(a.receive(10, &mut |_, _| panic!("its own")).unwrap(), 0);
}

/// A multicast address belongs to nobody here, though the kernel passes its frames on.
#[test]
fn what_is_for_a_group_is_not_taken() {
    let Some(hosts) = Hosts::new("group", 1500) else { return };
    let (mut a, mut b) = (hosts.open(0), hosts.open(1));
    send(&mut a, MacAddress([0x01, 0, 0x5e, 0, 0, 1]), &[packet(1, 100)]);
    send(&mut a, hosts.mac(1), &[packet(2, 100)]);
    let got = receive(&mut b, 1);
    assert!(got.len() == 1 && got[0].1.starts_with(&bytes(&packet(2, 100))));
    assert_eq!((b.counters().received, b.counters().filtered), (1, 1));
}

#[test]
fn other_traffic_is_never_seen() {
    let Some(hosts) = Hosts::new("others", 1500) else { return };
    let (mut a, mut b) = (hosts.open(0), hosts.open(1));
    let mut other = hosts.open_with(0, OTHER_ETHERTYPE, 0);
    send(&mut other, hosts.mac(1), &[packet(1, 100)]);
    // For another station: on this cable it arrives all the same.
    send(&mut a, MacAddress([2, 1, 2, 3, 4, 5]), &[packet(2, 100)]);
    send(&mut a, hosts.mac(1), &[packet(3, 100)]);
    let got = receive(&mut b, 2);
    assert_eq!(got.len(), 1, "{got:?}");
    assert_eq!(got[0].1[8..12], 3u32.to_be_bytes());
    assert_eq!((b.counters().received, b.counters().filtered), (1, 1), "the kernel kept the other EtherType away");
}

#[test]
fn the_speed_of_a_link_is_known_where_its_driver_says_it() {
    let Some(hosts) = Hosts::new("speed", 1500) else { return };
    let speed = |name: &str| hosts.on(0, || interface::by_name(name)).unwrap();
    let [wire, loopback] = ["wire", "lo"].map(speed);
    let told = [wire.speed_mbit, loopback.speed_mbit];
    assert_eq!(told, [Some(10_000), None], "a veth says 10 Gbit/s, the loopback nothing");
}

#[test]
fn an_overflowing_ring_counts_its_losses_and_goes_on() {
    let Some(hosts) = Hosts::new("overflow", 1500) else { return };
    let (mut a, mut b) = (hosts.open(0), hosts.open_with(1, ETHERTYPE, 1));
    let capacity = b.receive_capacity_packets(1500) as usize;
    let packets: Vec<_> = (0..capacity as u32 + 50).map(|n| packet(n, 1500)).collect();
    send(&mut a, hosts.mac(1), &packets);
    let got = receive(&mut b, capacity);
    assert_eq!(got.len(), capacity, "as many as the port said");
    assert_eq!(b.counters().kernel_drops, 50);
    for round in 0..5 {
        send(&mut a, hosts.mac(1), &packets[..capacity]);
        assert_eq!(receive(&mut b, capacity).len(), capacity, "round {round}");
    }
}

#[test]
fn shards_get_the_packets_that_are_steered_to_them() {
    let Some(hosts) = Hosts::new("fanout", 1500) else { return };
    let mut sender = hosts.open(0);
    let mut shards = hosts.open_shards(1, 2, 7);
    let packets: Vec<_> = (0..100).map(|n| packet(n, 200)).collect();
    send(&mut sender, hosts.mac(1), &packets);
    for (index, shard) in shards.iter_mut().enumerate() {
        let got = receive(shard, 50);
        assert_eq!(got.len(), 50);
        assert!(got.iter().all(|(_, bytes)| usize::from(bytes[11]) % 2 == index), "shard {index}");
    }
    send(&mut shards[1], hosts.mac(0), &packets[..10]);
    assert_eq!(receive(&mut sender, 10).len(), 10);
    let quiet = Duration::from_millis(500);
    assert!(receive_within(&mut shards[0], 1, quiet).is_empty(), "nothing of what a shard sent");
}

/// The kernel gives packets to others while the sockets of some shards are not there.
#[test]
fn shards_that_are_opened_under_load_get_nothing_of_others() {
    let Some(hosts) = Hosts::new("load", 1500) else { return };
    let (mut sender, to) = (hosts.open(0), hosts.mac(1));
    let (load, is_wanted) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let packets: Vec<_> = (0..BATCH_PACKETS as u32).map(|n| packet(n, 200)).collect();
            while is_wanted.try_recv() == Err(TryRecvError::Empty) {
                send(&mut sender, to, &packets);
            }
        });
        for group in 0..10 {
            for (index, shard) in hosts.open_shards(1, 4, group).iter_mut().enumerate() {
                let got = receive(shard, 20);
                assert!(got.len() >= 20, "shard {index} hears");
                assert!(got.iter().all(|(_, bytes)| usize::from(bytes[11]) % 4 == index), "shard {index} gets its own");
            }
        }
        drop(load);
    });
}

#[test]
fn a_link_that_goes_down_and_up_again_serves_on() {
    let Some(hosts) = Hosts::new("updown", 1500) else { return };
    let (mut a, mut b) = (hosts.open(0), hosts.open(1));
    let [name, _] = &hosts.names;
    assert!(ip(&["-n", name, "link", "set", "wire", "down"]));
    send(&mut a, hosts.mac(1), &[packet(0, 100), packet(1, 100)]);
    assert_eq!((a.counters().sent, a.counters().send_errors), (0, 2));
    // The interface's error wakes once, not for ever.
    let (clock, mut poller) = (Clock::new(), Poller::new());
    let deadline = clock.now() + Duration::from_millis(50);
    let waits = (0..).take_while(|_| {
        !poller.wait(std::slice::from_ref(&a), &[], None, Some(deadline), &clock).unwrap().is_timeout()
    });
    assert!(waits.take(100).count() < 5);
    assert!(ip(&["-n", name, "link", "set", "wire", "mtu", "1400", "up"]));
    a.refresh(&hosts.on(0, || interface::list().unwrap())).unwrap();
    assert_eq!(a.payload_max_bytes(), 1400);
    send(&mut a, hosts.mac(1), &[packet(2, 1400), packet(3, 1401)]);
    assert_eq!(receive(&mut b, 1).len(), 1);
    assert_eq!(a.counters().send_errors, 3, "too long for the link");
    assert!(ip(&["-n", name, "link", "del", "wire"]));
    assert!(a.refresh(&hosts.on(0, || interface::list().unwrap())).is_err());
    a.queue(Peer::Ethernet(MacAddress::BROADCAST), packet(4, 100)).unwrap();
    a.flush().unwrap_err();
}

#[test]
fn what_no_port_can_be_opened_on_is_said() {
    let Some(hosts) = Hosts::new("errors", 1500) else { return };
    let open = |name: &str| PacketPort::open(name, ETHERTYPE, 0).unwrap_err();
    let error = hosts.on(0, || open("absent"));
    assert!(error.kind() == std::io::ErrorKind::NotFound && error.to_string().contains("absent"));
    let mut port = hosts.open(0);
    let udp = Peer::Udp((Ipv4Addr::LOCALHOST, 1).into());
    port.queue(udp, packet(0, 100)).unwrap();
    assert_eq!(port.counters().send_errors, 1);
    for number in 0..BATCH_PACKETS as u32 {
        port.queue(Peer::Ethernet(MacAddress::BROADCAST), packet(number, 100)).unwrap();
    }
    assert!(port.queue(Peer::Ethernet(MacAddress::BROADCAST), packet(0, 100)).is_err(), "the batch is full");
}

#[test]
fn another_thread_interrupts_the_watching_of_a_ring() {
    let Some(hosts) = Hosts::new("waker", 1500) else { return };
    let (mut a, b, waker) = (hosts.open(0), hosts.open(1), Waker::new().unwrap());
    let (clock, mut poller) = (Clock::new(), Poller::with_spin(Duration::from_secs(3600)));
    let mut wait = || poller.wait(std::slice::from_ref(&b), &[], Some(&waker), None, &clock).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        let ready = wait();
        assert_eq!((ready.woken, ready.ports), (true, false));
    });
    send(&mut a, hosts.mac(1), &[packet(0, 100)]);
    assert!(wait().ports);
}
