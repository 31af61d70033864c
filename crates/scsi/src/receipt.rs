//! Answers of which it must be known that the initiator has them.
//!
//! An initiator that is told of a failed flush, and never hears it because its connection is lost, must be told again; and so must
//! one that gives its next flush before it hears it. Only the end of the protocol knows what its initiator had received when it gave
//! a command. So such an answer has a [`Receipt`]: the protocol numbers it when it sends the answer, and says with each command
//! ([`crate::Task::receipts`]) up to which number the initiator had the answers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// So many answers of a session may be on their way. Of a further one it is never known that it has arrived.
const PENDING_MAX: usize = 64;

/// The receipt of one answer, kept where it must be known that the answer has arrived.
#[derive(Clone, Default, Debug)]
pub struct Receipt(Arc<AtomicU64>);

impl Receipt {
    /// Whether the initiator had the answer when it gave a command with this [`crate::Task::receipts`]. An answer that was never sent
    /// is not had by anybody.
    #[must_use]
    pub fn is_among(&self, receipts: u64) -> bool {
        (1..=receipts).contains(&self.0.load(Ordering::Acquire))
    }

    fn set(&self, number: u64) {
        self.0.store(number, Ordering::Release);
    }
}

/// The receipts of one I_T nexus, at the server's end of its protocol. `Sent` says which answer it is, and what is known of it.
#[derive(Debug)]
pub struct Receipts<Sent> {
    issued: u64,
    pending: VecDeque<(u64, Receipt, Sent)>,
}

impl<Sent> Default for Receipts<Sent> {
    fn default() -> Self {
        Receipts { issued: 0, pending: VecDeque::new() }
    }
}

impl<Sent> Receipts<Sent> {
    /// Whether no more may be on their way.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.pending.len() >= PENDING_MAX
    }

    /// The answer with this receipt is sent: its number, which counts from 1, or 0 if it gets none.
    pub fn issue(&mut self, receipt: Receipt, sent: Sent) -> u64 {
        if self.is_full() {
            return 0;
        }
        self.issued += 1;
        receipt.set(self.issued);
        self.pending.push_back((self.issued, receipt, sent));
        self.issued
    }

    /// How many were issued.
    #[must_use]
    pub fn issued(&self) -> u64 {
        self.issued
    }

    /// Up to which number the initiator has all answers of which this is true.
    pub fn received(&self, has_arrived: impl Fn(&Sent) -> bool) -> u64 {
        let missing = self.pending.iter().find(|(_, _, sent)| !has_arrived(sent));
        missing.map_or(self.issued, |(number, ..)| number - 1)
    }

    /// What is known of the answers that were sent.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Sent> {
        self.pending.iter_mut().map(|(_, _, sent)| sent)
    }

    /// Forgets those for which this is false: any command that comes from now on was given after they had arrived.
    pub fn retain(&mut self, is_wanted: impl Fn(&Sent) -> bool) {
        self.pending.retain(|(_, _, sent)| is_wanted(sent));
    }

    /// These never arrive.
    pub fn lose(&mut self, is_lost: impl Fn(&Sent) -> bool) {
        self.pending.retain(|(_, receipt, sent)| {
            let is_lost = is_lost(sent);
            if is_lost {
                receipt.set(u64::MAX);
            }
            !is_lost
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receipt_is_had_when_it_and_all_before_it_are() {
        let mut receipts = Receipts::default();
        let all: Vec<Receipt> = (0..3).map(|_| Receipt::default()).collect();
        let numbers: Vec<u64> =
            all.iter().zip(0..).map(|(receipt, sent)| receipts.issue(receipt.clone(), sent)).collect();
        assert_eq!(numbers, [1, 2, 3]);
        assert_eq!(receipts.received(|sent| *sent != 1), 1);
        assert_eq!([1, 2, 3].map(|had| all[1].is_among(had)), [false, true, true]);
        receipts.lose(|sent| *sent == 1);
        assert_eq!((receipts.received(|_| true), receipts.received(|sent| *sent == 0)), (3, 2));
        assert!(!all[1].is_among(3) && all[2].is_among(3));
        receipts.retain(|_| false);
        assert_eq!(receipts.received(|_| false), 3);
    }

    #[test]
    fn an_answer_that_was_not_sent_or_is_one_too_many_is_not_had() {
        let mut receipts = Receipts::default();
        let (unsent, last) = (Receipt::default(), Receipt::default());
        assert!((1..=PENDING_MAX as u64).all(|number| receipts.issue(Receipt::default(), ()) == number));
        assert_eq!(receipts.issue(last.clone(), ()), 0);
        assert!(!unsent.is_among(u64::MAX - 1) && !last.is_among(u64::MAX - 1));
        assert_eq!((receipts.received(|()| false), receipts.issued()), (0, 64));
    }
}
