//! The model: which blocks each unit has, who finds it, and what its programs make of a command.

use std::collections::BTreeMap;

use crate::harness::Random;

pub(super) const BLOCK_BYTES: usize = 512;
pub(super) const DISK_BLOCKS: usize = 2048;

/// How many units are derived from the disk, and from each other.
const DERIVED: usize = 8;
const DEPTH_MAX: usize = 3;
/// Shorter ones have all of what they are derived from.
const BLOCKS_MIN: usize = 64;

/// What is known of who comes by a way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) scheme: &'static str,
    /// Which of the keys he has.
    pub(super) key: Option<usize>,
    /// As which of the CHAP users he logs in.
    pub(super) user: Option<usize>,
    /// Which of the names he says.
    pub(super) initiator: Option<usize>,
    /// Which of the stations sends his frames, where the wire shows that.
    pub(super) station: Option<usize>,
}

impl Way {
    /// Whether it has an address of IP, which is the same for all of these.
    fn is_ip(&self) -> bool {
        !matches!(self.scheme, "hs+eth" | "hdsp" | "aoe")
    }
}

/// A rule that says who may use a unit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Principal {
    Any,
    Key(usize),
    User(usize),
    /// The first of the names.
    Initiator,
    Station(usize),
    /// Where the client's host is.
    Address,
    /// Where nobody is.
    OtherNetwork,
}

impl Principal {
    /// As often as they are taken: wires on which little is known of anybody have their units by the first one.
    const ALL: [Principal; 11] = [
        Principal::Any,
        Principal::Any,
        Principal::Key(0),
        Principal::Key(1),
        Principal::User(0),
        Principal::User(1),
        Principal::Initiator,
        Principal::Station(0),
        Principal::Station(1),
        Principal::Address,
        Principal::OtherNetwork,
    ];

    fn names(self, way: &Way) -> bool {
        match self {
            Principal::Any => true,
            Principal::Key(key) => way.key == Some(key),
            Principal::User(user) => way.user == Some(user),
            Principal::Initiator => way.initiator == Some(0),
            Principal::Station(station) => way.station == Some(station),
            Principal::Address => way.is_ip(),
            Principal::OtherNetwork => false,
        }
    }
}

/// What is done with blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Deed {
    Read,
    Write,
    Discard,
}

/// What a unit's program does, by the numbers of its unit.
#[derive(Clone, Copy, Debug)]
pub(super) enum Program {
    None,
    /// Refuses what reaches beyond so many blocks.
    RefuseBeyond(usize),
    /// Moves reads and writes so many blocks behind.
    Move(usize),
}

impl Program {
    /// The module. It lets flushes through, which are about all blocks.
    pub(super) fn text(self) -> Option<String> {
        // The header: command at 1024, answer at 2048. In the command the LBA is at 40 and the count at 48, in the answer the LBA at 8.
        const TEXT: &str = r#"(module
          (memory (export "memory") 1)
          (global (export "sanwire_abi_1") i32 (i32.const 0))
          (data (i32.const 0)
            "\00\04\00\00" "\00\08\00\00"
            "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00" "\00\00\00\00\00\00\00\00"
            "CLASSES\00\00\00" "\00\00\00\00\00\00\00\00\00\00\00\00")
          (func (export "judge") (result i32)
            (local $code i32)
            (local.set $code (i32.load8_u offset=1032 (i32.const 0)))
            (if (i32.or (i32.eq (local.get $code) (i32.const 0x35)) (i32.eq (local.get $code) (i32.const 0x91)))
              (then (return (i32.const 1))))
            VERDICT))"#;
        const LBA: &str = "(i64.load offset=1064 (i32.const 0))";
        const COUNT: &str = "(i64.load offset=1072 (i32.const 0))";
        let (classes, verdict) = match self {
            Program::None => return None,
            Program::RefuseBeyond(end) => {
                let is_beyond = format!("(i64.gt_u (i64.add {LBA} {COUNT}) (i64.const {end}))");
                // Read, write and discard.
                ("\\0e", format!("(if (result i32) {is_beyond} (then (i32.const 2)) (else (i32.const 1)))"))
            }
            Program::Move(by) => {
                let lba = format!("(i64.add {LBA} (i64.const {by}))");
                // Read and write.
                ("\\06", format!("(i64.store offset=2056 (i32.const 0) {lba}) (i32.const 3)"))
            }
        };
        Some(TEXT.replace("CLASSES", classes).replace("VERDICT", &verdict))
    }
}

/// Blocks: from where on, and how many.
pub(super) type Blocks = (usize, usize);

#[derive(Debug)]
pub(super) struct Unit {
    pub(super) parent: usize,
    /// What it has of its parent, in this order.
    pub(super) regions: Vec<Blocks>,
    /// What of all that can be done may be done with it: this, and what comes before it.
    pub(super) most: Deed,
    pub(super) principals: Vec<Principal>,
    pub(super) program: Program,
    is_revoked: bool,
    depth: usize,
    /// Which blocks of the disk it has, by its own numbers.
    map: Vec<usize>,
    /// Its own numbers of these.
    numbers: BTreeMap<usize, usize>,
}

impl Unit {
    pub(super) fn blocks(&self) -> usize {
        self.map.len()
    }

    fn of_map(map: Vec<usize>) -> Unit {
        Unit {
            parent: 0,
            regions: Vec::new(),
            most: Deed::Discard,
            principals: vec![Principal::Any],
            program: Program::None,
            is_revoked: false,
            depth: 0,
            numbers: map.iter().copied().zip(0..).collect(),
            map,
        }
    }

    fn derive((parent, of_parent): (usize, &Unit), random: &mut Random) -> Unit {
        let regions = regions(of_parent.blocks(), random);
        let map = regions.iter().flat_map(|(from, count)| &of_parent.map[*from..from + count]).copied().collect();
        let unit = Unit::of_map(map);
        let most = [Deed::Read, Deed::Write, Deed::Discard, Deed::Discard][below(random, 4)];
        let program = match below(random, 5) {
            0 => Program::RefuseBeyond(below(random, unit.blocks())),
            1 => Program::Move(below(random, 12)),
            _ => Program::None,
        };
        Unit {
            parent,
            regions,
            most: most.min(of_parent.most),
            principals: (0..2 + below(random, 3))
                .map(|_| Principal::ALL[below(random, Principal::ALL.len())])
                .collect(),
            program,
            depth: of_parent.depth + 1,
            ..unit
        }
    }
}

/// The disk, and what is derived from it. Parents come before their children.
#[derive(Debug)]
pub(super) struct Tree(Vec<Unit>);

impl Tree {
    pub(super) fn new(random: &mut Random) -> Tree {
        let mut units = vec![Unit::of_map((0..DISK_BLOCKS).collect())];
        for _ in 0..DERIVED {
            let parents: Vec<usize> = (0..units.len()).filter(|at| units[*at].depth < DEPTH_MAX).collect();
            let parent = parents[below(random, parents.len())];
            units.push(Unit::derive((parent, &units[parent]), random));
        }
        Tree(units)
    }

    pub(super) fn units(&self) -> &[Unit] {
        &self.0
    }

    /// Whether who comes by this way finds the unit: rules of all units on which it stands name him, and it is not revoked.
    pub(super) fn admits(&self, at: usize, way: &Way) -> bool {
        let is_named = |at: usize| self.0[at].principals.iter().any(|principal| principal.names(way));
        !self.is_revoked(at) && self.line(at).all(is_named)
    }

    /// Ends a unit, and what is derived from it.
    pub(super) fn revoke(&mut self, at: usize) {
        self.0[at].is_revoked = true;
    }

    pub(super) fn is_revoked(&self, at: usize) -> bool {
        self.line(at).any(|at| self.0[at].is_revoked)
    }

    /// The blocks of the disk with which it is done, as long as the unit is not revoked; `None`: it is refused.
    pub(super) fn judge(&self, at: usize, deed: Deed, (mut lba, count): Blocks) -> Option<&[usize]> {
        if deed > self.0[at].most {
            return None;
        }
        for judge in self.line(at) {
            let pieces = self.pieces(judge, at, (lba, count));
            match self.0[judge].program {
                Program::RefuseBeyond(end) if pieces.iter().any(|(lba, count)| lba + count > end) => return None,
                Program::Move(by) if deed != Deed::Discard => {
                    // What lies in several pieces there cannot be moved.
                    let [(piece, _)] = pieces[..] else { return None };
                    lba = self.back(judge, at, (piece + by, count))?;
                }
                _ => {}
            }
        }
        self.0[at].map.get(lba..lba + count)
    }

    /// The unit, and those on which it stands.
    fn line(&self, at: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(at), |at| (*at != 0).then(|| self.0[*at].parent))
    }

    /// Where blocks of a unit lie in one on which it stands.
    fn pieces(&self, judge: usize, at: usize, (lba, count): Blocks) -> Vec<Blocks> {
        let mut pieces: Vec<Blocks> = Vec::new();
        for place in &self.0[at].map[lba..lba + count] {
            let number = self.0[judge].numbers[place];
            match pieces.last_mut().filter(|(from, count)| from + count == number) {
                Some((_, count)) => *count += 1,
                None => pieces.push((number, 1)),
            }
        }
        pieces
    }

    /// The first number in a unit of blocks of one on which it stands, if it has them all one after the other.
    fn back(&self, judge: usize, at: usize, (lba, count): Blocks) -> Option<usize> {
        let places = self.0[judge].map.get(lba..lba + count)?;
        let own = &self.0[at];
        let first = *own.numbers.get(places.first()?)?;
        (own.map.get(first..first + count)? == places).then_some(first)
    }
}

/// Up to six parts of so many blocks, in any order.
fn regions(blocks: usize, random: &mut Random) -> Vec<Blocks> {
    let mut cuts: Vec<usize> = (0..7).map(|_| below(random, blocks + 1)).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut regions: Vec<Blocks> = cuts.windows(2).map(|cut| (cut[0], cut[1] - cut[0])).collect();
    regions.retain(|_| below(random, 3) > 0);
    if regions.iter().map(|(_, count)| count).sum::<usize>() < BLOCKS_MIN {
        return vec![(0, blocks)];
    }
    for at in (1..regions.len()).rev() {
        regions.swap(at, below(random, at + 1));
    }
    regions
}

pub(super) fn below(random: &mut Random, limit: usize) -> usize {
    random.below(limit as u64) as usize
}
