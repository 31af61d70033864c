//! Rounds of writing and reading, by whatever carries them.

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::world::{BLOCK_BYTES, MEMORY_BYTES, World};

/// So many bytes, other ones for each seed.
pub fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + at / 251 + seed * 13) as u8).collect()
}

/// What was written is read, and all memory comes back: in each round so many blocks, and the connection is cut after so many steps.
pub fn keeps_what_is_written(mut world: World, cuts: Vec<usize>, lengths: Vec<usize>) -> Result<(), TestCaseError> {
    let mut expected = world.host.disk.clone();
    let mut cuts = cuts.into_iter();
    for (round, length) in lengths.into_iter().enumerate() {
        let (block, length) = ((round * 5) as u16, length * BLOCK_BYTES);
        let data = pattern(length, round);
        expected[usize::from(block) * BLOCK_BYTES..][..length].copy_from_slice(&data);
        world.order(0x2a, block, Some(data.clone()), 0);
        if let Some(steps) = cuts.next() {
            world.run(steps);
            if let Some(&connection) = world.connections().first() {
                world.cut(connection);
            }
        }
        world.settle();
        let id = world.order(0x28, block, None, length);
        world.order(0x35, 0, None, 0);
        world.settle();
        prop_assert!(world.data_of(id) == Some(data), "round {}", round);
    }
    prop_assert!(world.host.disk == expected);
    prop_assert_eq!(world.host.memory.free_bytes(), MEMORY_BYTES);
    Ok(())
}
