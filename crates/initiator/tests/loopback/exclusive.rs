//! A volume to which one client alone may write, by HyperSCSI and by iSCSI.

use std::time::Duration;

use sanwire_initiator::{Client, ConnectError, Url, Volume, VolumeError};
use sanwire_server::Server;

use super::power::{BLOCK_BYTES, Host, connect, write};
use super::{config, options, url};

/// What a client that is refused is told of the one that has the volume.
fn holder(client: &mut Client, volume: &Volume) -> String {
    match client.make_exclusive(volume, false) {
        Err(ConnectError::Held { holder, .. }) => holder,
        result => panic!("{result:?}"),
    }
}

fn write_now(client: &mut Client, volume: &Volume, byte: u8) -> Result<(), VolumeError> {
    client.block_on(write(volume, 0, byte))
}

fn reads(client: &mut Client, volume: &Volume) -> Result<u8, VolumeError> {
    client.block_on(async {
        let buffer = volume.buffer(BLOCK_BYTES).await?;
        Ok(volume.read(0, buffer).await?[0])
    })
}

/// Each way with the other.
fn pairs(host: &Host) -> [[(Url, &'static str); 2]; 2] {
    let [hyperscsi, iscsi] = host.ways();
    [[hyperscsi.clone(), iscsi.clone()], [iscsi, hyperscsi]]
}

#[test]
fn one_alone_writes_until_it_leaves_through_restarts_of_the_server() {
    for at in 0..2 {
        let mut host = Host::new(&format!("exclusive{at}"));
        let [way, other_way] = pairs(&host)[at].clone();
        let (own, others) = (options(), options());
        let (mut client, volume) = connect(&way, &own);
        client.make_exclusive(&volume, false).unwrap();
        let is_refused = || {
            let (mut other, its) = connect(&other_way, &others);
            assert_eq!(write_now(&mut other, &its, 9), Err(VolumeError::Reserved));
            (holder(&mut other, &its), reads(&mut other, &its))
        };
        assert_eq!(write_now(&mut client, &volume, 1), Ok(()));
        let (holder, read) = is_refused();
        assert!(holder.contains(&own.identity.client_id().to_string()), "{holder}");
        assert_eq!(read, Ok(1), "others read");
        host.restart_without(["nothing", "reservations"][at]);
        if at == 0 {
            let _ = is_refused();
            assert_eq!(write_now(&mut client, &volume, 2), Ok(()));
            let _ = is_refused();
        } else {
            // The server has forgotten it: another host may have had the volume meanwhile, and left it.
            assert_eq!(write_now(&mut client, &volume, 2), Err(VolumeError::Reserved));
        }
        drop((volume, client));
        let (mut other, its) = connect(&other_way, &others);
        assert_eq!(write_now(&mut other, &its, 4), Ok(()));
        other.make_exclusive(&its, false).unwrap();
    }
}

#[test]
fn who_is_preempted_writes_and_reads_no_more() {
    for at in 0..2 {
        let host = Host::new(&format!("preempted{at}"));
        let [way, other_way] = pairs(&host)[at].clone();
        let (own, others) = (options(), options());
        let (mut client, volume) = connect(&way, &own);
        client.make_exclusive(&volume, false).unwrap();
        let (mut other, its) = connect(&other_way, &others);
        other.make_exclusive(&its, true).unwrap();
        // It finds out by whatever it does next.
        let found_out = client.block_on(volume.check());
        assert_eq!(found_out, Err(VolumeError::Reserved));
        assert_eq!(reads(&mut client, &volume), Err(VolumeError::Reserved), "what it reads may be another's by now");
        assert_eq!(write_now(&mut other, &its, 2), Ok(()));
        drop((its, other));
        assert_eq!(write_now(&mut client, &volume, 1), Err(VolumeError::Reserved), "also when that is released");
    }
}

#[test]
fn another_client_that_writes_is_told_by_name_while_it_is_there() {
    let host = Host::new("other-writer");
    let [way, other_way] = pairs(&host)[0].clone();
    let (own, others) = (options(), options());
    let (mut other, its) = connect(&other_way, &others);
    let (mut client, volume) = connect(&way, &own);
    reads(&mut other, &its).unwrap();
    assert_eq!(client.other_writer(&volume).unwrap(), None, "who reads harms nobody");
    write_now(&mut other, &its, 1).unwrap();
    let told = client.other_writer(&volume).unwrap().unwrap();
    assert_eq!(told, format!("initiator iqn.2026-11.org.sanwire:client-{}", others.identity.client_id()));
    let (mut beside, the_same) = connect(&way, &others);
    assert_eq!(beside.other_writer(&the_same).unwrap(), None, "the same client by another wire");
    write_now(&mut client, &volume, 2).unwrap();
    assert_eq!(client.other_writer(&volume).unwrap(), None);
    assert_eq!(other.other_writer(&its).unwrap(), Some(format!("client {}", own.identity.client_id())));
    drop((volume, client));
    let is_gone = (0..12_000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        other.other_writer(&its).unwrap().is_none()
    });
    assert!(is_gone, "who has left does no harm");
}

#[test]
fn what_a_client_has_left_reserved_is_its_own_by_either_wire() {
    let host = Host::new("left-reserved");
    let ways = host.ways();
    let own = options();
    for [from, to] in [[0, 0], [0, 1], [1, 1], [1, 0]] {
        let (mut client, volume) = connect(&ways[from], &own);
        client.make_exclusive(&volume, false).unwrap();
        // As if it had been killed.
        std::mem::forget((client, volume));
        let (mut client, volume) = connect(&ways[to], &own);
        client.make_exclusive(&volume, false).unwrap();
        assert_eq!(write_now(&mut client, &volume, 1), Ok(()), "{from} {to}");
        let (mut other, its) = connect(&ways[from], &options());
        assert_eq!(write_now(&mut other, &its, 9), Err(VolumeError::Reserved), "{from} {to}");
    }
}

/// On another host, with a copy of its key.
#[test]
fn a_program_writes_no_more_when_another_one_of_its_client_has_the_volume() {
    let host = Host::new("successor");
    let ways = host.ways();
    let own = options();
    for ([from, to], preempt) in [[0, 0], [0, 1], [1, 1], [1, 0]].into_iter().zip([true, false].into_iter().cycle()) {
        let (mut former, its) = connect(&ways[from], &own);
        former.make_exclusive(&its, true).unwrap();
        assert_eq!(write_now(&mut former, &its, 1), Ok(()));
        let (mut client, volume) = connect(&ways[to], &own);
        client.make_exclusive(&volume, preempt).unwrap();
        assert_eq!(write_now(&mut former, &its, 9), Err(VolumeError::Reserved), "{from} {to}");
        // What it leaves behind is not its own any more.
        drop((its, former));
        let (mut other, its) = connect(&ways[from], &options());
        assert_eq!(write_now(&mut other, &its, 9), Err(VolumeError::Reserved), "{from} {to}");
        assert_eq!((write_now(&mut client, &volume, 2), reads(&mut other, &its)), (Ok(()), Ok(2)));
    }
}

#[test]
fn a_volume_that_no_restart_survives_is_reserved_without_a_record() {
    let target = Server::start(config(&["ram0=ram:1M"])).unwrap();
    let way = (url(&target, "ram0"), "ram0");
    let ((mut client, volume), (mut other, its)) = (connect(&way, &options()), connect(&way, &options()));
    client.make_exclusive(&volume, false).unwrap();
    assert_eq!(write_now(&mut client, &volume, 1), Ok(()));
    assert_eq!(write_now(&mut other, &its, 1), Err(VolumeError::Reserved));
}
