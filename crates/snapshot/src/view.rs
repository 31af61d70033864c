//! Where the blocks of one volume are: the stores of its layers, and the index of its blocks.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::format::{GROUP_BLOCKS, Layout};
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
    /// To be loaded after the index was asked: each slot that is found there has its place here by then.
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
}

impl View {
    pub(crate) fn block_bytes(&self) -> u32 {
        self.block_bytes as u32
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
        let table = Table { slots, top: Top::new(top, map, losses), top_slot: layers.len() as u32 };
        Ok(View { block_bytes: block_bytes.into(), index, table: ArcSwap::from_pointee(table) })
    }

    /// The first part of a range.
    pub(crate) fn piece(&self, offset_bytes: u64, length_bytes: u64) -> Piece {
        let (slot, blocks) = self.index.run(offset_bytes / self.block_bytes, length_bytes / self.block_bytes);
        let source = self.table.load().slots.get(slot as usize).cloned();
        let reach_bytes = source.as_ref().map_or(0, |source| source.reach_bytes(offset_bytes));
        let run_bytes = (blocks * self.block_bytes).min(length_bytes);
        match source {
            Some(source) if reach_bytes > 0 => {
                Piece { source: Some(source), offset_bytes, length_bytes: run_bytes.min(reach_bytes) }
            }
            _ => Piece { source: None, offset_bytes, length_bytes: run_bytes },
        }
    }

    /// All parts of a range.
    pub(crate) fn pieces(&self, offset_bytes: u64, length_bytes: u64) -> Vec<Piece> {
        let (mut pieces, end_bytes) = (Vec::new(), offset_bytes + length_bytes);
        let mut next = offset_bytes;
        while next < end_bytes {
            let piece = self.piece(next, end_bytes - next);
            next += piece.length_bytes;
            pieces.push(piece);
        }
        pieces
    }

    /// The top has these bytes, in this slot: they were written since there were so many losses. `false`: they may be among what was
    /// lost, so nobody may count on them.
    #[must_use]
    pub(crate) fn mark(&self, (top, slot): (&Top, u32), losses: u64, offset_bytes: u64, length_bytes: u64) -> bool {
        let Some(map) = &top.map else { return true };
        let (first, count) = (offset_bytes / self.block_bytes, length_bytes / self.block_bytes);
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
