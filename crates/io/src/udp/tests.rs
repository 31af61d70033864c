use std::sync::mpsc::{self, TryRecvError};
use std::time::{Duration, Instant};

use sanwire_buffer::{Frame, Head};

use super::*;
use crate::{Clock, Poller, Port};

fn open() -> UdpPort {
    UdpPort::open("127.0.0.1:0".parse().unwrap()).unwrap()
}

/// A packet of `length_bytes` whose head and payload tell which one it is.
fn packet(number: u32, length_bytes: usize) -> Packet {
    let mut bytes: Vec<u8> = (0..length_bytes).map(|i| (i as u32 * 7 + number) as u8).collect();
    let payload = bytes.split_off(length_bytes.min(20));
    let mut head = Head::new();
    head.extend(&bytes);
    Packet::new(head, (!payload.is_empty()).then(|| Frame::from(payload).freeze()))
}

fn bytes(packet: &Packet) -> Vec<u8> {
    packet.to_vec()
}

/// Nothing here takes so long unless it never happens.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Receives until `count` datagrams have arrived, or none has for long.
fn receive(port: UdpPort, count: usize, budget: usize) -> (UdpPort, Vec<(Peer, Vec<u8>)>) {
    let (mut port, mut all) = (Port::from(port), Vec::new());
    while all.len() < count {
        let (clock, mut poller) = (Clock::new(), Poller::new());
        let deadline = clock.now() + TIMEOUT;
        let ready = poller.wait(std::slice::from_ref(&port), &[], None, Some(deadline), &clock).unwrap();
        if ready.is_timeout() {
            break;
        }
        let got = port.receive(budget, &mut |peer, bytes| all.push((peer, bytes.to_vec()))).unwrap();
        assert!(got <= budget);
    }
    let Port::Udp(port) = port else { unreachable!("it was a UDP port") };
    (*port, all)
}

/// Receives what comes of so many datagrams that were sent, less those that were dropped: on a busy host the kernel delivers them a little later.
fn receive_all(port: &mut UdpPort, sent: u64) -> u64 {
    let (mut got, end) = (0, Instant::now() + TIMEOUT);
    loop {
        got += port.receive(usize::MAX, &mut |_, _| {}).unwrap() as u64;
        if got + port.counters().kernel_drops >= sent || Instant::now() > end {
            return got;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn exchange(lengths: &[usize], may_segment: bool, budget: usize) {
    let (mut sender, receiver) = (open(), open());
    if !may_segment {
        sender.forbid_segmentation();
    }
    let to = Peer::Udp(receiver.local_address());
    let packets: Vec<_> = (0..).zip(lengths).map(|(number, length)| packet(number, *length)).collect();
    for packet in &packets {
        sender.queue(to, packet.clone()).unwrap();
    }
    sender.flush().unwrap();
    let (receiver, got) = receive(receiver, packets.len(), budget);
    assert_eq!(got.len(), packets.len());
    for ((peer, got), sent) in got.iter().zip(&packets) {
        assert_eq!(*peer, Peer::Udp(sender.local_address()));
        assert!(*got == bytes(sent), "{} bytes came for {}", got.len(), sent.length_bytes());
    }
    let total: u64 = lengths.iter().map(|length| *length as u64).sum();
    assert_eq!((sender.counters().sent, sender.counters().sent_bytes), (packets.len() as u64, total));
    assert_eq!((receiver.counters().received, receiver.counters().received_bytes), (packets.len() as u64, total));
}

#[test]
fn runs_arrive_as_the_packets_that_were_sent() {
    let same = [1400; 64];
    let odd_last = [[1400; 20].as_slice(), &[33]].concat();
    let mixed = [1000, 1000, 400, 1000, 1, 1, 1, 9000, 9000, 9000, 9000, 9000, 9000, 9000, 9000, 12, 0, 0, 5];
    for lengths in [&same[..], &odd_last, &mixed, &[DATAGRAM_MAX_BYTES], &[40_000, 40_000], &[3]] {
        for may_segment in [true, false] {
            exchange(lengths, may_segment, 1000);
            exchange(lengths, may_segment, 3);
        }
    }
}

#[test]
fn packets_of_several_peers_reach_each() {
    let (mut sender, first, second) = (open(), open(), open());
    let peers = [Peer::Udp(first.local_address()), Peer::Udp(second.local_address())];
    for number in 0..40 {
        sender.queue(peers[usize::from(number % 4 == 3)], packet(number, 500)).unwrap();
    }
    sender.flush().unwrap();
    assert_eq!(receive(first, 30, 100).1.len(), 30);
    assert_eq!(receive(second, 10, 100).1.len(), 10);
}

#[test]
fn a_full_batch_gives_the_packet_back() {
    let (mut sender, receiver) = (open(), open());
    let to = Peer::Udp(receiver.local_address());
    for number in 0..crate::BATCH_PACKETS as u32 {
        sender.queue(to, packet(number, 100)).unwrap();
    }
    let back = sender.queue(to, packet(7, 60)).unwrap_err();
    assert_eq!(back.length_bytes(), 60);
    sender.flush().unwrap();
    sender.queue(to, back).unwrap();
    sender.flush().unwrap();
    assert_eq!(receive(receiver, 65, 1000).1.len(), 65);
}

/// With packets of jumbo frames, long before it has as many packets as it may.
#[test]
fn a_batch_is_full_by_its_bytes_too() {
    let (mut sender, receiver) = (open(), open());
    let to = Peer::Udp(receiver.local_address());
    let taken = (0..).take_while(|number| sender.queue(to, packet(*number, 8000)).is_ok()).count();
    assert_eq!(taken, crate::port::BATCH_BYTES.div_ceil(8000));
    sender.flush().unwrap();
    sender.queue(to, packet(7, 8000)).unwrap();
}

#[test]
fn what_the_link_does_not_take_is_counted_and_the_rest_goes() {
    let (mut sender, receiver) = (open(), open());
    assert_eq!(sender.payload_max_bytes(), DATAGRAM_MAX_BYTES.min(interface::by_name("lo").unwrap().mtu_bytes - 28));
    let to = Peer::Udp(receiver.local_address());
    sender.queue(to, packet(0, 100)).unwrap();
    sender.queue(to, packet(1, DATAGRAM_MAX_BYTES + 1)).unwrap();
    sender.queue(to, packet(2, 200)).unwrap();
    sender.queue(Peer::Ethernet(sanwire_core::MacAddress::BROADCAST), packet(3, 10)).unwrap();
    sender.queue(Peer::Udp("[::1]:9".parse().unwrap()), packet(4, 10)).unwrap();
    sender.flush().unwrap();
    assert_eq!((sender.counters().sent, sender.counters().send_errors), (2, 3));
    assert_eq!(receive(receiver, 2, 10).1.len(), 2);
}

#[test]
fn an_absent_peer_does_not_end_the_port() {
    let (mut sender, receiver) = (open(), open());
    let nobody = open().local_address();
    for _ in 0..3 {
        sender.queue(Peer::Udp(nobody), packet(0, 10)).unwrap();
        sender.queue(Peer::Udp(receiver.local_address()), packet(1, 10)).unwrap();
        sender.flush().unwrap();
        assert_eq!(sender.receive(10, &mut |_, _| {}).unwrap(), 0);
    }
    assert_eq!(receive(receiver, 3, 10).1.len(), 3);
}

#[test]
fn a_receive_buffer_that_overflows_is_counted() {
    let (mut sender, mut receiver) = (open(), open());
    let capacity = receiver.receive_capacity_packets(4096);
    assert!(capacity >= 8, "{capacity}");
    sys::set_option(receiver.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &1).unwrap();
    let small = receiver.receive_capacity_packets(4096);
    assert!(small < capacity);
    let to = Peer::Udp(receiver.local_address());
    for number in 0..50 {
        sender.queue(to, packet(number, 4096)).unwrap();
        sender.flush().unwrap();
    }
    let got = receive_all(&mut receiver, 50);
    assert_eq!((got + receiver.counters().kernel_drops, receiver.counters().received), (50, got));
}

#[test]
fn what_fits_the_capacity_arrives() {
    for length in [64, 1400, 9000, 30_000, 60_000] {
        let (mut sender, mut receiver) = (open(), open());
        sender.forbid_segmentation();
        let capacity = receiver.receive_capacity_packets(length).min(2000) as usize;
        let to = Peer::Udp(receiver.local_address());
        for number in 0..capacity {
            sender.queue(to, packet(number as u32, length)).unwrap();
            sender.flush().unwrap();
        }
        let got = receive_all(&mut receiver, capacity as u64) as usize;
        assert_eq!((got, receiver.counters().kernel_drops), (capacity, 0), "{length}");
    }
}

#[test]
fn shards_get_the_packets_that_are_steered_to_them() {
    let mut shards = UdpPort::open_shards("127.0.0.1:0".parse().unwrap(), 2).unwrap().into_iter();
    let (first, second) = (shards.next().unwrap(), shards.next().unwrap());
    let (mut sender, to) = (open(), Peer::Udp(first.local_address()));
    for number in 0..60u32 {
        let mut bytes = [0; 40];
        bytes[8..12].copy_from_slice(&(number / 3).to_be_bytes());
        bytes[12..16].copy_from_slice(&number.to_be_bytes());
        sender.queue(to, Packet::new(bytes.to_vec().into(), None)).unwrap();
    }
    sender.queue(to, Packet::new(vec![1, 2, 3].into(), None)).unwrap();
    sender.flush().unwrap();
    let word = |bytes: &[u8]| bytes.get(8..12).map_or(0, |word| u32::from_be_bytes(word.try_into().unwrap()));
    let (_, got) = receive(first, 31, 100);
    assert_eq!(got.len(), 31, "and the short one");
    assert!(got.iter().all(|(_, bytes)| word(bytes) % 2 == 0));
    let (_, got) = receive(second, 30, 100);
    assert_eq!(got.len(), 30);
    assert!(got.iter().all(|(_, bytes)| word(bytes) % 2 == 1));
}

/// The kernel gives packets to others while the sockets of some shards are not there.
#[test]
fn shards_that_are_opened_under_load_get_nothing_of_others() {
    let address = open().local_address();
    let (load, is_wanted) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut sender = open();
            for word in (0..4u32).cycle().take_while(|_| is_wanted.try_recv() == Err(TryRecvError::Empty)) {
                let bytes = [[0; 8].as_slice(), &word.to_be_bytes()].concat();
                sender.queue(Peer::Udp(address), Packet::new(bytes.into(), None)).unwrap();
                sender.flush().unwrap();
            }
        });
        for _ in 0..20 {
            // All stay open: those that are left would be numbered anew.
            let shards = UdpPort::open_shards(address, 4).unwrap().into_iter().map(|shard| receive(shard, 20, 100));
            for (index, (_, got)) in (0..).zip(shards.collect::<Vec<_>>()) {
                assert!(got.len() >= 20, "shard {index} hears");
                assert!(got.iter().all(|(_, bytes)| bytes[11] == index), "shard {index} gets its own");
            }
        }
        drop(load);
    });
}

#[test]
fn the_other_address_family_works_too() {
    let Ok(mut sender) = UdpPort::open("[::1]:0".parse().unwrap()) else {
        sanwire_testing::skip("the_other_address_family_works_too", "this host has no IPv6");
        return;
    };
    let receiver = UdpPort::open("[::1]:0".parse().unwrap()).unwrap();
    for number in 0..5 {
        sender.queue(Peer::Udp(receiver.local_address()), packet(number, 3000)).unwrap();
    }
    sender.flush().unwrap();
    let (_, got) = receive(receiver, 5, 10);
    assert_eq!(got.len(), 5);
    assert_eq!(got[0].0, Peer::Udp(sender.local_address()));
}
