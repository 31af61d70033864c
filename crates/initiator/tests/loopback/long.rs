//! Transfers that are longer than the memory of the server's thread that serves them.

use sanwire_initiator::{Client, ClientOptions, Url, VolumeError};
use sanwire_target::{AllowList, ExportConfig, Target, TargetConfig, Wire};

use crate::{config, options};

const LONGEST: usize = 16 << 20;

/// A server whose shards have no more memory than they must, and an iSCSI wire.
fn small_server(volume: &str) -> (Target, Url) {
    let settings = TargetConfig {
        wires: vec![Wire::Iscsi { address: "127.0.0.1:0".parse().unwrap(), group_tag: 1 }],
        exports: vec![ExportConfig::of_volume("disk", AllowList::default()).unwrap()],
        memory_bytes: 0,
        ..config(&[volume])
    };
    let target = Target::start(settings).unwrap();
    let (portal, _) = target.wires()[0].portal().unwrap();
    let url = format!("iscsi://{portal}/iqn.2026-11.org.sanwire:disk/0").parse().unwrap();
    (target, url)
}

fn check(volume: &str, options: &ClientOptions) {
    let (target, url) = small_server(volume);
    let mut client = Client::connect(&url, options).unwrap();
    let volume = client.open("0").unwrap();
    assert_eq!(volume.info().transfer_max_bytes as usize, LONGEST);
    client.block_on(async {
        for (length, offset) in [(LONGEST, 512u64), ((1 << 20) + 512, 0), (5 << 20, 20 << 20)] {
            let mut frame = volume.buffer(length).await.unwrap();
            frame.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 512 * 31 + at + length) as u8);
            let data = frame.freeze();
            volume.write(offset, data.clone()).await.unwrap();
            let found = volume.read(offset, volume.buffer(length).await.unwrap()).await.unwrap();
            assert!(*found == *data, "{length} bytes at {offset}");
            volume.write_stable(offset + 512, data).await.unwrap();
        }
        let too_long = volume.read(0, volume.buffer(LONGEST + 512).await.unwrap()).await;
        assert!(matches!(too_long, Err(VolumeError::TooLong { .. })), "{too_long:?}");
    });
    drop((volume, client));
    target.stop().unwrap();
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
fn many_long_transfers_at_once_all_come_to_their_end() {
    let (target, url) = small_server("disk=ram:128M");
    let mut client = Client::connect(&url, &options()).unwrap();
    let volume = client.open("0").unwrap();
    const LENGTH: usize = 4 << 20;
    let jobs: Vec<_> = (0..12u64)
        .map(|number| {
            let volume = volume.clone();
            async move {
                let mut frame = volume.buffer(LENGTH).await.unwrap();
                frame.fill(number as u8 + 1);
                volume.write(number * LENGTH as u64, frame.freeze()).await.unwrap();
                let found = volume.read(number * LENGTH as u64, volume.buffer(LENGTH).await.unwrap()).await.unwrap();
                assert!(found.iter().all(|byte| *byte == number as u8 + 1), "{number}");
            }
        })
        .collect();
    let mut jobs: Vec<_> = jobs.into_iter().map(Box::pin).collect();
    client.block_on(std::future::poll_fn(|context| {
        jobs.retain_mut(|job| job.as_mut().poll(context).is_pending());
        if jobs.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    }));
    drop((volume, client));
    target.stop().unwrap();
}
