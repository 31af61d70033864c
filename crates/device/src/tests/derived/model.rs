//! Units that are derived from each other in any way, compared with a model that knows for each which blocks it has, what may be done with
//! them, and by whom; and what tokens of their blocks stand for.

use std::sync::Arc;

use proptest::prelude::*;
use sanwire_core::{NexusId, Principal};
use sanwire_scsi::{AdditionalSense, Extent, OperationClasses, Sense, SenseKey, Status, Task, build, unmap_parameters};
use sanwire_store::Geometry;

use super::super::tokens::{Bytes, CANCELLED, INFORMATION, UNKNOWN, ask, populate, write_using};
use super::{DENIED, NOT_THERE, OUT_OF_RANGE, PROTECTED, blocks, of, on, read, write};
use crate::testing::{SMALL, World, lun, ports, sense};
use crate::{Admission, AllowedOperations, Derivation, NexusPorts};

const BLOCKS: u64 = 48;
const NEXUSES: u64 = 3;
const NO_SUCH_OPERATION: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::INVALID_COMMAND_OPERATION_CODE);

/// Admits the nexuses whose bit is set.
#[derive(Debug)]
struct Bits(u8);

impl Admission for Bits {
    fn admits(&self, principal: &Principal) -> bool {
        let number = principal.chap_user.as_deref().and_then(|name| name.parse::<u32>().ok());
        number.is_some_and(|number| self.0 & 1 << number != 0)
    }
}

/// How a unit is derived: from which of those before it, cut at these places, with these classes, for these nexuses.
#[derive(Clone, Debug)]
struct Plan {
    parent: usize,
    cuts: Vec<u64>,
    classes: OperationClasses,
    admitted: u8,
}

#[derive(Clone, Debug)]
enum Deed {
    Read,
    Write(u8),
    Same(u8, bool),
    Unmap,
    /// Of one block, from what is there or not.
    Swap(bool, u8),
    Verify,
    Revoke,
    /// Has a token made of the blocks.
    Populate,
    /// Writes one of the tokens from the first of the blocks on, if there is any.
    Use(usize),
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
    admitted: u8,
    is_revoked: bool,
}

struct Twins {
    world: World,
    units: Vec<Unit>,
    content: Vec<u8>,
    tokens: Vec<Token>,
}

impl Twins {
    fn new(plans: &[Plan]) -> Twins {
        let world = World::new(Geometry { length_bytes: BLOCKS * 512, ..SMALL }, true);
        let root = Unit {
            number: 0,
            parent: 0,
            map: (0..BLOCKS).collect(),
            classes: OperationClasses::ALL,
            admitted: u8::MAX,
            is_revoked: false,
        };
        let mut twins = Twins { world, units: vec![root], content: vec![0; BLOCKS as usize], tokens: Vec::new() };
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
        let copies = OperationClasses::COPY_SOURCE | OperationClasses::COPY_TARGET;
        let all = OperationClasses::READ | OperationClasses::WRITE | OperationClasses::DISCARD | copies;
        let of_parent = if parent.number == 0 { all } else { parent.classes };
        let classes = OperationClasses::from_bits(plan.classes.bits() & of_parent.bits());
        let derivation = Derivation {
            operations: AllowedOperations::of(classes),
            admission: Some(Arc::new(Bits(plan.admitted))),
            ..of(&extents)
        };
        let unit = Unit {
            number: self.units.len() as u16,
            parent: plan.parent % self.units.len(),
            map: map.collect(),
            classes,
            admitted: plan.admitted & parent.admitted,
            is_revoked: parent.is_revoked,
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

    fn run(&mut self, at: usize, nexus: u64, deed: &Deed, (lba, count): (u64, u32)) {
        if let Deed::Use(which) = *deed {
            return self.use_token(at, nexus, which, lba);
        }
        let unit = &self.units[at];
        let number = unit.number;
        let extent = Extent { lba, blocks: count };
        let touched = unit.map.get(lba as usize..(lba + u64::from(count)) as usize).map(<[u64]>::to_vec);
        let there = touched.as_ref().and_then(|touched| Some(self.content[*touched.first()? as usize]));
        let task = match *deed {
            Deed::Read => read(number, lba, count),
            Deed::Write(seed) => write(number, lba, &blocks(&vec![seed; count as usize])),
            Deed::Same(seed, unmap) => on(number, build::write_same_16(extent, unmap, false), &blocks(&[seed])),
            Deed::Unmap => {
                let list = unmap_parameters(&[extent]).unwrap();
                on(number, build::unmap(list.len() as u16), &list)
            }
            Deed::Swap(is_right, seed) => {
                let before = there.unwrap_or(0).wrapping_add(u8::from(!is_right));
                on(number, super::swap(lba), &blocks(&[before, seed]))
            }
            Deed::Verify => verify(number, extent),
            Deed::Populate => populate(TOKEN_ID, number, &[(lba, count)]),
            Deed::Use(_) => unreachable!("it is done elsewhere"),
            Deed::Revoke => return self.revoke(at),
        };
        let reply = self.world.run_task(NexusId(nexus), task);
        let refused = self.refused(at, nexus, deed, touched.is_some());
        let found = (reply.status != Status::Good).then(|| sense(&reply));
        if let Some(refused) = refused {
            return assert_eq!(found, Some(refused), "{deed:?} of unit {at}");
        }
        let touched = touched.unwrap();
        match *deed {
            Deed::Swap(false, _) => return assert_eq!(found.map(|sense| sense.key), Some(SenseKey::Miscompare)),
            _ => assert_eq!(found, None, "{deed:?} of unit {at}"),
        }
        let expected: Vec<u8> = touched.iter().map(|block| self.content[*block as usize]).collect();
        let becomes = match *deed {
            Deed::Read => {
                assert_eq!(reply.data_in.map_or(Vec::new(), |data| data.to_vec()), blocks(&expected));
                return;
            }
            Deed::Write(seed) | Deed::Same(seed, _) | Deed::Swap(_, seed) => seed,
            Deed::Unmap => 0,
            Deed::Populate => {
                let told = self.world.run_task(NexusId(nexus), ask(INFORMATION, TOKEN_ID, number, 1024));
                let told = told.data_in.map_or(Vec::new(), |data| data.to_vec());
                let bytes = told[38..].try_into().unwrap();
                let token = Token { bytes, nexus, unit: at, map: touched, content: expected, is_valid: true };
                return self.tokens.push(token);
            }
            Deed::Verify | Deed::Revoke | Deed::Use(_) => return,
        };
        self.change(&touched, &vec![becomes; touched.len()]);
    }

    /// Writes to blocks of the root: what stands for one of them ends.
    fn change(&mut self, blocks: &[u64], bytes: &[u8]) {
        blocks.iter().zip(bytes).for_each(|(block, byte)| self.content[*block as usize] = *byte);
        let is_changed = |token: &Token| token.map.iter().any(|block| blocks.contains(block));
        self.tokens.iter_mut().filter(|token| is_changed(token)).for_each(|token| token.is_valid = false);
    }

    fn use_token(&mut self, at: usize, nexus: u64, which: usize, lba: u64) {
        if self.tokens.is_empty() {
            return;
        }
        let token = &self.tokens[which % self.tokens.len()];
        let unit = &self.units[at];
        let count = token.map.len();
        let touched = unit.map.get(lba as usize..lba as usize + count).map(<[u64]>::to_vec);
        let creator = &self.units[token.unit];
        let finds_creator = !creator.is_revoked && creator.admitted & 1 << nexus != 0;
        let illegal = |additional| Some(Sense::new(SenseKey::IllegalRequest, additional));
        let refused = self.refused(at, nexus, &Deed::Use(which), touched.is_some()).or_else(|| match () {
            () if !finds_creator => illegal(AdditionalSense::REMOTE_TOKEN_USAGE_NOT_SUPPORTED),
            () if token.nexus != nexus => Some(UNKNOWN),
            () if !token.is_valid => Some(CANCELLED),
            () if touched.iter().flatten().any(|block| token.map.contains(block)) => {
                illegal(AdditionalSense::INVALID_OPERATION_FOR_COPY_SOURCE_OR_DESTINATION)
            }
            () => None,
        });
        let task = write_using(&token.bytes, (0, TOKEN_ID), unit.number, (0, &[(lba, count as u32)]));
        let reply = self.world.run_task(NexusId(nexus), task);
        let found = (reply.status != Status::Good).then(|| sense(&reply));
        assert_eq!(found, refused, "the token of unit {} at unit {at}", token.unit);
        if refused.is_none() {
            let content = token.content.clone();
            self.change(&touched.unwrap(), &content);
        }
    }

    /// How the model refuses a command.
    fn refused(&self, at: usize, nexus: u64, deed: &Deed, is_within: bool) -> Option<Sense> {
        let (read, write, discard) = (OperationClasses::READ, OperationClasses::WRITE, OperationClasses::DISCARD);
        let unit = &self.units[at];
        if unit.is_revoked || unit.admitted & 1 << nexus == 0 {
            return Some(NOT_THERE);
        }
        let needed = match deed {
            Deed::Read | Deed::Verify => read,
            Deed::Write(_) | Deed::Same(_, false) => write,
            Deed::Same(_, true) => write | discard,
            Deed::Swap(..) => read | write,
            Deed::Unmap if !discard.is_subset_of(unit.classes) => return Some(NO_SUCH_OPERATION),
            Deed::Unmap | Deed::Revoke => discard,
            Deed::Populate => OperationClasses::COPY_SOURCE,
            Deed::Use(_) => OperationClasses::COPY_TARGET,
        };
        if !needed.is_subset_of(unit.classes) {
            let changes = write | discard | OperationClasses::COPY_TARGET;
            let is_protected = !unit.classes.intersects(changes) && needed.intersects(write | discard);
            return Some(if is_protected { PROTECTED } else { DENIED });
        }
        (!is_within).then_some(OUT_OF_RANGE)
    }

    fn check_content(&self) {
        assert_eq!(self.world.store.bytes(0, BLOCKS as usize * 512), blocks(&self.content));
    }
}

const TOKEN_ID: u32 = 0x0102_0304;

/// VERIFY (16), of what the medium holds.
fn verify(number: u16, extent: Extent) -> Task {
    let mut cdb = [0; 16];
    cdb[0] = 0x8f;
    on(number, sanwire_scsi::Cdb::from(cdb).with_extent(extent).unwrap(), &[])
}

fn plan() -> impl Strategy<Value = Plan> {
    let classes = prop::sample::select(vec![0xff_u8, 0xff, 0x02, 0x04, 0x06, 0x08, 0x0e, 0x42, 0x84, 0xc0]);
    (0..8_usize, prop::collection::vec(0..1000_u64, 2..8), classes, 1..8_u8).prop_map(
        |(parent, cuts, classes, admitted)| Plan {
            parent,
            cuts,
            classes: OperationClasses::from_bits(classes | 1),
            admitted,
        },
    )
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => Just(Deed::Read),
        6 => any::<u8>().prop_map(Deed::Write),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(seed, unmap)| Deed::Same(seed, unmap)),
        2 => Just(Deed::Unmap),
        2 => (any::<bool>(), any::<u8>()).prop_map(|(is_right, seed)| Deed::Swap(is_right, seed)),
        1 => Just(Deed::Verify),
        1 => Just(Deed::Revoke),
        4 => Just(Deed::Populate),
        6 => any::<usize>().prop_map(Deed::Use),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// What the model allows is done to these blocks and to no others; what it forbids is refused as it says.
    #[test]
    fn nothing_passes_that_the_model_forbids_and_nothing_is_refused_that_it_allows(
        plans in prop::collection::vec(plan(), 1..6),
        deeds in prop::collection::vec((0..8_usize, 0..NEXUSES, deed(), 0..30_u64, 1..9_u32), 1..80),
    ) {
        let mut twins = Twins::new(&plans);
        for (at, nexus, deed, lba, count) in &deeds {
            let count = if matches!(deed, Deed::Swap(..)) { 1 } else { *count };
            twins.run(at % twins.units.len(), *nexus, deed, (*lba, count));
            twins.check_content();
        }
    }
}
