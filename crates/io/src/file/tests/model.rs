//! Random operations on a file and on a plain vector must come to the same.

use proptest::prelude::*;

use super::*;

/// Lanes never overlap, so that operations in flight together do not either.
const LANES: usize = 8;
const LANE_BLOCKS: usize = 64;
const BLOCK_BYTES: usize = 512;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Write(u8),
    Read,
    Discard,
    Zero,
    Flush,
}

/// Which lane, the first block in it, how many, and what to do there.
type Step = (usize, usize, usize, Kind);

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        4 => (1..=255u8).prop_map(Kind::Write),
        4 => Just(Kind::Read),
        1 => Just(Kind::Discard),
        1 => Just(Kind::Zero),
        1 => Just(Kind::Flush),
    ];
    (0..LANES, 0..LANE_BLOCKS, 1..=LANE_BLOCKS, kind)
        .prop_map(|(lane, at, count, kind)| (lane, at, count.min(LANE_BLOCKS - at), kind))
}

struct World<'a> {
    engine: FileEngine,
    file: Arc<File>,
    memory: &'a Region,
    model: Vec<u8>,
    /// What each lane's read must give, while one is in flight.
    expected: Vec<Option<Vec<u8>>>,
    is_busy: Vec<bool>,
}

impl World<'_> {
    fn start(&mut self, (lane, at, count, kind): Step) {
        while self.is_busy[lane] {
            self.wait();
        }
        let start = (lane * LANE_BLOCKS + at) * BLOCK_BYTES;
        let range = start..start + count * BLOCK_BYTES;
        let (offset_bytes, length_bytes) = (start as u64, range.len() as u64);
        let request = match kind {
            Kind::Read => {
                self.expected[lane] = Some(self.model[range.clone()].to_vec());
                let buffer = self.frame(range.len());
                Request::Read { offset_bytes, buffer }
            }
            Kind::Write(fill) => {
                let mut frame = self.frame(range.len());
                frame.iter_mut().enumerate().for_each(|(i, byte)| *byte = fill ^ (i / 100) as u8);
                self.model[range].copy_from_slice(&frame);
                Request::Write { offset_bytes, data: self.in_pieces(frame.freeze()) }
            }
            Kind::Discard => {
                self.model[range].fill(0);
                Request::Discard { offset_bytes, length_bytes }
            }
            Kind::Zero => {
                self.model[range].fill(0);
                Request::WriteZeroes { offset_bytes, length_bytes }
            }
            Kind::Flush => Request::Flush,
        };
        self.is_busy[lane] = true;
        let mut op = op(&self.file, request);
        while let Err(back) = self.engine.submit(lane as u64, op) {
            op = back;
            self.wait();
        }
    }

    /// From the region, or memory of its own when that is used up: both ways must do.
    fn frame(&self, length: usize) -> Frame {
        self.memory.frame(length).unwrap_or_else(|| vec![0xee; length].into())
    }

    /// The same bytes: sometimes as they are, sometimes cut, or also moved to several places.
    fn in_pieces(&self, data: Slice) -> Slices {
        let middle = data.len() / 3 + 1;
        match data[0] % 3 {
            0 => data.into(),
            1 => Slices::join([data.slice(0..middle), data.slice(middle..data.len())].into_iter()).unwrap(),
            _ => {
                let mut moved = self.frame(middle);
                moved.copy_from_slice(&data[..middle]);
                Slices::gather([moved.freeze(), data.slice(middle..data.len())]).unwrap()
            }
        }
    }

    fn wait(&mut self) {
        self.engine.flush().unwrap();
        assert!(is_woken(&self.engine, 60_000));
        let (expected, is_busy) = (&mut self.expected, &mut self.is_busy);
        self.engine.reap(&mut |lane, completion| {
            let lane = lane as usize;
            assert!(std::mem::take(&mut is_busy[lane]), "lane {lane} answered twice");
            match completion.unwrap() {
                Outcome::Read(frame) => assert!(expected[lane].take().unwrap() == *frame, "lane {lane}"),
                Outcome::Done => assert!(expected[lane].is_none()),
                other => panic!("{other:?} was not asked"),
            }
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_file_is_what_the_model_is(
        kind in prop_oneof![Just(EngineKind::IoUring), Just(EngineKind::Threads)],
        directory in prop_oneof![Just(DIRECTORIES[0]), Just(DIRECTORIES[1])],
        depth in 1..10u32,
        steps in prop::collection::vec(step(), 1..100),
    ) {
        let length = LANES * LANE_BLOCKS * BLOCK_BYTES;
        let memory = Region::new(96 << 10).unwrap();
        let engine = FileEngine::new(&memory, depth, kind).unwrap();
        let file = scratch(directory, length as u64);
        let (model, expected, is_busy) = (vec![0; length], vec![None; LANES], vec![false; LANES]);
        let mut world = World { engine, file, memory: &memory, model, expected, is_busy };
        for step in steps {
            world.start(step);
        }
        while world.engine.in_flight() > 0 {
            world.wait();
        }
        let World { file, model, engine, .. } = world;
        drop(engine);
        prop_assert!(bytes(blocking::perform(read(&file, 0, vec![1; length].into()))) == model);
        prop_assert_eq!(memory.free_bytes(), memory.length_bytes());
    }
}
