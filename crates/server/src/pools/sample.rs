//! What a store holds here and there, as a few numbers: whether somebody else has written to it since.

use std::io;

use sanwire_store::{ErrorKind, Outcome, Request, Store};
use sanwire_store_file::blocking;

use crate::records::fnv1a_128;

/// At the beginning stand partition tables, labels of volume managers and superblocks, also those of the first partition, which begins at
/// 1 MiB; some stand at the end. Who mounts or formats a disk writes there.
const BEGIN_BYTES: u64 = 4 << 20;
const END_BYTES: u64 = 1 << 20;

/// And so many pieces of this length lie between, at even distances.
const PIECES: u64 = 32;
const PIECE_BYTES: u64 = 64 << 10;

/// So much is read at once.
const READ_MAX_BYTES: u64 = 1 << 20;

/// What stood in pieces of a store; `None`: that piece could not be read.
pub(super) type Sample = Vec<Option<String>>;

/// What stands in the first so many bytes of a store, at certain places, of which it reads 7 MiB at the most. It may block.
///
/// # Errors
/// The store's, but for blocks that cannot be read: they need not be those that anybody wants.
pub(super) fn sample(store: &dyn Store, length_bytes: u64) -> io::Result<Sample> {
    let mut sums = Vec::new();
    for (mut at, end) in places(length_bytes) {
        while at < end {
            let count = (end - at).min(READ_MAX_BYTES);
            let buffer = vec![0; usize::try_from(count).map_err(io::Error::other)?].into();
            match blocking::run(store, Request::Read { offset_bytes: at, buffer }) {
                Ok(Outcome::Read(frame)) => sums.push(Some(format!("{:032x}", fnv1a_128(&frame)))),
                Err(error) if error.kind != ErrorKind::Unreadable => return Err(io::Error::other(error)),
                _ => sums.push(None),
            }
            at += count;
        }
    }
    Ok(sums)
}

/// Whether a store may hold what it did: all pieces that can be compared are the same, and there is one.
pub(super) fn may_be_same(before: &Sample, now: &Sample) -> bool {
    let mut both = before.iter().zip(now).filter_map(|(before, now)| before.as_ref().zip(now.as_ref())).peekable();
    before.len() == now.len() && both.peek().is_some() && both.all(|(before, now)| before == now)
}

/// Where that is: in order, each from where to where.
fn places(length_bytes: u64) -> Vec<(u64, u64)> {
    if length_bytes <= BEGIN_BYTES + END_BYTES + PIECES * PIECE_BYTES {
        return vec![(0, length_bytes)];
    }
    let stride = (length_bytes - BEGIN_BYTES - END_BYTES) / PIECES / PIECE_BYTES * PIECE_BYTES;
    let piece = |number| (BEGIN_BYTES + number * stride, BEGIN_BYTES + number * stride + PIECE_BYTES);
    let pieces = (0..PIECES).map(piece);
    [(0, BEGIN_BYTES)].into_iter().chain(pieces).chain([(length_bytes - END_BYTES, length_bytes)]).collect()
}

#[cfg(test)]
mod tests {
    use sanwire_store::RamStore;

    use super::*;

    #[test]
    fn what_is_written_where_a_disk_is_described_is_noticed() {
        for length_bytes in [8 << 20, 64 << 20, (1 << 30) + 4096] {
            let store = RamStore::new(length_bytes, 512);
            let before = sample(&store, length_bytes).unwrap();
            for offset_bytes in [0, 1024, (1 << 20) + 1024, length_bytes - 512] {
                let write = |byte| Request::Write { offset_bytes, data: vec![byte; 512].into() };
                blocking::run(&store, write(7)).unwrap();
                assert_ne!(sample(&store, length_bytes).unwrap(), before, "{offset_bytes} of {length_bytes}");
                blocking::run(&store, write(0)).unwrap();
                assert_eq!(sample(&store, length_bytes).unwrap(), before);
            }
        }
    }

    #[test]
    fn places_lie_within_the_store_and_do_not_overlap() {
        for length_bytes in [512, 4096, 5 << 20, (7 << 20) + 512, 1 << 30, 3 << 40] {
            let places = places(length_bytes);
            let is_in_order = places.windows(2).all(|pair| pair[0].1 <= pair[1].0);
            assert!(is_in_order && places.iter().all(|(from, to)| from < to), "{length_bytes}");
            assert_eq!(places.last().map(|(_, end)| *end), Some(length_bytes));
            assert!(places.iter().all(|(from, to)| from % 512 == 0 && to % 512 == 0));
            assert!(places.iter().map(|(from, to)| to - from).sum::<u64>() <= 8 << 20);
        }
    }
}
