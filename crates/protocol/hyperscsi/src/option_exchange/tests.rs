//! Two ends that tell each other options, in any order.

use proptest::prelude::*;

use super::*;
use crate::options::{DesiredOptions, Stance};

const MS: Duration = Duration::from_millis(1);
const START: Instant = Instant::ZERO;

fn options(wishes: &DesiredOptions, protection_min: Protection) -> Options {
    wishes.options(protection_min).unwrap()
}

fn capped(cap: u64) -> Options {
    options(&DesiredOptions { rate_cap_bytes_per_second: Some(cap), ..DesiredOptions::default() }, Protection::Checksum)
}

fn guarded(protection_min: Protection) -> Options {
    options(&DesiredOptions::default(), protection_min)
}

fn transferring(bytes: u32) -> Options {
    options(&DesiredOptions { transfer_max_bytes: Some(bytes), ..DesiredOptions::default() }, Protection::Checksum)
}

/// An end that does without compression, or wants it at any price.
fn enforcing(compression: bool) -> Options {
    let compression = if compression { Stance::Enforced } else { Stance::Ignored };
    options(&DesiredOptions { compression, ..DesiredOptions::default() }, Protection::Checksum)
}

fn plain() -> OptionExchange {
    OptionExchange::new(guarded(Protection::Checksum), guarded(Protection::Checksum), 1 << 20).unwrap()
}

fn told(change: u32, options: Options) -> NewOptions {
    NewOptions { change, options }
}

#[test]
fn what_was_asked_twice_may_be_answered_twice() {
    let mut terms = plain();
    let answer = told(0, Options::default());
    assert_eq!(terms.take_answer(0, answer.clone(), START), Err(Violation));
    assert!(terms.propose(capped(7), START));
    for ms in [0, 200, 400] {
        assert!(matches!(terms.handle_timeout(START + MS * ms), Due::Ask(_)));
    }
    assert_eq!(terms.take_answer(1, answer.clone(), START), Ok(Outcome::Changed));
    assert_eq!(terms.take_answer(1, answer.clone(), START), Ok(Outcome::Same), "it was late");
    assert_eq!(terms.take_answer(2, answer.clone(), START), Err(Violation), "there is no such change yet");
    assert_eq!(terms.take_answer(1, answer, START), Err(Violation), "that is one too many");
}

#[test]
fn the_answer_to_the_first_of_two_changes_is_none_to_the_second() {
    let mut terms = plain();
    for (cap, ms) in [(7, 0), (8, 200)] {
        assert!(terms.propose(capped(cap), START + MS * ms));
        assert!(matches!(terms.handle_timeout(START + MS * ms), Due::Ask(_)));
    }
    assert_eq!(terms.take_answer(1, told(0, Options::default()), START), Ok(Outcome::Same));
    assert!(terms.is_asking() && terms.agreed().rate_cap_bytes_per_second.is_none());
    assert_eq!(terms.take_answer(2, told(0, Options::default()), START), Ok(Outcome::Changed));
    assert_eq!(terms.agreed().rate_cap_bytes_per_second, Some(8));
}

#[test]
fn a_floor_that_rises_holds_at_once_for_what_is_sent_and_with_the_answer_for_what_comes() {
    let (low, high) = (Protection::Checksum, Protection::Aes128Gcm);
    let mut terms = plain();
    terms.propose(guarded(high), START);
    assert_eq!(terms.floors(), Floors { outward: high, inward: low });
    terms.handle_timeout(START);
    assert_eq!(terms.take_answer(1, told(0, guarded(low)), START), Ok(Outcome::Changed));
    assert_eq!(terms.floors(), Floors { outward: high, inward: high });
    terms.propose(guarded(low), START);
    assert_eq!(terms.floors(), Floors { outward: high, inward: low }, "and the other way round when it falls");
}

#[test]
fn who_wants_less_protection_than_the_other_end_gets_no_less() {
    let high = Protection::Aes128Gcm;
    let mut terms = OptionExchange::new(guarded(high), guarded(high), 1 << 20).unwrap();
    let (outcome, _) = terms.take_request(told(1, guarded(Protection::Checksum)), START).unwrap().unwrap();
    assert_eq!(outcome, Outcome::Same);
    assert_eq!(terms.floors(), Floors { outward: high, inward: high });
}

#[test]
fn transfers_of_before_are_taken_as_long_as_the_connection_lives() {
    let mut terms = OptionExchange::new(transferring(65_536), guarded(Protection::Checksum), 1 << 20).unwrap();
    terms.take_request(told(1, transferring(8192)), START).unwrap();
    assert_eq!((terms.transfer_max_bytes(), terms.transfer_limit_bytes()), (8192, 65_536));
    terms.propose(transferring(1 << 17), START);
    // The other end may have agreed, and have asked for more itself meanwhile.
    assert_eq!((terms.transfer_limit_bytes(), terms.taken_transfer_bytes()), (65_536, 1 << 17));
    terms.handle_timeout(START);
    terms.take_answer(1, told(2, guarded(Protection::Checksum)), START).unwrap();
    assert_eq!((terms.transfer_max_bytes(), terms.transfer_limit_bytes()), (1 << 17, 1 << 17));
    terms.propose(transferring(4096), START + MS * 200);
    terms.handle_timeout(START + MS * 200);
    terms.take_answer(2, told(2, guarded(Protection::Checksum)), START + MS * 200).unwrap();
    assert_eq!((terms.transfer_max_bytes(), terms.transfer_limit_bytes()), (4096, 1 << 17));
}

#[test]
fn an_end_that_does_not_answer_goes_on_with_the_transfers_that_it_knows() {
    let mut terms = plain();
    terms.propose(transferring(8192), START);
    assert_eq!(terms.enforce(), Some(Outcome::Same));
    assert_eq!(terms.transfer_max_bytes(), 1 << 20);
}

#[test]
fn what_one_end_can_do_alone_holds_without_an_answer_and_what_it_cannot_is_told() {
    let alone = |ours: Options, theirs: Options| {
        let mut terms = OptionExchange::new(guarded(Protection::Checksum), theirs, 1 << 20).unwrap();
        terms.propose(ours, START);
        let mut now = START;
        let asked = (0..).take_while(|_| {
            now += AGAIN;
            terms.handle_timeout(now) != Due::Unheard
        });
        assert_eq!(asked.count(), ASKS_MAX as usize);
        terms.enforce().map(|outcome| (outcome, terms.agreed().clone(), terms.is_asking()))
    };
    let plain = guarded(Protection::Checksum);
    let (outcome, agreed, is_asking) = alone(capped(5), plain.clone()).unwrap();
    assert_eq!((outcome, agreed.rate_cap_bytes_per_second, is_asking), (Outcome::Changed, Some(5), false));
    assert_eq!(alone(guarded(Protection::Hash), plain.clone()), None, "what comes is guarded too little");
    assert_eq!(alone(enforcing(true), plain), None, "a conflict");
}

#[test]
fn who_answers_only_what_was_answered_before_does_not_answer() {
    let mut terms = plain();
    let answer = told(0, Options::default());
    terms.propose(capped(7), START);
    assert!(matches!(terms.handle_timeout(START), Due::Ask(_)));
    assert_eq!(terms.take_answer(0, answer.clone(), START), Err(Violation), "nobody asked that");
    let mut now = START + AGAIN;
    assert!(matches!(terms.handle_timeout(now), Due::Ask(_)));
    assert_eq!(terms.take_answer(1, answer.clone(), now), Ok(Outcome::Changed));
    terms.propose(capped(8), now);
    let mut asked = 0;
    while terms.poll_timeout().is_some() && asked <= ASKS_MAX {
        now += AGAIN;
        if terms.handle_timeout(now) == Due::Unheard {
            break;
        }
        asked += 1;
        assert_eq!(terms.take_answer(1, answer.clone(), now), Ok(Outcome::Same));
    }
    assert_eq!(asked, ASKS_MAX);
}

#[test]
fn an_end_that_has_taken_a_change_whose_answer_was_lost_hears_when_the_next_one_comes_to_nothing() {
    let mut ends = [OptionExchange::new(guarded(Protection::Checksum), enforcing(false), 1 << 20).unwrap(), plain()];
    for (wanted, has_answer) in [(guarded(Protection::Hash), false), (enforcing(true), true)] {
        ends[0].propose(wanted, START);
        let Due::Ask(request) = ends[0].handle_timeout(START + AGAIN * u32::from(has_answer)) else { panic!() };
        let change = request.change;
        let (outcome, answer) = ends[1].take_request(request, START).unwrap().unwrap();
        if has_answer {
            assert!(matches!(outcome, Outcome::Conflict(_)));
            assert!(matches!(ends[0].take_answer(change, answer, START), Ok(Outcome::Conflict(_))));
        }
    }
    assert_ne!(ends[0].agreed(), ends[1].agreed());
    let Due::Ask(request) = ends[0].handle_timeout(START + AGAIN * 2) else { panic!("it is told what holds") };
    let change = request.change;
    let (outcome, answer) = ends[1].take_request(request, START).unwrap().unwrap();
    assert_eq!(outcome, Outcome::Changed);
    assert_eq!(ends[0].take_answer(change, answer, START), Ok(Outcome::Same));
    assert_eq!(ends[0].agreed(), ends[1].agreed());
    assert!(!ends[0].is_asking());
}

#[test]
fn a_storm_is_a_violation_and_is_not_answered() {
    let mut terms = plain();
    let taken = (1..=1000).filter(|change| terms.take_request(told(*change, capped(5)), START).is_ok()).count();
    assert_eq!(taken, CHANGES_MAX as usize);
    assert!(matches!(terms.take_request(told(1001, capped(6)), START + PERIOD), Ok(Some((Outcome::Changed, _)))));
}

/// What an end may want.
fn wanted(code: u8) -> Options {
    let protection = Protection::ALL[usize::from(code) % 5];
    let compression = Stance::ALL[usize::from(code / 5) % 3];
    let rate_cap_bytes_per_second = (code / 15 % 2 == 1).then_some(1000 + u64::from(code));
    options(&DesiredOptions { compression, rate_cap_bytes_per_second, ..DesiredOptions::default() }, protection)
}

/// What is under way to an end.
#[derive(Clone, Debug)]
enum Word {
    Request(NewOptions),
    Answer(u32, NewOptions),
}

/// Both ends and all that was ever said to each: any of it may come at any time, or again, or never.
struct Talk {
    ends: [OptionExchange; 2],
    said: [Vec<Word>; 2],
    now: Instant,
    /// What holds at one end does not go with what holds at the other: they would begin anew.
    is_over: bool,
}

impl Talk {
    fn ask(&mut self, end: usize) {
        match self.ends[end].handle_timeout(self.now) {
            Due::Ask(request) => self.said[1 - end].push(Word::Request(request)),
            Due::Unheard => self.ends[end].silence = 0,
            Due::Nothing => {}
        }
    }

    fn hear(&mut self, end: usize, word: Word) {
        let is_answer = matches!(word, Word::Answer(..));
        let outcome = match word {
            Word::Request(request) => {
                let change = request.change;
                match self.ends[end].take_request(request, self.now) {
                    Ok(Some((outcome, options))) => {
                        self.said[1 - end].push(Word::Answer(change, options));
                        Ok(outcome)
                    }
                    Ok(None) => Ok(Outcome::Same),
                    Err(violation) => Err(violation),
                }
            }
            Word::Answer(change, options) => self.ends[end].take_answer(change, options, self.now),
        };
        self.is_over |= is_answer && matches!(outcome, Ok(Outcome::Conflict(_))) && !self.ends[end].is_asking();
    }
}

proptest! {
    #[test]
    fn both_ends_come_to_the_same_whoever_asks_and_whatever_is_lost_late_or_doubled(
        steps in proptest::collection::vec((0..4u8, 0..2usize, any::<u8>()), 1..60),
    ) {
        let mut talk = Talk {
            ends: [plain(), plain()],
            said: [Vec::new(), Vec::new()],
            now: START,
            is_over: false,
        };
        for (what, end, code) in steps {
            talk.now += MS * 300;
            match what {
                0 => drop(talk.ends[end].propose(wanted(code), talk.now)),
                1 => talk.ask(end),
                _ if talk.said[end].is_empty() => {}
                _ => {
                    let word = talk.said[end][usize::from(code) % talk.said[end].len()].clone();
                    talk.hear(end, word);
                }
            }
        }
        // From now on nothing is lost.
        talk.said = [Vec::new(), Vec::new()];
        for _ in 0..40 {
            talk.now += MS * 300;
            for end in [0, 1] {
                talk.ask(end);
                for word in std::mem::take(&mut talk.said[end]) {
                    talk.hear(end, word);
                }
            }
        }
        let [one, other] = &talk.ends;
        if !talk.is_over && !one.is_asking() && !other.is_asking() {
            prop_assert_eq!(one.agreed(), other.agreed());
            prop_assert_eq!(one.floors(), other.floors());
        }
        prop_assert!(talk.is_over || !(one.is_asking() || other.is_asking()));
    }
}
