//! The questions of a link that may still be answered: each answer tells a round trip.

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_core::Instant;

/// Older ones are not waited for.
const KEPT_MAX: usize = 8;

/// The last questions, at which place among the transmissions of the link each, and when.
#[derive(Debug, Default)]
pub(super) struct Queries(VecDeque<(u64, Instant)>);

impl Queries {
    /// The place of the question that is asked at this moment, if it is asked already.
    pub(super) fn asked_at(&self, now: Instant) -> Option<u64> {
        self.0.back().filter(|(_, at)| *at == now).map(|(order, _)| *order)
    }

    pub(super) fn ask(&mut self, order: u64, now: Instant) {
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back((order, now));
    }

    /// One is answered: how long ago it was asked. Its other copies say nothing more, those before it nothing new.
    pub(super) fn answered(&mut self, order: u64, now: Instant) -> Option<Duration> {
        let place = self.0.iter().position(|(asked, _)| *asked == order)?;
        let (_, at) = self.0.drain(..=place).next_back()?;
        Some(now.saturating_since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_tells_the_round_trip_of_its_own_question_once() {
        let ms = |ms| Instant::ZERO + Duration::from_millis(ms);
        let mut queries = Queries::default();
        [(5, 0), (9, 10), (12, 30)].into_iter().for_each(|(order, at)| queries.ask(order, ms(at)));
        assert_eq!((queries.asked_at(ms(30)), queries.asked_at(ms(31))), (Some(12), None));
        assert_eq!(queries.answered(9, ms(33)), Some(Duration::from_millis(23)));
        assert_eq!((queries.answered(9, ms(34)), queries.answered(5, ms(34))), (None, None));
        assert_eq!(queries.answered(12, ms(34)), Some(Duration::from_millis(4)));
    }
}
