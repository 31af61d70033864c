//! Which second steps a client reads, and which servers it answers, when there are too many: each has a chance, so that a sender
//! that comes first, or most often, does not keep the genuine one out.

use sanwire_core::Instant;
use sanwire_core::quota::{Holder, Pace, Quota};

use crate::keys::Randomness;

/// Second steps that are read in any case after each discovery; of more, few are, but any of them may be.
const READ_SURELY: u64 = 16;

/// Third steps to servers whose key is not known: each gives an impostor one guess at the password.
const ANSWERS: Quota = Quota::per_second(Holder::Strangers, "third steps of a client", 2, 16);

/// As long as more than so many are left, every server is answered. Above that about one after each discovery is, in no order that a sender can influence.
const ANSWERS_AT_ONCE: u32 = 8;

/// Which of many are looked at, when nobody knows how many will come: of so many as have arrived each with the same chance, or nearly,
/// so that who comes first takes no place from who comes last. They are about 16 (1 + ln(n / 16)) of n.
#[derive(Default)]
pub(super) struct Sample(u64);

impl Sample {
    /// Whether the next one is looked at.
    pub(super) fn takes(&mut self, random: &mut Randomness) -> bool {
        self.0 += 1;
        self.0 <= READ_SURELY || random.u64() % self.0 < READ_SURELY
    }

    /// Whether perhaps not all were.
    pub(super) fn is_flooded(&self) -> bool {
        self.0 > READ_SURELY
    }
}

/// Whom a client answers of those who have made a second step.
pub(super) struct Answers {
    pace: Pace,
    /// Who wanted one after the discovery before the last, and after the last, which was this one.
    wanted: [u64; 2],
    last: (u64, u32),
}

impl Default for Answers {
    fn default() -> Self {
        Answers { pace: Pace::new(&ANSWERS), wanted: [0; 2], last: (0, 0) }
    }
}

impl Answers {
    /// Whether a server that has made a second step after this discovery is answered.
    pub(super) fn may_have_one(&mut self, discovery: (u64, u32), random: &mut Randomness, now: Instant) -> bool {
        if self.last != discovery {
            (self.last, self.wanted) = (discovery, [self.wanted[1], 0]);
        }
        self.wanted[1] += 1;
        let [former, current] = self.wanted;
        let is_drawn = self.pace.left(now) > ANSWERS_AT_ONCE || random.u64().is_multiple_of(former.max(current));
        is_drawn && self.pace.take(now)
    }
}
