//! Ports by AF_XDP.

use std::io::{Read, Write};
use std::mem::ManuallyDrop;
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use sanwire_buffer::{Slice, UNIT_BYTES};
use sanwire_core::{MacAddress, Peer};
use sanwire_io::{Clock, Poller, Port, RING_BYTES_DEFAULT, ReceivePath, interface};

use crate::hosts::{
    ANSWER, DATA_AT, ETHERTYPE, Hosts, OTHER_ETHERTYPE, bytes, ip, packet, receive, receive_within, send,
};

/// The longest payload of a packet in a page.
const PAYLOAD_MAX: usize = 3612;

fn one(hosts: &Hosts, host: usize) -> Port {
    hosts.open_xdp(host, ETHERTYPE, 1, RING_BYTES_DEFAULT).unwrap().remove(0)
}

#[test]
fn packets_and_answers_cross_the_wire() {
    for mtu in [1500, 9000] {
        let Some(hosts) = Hosts::new("xdpexchange", mtu) else { return };
        let (mut a, mut b) = (hosts.open(0), one(&hosts, 1));
        assert!(matches!(b.receive_path(), ReceivePath::XdpCopy { .. }), "{}", b.receive_path());
        assert_eq!((b.payload_max_bytes(), a.receive_path()), (mtu.min(PAYLOAD_MAX), ReceivePath::Packet));
        let longest = b.payload_max_bytes();
        // More than the ring has pages.
        for round in 0..20 {
            let packets: Vec<_> = (0..200).map(|n| packet(n, [12, 64, 1000, longest][n as usize % 4])).collect();
            send(&mut a, hosts.mac(1), &packets);
            let got = receive(&mut b, packets.len());
            assert_eq!(got.len(), packets.len(), "round {round}");
            for ((peer, got), sent) in got.iter().zip(&packets) {
                assert_eq!(*peer, Peer::Ethernet(hosts.mac(0)));
                assert!(got.starts_with(&bytes(sent)) && got.len() <= sent.length_bytes().max(46));
            }
        }
        let packets = [packet(1, mtu), packet(2, 64)];
        send(&mut b, hosts.mac(0), &packets);
        assert_eq!(receive(&mut a, 2).len(), 2, "and nothing of what it sent itself");
        assert_eq!((a.counters().sent, b.counters().received, b.counters().kernel_drops), (4000, 4000, 0));
    }
}

/// What is kept lies where a disk takes it from, stays as it was however much comes after it, and keeps nothing else from coming.
#[test]
fn packets_are_kept_where_they_came() {
    let Some(hosts) = Hosts::new("xdpkept", 3500) else { return };
    let (mut a, mut b) = (hosts.open(0), one(&hosts, 1));
    let (clock, mut poller) = (Clock::new(), Poller::new());
    let (mut kept, mut not_kept, mut came) = (Vec::<(u32, Slice)>::new(), 0, 0);
    let capacity = RING_BYTES_DEFAULT / UNIT_BYTES;
    while came < 4 * capacity {
        let packets: Vec<_> = (came as u32..came as u32 + 64).map(|n| packet(n, DATA_AT + 3072)).collect();
        send(&mut a, hosts.mac(1), &packets);
        let until = came + 64;
        while came < until {
            let deadline = clock.now() + Duration::from_secs(10);
            let ready = poller.wait(std::slice::from_ref(&b), &[], None, Some(deadline), &clock).unwrap();
            assert!(!ready.is_timeout(), "packet {came} came");
            came += b
                .receive(64, &mut |_, arrival| {
                    let number = u32::from_be_bytes(arrival[8..12].try_into().unwrap());
                    match arrival.keep(&arrival.bytes()[DATA_AT..]) {
                        Some(data) => kept.push((number, data)),
                        None => not_kept += 1,
                    }
                })
                .unwrap();
        }
    }
    assert!(kept.len() >= capacity - 200 && kept.len() <= capacity, "{} were kept", kept.len());
    assert_eq!(not_kept, 4 * capacity - kept.len());
    for (number, data) in &kept {
        assert!(data.as_ptr().addr().is_multiple_of(512));
        assert!(**data == bytes(&packet(*number, DATA_AT + 3072))[DATA_AT..], "packet {number}");
    }
    // Given back, they can be kept again.
    kept.clear();
    send(&mut a, hosts.mac(1), &[packet(0, 100)]);
    let deadline = clock.now() + Duration::from_secs(10);
    poller.wait(std::slice::from_ref(&b), &[], None, Some(deadline), &clock).unwrap();
    let mut again = None;
    b.receive(1, &mut |_, arrival| again = arrival.keep(arrival.bytes())).unwrap();
    assert!(again.is_some() && b.counters().kernel_drops == 0);
    // What is kept outlives its port.
    drop(b);
    assert!(again.unwrap().starts_with(&bytes(&packet(0, 100))));
}

/// Whatever is not ours goes its usual way, and nothing of it is lost.
#[test]
fn other_traffic_goes_on_undisturbed() {
    let Some(hosts) = Hosts::new("xdpothers", 9000) else { return };
    let [a, b] = &hosts.names;
    assert!(ip(&["-n", a, "address", "add", "10.9.8.1/24", "dev", "wire"]));
    assert!(ip(&["-n", b, "address", "add", "10.9.8.2/24", "dev", "wire"]));
    let (mut sender, mut ours) = (hosts.open(0), one(&hosts, 1));
    let (mut other_sender, mut other) =
        (hosts.open_with(0, OTHER_ETHERTYPE, 0), hosts.open_with(1, OTHER_ETHERTYPE, RING_BYTES_DEFAULT));
    let listener = hosts.on(1, || TcpListener::bind("10.9.8.2:999")).unwrap();
    let mut stream = hosts.on(0, || TcpStream::connect("10.9.8.2:999")).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    let sent: Vec<u8> = (0..8 << 20).map(|at: u32| (at >> 7) as u8).collect();
    let mut got = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stream.write_all(&sent).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        });
        scope.spawn(|| accepted.read_to_end(&mut got).unwrap());
        for round in 0..50 {
            let packets: Vec<_> = (0..64).map(|n| packet(n, 1000)).collect();
            send(&mut sender, hosts.mac(1), &packets);
            send(&mut other_sender, hosts.mac(1), &packets[..8]);
            assert_eq!(receive(&mut ours, 64).len(), 64, "round {round}");
            assert_eq!(receive(&mut other, 8).len(), 8, "round {round}");
        }
    });
    assert!(got == sent);
    // For another station, as the parent of a macvlan gets it: it is left to who it is for.
    send(&mut sender, MacAddress([2, 1, 2, 3, 4, 5]), &[packet(2, 100)]);
    send(&mut sender, MacAddress::BROADCAST, &[packet(3, 100)]);
    assert_eq!(receive(&mut ours, 1)[0].1[8..12], 3_u32.to_be_bytes());
    assert_eq!(ours.counters().filtered, 0, "it did not even come");
}

/// An initiator of the same host hears what it is answered, and nobody takes what is of a VLAN for what is not.
#[test]
fn answers_and_packets_of_vlans_go_their_usual_way() {
    let Some(hosts) = Hosts::new("xdpanswers", 1500) else { return };
    let (mut sender, mut initiator, mut ours) = (hosts.open(0), hosts.open(1), one(&hosts, 1));
    let to = hosts.mac(1);
    let mut answer = packet(1, 100);
    answer.head.as_mut_slice()[0] = ANSWER;
    send(&mut sender, to, &[answer, packet(2, 100)]);
    let number = |got: &[(Peer, Vec<u8>)]| u32::from_be_bytes(got[0].1[8..12].try_into().unwrap());
    assert_eq!(number(&receive(&mut initiator, 1)), 1);
    assert_eq!(number(&receive(&mut ours, 1)), 2);
    // VLAN 5, and then what would be a packet of ours.
    let mut tagged_sender = hosts.open_with(0, 0x8100, 0);
    let mut tagged = packet(3, 100);
    tagged.head.as_mut_slice()[..4].copy_from_slice(&[0, 5, 0x88, 0xb5]);
    send(&mut tagged_sender, to, &[tagged]);
    send(&mut sender, to, &[packet(4, 100)]);
    assert_eq!(number(&receive(&mut ours, 1)), 4);
    assert_eq!(ours.counters().filtered, 0);
    // Where the driver takes tags out, nobody could tell.
    drop(ours);
    hosts.set_offload(&hosts.names[1], "rxvlan", "on");
    let error = hosts.open_xdp(1, ETHERTYPE, 1, RING_BYTES_DEFAULT).unwrap_err();
    assert!(error.to_string().contains("let it leave them by `ethtool -K wire rxvlan off`"), "{error}");
}

/// Who opens the interface again while the former ports are still there has its packets, whether it went away meanwhile or not.
#[test]
fn ports_are_opened_again_beside_the_former_ones() {
    let Some(hosts) = Hosts::new("xdpagain", 1500) else { return };
    let (mut sender, mut former) = (hosts.open(0), one(&hosts, 1));
    let again = || hosts.open_xdp_again(1, ETHERTYPE, (1, true), RING_BYTES_DEFAULT).map(|mut ports| ports.remove(0));
    let mut port = again().unwrap();
    send(&mut sender, hosts.mac(1), &[packet(1, 100)]);
    assert_eq!(receive(&mut port, 1).len(), 1);
    assert!(receive_within(&mut former, 1, Duration::from_millis(50)).is_empty());
    drop(former);
    send(&mut sender, hosts.mac(1), &[packet(2, 100)]);
    assert_eq!(receive(&mut port, 1).len(), 1, "the former one takes its own with it only");
    // Another interface of the same name and number.
    let index = hosts.on(1, || interface::by_name("wire")).unwrap().index.to_string();
    let [a, b] = &hosts.names;
    assert!(ip(&["-n", b, "link", "del", "wire"]));
    // An idle one is woken by that, once.
    let (clock, mut poller) = (Clock::new(), Poller::new());
    let mut is_woken = |port: &mut Port, within| {
        let deadline = clock.now() + within;
        let ready = poller.wait(std::slice::from_ref(port), &[], None, Some(deadline), &clock).unwrap();
        port.receive(1, &mut |_, _| {}).unwrap();
        !ready.is_timeout()
    };
    assert!(is_woken(&mut port, Duration::from_secs(10)), "it hears that its interface is gone");
    let waits = (0..10).take_while(|_| is_woken(&mut port, Duration::from_millis(20))).count();
    assert!(waits < 5, "the error wakes it once, not again and again");
    let peer = ["type", "veth", "peer", "name", "wire", "netns", a];
    assert!(ip(&[&["link", "add", "wire", "netns", b, "index", &index], &peer[..]].concat()));
    for name in [a, b] {
        assert!(ip(&["-n", name, "link", "set", "wire", "up"]));
        hosts.set_offload(name, "rxvlan", "off");
    }
    let (mut sender, mut port) = (hosts.open(0), again().unwrap());
    send(&mut sender, hosts.mac(1), &[packet(3, 100)]);
    assert_eq!(receive(&mut port, 1).len(), 1);
}

/// What comes for one shard that does not look takes not all memory: another one goes on.
#[test]
fn a_shard_that_does_not_look_keeps_no_other_from_hearing() {
    let Some(hosts) = Hosts::new("xdpstuck", 1500) else { return };
    let (mut sender, to) = (hosts.open(0), hosts.mac(1));
    let mut shards = hosts.open_xdp(1, ETHERTYPE, 2, 1).unwrap();
    let own: Vec<_> = (0..400).map(|n| packet(2 * n, 1000)).collect();
    send(&mut sender, to, &own);
    let others: Vec<_> = (0..16).map(|n| packet(2 * n + 1, 1000)).collect();
    for round in 0..5 {
        send(&mut sender, to, &others);
        assert_eq!(receive(&mut shards[1], 16).len(), 16, "round {round}");
    }
}

/// Two EtherTypes and two shards share the interface's one receive queue; each hears its own, as long as it is there.
#[test]
fn shards_and_ethertypes_share_an_interface() {
    let Some(hosts) = Hosts::new("xdpshards", 1500) else { return };
    let mut shards = hosts.open_xdp(1, ETHERTYPE, 2, RING_BYTES_DEFAULT).unwrap();
    let mut other = hosts.open_xdp(1, OTHER_ETHERTYPE, 1, RING_BYTES_DEFAULT).unwrap().remove(0);
    let (mut sender, mut other_sender) = (hosts.open(0), hosts.open_with(0, OTHER_ETHERTYPE, 0));
    let packets: Vec<_> = (0..100).map(|n| packet(n, 200)).collect();
    let to = hosts.mac(1);
    send(&mut sender, to, &packets);
    send(&mut other_sender, to, &packets[..30]);
    for (index, shard) in shards.iter_mut().enumerate() {
        let got = receive(shard, 50);
        assert_eq!(got.len(), 50);
        assert!(got.iter().all(|(_, bytes)| usize::from(bytes[11]) % 2 == index), "shard {index}");
    }
    assert_eq!(receive(&mut other, 30).len(), 30);
    let again = hosts.open_xdp(1, ETHERTYPE, 1, RING_BYTES_DEFAULT).unwrap_err();
    assert!(again.to_string().contains("this program has the packets of EtherType 0x88b5"), "{again}");
    drop(other);
    send(&mut sender, to, &packets[..10]);
    assert_eq!(receive(&mut shards[0], 5).len(), 5, "it goes on");
    assert!(receive_within(&mut shards[0], 1, Duration::from_millis(100)).is_empty());
    // The last one gone, another one has the interface at once.
    drop(shards);
    let mut shards = hosts.open_xdp(1, OTHER_ETHERTYPE, 3, RING_BYTES_DEFAULT).unwrap();
    send(&mut other_sender, to, &packets[..3]);
    shards.iter_mut().for_each(|shard| assert_eq!(receive(shard, 1).len(), 1));
}

/// Who attaches a program to the interface before us keeps it, and we say so.
#[test]
fn an_interface_that_another_program_has_is_left_alone() {
    let Some(hosts) = Hosts::new("xdptaken", 1500) else { return };
    let shows_program = || {
        let shown = Command::new("ip").args(["-n", &hosts.names[1], "link", "show", "wire"]).output().unwrap();
        String::from_utf8_lossy(&shown.stdout).contains("prog/xdp")
    };
    let ours = one(&hosts, 1);
    assert!(shows_program());
    // Another process, which knows nothing of what this one has open.
    let mut other = Command::new(std::env::current_exe().unwrap());
    let name = &hosts.names[1];
    let other = other
        .args(["--exact", "--ignored", "xdp::the_other_process"])
        .env("SANWIRE_TEST_NETNS", name)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&other.stdout);
    assert!(said.contains("another program has the interface"), "{said}");
    drop(ours);
    assert!(!shows_program(), "it goes with the port");
}

#[test]
#[ignore = "run by another test, as another process"]
fn the_other_process() {
    let name = std::env::var("SANWIRE_TEST_NETNS").unwrap();
    let hosts = ManuallyDrop::new(Hosts { names: [name.clone(), name] });
    println!("{}", hosts.open_xdp(1, ETHERTYPE, 1, RING_BYTES_DEFAULT).unwrap_err());
    panic!("so that what it said is shown");
}

/// The kernel has no memory left to put packets into: they are counted, and it goes on.
#[test]
fn what_finds_no_page_is_counted() {
    let Some(hosts) = Hosts::new("xdpfull", 1500) else { return };
    let mut a = hosts.open(0);
    let mut b = hosts.open_xdp(1, ETHERTYPE, 1, 1).unwrap().remove(0);
    let capacity = b.receive_capacity_packets(1500) as usize;
    let packets: Vec<_> = (0..capacity as u32 + 50).map(|n| packet(n, 1500)).collect();
    for round in 1..=5 {
        send(&mut a, hosts.mac(1), &packets);
        assert_eq!(receive(&mut b, capacity).len(), capacity, "as many as the port said, in round {round}");
        assert!(receive_within(&mut b, 1, Duration::from_millis(50)).is_empty());
        assert_eq!(b.counters().kernel_drops, 50 * round);
    }
}
