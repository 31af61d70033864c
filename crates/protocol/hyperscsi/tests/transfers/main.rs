//! The largest transfers, in packets of every size and over ways that lose some.

#[path = "../common/mod.rs"]
mod common;
mod forged;

use std::cell::Cell;
use std::time::Duration;

use sanwire_buffer::{Region, Slice, Slices};
use sanwire_core::{ClientId, Peer, Protection};
use sanwire_hyperscsi::wire::command::Answer;
use sanwire_hyperscsi::{Admission, ClientConfig, DesiredOptions, LinkLimits, ServerConfig, Stance};
use sanwire_scsi::{Reply, Status, Task};

use self::common::{Ends, client_config, path, server_config};

const LONGEST: usize = 3 << 20;
const READ: u8 = 0x28;
const WRITE: u8 = 0x2a;
const SECOND: Duration = Duration::from_secs(1);

/// Other data at each place, which can be compressed.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 64 * 31 + (at >> 14) * 7) as u8).collect()
}

/// A server for everybody, which wants this.
struct Everybody(DesiredOptions);

impl Admission for Everybody {
    fn permits(&self, _: Peer, _: Option<ClientId>) -> bool {
        true
    }

    fn wishes(&self, _: ClientId) -> DesiredOptions {
        self.0.clone()
    }
}

/// The pattern in the memory for data, as stores read it.
fn stored(length: usize) -> Slice {
    thread_local!(static MEMORY: Region = Region::new(16 * LONGEST).expect("there is memory"));
    let mut frame = MEMORY.with(|memory| memory.frame(length)).expect("there is room");
    frame.copy_from_slice(&pattern(length));
    frame.freeze()
}

thread_local!(
    /// Where the data of answers is cut into pieces that lie in several places: again and again after so many bytes.
    static CUT_BYTES: Cell<usize> = const { Cell::new(usize::MAX) };
);

/// The same in pieces.
fn in_pieces(data: &Slice) -> Slices {
    let piece_bytes = CUT_BYTES.get().min(data.len()).max(data.len().div_ceil(Slices::PIECES_MAX));
    let pieces: Vec<Slice> = (0..data.len().div_ceil(piece_bytes))
        .map(|piece| data.slice(piece * piece_bytes..((piece + 1) * piece_bytes).min(data.len())))
        .collect();
    Slices::join(pieces.into_iter()).expect("few pieces")
}

/// What is written must be the pattern; what is read is.
fn execute(task: &Task) -> Reply {
    match &task.data_out {
        Some(data) if *data.contiguous() == pattern(data.len()) => Reply::good(None),
        Some(_) => Reply::bare(Status::Busy),
        None => Reply::good(Some(in_pieces(&stored(task.data_in_max_bytes as usize)))),
    }
}

/// Both ends, on links that take packets of so many bytes.
fn ends(packet_max_bytes: u32, wishes: DesiredOptions) -> Ends {
    guarded_ends(packet_max_bytes, wishes, Protection::Checksum)
}

/// The same for units that are guarded so.
fn guarded_ends(packet_max_bytes: u32, wishes: DesiredOptions, level: Protection) -> Ends {
    let link = LinkLimits { packet_max_bytes, receive_capacity_packets: 1024 };
    let server = server_config(Box::new(Everybody(wishes.clone())), Box::new(move |_| level));
    let client = client_config(path(1));
    let transfer_max_bytes = LONGEST as u32;
    let server =
        ServerConfig { memory: Region::new(4 * LONGEST).unwrap(), links: vec![link], transfer_max_bytes, ..server };
    let client = ClientConfig { link, transfer_max_bytes, wishes, ..client };
    Ends::new([path(2), path(1)], client, server, execute)
}

/// Writes and reads so much, and checks that it comes as it is.
fn transfer(ends: &mut Ends, length: usize) {
    let answered = ends.answers.len();
    ends.order(0, WRITE, &pattern(length), 0);
    ends.order(0, READ, &[], length);
    ends.run(60 * SECOND);
    assert_eq!(ends.answers.len(), answered + 2);
    for (answer, data) in &ends.answers[answered..] {
        assert!(matches!(answer, Answer::Command { status: Status::Good, .. }), "{answer:?}");
        assert!(data.as_ref().is_none_or(|data| *data == pattern(length)), "other data was read");
    }
    assert_eq!(ends.lost, 0);
}

#[test]
fn the_largest_transfer_goes_in_packets_of_every_size() {
    for packet_max_bytes in [1200, 1500, 4352, 9000] {
        let mut ends = ends(packet_max_bytes, DesiredOptions::default());
        ends.run(5 * SECOND);
        assert_eq!(ends.client.server().unwrap().transfer_max_bytes as usize, LONGEST);
        let before = ends.sent.len();
        transfer(&mut ends, LONGEST);
        assert!(ends.sent.iter().all(|sent| sent.bytes.len() <= packet_max_bytes as usize), "none is too large");
        let packets = ends.sent[before..].iter().filter(|sent| sent.bytes.len() + 100 > packet_max_bytes as usize);
        assert!(packets.count() > 2 * LONGEST / packet_max_bytes as usize, "all that can be are filled");
    }
}

#[test]
fn it_goes_before_the_size_of_packets_is_known_and_where_some_are_lost_and_change_places() {
    for packet_max_bytes in [1500, 9000] {
        let mut ends = ends(packet_max_bytes, DesiredOptions::default());
        let (mut count, mut late) = (0u32, None);
        ends.network = Box::new(move |sent| {
            count = count.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match count >> 24 {
                0..2 => Vec::new(),
                2..12 if late.is_none() => {
                    late = Some(sent.bytes.clone());
                    Vec::new()
                }
                _ => [sent.bytes.clone()].into_iter().chain(late.take()).collect(),
            }
        });
        transfer(&mut ends, LONGEST);
        transfer(&mut ends, LONGEST - 512);
    }
}

#[test]
fn an_answer_in_several_places_comes_as_one() {
    let levels = [Protection::Checksum, Protection::Hash, Protection::Aes256Gcm, Protection::ChaCha20Poly1305];
    for (packet_max_bytes, level) in [1500, 9000].into_iter().flat_map(|bytes| levels.map(|level| (bytes, level))) {
        let mut ends = guarded_ends(packet_max_bytes, DesiredOptions::default(), level);
        // Every third packet that is full is lost, until it is sent again.
        let mut count = 0;
        ends.network = Box::new(move |sent| {
            count += u32::from(sent.bytes.len() > 1000);
            if sent.bytes.len() > 1000 && count.is_multiple_of(3) { Vec::new() } else { vec![sent.bytes.clone()] }
        });
        for (cut_bytes, length) in [(256 << 10, 1 << 20), (1000, 16_000), (8191, 100_000), (1, 512), (5000, 5001)] {
            CUT_BYTES.set(cut_bytes);
            transfer(&mut ends, length);
        }
    }
}

#[test]
fn an_answer_in_several_places_is_compressed_as_one() {
    let mut ends = ends(1500, DesiredOptions { compression: Stance::Supported, ..DesiredOptions::default() });
    for cut_bytes in [100_000, 1000, usize::MAX] {
        CUT_BYTES.set(cut_bytes);
        transfer(&mut ends, 512);
        let before = ends.sent.len();
        transfer(&mut ends, 1 << 20);
        let sent_bytes: usize = ends.sent[before..].iter().map(|sent| sent.bytes.len()).sum();
        assert!(sent_bytes < 1 << 20, "{sent_bytes}");
    }
}

#[test]
fn what_is_too_long_to_be_announced_is_not_compressed() {
    let mut ends = ends(1500, DesiredOptions { compression: Stance::Supported, ..DesiredOptions::default() });
    for (length, is_compressed) in [(2047 << 10, true), ((2047 << 10) + 512, false), (LONGEST, false)] {
        // Each unit says first that its data may be.
        transfer(&mut ends, 512);
        let before = ends.sent.len();
        transfer(&mut ends, length);
        let sent_bytes: usize = ends.sent[before..].iter().map(|sent| sent.bytes.len()).sum();
        assert_eq!(sent_bytes < length, is_compressed, "{sent_bytes} bytes for {length}");
    }
}

#[test]
fn several_of_the_largest_transfers_do_not_wait_for_each_other_for_ever() {
    let mut ends = ends(9000, DesiredOptions::default());
    for _ in 0..4 {
        ends.order(0, WRITE, &pattern(LONGEST), 0);
        ends.order(0, READ, &[], LONGEST);
    }
    ends.run(60 * SECOND);
    let is_good = |(answer, _): &(Answer, _)| matches!(answer, Answer::Command { status: Status::Good, .. });
    assert_eq!(ends.answers.iter().filter(|answer| is_good(answer)).count(), 8);
}
