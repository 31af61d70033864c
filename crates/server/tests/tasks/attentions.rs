//! What one initiator does to a disk is told to all others, whichever protocol they speak.

use sanwire_core::Lun;
use sanwire_hyperscsi::DesiredOptions;
use sanwire_hyperscsi::wire::command::{Answer, Function};
use sanwire_scsi::port_groups::AccessState;
use sanwire_scsi::{AdditionalSense, Cdb, Extent, Sense, SenseKey, Status, build};
use sanwire_server::TargetNodeConfig;

use super::hyperscsi::{Driver, begin, connect};
use super::initiator::{BLOCK_BYTES, Initiator};
use super::{DELAYED, PROMPT, World};

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const CLEAR: u8 = 3;
/// Only who is registered may write.
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 5;

/// Two HyperSCSI clients and an iSCSI initiator of the same disks.
struct Three {
    one: Driver,
    other: Driver,
    initiator: Initiator,
}

type Said = (Status, Option<Sense>);

const GOOD: Said = (Status::Good, None);
const CONFLICT: Said = (Status::ReservationConflict, None);

impl Three {
    fn new(world: &World) -> Three {
        let client = || connect(world.hyperscsi_address(), sanwire_hyperscsi::random().unwrap());
        Three { one: client(), other: client(), initiator: world.login(1) }
    }

    /// What the other client and the initiator are told.
    fn others(&mut self, cdb: Cdb, data_out: &[u8]) -> [Said; 2] {
        [self.other.ask(PROMPT, cdb, data_out), self.initiator.ask(PROMPT, cdb, data_out)]
    }

    fn others_are_told(&mut self, additional: AdditionalSense) {
        let ready = build::test_unit_ready();
        assert_eq!(self.others(ready, &[]), [attention(additional); 2]);
        assert_eq!(self.others(ready, &[]), [GOOD; 2], "they are told once");
    }
}

fn attention(additional: AdditionalSense) -> Said {
    (Status::CheckCondition, Some(Sense::new(SenseKey::UnitAttention, additional)))
}

fn not_ready(additional: AdditionalSense) -> Said {
    (Status::CheckCondition, Some(Sense::new(SenseKey::NotReady, additional)))
}

fn write() -> Cdb {
    build::write_16(Extent { lba: 0, blocks: 1 }, false)
}

/// PERSISTENT RESERVE OUT, with its list.
fn reserve_out(action: u8, kind: u8, key: u64, action_key: u64) -> (Cdb, Vec<u8>) {
    let list = [key.to_be_bytes(), action_key.to_be_bytes(), [0; 8]].concat();
    ([0x5f, action, kind, 0, 0, 0, 0, 0, list.len() as u8, 0].into(), list)
}

/// SET TARGET PORT GROUPS: group 1 into this state.
fn set_group(state: u8) -> (Cdb, [u8; 8]) {
    ([0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0].into(), [0, 0, 0, 0, state, 0, 0, 1])
}

#[test]
fn another_mode_is_told_to_clients_and_initiators() {
    let world = World::new();
    let mut three = Three::new(&world);
    // The caching mode page, with a write cache that is off.
    let mut list = [0; 4 + 20];
    (list[4], list[5]) = (8, 18);
    assert_eq!(three.one.ask(PROMPT, build::mode_select_6(list.len() as u8), &list), GOOD);
    three.others_are_told(AdditionalSense::MODE_PARAMETERS_CHANGED);
    assert_eq!(three.one.ask(PROMPT, build::test_unit_ready(), &[]), GOOD, "who did it knows");
}

#[test]
fn a_reservation_of_a_client_holds_for_clients_and_initiators() {
    let world = World::new();
    let mut three = Three::new(&world);
    let block = [1; BLOCK_BYTES];
    let (register, list) = reserve_out(REGISTER, 0, 0, 7);
    assert_eq!(three.one.ask(PROMPT, register, &list), GOOD);
    let (reserve, own) = reserve_out(RESERVE, WRITE_EXCLUSIVE_REGISTRANTS, 7, 0);
    assert_eq!(three.one.ask(PROMPT, reserve, &own), GOOD);
    assert_eq!(three.others(write(), &block), [CONFLICT; 2]);
    assert_eq!(three.others(register, &list), [GOOD; 2]);
    assert_eq!(three.others(write(), &block), [GOOD; 2], "who is registered may write");
    let (clear, own) = reserve_out(CLEAR, 0, 7, 0);
    assert_eq!(three.one.ask(PROMPT, clear, &own), GOOD);
    three.others_are_told(AdditionalSense::RESERVATIONS_PREEMPTED);
    assert_eq!(three.others(write(), &block), [GOOD; 2]);
}

#[test]
fn a_new_size_is_told_to_clients_and_initiators() {
    let world = World::new();
    let mut three = Three::new(&world);
    let lun = Lun::new(PROMPT).unwrap();
    world.target.units().get(lun).unwrap().store().resize(2 << 20).unwrap();
    assert!(world.target.volume_resized(lun));
    let told = attention(AdditionalSense::CAPACITY_DATA_HAS_CHANGED);
    assert_eq!(three.one.ask(PROMPT, build::test_unit_ready(), &[]), told);
    three.others_are_told(AdditionalSense::CAPACITY_DATA_HAS_CHANGED);
}

#[test]
fn a_volume_that_goes_is_told_to_clients_and_initiators() {
    let world = World::new();
    let mut three = Three::new(&world);
    let (delayed, exports) = (Lun::new(DELAYED).unwrap(), world.target.exports().into_iter());
    let without = |mut export: TargetNodeConfig| {
        export.units.retain(|lun, _| *lun != delayed);
        export
    };
    world.target.set_exports(exports.map(without).collect()).unwrap();
    assert!(world.target.remove_volume(delayed).is_some());
    let told = attention(AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED);
    assert_eq!(three.one.ask(PROMPT, build::test_unit_ready(), &[]), told);
    three.others_are_told(AdditionalSense::REPORTED_LUNS_DATA_HAS_CHANGED);
}

/// A unit attention stops one command; the others that were on their way must not reach the volume either.
#[test]
fn a_number_that_is_given_to_another_volume_leads_nobody_there_who_has_not_asked_who_has_it() {
    let world = World::new();
    let mut three = Three::new(&world);
    let (from, to) = (Lun::new(PROMPT).unwrap(), Lun::new(DELAYED).unwrap());
    let exports = world.target.exports();
    let moved = |mut export: TargetNodeConfig| {
        if export.units.remove(&to).is_some() {
            let prompt = export.units.remove(&from).unwrap();
            export.units.insert(to, prompt);
        }
        export
    };
    world.target.set_exports(exports.into_iter().map(moved).collect()).unwrap();
    assert!(world.target.remove_volume(to).is_some());
    assert!(world.target.renumber_volume(from, to).unwrap());
    let gone = (
        Status::CheckCondition,
        Some(Sense::new(SenseKey::IllegalRequest, AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED)),
    );
    let names = build::inquiry(Some(0x83), 255);
    for _ in 0..3 {
        assert_eq!(three.one.ask(DELAYED, write(), &[1; BLOCK_BYTES]), gone);
        assert_eq!(three.initiator.ask(DELAYED, write(), &[1; BLOCK_BYTES]), gone);
    }
    let power_on = attention(AdditionalSense::POWER_ON_OR_RESET_OCCURRED);
    assert_eq!(three.one.ask(DELAYED, names, &[]), GOOD);
    assert_eq!(three.one.ask(DELAYED, write(), &[1; BLOCK_BYTES]), power_on);
    assert_eq!(three.one.ask(DELAYED, write(), &[1; BLOCK_BYTES]), GOOD);
    assert_eq!(three.initiator.ask(DELAYED, write(), &[1; BLOCK_BYTES]), gone, "each asks for itself");
    assert_eq!(three.initiator.ask(DELAYED, names, &[]), GOOD);
    assert_eq!(three.initiator.ask(DELAYED, write(), &[1; BLOCK_BYTES]), power_on);
    assert_eq!(three.initiator.ask(DELAYED, write(), &[1; BLOCK_BYTES]), GOOD);
}

/// The ports of HyperSCSI are those of one target for all its clients, whatever volumes they may use; those of an iSCSI target are
/// others.
#[test]
fn the_state_of_hyperscsi_ports_is_one_for_all_clients_and_none_changes_it() {
    let world = World::new();
    let mut three = Three::new(&world);
    let ready = build::test_unit_ready();
    let failed = Sense::new(SenseKey::HardwareError, AdditionalSense::SET_TARGET_PORT_GROUPS_COMMAND_FAILED);
    for state in [1, 2, 3] {
        let (other, list) = set_group(state);
        assert_eq!(three.one.ask(PROMPT, other, &list), (Status::CheckCondition, Some(failed)));
        assert_eq!(three.others(ready, &[]), [GOOD; 2]);
    }
    let told = attention(AdditionalSense::ASYMMETRIC_ACCESS_STATE_CHANGED);
    let refused = not_ready(AdditionalSense::NOT_READY_TARGET_PORT_STANDBY);
    world.target.units().set_access_state(1, AccessState::Standby);
    assert_eq!(three.others(ready, &[]), [told, GOOD]);
    assert_eq!(three.others(ready, &[]), [refused, GOOD]);
    world.target.units().set_access_state(1, AccessState::ActiveOptimized);
    assert_eq!(three.others(ready, &[]), [told, GOOD]);
    assert_eq!(three.others(ready, &[]), [GOOD; 2]);
}

/// A reset ends the commands of others and puts mode pages back.
#[test]
fn who_may_only_read_resets_nothing() {
    let world = World::new();
    let mut three = Three::new(&world);
    let wishes = DesiredOptions { read_only: true, ..DesiredOptions::default() };
    let mut reader = begin(world.hyperscsi_address(), sanwire_hyperscsi::random().unwrap(), wishes);
    reader.settle();
    for _ in 0..100 {
        reader.manage(Function::LogicalUnitReset, PROMPT, 0);
        let (_, answer) = reader.hear_answer();
        assert!(matches!(answer, Answer::Managed { done: false }), "{answer:?}");
    }
    assert_eq!(three.others(build::test_unit_ready(), &[]), [GOOD; 2]);
    three.one.manage(Function::LogicalUnitReset, PROMPT, 0);
    let (_, answer) = three.one.hear_answer();
    assert!(matches!(answer, Answer::Managed { done: true }), "it is left to others: {answer:?}");
}
