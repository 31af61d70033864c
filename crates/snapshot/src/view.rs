//! Where the blocks of one volume are: the stores of its layers, and the index of its blocks.

use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;

use crate::format::{Bits, GROUP_BLOCKS, Layout};
use crate::index::Index;
use crate::layer::{Perform, Source, Top};
use crate::losses::Losses;
use crate::map::Map;
use crate::{LayerId, SnapshotError};

/// What one volume is made of. A rollback makes another one.
#[derive(Debug)]
pub(crate) struct View {
    block_bytes: u64,
    pub(crate) index: Index,
    /// To be loaded before the index is asked: a slot that has no place here is of a layer that has begun since.
    pub(crate) table: ArcSwap<Table>,
}

/// The stores by their slots.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The base is the first. Slots of layers that have been merged have the store where their blocks are now.
    pub(crate) slots: Vec<Arc<Source>>,
    pub(crate) top: Arc<Top>,
    /// What the top has this slot.
    pub(crate) top_slot: u32,
    /// As long as somebody has it, requests may be under way for blocks that have been moved since.
    pub(crate) epoch: Arc<()>,
}

/// Part of a range: bytes that lie side by side in one store.
#[derive(Debug)]
pub(crate) struct Piece {
    /// `None`: they are zeroes, and nowhere.
    pub(crate) source: Option<Arc<Source>>,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
}

impl Table {
    /// The same when the blocks of a layer are in another one.
    pub(crate) fn with(&self, upper: LayerId, lower: &Arc<Source>) -> Table {
        let place = |source: &Arc<Source>| Arc::clone(if source.id == upper { lower } else { source });
        Table { slots: self.slots.iter().map(place).collect(), ..self.clone() }
    }

    /// The slots of a layer.
    fn of(&self, layer: LayerId) -> impl Iterator<Item = u32> {
        (0u32..).zip(&self.slots).filter(move |(_, source)| source.id == layer).map(|(slot, _)| slot)
    }
}

impl View {
    pub(crate) fn block_bytes(&self) -> u32 {
        self.block_bytes as u32
    }

    /// The volume has this length now.
    pub(crate) fn grow(&self, length_bytes: u64) {
        self.index.grow(Layout::new(self.block_bytes()).groups(length_bytes));
    }

    /// The first block of a range of bytes, and how many there are.
    pub(crate) fn blocks(&self, (offset_bytes, length_bytes): (u64, u64)) -> (u64, u64) {
        (offset_bytes / self.block_bytes, length_bytes / self.block_bytes)
    }

    /// A volume of these layers over a base; the last one is written, or the base where there is none.
    pub(crate) fn open(
        base: Arc<Source>,
        layers: &[Arc<Source>],
        block_bytes: u32,
        losses: &Arc<Losses>,
        perform: Perform<'_>,
    ) -> Result<Self, SnapshotError> {
        let mut slots = vec![base];
        slots.extend(layers.iter().cloned());
        let top = slots.last().map_or_else(|| unreachable!("the base is one"), Arc::clone);
        let groups = Layout::new(block_bytes).groups(top.length_bytes());
        let index = Index::new(block_bytes, groups);
        let mut kept = Vec::new();
        for (slot, source) in (0u32..).zip(&slots) {
            let is_top = slot as usize == layers.len();
            source.read_maps(perform, |group, bits| {
                let first = u64::from(group) * GROUP_BLOCKS;
                bits.runs().for_each(|(block, count)| index.mark(first + u64::from(block), count.into(), slot));
                if is_top {
                    kept.push((group, bits));
                }
            })?;
        }
        let map = top.layout.is_some().then(|| Map::new(kept));
        let top = Top::new(top, map, losses);
        let table = Table { slots, top, top_slot: layers.len() as u32, epoch: Arc::default() };
        Ok(View { block_bytes: block_bytes.into(), index, table: ArcSwap::from_pointee(table) })
    }

    /// The first part of a range. It stays where it is as long as its table is there.
    pub(crate) fn piece(&self, offset_bytes: u64, length_bytes: u64) -> (Arc<Table>, Piece) {
        loop {
            // The table first: what is moved from now on, is moved back by nobody who has it.
            let table = self.table.load_full();
            if let Some(piece) = self.piece_by(&table, offset_bytes, length_bytes) {
                return (table, piece);
            }
        }
    }

    /// All parts of a range.
    pub(crate) fn pieces(&self, offset_bytes: u64, length_bytes: u64) -> (Arc<Table>, Vec<Piece>) {
        loop {
            let table = self.table.load_full();
            let (mut pieces, end_bytes, mut next) = (Vec::new(), offset_bytes + length_bytes, offset_bytes);
            while let Some(piece) = self.piece_by(&table, next, end_bytes - next) {
                next += piece.length_bytes;
                pieces.push(piece);
                if next == end_bytes {
                    return (table, pieces);
                }
            }
        }
    }

    /// `None`: the table does not know of a layer that has begun since.
    fn piece_by(&self, table: &Table, offset_bytes: u64, length_bytes: u64) -> Option<Piece> {
        let (slot, blocks) = self.index.run(offset_bytes / self.block_bytes, length_bytes / self.block_bytes);
        let source = table.slots.get(slot as usize)?;
        let reach_bytes = source.reach_bytes(offset_bytes);
        let run_bytes = (blocks * self.block_bytes).min(length_bytes);
        Some(match reach_bytes {
            0 => Piece { source: None, offset_bytes, length_bytes: run_bytes },
            _ => Piece { source: Some(Arc::clone(source)), offset_bytes, length_bytes: run_bytes.min(reach_bytes) },
        })
    }

    /// Whether a layer is one of them.
    pub(crate) fn has(&self, layer: LayerId) -> bool {
        self.table.load().of(layer).next().is_some()
    }

    /// Blocks of one layer are in another one, too, and are looked for there from now on. As long as what this gives is there, somebody
    /// may still be reading the former.
    pub(crate) fn move_to(&self, (upper, lower): (LayerId, LayerId), moved: &[(u32, Bits)]) -> Option<Weak<()>> {
        let table = self.table.load_full();
        let to = table.of(lower).next()?;
        for from in table.of(upper) {
            for (group, bits) in moved {
                let first = u64::from(*group) * GROUP_BLOCKS;
                bits.runs().for_each(|(block, count)| {
                    self.index.move_to(first + u64::from(block), count.into(), (from, to));
                });
            }
        }
        let epoch = Arc::downgrade(&table.epoch);
        self.table.store(Arc::new(Table { epoch: Arc::default(), ..Table::clone(&table) }));
        Some(epoch)
    }

    /// The same for a view that is not used any more.
    pub(crate) fn epoch(&self) -> Weak<()> {
        Arc::downgrade(&self.table.load().epoch)
    }

    /// The top has these bytes, in this slot: they were written since there were so many losses. `false`: they may be among what was
    /// lost, so nobody may count on them.
    #[must_use]
    pub(crate) fn mark(&self, (top, slot): (&Top, u32), losses: u64, offset_bytes: u64, length_bytes: u64) -> bool {
        let Some(map) = &top.map else { return true };
        let (first, count) = self.blocks((offset_bytes, length_bytes));
        if count == 0 || !map.is_wary() && self.index.run(first, count) == (slot, count) {
            return top.losses.count() == losses;
        }
        // The map first: who finds the block here need not mark it.
        let is_kept = map.mark_kept(first, count, (&top.losses, losses));
        if is_kept {
            self.index.mark(first, count, slot);
        }
        is_kept
    }
}
