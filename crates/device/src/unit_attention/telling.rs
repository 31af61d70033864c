//! Answers that tell a nexus something, and whether it has heard one of them.

use std::collections::VecDeque;

use sanwire_scsi::Receipt;

/// So many answers are looked for: half of them the first ones, which are heard first, and half of them the last ones, for the first ones
/// may be lost.
const TOLD_MAX: usize = 64;

/// What a nexus was told, as often as it gave a command without having heard it.
#[derive(Default, Debug)]
pub(super) struct Telling(VecDeque<Receipt>);

impl Telling {
    /// Whether the nexus had one of the answers when it gave a command with these receipts.
    pub(super) fn is_heard(&self, receipts: u64) -> bool {
        self.0.iter().any(|told| told.is_among(receipts))
    }

    /// The receipt of one more answer.
    pub(super) fn tell(&mut self) -> Receipt {
        if self.0.len() == TOLD_MAX {
            self.0.remove(TOLD_MAX / 2);
        }
        let receipt = Receipt::default();
        self.0.push_back(receipt.clone());
        receipt
    }
}
