//! Ports by AF_PACKET.

use std::net::Ipv4Addr;
use std::sync::mpsc::{self, TryRecvError};
use std::time::Duration;

use sanwire_core::{MacAddress, Peer};
use sanwire_io::{BATCH_PACKETS, Clock, PacketPort, Poller, Waker, interface};

use crate::hosts::{ETHERTYPE, Hosts, OTHER_ETHERTYPE, bytes, ip, packet, receive, receive_within, send};

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
