//! Orders, answers in any order, broken connections and lost power against a model of what may be read.

use proptest::prelude::*;

use super::*;
use crate::wire::*;

const BLOCK: usize = 64;
const BLOCKS: usize = 24;

#[derive(Clone, Debug)]
enum Step {
    Read(usize, usize),
    Write(usize, usize),
    Zero(usize, usize),
    Flush,
    /// The server does and answers one.
    Work(usize),
    /// It does one, and its answer is lost with the connections.
    Cut {
        is_done: bool,
        loses_power: bool,
        choice: usize,
    },
    /// It does one that a lost connection carried.
    WorkLate(usize),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let run = || (0..BLOCKS, 1usize..6).prop_map(|(at, length)| (at, length.min(BLOCKS - at)));
    let step = prop_oneof![
        4 => run().prop_map(|(at, length)| Step::Read(at, length)),
        6 => run().prop_map(|(at, length)| Step::Write(at, length)),
        1 => run().prop_map(|(at, length)| Step::Zero(at, length)),
        1 => Just(Step::Flush),
        9 => any::<usize>().prop_map(Step::Work),
        1 => (any::<bool>(), any::<bool>(), any::<usize>())
            .prop_map(|(is_done, loses_power, choice)| Step::Cut { is_done, loses_power, choice }),
        2 => any::<usize>().prop_map(Step::WorkLate),
        2 => prop_oneof![3 => 0u64..400, 1 => 400u64..6000].prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 1..180)
}

/// What each block may read as: the value of the last older write, or of any that began before the answer.
#[derive(Default)]
struct Model {
    writes: Vec<(usize, usize, u8)>,
    reads: Vec<(OrderId, usize, usize, usize)>,
}

impl Model {
    fn may_be(&self, block: usize, older: usize, value: u8) -> bool {
        let is_of = |write: &&(usize, usize, u8)| (write.0..write.0 + write.1).contains(&block);
        let last = self.writes[..older].iter().rfind(is_of).map_or(0, |write| write.2);
        last == value || self.writes[older..].iter().filter(is_of).any(|write| write.2 == value)
    }

    fn check(&mut self, world: &mut World) {
        let mut reads = std::mem::take(&mut self.reads);
        reads.retain(|&(id, at, length, older)| match world.result(id) {
            None => true,
            Some(Ok(Answer::Read(frame))) => {
                assert_eq!(frame.len(), length * BLOCK);
                for (index, bytes) in frame.chunks(BLOCK).enumerate() {
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "torn");
                    assert!(self.may_be(at + index, older, bytes[0]), "block {}: {}", at + index, bytes[0]);
                }
                false
            }
            Some(other) => panic!("{other:?}"),
        });
        self.reads = reads;
    }
}

fn step(world: &mut World, model: &mut Model, step: Step) {
    let place = |at: usize| (at * BLOCK) as u64;
    match step {
        Step::Read(at, length) => {
            let id = world.read(place(at), length * BLOCK);
            model.reads.push((id, at, length, model.writes.len()));
        }
        Step::Write(at, length) => {
            let value = (model.writes.len() % 255) as u8 + 1;
            model.writes.push((at, length, value));
            world.write(place(at), value, length * BLOCK);
        }
        Step::Zero(at, length) => {
            model.writes.push((at, length, 0));
            world.order(Order::Zero {
                offset_bytes: place(at),
                length_bytes: (length * BLOCK) as u64,
                keeps_space: false,
            });
        }
        Step::Flush => drop(world.order(Order::Flush)),
        Step::Work(choice) => {
            world.server.work(choice);
            world.carry();
        }
        Step::Cut { is_done, loses_power, choice } => {
            if is_done {
                world.server.work(choice);
            }
            if loses_power {
                world.server.lose_power();
            }
            world.cut();
        }
        Step::WorkLate(choice) => _ = world.server.work_late(choice),
        Step::Pass(millis) => world.pass(Duration::from_millis(millis)),
    }
    model.check(world);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_or_reordered_over_outages_and_lost_power(
        steps in steps(), is_structured: bool, makes_zeroes: bool, connections in 1usize..4, piece in 1usize..200,
    ) {
        let zeroes = if makes_zeroes { TRANSMISSION_SEND_WRITE_ZEROES } else { 0 };
        let flags = TRANSMISSION_HAS_FLAGS | TRANSMISSION_SEND_FLUSH | TRANSMISSION_CAN_MULTI_CONN | zeroes;
        let traits = Traits { is_structured, flags, payload_max_bytes: 256, chunk_bytes: 100, ..Traits::default() };
        let config = Config { connections, patience: Duration::from_secs(100_000), kept_max_bytes: 2048, ..config() };
        let (mut world, mut model) = (World::with(config, traits, piece), Model::default());
        steps.into_iter().for_each(|next| step(&mut world, &mut model, next));
        // Each write may wait for what a lost connection carried.
        for _ in 0..3 {
            world.pass(Duration::from_secs(10));
            world.run();
        }
        model.check(&mut world);
        prop_assert!(model.reads.is_empty(), "a read never ended");
        // What a flush was answered for survives.
        let flush = world.order(Order::Flush);
        world.run();
        prop_assert!(matches!(world.result(flush), Some(Ok(_))));
        world.server.lose_power();
        let older = model.writes.len();
        for (block, bytes) in world.server.disk[..BLOCKS * BLOCK].chunks(BLOCK).enumerate() {
            prop_assert!(model.may_be(block, older, bytes[0]), "block {} after the flush", block);
        }
    }
}
