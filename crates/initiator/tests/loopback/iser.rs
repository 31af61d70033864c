//! iSER: RDMA in software over the loopback, between a whole server and a whole client.

mod by_adapter;
mod strangers;

use std::time::{Duration, Instant};

use sanwire_initiator::{Client, ClientOptions, Server as Place, Url, targets};
use sanwire_iscsi::{OtherPortal, PortalCarrier};
use sanwire_server::{AllowList, Server, ServerConfig, TargetNodeConfig, Wire};

use crate::again::refusal;
use crate::{config, options};

const NAME: &str = "iqn.2026-11.org.sanwire:disk";

/// A server with portals of both kinds.
fn server(volume: &str) -> Server {
    let settings = ServerConfig {
        wires: ["hs-ip", "iser", "iscsi"].map(super::wire).to_vec(),
        exports: vec![TargetNodeConfig::of_volume("disk", AllowList::default()).unwrap()],
        ..config(&[volume])
    };
    Server::start(settings).unwrap()
}

/// A URL of this scheme, at the portal of a wire that is spoken to in its own way or in the other one.
fn url(target: &Server, scheme: &str, at_its_own: bool) -> Url {
    let is_meant = |wire: &&Wire| wire.has_targets() && (wire.scheme() == scheme) == at_its_own;
    let (portal, _) = target.wires().iter().find(is_meant).and_then(Wire::portal).unwrap();
    format!("{scheme}://{portal}/{NAME}/0").parse().unwrap()
}

fn patterned(mut frame: sanwire_buffer::Frame, round: usize) -> sanwire_buffer::Slice {
    frame.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 512 * 31 + at + round) as u8);
    frame.freeze()
}

#[test]
fn what_is_written_by_rdma_is_read_again() {
    let target = server("disk=ram:64M");
    let mut client = Client::connect(&url(&target, "iser", true), &options()).unwrap();
    let volume = client.open("0").unwrap();
    client.block_on(async {
        for (round, length) in
            [512usize, 4096, 8192, 8704, 65_536, 1 << 20, (1 << 20) + 512, 16 << 20].into_iter().enumerate()
        {
            let data = patterned(volume.buffer(length).await.unwrap(), round);
            volume.write(512, data.clone()).await.unwrap();
            let back = volume.read(512, volume.buffer(length).await.unwrap()).await.unwrap();
            assert!(*back == *data, "{length} bytes");
        }
        volume.flush().await.unwrap();
        volume.discard(1 << 20, 1 << 20).await.unwrap();
        let back = volume.read(1 << 20, volume.buffer(4096).await.unwrap()).await.unwrap();
        assert!(back.iter().all(|byte| *byte == 0));
    });
    drop((volume, client));
    target.stop().unwrap();
}

#[test]
fn many_transfers_by_rdma_are_under_way_at_once() {
    let path = std::env::temp_dir().join(format!("sanwire-iser-{}.img", std::process::id()));
    let target = server(&format!("disk=file:{},size=64M", path.display()));
    let mut client = Client::connect(&url(&target, "iser", true), &options()).unwrap();
    let volume = client.open("0").unwrap();
    for length in [4096u64, 256 << 10] {
        let jobs = (0..48u64).map(|number| {
            let volume = volume.clone();
            async move {
                let data = patterned(volume.buffer(length as usize).await.unwrap(), number as usize);
                volume.write(number * length, data.clone()).await.unwrap();
                let back = volume.read(number * length, volume.buffer(length as usize).await.unwrap()).await.unwrap();
                assert!(*back == *data, "{number}");
            }
        });
        let jobs: Vec<_> = jobs.map(Box::pin).collect();
        client.block_on(all(jobs));
    }
    drop((volume, client));
    target.stop().unwrap();
    std::fs::remove_file(path).unwrap();
}

/// Connections of this host that lead to this port.
fn connections_to(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let (place, established) = (format!(":{port:04X}"), "01");
    let leads_there = |line: &&str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        matches!(fields[..], [_, _, remote, state, ..] if remote.ends_with(&place) && state == established)
    };
    table.lines().filter(leads_there).count()
}

#[test]
fn a_session_by_rdma_has_the_connections_that_it_wants() {
    let target = server("disk=ram:64M");
    let place = url(&target, "iser", true);
    let Place::Iscsi(host) = &place.server else { panic!("{place}") };
    let mut options = options();
    options.iscsi.wishes.connections = 3;
    let mut client = Client::connect(&place, &options).unwrap();
    let volume = client.open("0").unwrap();
    // The others are logged in beside the work of the first.
    let until = Instant::now() + Duration::from_secs(120);
    for round in 0.. {
        client.block_on(async {
            let data = patterned(volume.buffer(100 << 10).await.unwrap(), round);
            volume.write(512, data.clone()).await.unwrap();
            let back = volume.read(512, volume.buffer(100 << 10).await.unwrap()).await.unwrap();
            assert!(*back == *data, "round {round}");
        });
        let connections = connections_to(host.port);
        if round > 20 && connections == 3 {
            break;
        }
        assert!(Instant::now() < until, "{connections} connections");
    }
    drop((volume, client));
    target.stop().unwrap();
}

/// Waits for all of them, side by side.
async fn all(mut jobs: Vec<std::pin::Pin<Box<impl Future<Output = ()>>>>) {
    std::future::poll_fn(|context| {
        jobs.retain_mut(|job| job.as_mut().poll(context).is_pending());
        if jobs.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[test]
fn a_portal_of_iser_tells_of_itself_in_discovery() {
    let target = server("disk=ram:1M");
    for scheme in ["iser", "iscsi"] {
        let place = url(&target, scheme, true);
        let Place::Iscsi(host) = &place.server else { panic!("{place}") };
        let found = targets(host, &options()).unwrap();
        assert_eq!(found.len(), 1, "{scheme}");
        let expected = [(format!("127.0.0.1:{}", host.port), 1)];
        assert_eq!((found[0].name.as_str(), &found[0].addresses[..]), (NAME, &expected[..]), "{scheme}");
        // Of the other one it tells who asks.
        let other = url(&target, scheme, false);
        let Place::Iscsi(other) = &other.server else { panic!("{other}") };
        let carrier = if scheme == "iser" { PortalCarrier::Tcp } else { PortalCarrier::Iwarp };
        let other = OtherPortal { carrier, address: format!("127.0.0.1:{}", other.port), group_tag: 1 };
        assert_eq!(found[0].others, Some(vec![other]), "{scheme}");
    }
    target.stop().unwrap();
}

#[test]
fn who_speaks_iser_to_plain_iscsi_is_told_so_and_the_other_way_round_refused() {
    let target = server("disk=ram:1M");
    let patience = ClientOptions { connect_patience: Duration::from_secs(1), ..options() };
    let told = refusal(&url(&target, "iser", false), &patience, "does not answer as one of iSER");
    assert!(told.contains("does not answer as one of iSER") && told.contains("try iscsi://"), "{told}");
    refusal(&url(&target, "iscsi", false), &patience, "");
    // The server serves on.
    let mut client = Client::connect(&url(&target, "iser", true), &options()).unwrap();
    client.open("0").unwrap();
    drop(client);
    target.stop().unwrap();
}
