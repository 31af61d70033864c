//! Who may have a token made, and use it.

use sanwire_core::Principal;
use sanwire_scsi::{Identity, OperationClasses, build};

use super::*;
use crate::testing::{OTHER, ports};
use crate::tests::copy::SECOND;
use crate::{
    Admission, AllowedOperations, CommandProgram, Derivation, DerivedExtent, JudgedCommand, Judgement, LogicalUnit,
    NexusPorts, UnitOptions, Verdict,
};

fn named(name: &str) -> Principal {
    Principal { initiator_name: Some(name.into()), ..Principal::default() }
}

#[derive(Debug)]
struct Named(&'static str);

impl Admission for Named {
    fn admits(&self, principal: &Principal) -> bool {
        principal.initiator_name.as_deref() == Some(self.0)
    }
}

fn come_as(world: &World, nexus: NexusId, name: &str) {
    let ports = NexusPorts { principal: named(name), ..NexusPorts::clone(&ports(nexus.0, 1)) };
    world.units.nexus_established(nexus, Arc::new(ports));
    for (number, _) in world.units.iter() {
        world.run_task(nexus, Task { lun: Some(number), ..task(build::test_unit_ready(), &[]) });
    }
}

/// Blocks 16 to 23 of the world's disk as unit 2.
fn part(classes: OperationClasses, program: Option<Arc<dyn CommandProgram>>) -> Derivation {
    Derivation {
        extents: vec![DerivedExtent { offset_bytes: 16 * 512, length_bytes: 8 * 512 }],
        operations: AllowedOperations::of(classes),
        admission: Some(Arc::new(Named("a"))),
        until_unix_ms: None,
        program,
        clock: sanwire_core::WallClock::default(),
    }
}

fn derive(world: &World, derivation: Derivation) -> Arc<LogicalUnit> {
    let root = world.units.get(lun(0)).unwrap();
    let name = Identity::new("part", *b"a part of a disk").unwrap();
    let unit = LogicalUnit::derive(name, &root, derivation, UnitOptions::default()).unwrap();
    world.units.add(lun(2), unit).unwrap()
}

const DENIED: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::ACCESS_DENIED_NO_ACCESS_RIGHTS);
const NOT_HERE: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::REMOTE_TOKEN_USAGE_NOT_SUPPORTED);

#[test]
fn a_token_serves_its_principal_alone_over_whichever_nexus() {
    let (world, second) = world();
    come_as(&world, NEXUS, "a");
    come_as(&world, OTHER, "b");
    come_as(&world, NexusId(3), "a");
    let token = world.token(NEXUS, 0, &[(0, 2)]);
    assert_eq!(world.use_token(OTHER, &token, 1, (0, 2)), Err(UNKNOWN), "who has seen it cannot use it");
    assert_eq!(second.take_log(), []);
    world.use_token(NexusId(3), &token, 1, (0, 2)).unwrap();
    world.units.nexus_lost(NEXUS);
    world.use_token(NexusId(3), &token, 1, (0, 2)).unwrap();
}

#[test]
fn tokens_of_nobody_here_are_told_apart() {
    let (world, _) = world();
    let token = world.token(NEXUS, 0, &[(0, 2)]);
    let with = |at: usize, byte: u8| {
        let mut other = token;
        other[at] ^= byte;
        world.use_token(NEXUS, &other, 1, (0, 2)).unwrap_err().additional
    };
    assert_eq!(with(500, 1), AdditionalSense::TOKEN_UNKNOWN);
    assert_eq!(with(15, 1), AdditionalSense::TOKEN_UNKNOWN, "another number");
    assert_eq!(with(48, 1), AdditionalSense::TOKEN_UNKNOWN, "more data");
    assert_eq!(with(31, 1), AdditionalSense::REMOTE_TOKEN_USAGE_NOT_SUPPORTED, "of a unit that is not here");
    assert_eq!(with(16, 1), AdditionalSense::TOKEN_CORRUPT);
    assert_eq!(with(7, 1), AdditionalSense::INVALID_TOKEN_LENGTH);
    assert_eq!(with(3, 3), AdditionalSense::UNSUPPORTED_TOKEN_TYPE);
    world.units.remove(lun(0)).unwrap();
    assert_eq!(world.use_token(NEXUS, &token, 1, (0, 2)), Err(NOT_HERE), "its unit is gone");
}

#[test]
fn a_derived_unit_makes_tokens_and_takes_them_as_it_allows() {
    let (source, target) = (OperationClasses::COPY_SOURCE, OperationClasses::COPY_TARGET);
    let no_such = illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
    for (classes, makes, takes) in [
        (source | target, true, true),
        (source, true, false),
        (target, false, true),
        (OperationClasses::READ | OperationClasses::WRITE, false, false),
    ] {
        let (world, second) = world();
        let unit = derive(&world, part(classes, None));
        come_as(&world, NEXUS, "a");
        let made = world.tell(NEXUS, populate(1, 2, &[(6, 2)]));
        assert_eq!(made.is_ok(), makes, "{classes:?}");
        if makes {
            let told = world.tell(NEXUS, ask(INFORMATION, 1, 2, 1024)).unwrap();
            world.use_token(NEXUS, &told[38..].try_into().unwrap(), 1, (0, 2)).unwrap();
            assert_eq!(held(&second, 0, 2), [content(22), content(23)]);
        } else {
            assert!([DENIED.additional, no_such.additional].contains(&made.unwrap_err().additional));
        }
        let token = world.token(NEXUS, 0, &[(0, 3)]);
        let taken = world.use_token(NEXUS, &token, 2, (1, 3));
        assert_eq!(taken.is_ok(), takes, "{classes:?} {taken:?}");
        let usage = unit.derived().unwrap().statistics().principals[0].usage;
        assert_eq!(usage.written_bytes, if takes { 3 * 512 } else { 0 });
        let written = if takes { [1, 2, 3] } else { [content(17), content(18), content(19)] };
        assert_eq!(held(&world.store, 17, 3), written);
        assert_eq!(held(&world.store, 16, 1), [content(16)]);
    }
}

#[test]
fn a_write_through_any_unit_that_has_the_blocks_ends_their_tokens() {
    let (world, _) = world();
    derive(&world, part(OperationClasses::ALL, None));
    come_as(&world, NEXUS, "a");
    let write = |unit: u16, lba| {
        let cdb = build::write_16(sanwire_scsi::Extent { lba, blocks: 1 }, false);
        world.tell(NEXUS, Task { lun: Some(lun(unit)), ..task(cdb, &[0x99; BLOCK]) }).unwrap();
    };
    let (of_part, of_root) = (world.token(NEXUS, 2, &[(3, 2)]), world.token(NEXUS, 0, &[(19, 1)]));
    write(0, 18);
    write(2, 5);
    world.use_token(NEXUS, &of_part, 1, (0, 2)).unwrap();
    write(0, 20);
    assert_eq!(world.use_token(NEXUS, &of_part, 1, (0, 2)), Err(CANCELLED));
    world.use_token(NEXUS, &of_root, 1, (0, 1)).unwrap();
    write(2, 3);
    assert_eq!(world.use_token(NEXUS, &of_root, 1, (0, 1)), Err(CANCELLED));
    let of_root = world.token(NEXUS, 0, &[(16, 8)]);
    let refused = illegal(AdditionalSense::INVALID_OPERATION_FOR_COPY_SOURCE_OR_DESTINATION);
    assert_eq!(world.use_token(NEXUS, &of_root, 2, (7, 1)), Err(refused), "they are its own blocks");
}

#[test]
fn a_token_of_a_unit_that_was_taken_back_serves_nobody() {
    let (world, second) = world();
    let unit = derive(&world, part(OperationClasses::ALL, None));
    come_as(&world, NEXUS, "a");
    let token = world.token(NEXUS, 2, &[(0, 2)]);
    let begun = world.begin(NEXUS, write_using(&token, (0, 1), 1, (0, &[(0, 2)])));
    let reading = step(&world, begun);
    unit.revoke();
    let Progress::Done(reply) = step(&world, reading) else { panic!("its source is gone") };
    assert_eq!(told(reply).unwrap_err().additional, AdditionalSense::NOT_READY_MANUAL_INTERVENTION_REQUIRED);
    assert_eq!(world.use_token(NEXUS, &token, 1, (0, 2)), Err(NOT_HERE));
    assert_eq!(held(&second, 0, 2), [0, 0]);
}

/// Moves what copies read by one block, and refuses all that they write but the first block.
#[derive(Debug)]
struct Odd;

impl CommandProgram for Odd {
    fn judge(&self, command: &JudgedCommand<'_>) -> Judgement {
        let [range] = command.ranges else { return Verdict::Allow.into() };
        match command.classes {
            OperationClasses::COPY_SOURCE => Verdict::Redirect { lba: range.lba + 1 }.into(),
            _ if range.lba == 0 => Verdict::Allow.into(),
            _ => Verdict::Refuse(illegal(AdditionalSense::WRITE_PROTECTED)).into(),
        }
    }
}

#[test]
fn programs_judge_each_range_when_the_token_is_made_and_when_it_is_written() {
    let (world, second) = world();
    derive(&world, part(OperationClasses::ALL, Some(Arc::new(Odd))));
    come_as(&world, NEXUS, "a");
    let token = world.token(NEXUS, 2, &[(0, 2), (5, 1)]);
    world.use_token(NEXUS, &token, 1, (0, 3)).unwrap();
    assert_eq!(held(&second, 0, 3), [content(17), content(18), content(22)]);
    let token = world.token(NEXUS, 0, &[(0, 2)]);
    let refused = world.tell(NEXUS, write_using(&token, (0, 1), 2, (0, &[(0, 1), (4, 1)])));
    assert_eq!(refused, Err(illegal(AdditionalSense::WRITE_PROTECTED)));
    assert_eq!(held(&world.store, 16, 1), [content(16)], "nothing of it is done");
    world.tell(NEXUS, write_using(&token, (0, 1), 2, (0, &[(0, 1)]))).unwrap();
    assert_eq!(held(&world.store, 16, 1), [content(0)]);
}

#[test]
fn reservations_hold_for_tokens_as_for_reads_and_writes() {
    let (world, _) = world();
    world.establish(NEXUS);
    world.establish(OTHER);
    for nexus in [NEXUS, OTHER] {
        [0, 1].into_iter().for_each(|unit| {
            _ = world.run_task(nexus, Task { lun: Some(lun(unit)), ..task(build::test_unit_ready(), &[]) })
        });
    }
    let token = world.token(NEXUS, 0, &[(0, 2)]);
    let reserve = |code: u8, unit: u16| {
        let task = Task { lun: Some(lun(unit)), ..task([code, 0, 0, 0, 0, 0], &[]) };
        assert_eq!(world.run_task(OTHER, task).status, Status::Good);
    };
    reserve(0x16, 1);
    let status = |task| world.run_task(NEXUS, task).status;
    assert_eq!(status(write_using(&token, (0, 1), 1, (0, &[(0, 1)]))), Status::ReservationConflict);
    reserve(0x17, 1);
    reserve(0x16, 0);
    assert_eq!(status(populate(1, 0, &[(0, 1)])), Status::ReservationConflict);
    let third_party = Sense::new(SenseKey::CopyAborted, AdditionalSense::THIRD_PARTY_DEVICE_FAILURE);
    assert_eq!(world.use_token(NEXUS, &token, 1, (0, 2)), Err(third_party), "its source is reserved");
    assert_eq!(status(ask(STATUS, 0xbeef, 1, 64)), Status::CheckCondition, "that copy has not begun");
    reserve(0x17, 0);
    world.use_token(NEXUS, &token, 1, (0, 2)).unwrap();
}

#[test]
fn who_may_only_read_makes_tokens_and_writes_none() {
    let (world, _) = world();
    world.units.set_read_only(true);
    let token = world.token(NEXUS, 0, &[(0, 2)]);
    let protected = Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED);
    assert_eq!(world.use_token(NEXUS, &token, 1, (0, 2)), Err(protected));
    world.units.set_read_only(false);
    world.use_token(NEXUS, &token, 1, (0, 2)).unwrap();
    let store = TestStore::new(SMALL);
    let unit = LogicalUnit::new(Identity::new("vol", SECOND).unwrap(), store, UnitOptions::default()).unwrap();
    world.units.remove(lun(1)).unwrap();
    world.units.add(lun(1), unit).unwrap();
    let unknown = illegal(AdditionalSense::INVALID_FIELD_IN_CDB);
    assert_eq!(
        world.use_token(NEXUS, &token, 1, (0, 2)).unwrap_err().additional,
        unknown.additional,
        "no seed, no tokens"
    );
}
