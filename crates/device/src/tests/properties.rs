use proptest::prelude::*;
use sanwire_scsi::{
    Cdb, CommandSet, Extent, Features, Operation, Sense, Status, Task, build, operation_code, unmap_parameters,
};
use sanwire_store::{ErrorKind, Geometry};

use crate::testing::{NEXUS, Op, SMALL, World, task};

const BLOCKS: u64 = 64;
const TINY: Geometry = Geometry { length_bytes: BLOCKS * 512, ..SMALL };

/// A CDB of a known operation with random fields, or just random bytes.
fn cdb() -> impl Strategy<Value = Cdb> {
    let known: Vec<&'static Operation> = CommandSet::disk(Features::ALL).operations().collect();
    let known = (prop::sample::select(known), prop::collection::vec(any::<u8>(), 16), any::<u32>()).prop_map(
        |(operation, noise, keep)| {
            // A quarter of the bits that may be set are, so that many CDBs are legal.
            let mut bytes = operation.usage_data();
            let (code, action) = (bytes[0], operation.service_action);
            for (at, (byte, noise)) in bytes.iter_mut().zip(noise).enumerate() {
                *byte &= if keep & (3 << (2 * at)) == 0 { noise } else { 0 };
            }
            bytes[0] = code;
            bytes[1] |= action.unwrap_or(0);
            Cdb::new(&bytes).unwrap()
        },
    );
    let random = prop::collection::vec(any::<u8>(), 1..=32).prop_map(|bytes| Cdb::new(&bytes).unwrap());
    prop_oneof![4 => known, 1 => random]
}

fn fault() -> impl Strategy<Value = Option<(Op, ErrorKind)>> {
    let op = prop::sample::select(vec![Op::Read, Op::Write, Op::Flush, Op::Discard, Op::Zero]);
    let kind = prop::sample::select(vec![
        ErrorKind::Unreadable,
        ErrorKind::Unwritable,
        ErrorKind::Full,
        ErrorKind::Gone,
        ErrorKind::Unsupported,
        ErrorKind::Other,
    ]);
    prop::option::of((op, kind))
}

#[derive(Clone, Debug)]
enum Action {
    Read(u64, u32),
    Write(u64, u32, u8, bool),
    Same(u64, u32, u8, bool),
    Unmap(u64, u32),
}

fn action() -> impl Strategy<Value = Action> {
    let place = (0..BLOCKS + 4, 0u32..20);
    prop_oneof![
        place.clone().prop_map(|(lba, blocks)| Action::Read(lba, blocks)),
        (place.clone(), any::<u8>(), any::<bool>()).prop_map(|((l, b), seed, fua)| Action::Write(l, b, seed, fua)),
        (place.clone(), 0u8..3, any::<bool>()).prop_map(|((l, b), seed, unmap)| Action::Same(l, b, seed, unmap)),
        place.prop_map(|(lba, blocks)| Action::Unmap(lba, blocks)),
    ]
}

/// One byte for each block: the model.
fn apply(world: &World, model: &mut [u8], action: &Action) {
    let (lba, blocks) = match *action {
        Action::Read(l, b) | Action::Write(l, b, ..) | Action::Same(l, b, ..) | Action::Unmap(l, b) => (l, b),
    };
    let extent = Extent { lba, blocks };
    let (cdb, data) = match *action {
        Action::Read(..) => (build::read_16(extent), Vec::new()),
        Action::Write(_, _, seed, fua) => (build::write_16(extent, fua), vec![seed; blocks as usize * 512]),
        Action::Same(_, _, seed, unmap) => (build::write_same_16(extent, unmap, false), vec![seed; 512]),
        Action::Unmap(..) => (build::unmap(24), unmap_parameters(&[extent]).unwrap()),
    };
    let reply = world.run(NEXUS, cdb, &data);
    // WRITE SAME of no blocks goes up to the end.
    let is_to_end = matches!(action, Action::Same(..)) && blocks == 0;
    let is_legal = lba + u64::from(blocks) <= BLOCKS && !(is_to_end && lba == BLOCKS);
    assert_eq!(reply.status == Status::Good, is_legal, "{action:?}");
    if !is_legal {
        return;
    }
    let end = if is_to_end { BLOCKS as usize } else { lba as usize + blocks as usize };
    let place = &mut model[lba as usize..end];
    match *action {
        Action::Read(..) => {
            let expected: Vec<u8> = place.iter().flat_map(|&byte| [byte; 512]).collect();
            assert_eq!(reply.data_in.map_or(Vec::new(), |data| data.to_vec()), expected);
        }
        Action::Write(_, _, seed, _) | Action::Same(_, _, seed, _) => place.fill(seed),
        Action::Unmap(..) => place.fill(0),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever comes, there is an answer within bounds (the runner counts), it fits, and no frame is lost.
    #[test]
    fn any_command_is_answered(
        cdb in cdb(), data in prop::collection::vec(any::<u8>(), 0..2048), room in 0u32..5000,
        fault in fault(), large: bool, flags in 0u8..8,
    ) {
        // All of the largest medium would take for ever.
        use operation_code::{SANITIZE, WRITE_SAME_10, WRITE_SAME_16};
        prop_assume!(!large || ![SANITIZE, WRITE_SAME_10, WRITE_SAME_16].contains(&cdb.operation_code()));
        let length_bytes = if large { u64::MAX / 512 * 512 } else { 1 << 20 };
        let geometry = Geometry { length_bytes, discards: flags & 1 != 0, read_only: flags & 2 != 0, ..SMALL };
        let world = World::new(geometry, flags & 4 != 0);
        if let Some((op, kind)) = fault {
            world.store.fail(op, kind);
        }
        let task = Task { data_in_max_bytes: room, ..task(cdb, &data) };
        let reply = world.run_task(NEXUS, task);
        prop_assert!(reply.data_in.as_ref().map_or(0, |data| data.len()) <= room as usize);
        prop_assert_eq!(reply.status != Status::CheckCondition, reply.sense.is_empty());
        prop_assert!(reply.sense.is_empty() || Sense::parse(&reply.sense).is_some());
        drop(reply);
        prop_assert_eq!(world.memory.free_bytes(), world.memory.length_bytes());
    }

    #[test]
    fn a_disk_is_an_array_of_blocks(actions in prop::collection::vec(action(), 1..60), write_cache: bool) {
        let world = World::new(TINY, write_cache);
        let mut model = vec![0; BLOCKS as usize];
        for action in &actions {
            apply(&world, &mut model, action);
        }
        apply(&world, &mut model, &Action::Read(0, BLOCKS as u32));
    }

    #[test]
    fn extents_near_the_end_of_all_numbers_are_refused_or_exact(lba in u64::MAX - 40..=u64::MAX, blocks in 0u32..80) {
        let world = World::new(Geometry { length_bytes: u64::MAX / 512 * 512, ..SMALL }, true);
        for cdb in [
            build::read_16(Extent { lba, blocks }),
            build::synchronize_cache_16(Extent { lba, blocks }),
            build::write_same_16(Extent { lba, blocks }, true, true),
        ] {
            prop_assert_eq!(world.run(NEXUS, cdb, &[]).status, Status::CheckCondition);
        }
        let last = u64::MAX / 512 - 1;
        let near = last - (u64::MAX - lba);
        let fits = near + u64::from(blocks) <= last + 1;
        let reply = world.run(NEXUS, build::read_16(Extent { lba: near, blocks }), &[]);
        prop_assert_eq!(reply.status == Status::Good, fits);
    }
}
