//! Encrypted transfers beside somebody who sees each packet, and sends others before and after it that name the same place, or another
//! one. They are decrypted before anybody knows that they are forged.

use sanwire_core::Protection;
use sanwire_hyperscsi::DesiredOptions;
use sanwire_hyperscsi::wire::Opcode;
use sanwire_hyperscsi::wire::packet::TAG_BYTES;

use super::common::{Ends, Sent};
use super::{SECOND, guarded_ends, transfer};

/// Places of the header of five bytes, and of what follows it.
const LAST_FRAGMENT: (usize, u8) = (1, 4);
const TAG: (usize, u8) = (1, 8);
const FRAGMENT: usize = 2;
const EPOCH: (usize, u8) = (5, 0x10);
const BODY_LENGTH: usize = 6;
const NUMBER_LAST: usize = 19;

fn is_sealed_data(sent: &Sent) -> bool {
    let prefix = sent.prefix();
    prefix.protection.encrypts() && matches!(prefix.header.opcode, Opcode::HcbeRequest | Opcode::HcbeReply)
}

/// The packet with these bits turned over.
fn flipped(seen: &[u8], (at, bits): (usize, u8)) -> Vec<u8> {
    let mut forged = seen.to_vec();
    forged[at] ^= bits;
    forged
}

/// The packet with a body of so many bytes, of zeroes behind its own.
fn resized(seen: &[u8], more: isize) -> Vec<u8> {
    let mut forged = seen.to_vec();
    forged.resize(seen.len().saturating_add_signed(more), 0);
    let body_bytes = u16::from_be_bytes([seen[BODY_LENGTH], seen[BODY_LENGTH + 1]]).saturating_add_signed(more as i16);
    forged[BODY_LENGTH..BODY_LENGTH + 2].copy_from_slice(&body_bytes.to_be_bytes());
    forged
}

/// Packets with numbers that have not come yet, none of which is authentic.
fn forgeries(seen: &[u8]) -> Vec<Vec<u8>> {
    // Its own data at its own place; what it says of its place; and its tag.
    let ends = [seen.len() - TAG_BYTES - 1, seen.len() - 1].map(|at| flipped(seen, (at, 1)));
    let headers = [LAST_FRAGMENT, TAG, EPOCH, (NUMBER_LAST, 0x40)].map(|bits| flipped(seen, bits));
    let fragments = [1, 2, 3, 4, 8, 0xff].map(|bits| flipped(seen, (FRAGMENT, bits)));
    let last_fragments = [1, 2].map(|bits| flipped(&flipped(seen, (FRAGMENT, bits)), LAST_FRAGMENT));
    let lengths = [-1, 1, 24, 500, 1000].map(|more| resized(seen, more));
    let short = [200usize, 900]
        .into_iter()
        .filter(|less| seen.len() > 1100 + *less)
        .map(|less| resized(seen, -(less as isize)));
    ends.into_iter().chain(headers).chain(fragments).chain(last_fragments).chain(lengths).chain(short).collect()
}

/// Forged packets come before and after each true one, which comes twice; every twentieth is lost, and others change places, if that is
/// so.
fn with_forgeries(ends: &mut Ends, is_lossy: bool) {
    let (mut random, mut late) = (1u32, None);
    ends.network = Box::new(move |sent| {
        if !is_sealed_data(sent) {
            return vec![sent.bytes.clone()];
        }
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let forged = forgeries(&sent.bytes);
        let true_ones = match random >> 24 {
            0..12 if is_lossy => Vec::new(),
            12..40 if is_lossy && late.is_none() => {
                late = Some(sent.bytes.clone());
                Vec::new()
            }
            _ => [sent.bytes.clone(), sent.bytes.clone()].into_iter().chain(late.take()).collect(),
        };
        forged.iter().cloned().chain(true_ones).chain(forged.iter().cloned()).collect()
    });
}

#[test]
fn forged_packets_change_no_data_that_comes_beside_them() {
    let levels = [Protection::Aes128Gcm, Protection::ChaCha20Poly1305];
    for (packet_max_bytes, level) in [1500, 9000].into_iter().flat_map(|bytes| levels.map(|level| (bytes, level))) {
        for is_lossy in [false, true] {
            let mut ends = guarded_ends(packet_max_bytes, DesiredOptions::default(), level);
            ends.run(5 * SECOND);
            with_forgeries(&mut ends, is_lossy);
            for length in [512, 20_000, 100_000, 300_001] {
                transfer(&mut ends, length);
            }
            let rejected = (ends.server.counters().rejected, ends.client.counters().rejected);
            assert!(rejected.0 > 1000 && rejected.1 > 1000, "{level}, {packet_max_bytes}: {rejected:?}");
        }
    }
}
