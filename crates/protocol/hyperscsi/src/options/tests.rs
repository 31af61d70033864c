//! The table of outcomes, whole: every option, every pair of stances, every way in which values meet.

use sanwire_core::Protection;

use super::Stance::{Enforced, Ignored, Supported};
use super::*;

fn options(option: DeviceOption, stance: Stance, value: &[u8]) -> Options {
    let mut options = Options::default();
    options.set(option.number(), Offered { stance, value: value.to_vec() }).unwrap();
    options
}

/// Two values of an option and what comes of them together, if anything does.
type Case = (Vec<u8>, Vec<u8>, Option<Vec<u8>>);

fn values(option: DeviceOption) -> Vec<Case> {
    let number = |number: u64, bytes: usize| number.to_be_bytes()[8 - bytes..].to_vec();
    match option.entry().rule {
        Rule::Flag => vec![(vec![], vec![], Some(vec![]))],
        Rule::Common => vec![
            (vec![0b0001_0101], vec![0b0001_0110], Some(vec![0b0001_0100])),
            (vec![0b0001_0000], vec![0b0001_0000], Some(vec![0b0001_0000])),
            (vec![0b0000_0100], vec![0b0000_1000], None),
            (vec![0], vec![0xff], None),
        ],
        Rule::Least(bytes) => vec![
            (number(3, bytes), number(5, bytes), Some(number(3, bytes))),
            (number(5, bytes), number(5, bytes), Some(number(5, bytes))),
            (vec![0xff; bytes], number(7, bytes), Some(number(7, bytes))),
            (number(0, bytes), vec![0xff; bytes], Some(number(0, bytes))),
        ],
    }
}

/// What `docs/protocols/hyperscsi.md` 3.8 says, written down once more.
fn expected(option: DeviceOption, stances: (Stance, Stance), one: &[u8], other: &[u8], both: Option<&[u8]>) -> Outcome {
    let alone = |value: &[u8]| {
        let is_one_sided =
            !matches!(option, DeviceOption::Encryption | DeviceOption::Hashing | DeviceOption::Compression);
        if is_one_sided { Outcome::On(value.to_vec(), true) } else { Outcome::Conflict }
    };
    match (stances, both) {
        ((Ignored, Ignored) | (Ignored, Supported) | (Supported, Ignored), _) => Outcome::Off,
        ((Enforced, Ignored), _) => alone(one),
        ((Ignored, Enforced), _) => alone(other),
        ((Supported, Supported), None) => Outcome::Off,
        ((Supported, Supported), Some(both)) => Outcome::On(both.to_vec(), false),
        (_, Some(both)) => Outcome::On(both.to_vec(), true),
        (_, None) => Outcome::Conflict,
    }
}

#[test]
fn every_pair_of_stances_of_every_option_has_the_outcome_of_the_table_at_both_ends() {
    let mut outcomes = 0;
    for option in DeviceOption::ALL {
        for (a, b, both) in values(option) {
            for stances in Stance::ALL.into_iter().flat_map(|one| Stance::ALL.map(|other| (one, other))) {
                let (one, other) = (options(option, stances.0, &a), options(option, stances.1, &b));
                let expected = expected(option, stances, &a, &b, both.as_deref());
                assert_eq!(option.outcome(&one, &other), expected, "{option:?} {stances:?} {a:?} {b:?}");
                assert_eq!(option.outcome(&other, &one), expected, "the other end sees the same");
                let conflicts = expected == Outcome::Conflict;
                assert_eq!(Agreed::new(&one, &other).is_err(), conflicts);
                outcomes += 1;
            }
        }
    }
    assert_eq!(outcomes, 9 * (2 * 4 + 3 + 3 * 4), "two sets, three flags, three numbers");
}

/// Any pair of options at once: each comes out as if it were alone, and one conflict is enough.
#[test]
fn options_do_not_meddle_with_each_other() {
    for first in DeviceOption::ALL {
        for second in DeviceOption::ALL.into_iter().filter(|second| *second != first) {
            for (one, other) in Stance::ALL.into_iter().flat_map(|one| Stance::ALL.map(|other| (one, other))) {
                let merged = |stance: Stance, pick: fn(&Case) -> Vec<u8>| {
                    let mut all = options(first, stance, &pick(&values(first)[0]));
                    let value = pick(&values(second)[0]);
                    all.set(second.number(), Offered { stance, value }).unwrap();
                    all
                };
                let (a, b) = (merged(one, |v| v.0.clone()), merged(other, |v| v.1.clone()));
                for option in [first, second] {
                    let (value, other_value, _) = values(option).swap_remove(0);
                    let alone = option.outcome(&options(option, one, &value), &options(option, other, &other_value));
                    assert_eq!(option.outcome(&a, &b), alone);
                }
            }
        }
    }
}

#[test]
fn a_value_that_is_none_is_as_if_nothing_was_said() {
    for option in DeviceOption::ALL {
        let good = values(option).swap_remove(0).0;
        let odd = options(option, Supported, &[&good[..], &[1]].concat());
        assert_eq!(option.outcome(&odd, &options(option, Supported, &good)), Outcome::Off, "{option:?}");
    }
}

#[test]
fn strangers_have_a_plain_connection() {
    let ours = DesiredOptions { compression: Supported, priority: Some(3), ..DesiredOptions::default() };
    let agreed = Agreed::new(&ours.options(Protection::Checksum).unwrap(), &Options::default()).unwrap();
    assert_eq!(agreed, Agreed { priority: 3, ..Agreed::default() });
    let both = Options::default();
    assert_eq!(Agreed::new(&both, &both), Ok(Agreed::default()));
}

#[test]
fn options_that_are_not_known_are_carried_even_when_they_are_enforced() {
    let mut theirs = Options::default();
    let offered = Offered { stance: Enforced, value: vec![1, 2, 3] };
    for number in [17, 0x4000, 0x7fff] {
        theirs.set(OptionNumber::new(number).unwrap(), offered.clone()).unwrap();
    }
    let agreed = Agreed::new(&Options::default(), &theirs).unwrap();
    assert_eq!(agreed.unknown.len(), 3);
    assert!(agreed.unknown.iter().all(|(_, carried)| *carried == offered));
}

#[test]
fn the_stronger_of_both_demands_is_the_floor() {
    for one in Protection::ALL {
        for other in Protection::ALL {
            let of = |protection| DesiredOptions::default().options(protection).unwrap();
            let agreed = Agreed::new(&of(one), &of(other)).unwrap();
            assert_eq!(agreed.protection_min, one.max(other), "{one} {other}");
        }
    }
}

#[test]
fn limits_that_would_stop_everything_are_none() {
    let tiny = options(DeviceOption::TransferMax, Enforced, &[0; 4]);
    let still = options(DeviceOption::RateCap, Enforced, &[0; 8]);
    let high = options(DeviceOption::Priority, Enforced, &[255]);
    let of = |options: &Options| Agreed::new(options, &Options::default()).unwrap();
    assert_eq!(of(&tiny).transfer_max_bytes, Some(TRANSFER_MIN_BYTES));
    assert_eq!(of(&still).rate_cap_bytes_per_second, None);
    assert_eq!(of(&high).priority, PRIORITY_MAX);
}
