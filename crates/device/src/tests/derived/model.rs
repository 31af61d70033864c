//! Units that are derived from each other in any way, compared with a model that knows for each which blocks it has, what may be done with
//! them, by whom, for how long and under which program; who has reserved it; and what tokens of their blocks stand for.

mod copies;
mod oracle;
mod plan;
mod rules;

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sanwire_core::{Instant, NexusId, Principal, WallClock};
use sanwire_scsi::{
    Extent, OperationClasses, Reply, Sense, SenseKey, Status, Task, build, operation_code, unmap_parameters,
};
use sanwire_store::Geometry;

use self::oracle::{Blocks, Undone};
use self::plan::{Deed, Plan, deed, plan};
use self::rules::Rule;
use super::super::tokens::{Bytes, INFORMATION, ask, populate_for, write_using};
use super::{blocks, of, on, read, swap, write};
use crate::testing::{SMALL, World, lun, ports, sense};
use crate::{Admission, AllowedOperations, CommandProgram, Derivation, NexusPorts, Progress};

const BLOCKS: u64 = 48;
const NEXUSES: u64 = 3;
/// How long a command takes, in milliseconds.
const STEP_MS: u64 = 10;
/// After so many commands the whole disk is compared, which takes longer than they do.
const CHECK_COMMANDS: usize = 16;
/// Longer than all commands together may take: tokens do not end of themselves.
const TOKEN_LIFE_S: u32 = 3600;
const TOKEN_ID: u32 = 0x0102_0304;

/// Admits the nexuses whose bit is set.
#[derive(Debug)]
struct Bits(u8);

impl Admission for Bits {
    fn admits(&self, principal: &Principal) -> bool {
        let number = principal.chap_user.as_deref().and_then(|name| name.parse::<u32>().ok());
        number.is_some_and(|number| self.0 & 1 << number != 0)
    }
}

/// A token: for whom it was made, of which unit, and what it stands for.
#[derive(Debug)]
struct Token {
    bytes: Bytes,
    nexus: u64,
    unit: usize,
    map: Vec<u64>,
    content: Vec<u8>,
    is_valid: bool,
}

#[derive(Debug)]
struct Unit {
    number: u16,
    parent: usize,
    /// Which blocks of the root it has.
    map: Vec<u64>,
    classes: OperationClasses,
    codes: Vec<u8>,
    admitted: u8,
    until_ms: Option<u64>,
    rule: Rule,
    is_revoked: bool,
    /// By which nexus.
    reserved_by: Option<u64>,
}

impl Unit {
    /// It is reserved for a nexus, or not any more if it was for that one.
    fn reserve(&mut self, nexus: u64, is_begun: bool) {
        if is_begun {
            self.reserved_by = Some(nexus);
        } else if self.reserved_by == Some(nexus) {
            self.reserved_by = None;
        }
    }
}

struct Twins {
    world: World,
    units: Vec<Unit>,
    content: Vec<u8>,
    tokens: Vec<Token>,
    now_ms: u64,
    /// How many commands there were; one that was deferred counts once.
    given: u64,
}

impl Twins {
    fn new(plans: &[Plan]) -> Twins {
        let world = World::new(Geometry { length_bytes: BLOCKS * 512, ..SMALL }, true);
        let root = Unit {
            number: 0,
            parent: 0,
            map: (0..BLOCKS).collect(),
            classes: OperationClasses::ALL,
            codes: Vec::new(),
            admitted: u8::MAX,
            until_ms: None,
            rule: Rule::None,
            is_revoked: false,
            reserved_by: None,
        };
        let content = vec![0; BLOCKS as usize];
        let mut twins = Twins { world, units: vec![root], content, tokens: Vec::new(), now_ms: 0, given: 0 };
        plans.iter().for_each(|plan| twins.derive(plan));
        for nexus in 0..NEXUSES {
            let principal = Principal { chap_user: Some(nexus.to_string().into()), ..Principal::default() };
            let ports = NexusPorts { principal, ..NexusPorts::clone(&ports(nexus, 1)) };
            twins.world.units.nexus_established(NexusId(nexus), Arc::new(ports));
            let numbers = 0..twins.units.len() as u16;
            numbers
                .for_each(|number| _ = twins.world.run_task(NexusId(nexus), on(number, build::test_unit_ready(), &[])));
        }
        twins
    }

    fn derive(&mut self, plan: &Plan) {
        let parent = &self.units[plan.parent % self.units.len()];
        let most = parent.map.len() as u64;
        let mut cuts: Vec<u64> = plan.cuts.iter().map(|cut| cut % (most + 1)).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let mut extents: Vec<_> = cuts.windows(2).map(|cut| (cut[0], cut[1] - cut[0])).collect();
        let turns = plan.cuts[0] as usize % extents.len().max(1);
        extents.rotate_left(turns);
        if extents.len() > 2 {
            extents.remove(1);
        }
        if extents.is_empty() {
            extents.push((0, most));
        }
        let map = extents.iter().flat_map(|(lba, blocks)| &parent.map[*lba as usize..(lba + blocks) as usize]).copied();
        let classes = OperationClasses::from_bits(plan.classes.bits() & parent.classes.bits());
        let codes: Vec<u8> = plan.codes.iter().copied().filter(|code| parent.has_code(*code)).collect();
        let operations = AllowedOperations::of(classes);
        let program = (plan.rule != Rule::None).then(|| Arc::new(plan.rule) as Arc<dyn CommandProgram>);
        let until_ms = plan.until_ms.into_iter().chain(parent.until_ms).min();
        let derivation = Derivation {
            operations: codes.iter().fold(operations, |operations, code| operations.with_operation(*code, None)),
            admission: Some(Arc::new(Bits(plan.admitted))),
            until_unix_ms: until_ms,
            program,
            clock: WallClock::default(),
            ..of(&extents)
        };
        let unit = Unit {
            number: self.units.len() as u16,
            parent: plan.parent % self.units.len(),
            map: map.collect(),
            classes,
            codes,
            admitted: plan.admitted & parent.admitted,
            until_ms,
            rule: plan.rule,
            is_revoked: parent.is_revoked,
            reserved_by: None,
        };
        let parent = self.world.units.get(lun(parent.number)).unwrap();
        if parent.state().ancestors().count() < 3 {
            self.world.derive_from(&parent, unit.number, derivation);
            self.units.push(unit);
        }
    }

    fn revoke(&mut self, at: usize) {
        self.world.units.get(lun(self.units[at].number)).unwrap().revoke();
        self.units[at].is_revoked |= at != 0;
        for child in 1..self.units.len() {
            // Parents come before their children.
            let parent = self.units[child].parent;
            self.units[child].is_revoked |= self.units[parent].is_revoked || at == 0;
        }
    }

    fn run(&mut self, at: usize, nexus: u64, deed: Deed, (lba, count): (u64, u32)) {
        self.now_ms += STEP_MS;
        let (deed, count) = match deed {
            Deed::Revoke => return self.revoke(at),
            Deed::Copy(source, from) => {
                let count = u64::from(count);
                return self.copy(nexus, (source % self.units.len(), (from, count)), (at, (lba, count)));
            }
            Deed::Swap(..) => (deed, 1),
            Deed::Use(_) if self.tokens.is_empty() => return,
            Deed::Use(which) => {
                let which = which % self.tokens.len();
                (Deed::Use(which), self.tokens[which].map.len() as u32)
            }
            _ => (deed, count),
        };
        let asked = (lba, u64::from(count));
        let (foreseen, known_ms) = self.foresee(at, nexus, deed, asked);
        let task = self.task(at, deed, asked, foreseen.unwrap_or(asked));
        let reply = self.give(nexus, task);
        let what = format!("{deed:?} of {asked:?} of unit {at} by {nexus} at {known_ms} ms");
        assert_eq!(self.now_ms, known_ms, "{what}: for how long it is deferred");
        let done = match foreseen {
            Ok(_) if matches!(deed, Deed::Swap(false, _)) => {
                return assert_eq!(sense(&reply).key, SenseKey::Miscompare, "{what}");
            }
            Err(undone) => return assert_eq!(outcome(&reply), Some(undone), "{what}"),
            Ok(done) => done,
        };
        assert_eq!(outcome(&reply), None, "{what}");
        if matches!(deed, Deed::Reserve | Deed::Release) {
            return self.units[at].reserve(nexus, matches!(deed, Deed::Reserve));
        }
        let touched = self.units[at].places(done).unwrap().to_vec();
        match deed {
            Deed::Read => {
                let expected: Vec<u8> = touched.iter().map(|block| self.content[*block as usize]).collect();
                assert_eq!(reply.data_in.map_or(Vec::new(), |data| data.to_vec()), blocks(&expected), "{what}");
            }
            Deed::Write(seed) | Deed::Same(seed, _) | Deed::Swap(_, seed) => {
                self.change(&touched, &vec![seed; touched.len()]);
            }
            Deed::Unmap => self.change(&touched, &vec![0; touched.len()]),
            Deed::Use(which) => {
                let content = self.tokens[which].content.clone();
                self.change(&touched, &content);
            }
            Deed::Populate => self.take_token(at, nexus, touched),
            _ => {}
        }
    }

    /// A command for the blocks that are asked for, which is done for those that come with them.
    fn task(&self, at: usize, deed: Deed, (lba, count): Blocks, (done_at, _): Blocks) -> Task {
        let unit = &self.units[at];
        let (number, count) = (unit.number, count as u32);
        let extent = Extent { lba, blocks: count };
        match deed {
            Deed::Read => read(number, lba, count),
            Deed::Write(seed) => write(number, lba, &blocks(&vec![seed; count as usize])),
            Deed::Same(seed, unmap) => on(number, build::write_same_16(extent, unmap, false), &blocks(&[seed])),
            Deed::Unmap => {
                let list = unmap_parameters(&[extent]).unwrap();
                on(number, build::unmap(list.len() as u16), &list)
            }
            Deed::Swap(is_right, seed) => {
                let there = unit.places((done_at, 1)).map_or(0, |places| self.content[places[0] as usize]);
                on(number, swap(lba), &blocks(&[there.wrapping_add(u8::from(!is_right)), seed]))
            }
            Deed::Verify => verify(number, extent),
            Deed::Populate => populate_for(TOKEN_LIFE_S, TOKEN_ID, number, &[(lba, count)]),
            Deed::Ask => ask(INFORMATION, TOKEN_ID, number, 1024),
            Deed::Use(which) => write_using(&self.tokens[which].bytes, (0, TOKEN_ID), number, (0, &[(lba, count)])),
            Deed::Reserve => on(number, [operation_code::RESERVE_6, 0, 0, 0, 0, 0], &[]),
            Deed::Release => on(number, [operation_code::RELEASE_6, 0, 0, 0, 0, 0], &[]),
            Deed::Revoke | Deed::Copy(..) => unreachable!("it is no command of one unit"),
        }
    }

    /// Gives a command, and again as often as it is deferred.
    fn give(&mut self, nexus: u64, task: Task) -> Reply {
        self.given += 1;
        let at = |milliseconds| Instant::ZERO + Duration::from_millis(milliseconds);
        let mut progress = self.world.begin_at(NexusId(nexus), task, at(self.now_ms));
        while let Progress::Deferred(submission, delay) = progress {
            self.now_ms += delay.as_millis() as u64;
            progress = self.world.units.begin(NexusId(nexus), *submission, &self.world.memory, at(self.now_ms));
        }
        self.world.finish(progress)
    }

    /// Asks for the token that was made of these blocks.
    fn take_token(&mut self, at: usize, nexus: u64, map: Vec<u64>) {
        let (foreseen, _) = self.foresee(at, nexus, Deed::Ask, (0, 0));
        let reply = self.give(nexus, self.task(at, Deed::Ask, (0, 0), (0, 0)));
        assert_eq!(outcome(&reply), foreseen.err(), "the token of unit {at} for {nexus}");
        if foreseen.is_ok() {
            let bytes = reply.data_in.map_or(Vec::new(), |data| data.to_vec())[38..].try_into().unwrap();
            let content = map.iter().map(|block| self.content[*block as usize]).collect();
            self.tokens.push(Token { bytes, nexus, unit: at, map, content, is_valid: true });
        }
    }

    /// Writes to blocks of the root: what stands for one of them ends.
    fn change(&mut self, blocks: &[u64], bytes: &[u8]) {
        blocks.iter().zip(bytes).for_each(|(block, byte)| self.content[*block as usize] = *byte);
        let is_changed = |token: &Token| token.map.iter().any(|block| blocks.contains(block));
        self.tokens.iter_mut().filter(|token| is_changed(token)).for_each(|token| token.is_valid = false);
    }

    fn check_content(&self) {
        assert_eq!(self.world.store.bytes(0, BLOCKS as usize * 512), blocks(&self.content));
    }
}

/// How a command was not done.
fn outcome(reply: &Reply) -> Option<Undone> {
    match reply.status {
        Status::Good => None,
        Status::Busy => Some(Undone::Busy),
        Status::ReservationConflict => Some(Undone::Conflict),
        // Of a list there is only one segment.
        _ => Some(Undone::Refused(Sense { segment: None, ..sense(reply) })),
    }
}

/// VERIFY (16), of what the medium holds.
fn verify(number: u16, extent: Extent) -> Task {
    let mut cdb = [0; 16];
    cdb[0] = 0x8f;
    on(number, sanwire_scsi::Cdb::from(cdb).with_extent(extent).unwrap(), &[])
}

/// How many trees each quarter of the test makes.
const CASES: u32 = 6000;
/// So many commands come of them, at least: a million by all quarters.
const COMMANDS_MIN: u64 = 250_000;

/// How often there is all of that: more in the long form.
fn times() -> u32 {
    std::env::var("SANWIRE_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// A unit, a nexus, what it does there, and to which blocks.
type Step = (usize, u64, Deed, u64, u32);

/// Gives how many commands there were.
fn compare(plans: &[Plan], steps: &[Step]) -> u64 {
    let mut twins = Twins::new(plans);
    for some in steps.chunks(CHECK_COMMANDS) {
        for (at, nexus, deed, lba, count) in some {
            twins.run(at % twins.units.len(), *nexus, *deed, (*lba, *count));
        }
        twins.check_content();
    }
    twins.given
}

fn compare_a_quarter() {
    let step = (0..8_usize, 0..NEXUSES, deed(), 0..30_u64, 1..9_u32);
    let trees = (prop::collection::vec(plan(), 1..6), prop::collection::vec(step, 1..100));
    let config = ProptestConfig { source_file: Some(file!()), ..ProptestConfig::with_cases(CASES * times()) };
    let mut runner = TestRunner::new(config);
    let given = Cell::new(0);
    let compared = runner.run(&trees, |(plans, steps)| {
        given.set(given.get() + compare(&plans, &steps));
        Ok(())
    });
    if let Err(error) = compared {
        panic!("{error}\n{runner}");
    }
    let least = COMMANDS_MIN * u64::from(times());
    assert!(given.get() >= least, "{} commands, {least} were wanted: make more trees", given.get());
}

/// The same test of other random trees, so often: they run side by side.
macro_rules! quarters {
    ($($quarter:ident)*) => {
        /// What the model allows is done to these blocks and to no others; what it forbids is refused as it says.
        mod nothing_passes_that_the_model_forbids_and_nothing_is_refused_that_it_allows {
            use super::compare_a_quarter;

            $(
                #[test]
                fn $quarter() {
                    compare_a_quarter();
                }
            )*
        }
    };
}

quarters! { first second third fourth }
