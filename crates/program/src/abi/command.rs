//! The structure that tells a program of a command, with the ranges and the data that it has asked for.

use sanwire_core::Principal;
use sanwire_device::{BlockRange, JudgedCommand};

use super::{ANSWER_BYTES, Header, RANGE_BYTES, put};

/// Where the CDB begins: there is room for the longest.
const CDB_AT: usize = 8;
/// Where the fields begin that are 0.
const RESERVED_AT: usize = 104;
/// Where the name of the principal begins, and how much of it there is room for.
const NAME_AT: usize = 128;
const NAME_MAX_BYTES: usize = 256;
/// Most names have less.
const SHORT_NAME_BYTES: usize = 64;

/// Who a principal is to a program: the strongest of what is known of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum PrincipalKind {
    Unknown = 0,
    /// Proved by CHAP.
    ChapUser = 1,
    /// Proved by its static key.
    Client = 2,
    /// Claimed.
    InitiatorName = 3,
    /// As true as the network makes it.
    Address = 4,
}

/// What programs count principals by: this number stands for all that have none of their own.
const NUMBERS_MAX: usize = 256;

/// The names of principals as a program sees them, by their numbers: a name is made once, and not for each command.
#[derive(Debug, Default)]
pub(crate) struct Principals(Vec<Option<Box<Named>>>);

#[derive(Debug)]
struct Named {
    principal: Principal,
    kind: PrincipalKind,
    name_bytes: u32,
    /// With zeroes behind it.
    name: [u8; NAME_MAX_BYTES],
}

impl Principals {
    fn named(&mut self, number: u32, principal: &Principal) -> &Named {
        let number = usize::try_from(number).map_or(NUMBERS_MAX, |number| number.min(NUMBERS_MAX));
        if self.0.len() <= number {
            self.0.resize_with(number + 1, || None);
        }
        let known = &mut self.0[number];
        // Several may share the last number, and an address may change.
        known.take_if(|named| named.principal != *principal);
        known.get_or_insert_with(|| Box::new(Named::new(principal)))
    }
}

impl Named {
    fn new(principal: &Principal) -> Named {
        let (kind, whole) = describe(principal);
        let (mut name, length) = ([0; NAME_MAX_BYTES], whole.len().min(NAME_MAX_BYTES));
        name[..length].copy_from_slice(&whole.as_bytes()[..length]);
        Named { principal: principal.clone(), kind, name_bytes: length as u32, name }
    }

    /// Puts the name there, with a zero behind it if there is room: a program that looks for the end of the name finds it. Lengths that
    /// are known are copied without a call.
    fn write(&self, room: &mut [u8]) {
        if (self.name_bytes as usize) < SHORT_NAME_BYTES {
            put(room, 0, *self.name.first_chunk::<SHORT_NAME_BYTES>().unwrap_or(&[0; SHORT_NAME_BYTES]));
        } else {
            put(room, 0, self.name);
        }
    }
}

fn describe(principal: &Principal) -> (PrincipalKind, String) {
    let Principal { address, client, initiator_name, chap_user } = principal;
    let user = chap_user.as_ref().map(|user| (PrincipalKind::ChapUser, user.to_string()));
    user.or_else(|| client.map(|client| (PrincipalKind::Client, client.to_string())))
        .or_else(|| initiator_name.as_ref().map(|name| (PrincipalKind::InitiatorName, name.to_string())))
        .or_else(|| address.as_ref().map(|address| (PrincipalKind::Address, address.to_string())))
        .unwrap_or((PrincipalKind::Unknown, String::new()))
}

/// Puts a command into the memory of a program.
pub(crate) fn write_command(
    memory: &mut [u8],
    header: &Header,
    command: &JudgedCommand<'_>,
    principals: &mut Principals,
) {
    let ranges_given = write_ranges(header.ranges.of_mut(memory), command.ranges);
    let data_given = write_data(header.data.of_mut(memory), command.data_out);
    put(header.answer.of_mut(memory), 0, [0; ANSWER_BYTES as usize]);
    let hull = hull(command.ranges);
    let named = principals.named(command.principal_number, command.principal);
    // This is done for every command: in a head of a known length each field is one store.
    let (head, name_room) = header.command.of_mut(memory).split_at_mut(NAME_AT);
    put(head, 0, u32::from(command.classes.bits()).to_le_bytes());
    put(head, 4, (command.cdb.len() as u32).to_le_bytes());
    put(head, CDB_AT, command.cdb.padded());
    put(head, 40, hull.lba.to_le_bytes());
    put(head, 48, hull.blocks.to_le_bytes());
    put(head, 56, command.capacity_blocks.to_le_bytes());
    put(head, 64, command.block_bytes.to_le_bytes());
    put(head, 68, (command.ranges.len() as u32).to_le_bytes());
    put(head, 72, ranges_given.to_le_bytes());
    put(head, 76, data_given.to_le_bytes());
    put(head, 80, command.unix_ms.to_le_bytes());
    put(head, 88, command.waited_ms.to_le_bytes());
    put(head, 92, command.principal_number.to_le_bytes());
    put(head, 96, (named.kind as u32).to_le_bytes());
    put(head, 100, named.name_bytes.to_le_bytes());
    put(head, RESERVED_AT, [0; NAME_AT - RESERVED_AT]);
    named.write(name_room);
}

/// Gives how many there was room for.
fn write_ranges(room: &mut [u8], ranges: &[BlockRange]) -> u32 {
    let mut given = 0;
    for (bytes, range) in room.chunks_exact_mut(RANGE_BYTES as usize).zip(ranges) {
        put(bytes, 0, range.lba.to_le_bytes());
        put(bytes, 8, range.blocks.to_le_bytes());
        given += 1;
    }
    given
}

/// Gives how many bytes there was room for.
fn write_data(room: &mut [u8], data: &[u8]) -> u32 {
    let given = room.len().min(data.len());
    if given > 0 {
        room[..given].copy_from_slice(&data[..given]);
    }
    given as u32
}

/// The smallest range that holds all of them: a program that has no room for many may judge that.
fn hull(ranges: &[BlockRange]) -> BlockRange {
    // As nearly always.
    if let [range] = ranges {
        return *range;
    }
    let mut hull: Option<(u64, u64)> = None;
    for range in ranges.iter().filter(|range| range.blocks > 0) {
        let end = range.lba.saturating_add(range.blocks);
        hull = Some(hull.map_or((range.lba, end), |(first, last)| (first.min(range.lba), last.max(end))));
    }
    let at = ranges.first().map_or(0, |range| range.lba);
    let (first, end) = hull.unwrap_or((at, at));
    BlockRange { lba: first, blocks: end - first }
}

#[cfg(test)]
mod tests {
    use sanwire_core::{ClientId, HostAddress};
    use sanwire_scsi::{Cdb, OperationClasses};

    use super::*;
    use crate::abi::{Place, long_number, number};

    const HEADER: Header = Header {
        command: Place { at: 64, bytes: 384 },
        answer: Place { at: 512, bytes: 64 },
        ranges: Place { at: 1024, bytes: 2 * RANGE_BYTES },
        data: Place { at: 2048, bytes: 4 },
        state: Place { at: 0, bytes: 0 },
        classes: OperationClasses::ALL,
    };

    /// What stands in the memory of a program, which was full of something else.
    fn told(command: &JudgedCommand<'_>) -> Vec<u8> {
        let mut memory = vec![0xee; 4096];
        write_command(&mut memory, &HEADER, command, &mut Principals::default());
        assert!(memory[576..1024].iter().all(|byte| *byte == 0xee), "nothing but the places is written to");
        memory
    }

    fn with_command<T>(asked: impl FnOnce(JudgedCommand<'_>) -> T) -> T {
        asked(JudgedCommand {
            cdb: &Cdb::from([0x42, 0, 0, 0, 0, 0, 7, 0, 56, 0]),
            classes: OperationClasses::DISCARD,
            ranges: &[
                BlockRange { lba: 900, blocks: 5 },
                BlockRange { lba: 0, blocks: 0 },
                BlockRange { lba: 100, blocks: 1 },
            ],
            capacity_blocks: 1 << 40,
            block_bytes: 4096,
            principal: &Principal::default(),
            principal_number: 9,
            unix_ms: 1_767_254_460_000,
            waited_ms: 20,
            data_out: &[1, 2, 3, 4, 5],
        })
    }

    #[test]
    fn each_field_stands_where_the_document_says() {
        let memory = with_command(|command| told(&command));
        let command = HEADER.command.of(&memory);
        assert_eq!((number(command, 0), number(command, 4)), (0x08, 10));
        assert_eq!(command[8..40], [&[0x42, 0, 0, 0, 0, 0, 7, 0, 56, 0][..], &[0; 22]].concat());
        assert_eq!((long_number(command, 40), long_number(command, 48)), (100, 805), "from the first to the last");
        assert_eq!((long_number(command, 56), number(command, 64)), (1 << 40, 4096));
        assert_eq!((number(command, 68), number(command, 72), number(command, 76)), (3, 2, 4));
        assert_eq!((long_number(command, 80), number(command, 88)), (1_767_254_460_000, 20));
        assert_eq!([92, 96, 100].map(|at| number(command, at)), [9, 0, 0]);
        assert_eq!(command[104..129], [0; 25]);
        let ranges = HEADER.ranges.of(&memory);
        assert_eq!([0, 8, 16, 24].map(|at| long_number(ranges, at)), [900, 5, 0, 0]);
        assert_eq!(HEADER.data.of(&memory), [1, 2, 3, 4]);
        assert_eq!(HEADER.answer.of(&memory), [0; 64]);
    }

    #[test]
    fn what_is_about_no_blocks_says_so() {
        let memory = with_command(|command| told(&JudgedCommand { ranges: &[], ..command }));
        let command = HEADER.command.of(&memory);
        assert_eq!((long_number(command, 40), long_number(command, 48), number(command, 68)), (0, 0, 0));
    }

    #[test]
    fn a_principal_is_who_it_has_proved_to_be_before_who_it_says_it_is() {
        let address = Some(HostAddress::Ip("192.0.2.1".parse().unwrap()));
        let at = Principal { address, ..Principal::default() };
        let named = Principal { initiator_name: Some("iqn.2026-11.org.example:a".into()), ..at.clone() };
        let user = Principal { chap_user: Some("alice".into()), ..named.clone() };
        let client = Principal { client: Some(ClientId([0xab; 16])), ..at.clone() };
        let id = ClientId([0xab; 16]).to_string();
        let mut principals = Principals::default();
        for (principal, kind, name) in [
            (at, 4, "192.0.2.1"),
            (named, 3, "iqn.2026-11.org.example:a"),
            (user, 1, "alice"),
            (client, 2, &*id),
            (Principal { chap_user: Some("x".repeat(300).into()), ..Principal::default() }, 1, &*"x".repeat(256)),
            (Principal::default(), 0, ""),
        ] {
            for _ in 0..2 {
                let mut memory = vec![0xee; 4096];
                with_command(|command| {
                    let command = JudgedCommand { principal: &principal, ..command };
                    write_command(&mut memory, &HEADER, &command, &mut principals);
                });
                let command = HEADER.command.of(&memory);
                assert_eq!((number(command, 96), number(command, 100) as usize), (kind, name.len()));
                assert_eq!(&command[128..][..name.len()], name.as_bytes());
                assert!(command.get(128 + name.len()).is_none_or(|byte| *byte == 0));
            }
        }
    }
}
