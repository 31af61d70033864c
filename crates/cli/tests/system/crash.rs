//! What a server that is killed has acknowledged is there when it comes again.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sanwire_initiator::{Client, ClientOptions, Volume, VolumeError};

use crate::harness::{Random, Scratch, Server, pattern, port};

const ROUNDS: u64 = 12;
const BLOCK_BYTES: usize = 4096;
const BLOCKS: usize = 2048;
const WRITE_MAX_BLOCKS: u64 = 16;
const DEPTH: usize = 16;
/// One write of so many is followed by a flush.
const FLUSH_EVERY: u64 = 16;

#[test]
fn acknowledged_writes_survive_a_killed_server() {
    let scratch = Scratch::new();
    let spec = format!("disk=file:{},size=8M,block=4096", scratch.text("disk.img"));
    let port = port();
    let url = format!("hs+ip://127.0.0.1:{port}/disk").parse().expect("a URL");
    let mut server = Server::start_here(&scratch, port, &[&spec]);
    let mut journal = Journal { acknowledged: vec![0; BLOCKS], issued: vec![0; BLOCKS], flushed: 0, written: 0 };
    let mut random = Random::new(2);
    // It gives up soon, also when it is the server that is held up: then it begins again.
    let begin = || {
        let open = |_| {
            let mut client = Client::connect(&url, &options()).expect("a connection");
            client.open("disk").ok().map(|volume| (client, volume))
        };
        (0..10).find_map(open).expect("the volume")
    };
    for round in 0..ROUNDS {
        let (mut client, volume) = begin();
        let life = Duration::from_millis(20 + random.below(300));
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(life);
                server.kill();
            });
            let error = client.block_on(write_until_failure(&volume, &mut journal, &mut random));
            assert!(matches!(error, VolumeError::Disconnected { .. }), "{error}");
        });
        drop((volume, client));
        server.restart();
        // Who writes gives up soon when the server is killed; who reads waits for one that is held up.
        let patient = ClientOptions { reconnect_patience: None, ..options() };
        let mut client = Client::connect(&url, &patient).expect("a connection");
        let volume = client.open("disk").expect("the volume");
        client.block_on(journal.check(&volume, round));
    }
    assert!(journal.flushed > ROUNDS && journal.written > 10 * ROUNDS, "too little was tried");
}

fn options() -> ClientOptions {
    let mut options = ClientOptions::anonymous().expect("randomness");
    options.connect_patience = Duration::from_secs(90);
    options.reconnect_patience = Some(Duration::from_millis(200));
    options
}

/// What each block must have: the version that was acknowledged last, or a later one that was issued.
struct Journal {
    acknowledged: Vec<u64>,
    issued: Vec<u64>,
    flushed: u64,
    written: u64,
}

impl Journal {
    /// Reads everything; what it finds becomes what must be there the next time.
    async fn check(&mut self, volume: &Volume, round: u64) {
        for first in (0..BLOCKS).step_by(16) {
            let buffer = volume.buffer(16 * BLOCK_BYTES).await.expect("a buffer");
            let bytes = volume.read((first * BLOCK_BYTES) as u64, buffer).await.expect("a read");
            for (block, content) in (first..).zip(bytes.chunks(BLOCK_BYTES)) {
                let [acknowledged, issued] = [self.acknowledged[block], self.issued[block]];
                let found = [acknowledged, issued].into_iter().find(|version| content == made(block, *version));
                let Some(found) = found else {
                    let head = content.first_chunk().map_or(0, |head| u64::from_le_bytes(*head));
                    panic!("round {round}, block {block}: version {acknowledged} or {issued} was expected, not {head}");
                };
                (self.acknowledged[block], self.issued[block]) = (found, found);
            }
        }
    }
}

/// A block's content; version 0 is what a new disk has.
fn made(block: usize, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; BLOCK_BYTES];
    }
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend(pattern(version << 16 | block as u64, BLOCK_BYTES - 8));
    bytes
}

/// Writes here and there, several at once but no two to the same block, until the server is gone.
async fn write_until_failure(volume: &Volume, journal: &mut Journal, random: &mut Random) -> VolumeError {
    let mut busy: BTreeSet<usize> = BTreeSet::new();
    let mut flying = FuturesUnordered::new();
    loop {
        while flying.len() < DEPTH {
            let count = 1 + random.below(WRITE_MAX_BLOCKS) as usize;
            let first = random.below((BLOCKS - count) as u64) as usize;
            if (first..first + count).any(|block| busy.contains(&block)) {
                continue;
            }
            busy.extend(first..first + count);
            journal.written += 1;
            let version = journal.written;
            journal.issued[first..first + count].fill(version);
            let data: Vec<u8> = (first..first + count).flat_map(|block| made(block, version)).collect();
            let flushes = version.is_multiple_of(FLUSH_EVERY);
            flying.push(async move {
                let mut result = volume.write((first * BLOCK_BYTES) as u64, data.into()).await;
                let is_written = result.is_ok();
                if is_written && flushes {
                    result = volume.flush().await;
                }
                (first, count, version, is_written, flushes, result)
            });
        }
        let Some((first, count, version, is_written, flushes, result)) = flying.next().await else { continue };
        if is_written {
            journal.acknowledged[first..first + count].fill(version);
        }
        match result {
            Ok(()) => journal.flushed += u64::from(flushes),
            Err(error) => return error,
        }
        busy.retain(|block| !(first..first + count).contains(block));
    }
}
