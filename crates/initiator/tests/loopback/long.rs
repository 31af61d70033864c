//! Transfers that are longer than the memory of the server's thread that serves them.

use sanwire_initiator::{Client, ClientOptions, Url, VolumeError};
use sanwire_server::{AllowList, Server, ServerConfig, TargetNodeConfig};

use crate::{config, options, url};

const LONGEST: usize = 16 << 20;
const LONGEST_OF_HYPERSCSI: usize = 3 << 20;

/// A server whose shards have no more memory than they must.
fn small_server(volume: &str) -> Server {
    let settings = ServerConfig {
        wires: vec![super::wire("hs-ip"), super::wire("iscsi")],
        exports: vec![TargetNodeConfig::of_volume("disk", AllowList::default()).unwrap()],
        memory_bytes: 0,
        ..config(&[volume])
    };
    Server::start(settings).unwrap()
}

fn iscsi(target: &Server) -> Url {
    let (portal, _) = target.wires()[1].portal().unwrap();
    format!("iscsi://{portal}/iqn.2026-11.org.sanwire:disk/0").parse().unwrap()
}

fn check(volume: &str, options: &ClientOptions) {
    let target = small_server(volume);
    transfer((&iscsi(&target), "0"), options, LONGEST);
    target.stop().unwrap();
}

/// Writes and reads as much at once as can be, and less.
fn transfer((url, name): (&Url, &str), options: &ClientOptions, longest: usize) {
    let mut client = Client::connect(url, options).unwrap();
    let volume = client.open(name).unwrap();
    assert_eq!(volume.info().transfer_max_bytes as usize, longest);
    client.block_on(async {
        for (length, offset) in [(longest, 512u64), ((1 << 20) + 512, 0), (longest / 4, 20 << 20)] {
            let mut frame = volume.buffer(length).await.unwrap();
            frame.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 512 * 31 + at + length) as u8);
            let data = frame.freeze();
            volume.write(offset, data.clone()).await.unwrap();
            let found = volume.read(offset, volume.buffer(length).await.unwrap()).await.unwrap();
            assert!(*found == *data, "{length} bytes at {offset}");
            volume.write_stable(offset + 512, data).await.unwrap();
        }
        let too_long = volume.read(0, volume.buffer(longest + 512).await.unwrap()).await;
        assert!(matches!(too_long, Err(VolumeError::TooLong { .. })), "{too_long:?}");
    });
}

#[test]
fn the_longest_transfer_goes_over_iscsi_with_little_memory() {
    check("disk=ram:64M", &options());
}

#[test]
fn so_it_does_with_digests_several_connections_and_recovery() {
    let mut options = options();
    (options.iscsi.wishes.digests, options.iscsi.wishes.connections) = (true, 3);
    options.iscsi.wishes.error_recovery_level = 2;
    check("disk=ram:64M,block=512", &options);
}

#[test]
fn so_it_does_from_and_to_a_file() {
    let path = std::env::temp_dir().join(format!("sanwire-long-{}.img", std::process::id()));
    check(&format!("disk=file:{},size=64M", path.display()), &options());
    std::fs::remove_file(path).unwrap();
}

#[test]
fn the_longest_transfer_of_hyperscsi_goes_with_little_memory() {
    let path = std::env::temp_dir().join(format!("sanwire-long-hs-{}.img", std::process::id()));
    for volume in ["disk=ram:64M,block=512".to_owned(), format!("disk=file:{},size=64M", path.display())] {
        let target = small_server(&volume);
        transfer((&url(&target, "disk"), "disk"), &options(), LONGEST_OF_HYPERSCSI);
        target.stop().unwrap();
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn many_long_transfers_at_once_all_come_to_their_end() {
    let target = small_server("disk=ram:128M");
    many((&iscsi(&target), "0"), 4 << 20);
    target.stop().unwrap();
}

#[test]
fn many_long_transfers_of_several_clients_of_hyperscsi_all_come_to_their_end() {
    let path = std::env::temp_dir().join(format!("sanwire-many-{}.img", std::process::id()));
    let target = small_server(&format!("disk=file:{},size=64M", path.display()));
    std::thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(|| many((&url(&target, "disk"), "disk"), LONGEST_OF_HYPERSCSI))));
    });
    target.stop().unwrap();
    std::fs::remove_file(path).unwrap();
}

/// Twelve writes and reads of so much, all at once; what other clients write there is the same.
fn many((url, name): (&Url, &str), length: usize) {
    let mut client = Client::connect(url, &options()).unwrap();
    let volume = client.open(name).unwrap();
    let jobs: Vec<_> = (0..12u64)
        .map(|number| {
            let volume = volume.clone();
            async move {
                let mut frame = volume.buffer(length).await.unwrap();
                frame.fill(number as u8 + 1);
                volume.write(number * length as u64, frame.freeze()).await.unwrap();
                let found = volume.read(number * length as u64, volume.buffer(length).await.unwrap()).await.unwrap();
                assert!(found.iter().all(|byte| *byte == number as u8 + 1), "{number}");
            }
        })
        .collect();
    let mut jobs: Vec<_> = jobs.into_iter().map(Box::pin).collect();
    client.block_on(std::future::poll_fn(|context| {
        jobs.retain_mut(|job| job.as_mut().poll(context).is_pending());
        if jobs.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    }));
}
