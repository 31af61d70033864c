use super::*;

fn named(name: &str) -> Principal {
    Principal { initiator_name: Some(name.into()), ..Principal::default() }
}

const CAPACITY: Capacity = Capacity {
    blocks: 2048,
    block_bytes: 512,
    physical_block_exponent: 0,
    provisioning_management: false,
    reads_zeroes: false,
};

struct World {
    tokens: Tokens,
    unit: UnitId,
}

impl World {
    fn new() -> World {
        World { tokens: Tokens::new(Some(TokenSeed::new([3; 32]))), unit: UnitId::next() }
    }

    fn make(&self, name: &str, from_block: u64, at_s: u64) -> Result<[u8; TOKEN_BYTES], Sense> {
        let range = Range { offset_bytes: from_block * 512, length_bytes: 512 };
        let origin = Origin {
            unit: self.unit,
            medium: 0,
            principal: named(name),
            ranges: vec![range],
            places: vec![range],
            inactivity: Duration::from_secs(30),
        };
        let made = self.tokens.make(origin, (1, &CAPACITY, &TargetPort::default()), at(at_s));
        made.map(|token| *token.bytes())
    }

    fn find(&self, name: &str, bytes: &[u8; TOKEN_BYTES], at_s: u64) -> Result<Arc<Token>, AdditionalSense> {
        let id = u64::from_be_bytes(bytes[8..16].try_into().unwrap());
        self.tokens.find((id, bytes), self.unit, &named(name), at(at_s)).map_err(|sense| sense.additional)
    }

    fn end(&self, name: &str, bytes: &[u8; TOKEN_BYTES], at_s: u64) -> AdditionalSense {
        self.find(name, bytes, at_s).map(drop).unwrap_err()
    }
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

#[test]
fn only_who_has_all_of_a_token_finds_it() {
    let world = World::new();
    let token = world.make("a", 0, 0).unwrap();
    let mut forged = token;
    forged[511] ^= 1;
    assert_eq!(world.end("a", &forged, 0), AdditionalSense::TOKEN_UNKNOWN, "one bit is another one");
    assert_eq!(world.end("b", &token, 0), AdditionalSense::TOKEN_UNKNOWN, "it was never b's");
    let id = u64::from_be_bytes(token[8..16].try_into().unwrap());
    let elsewhere = world.tokens.find((id, &token), UnitId::next(), &named("a"), at(0));
    assert_eq!(elsewhere.map(drop), Err(UNKNOWN), "of another unit");
    assert_eq!(world.find("a", &token, 0).unwrap().bytes(), &token);
    let second = world.make("a", 0, 0).unwrap();
    let same = token[256..].iter().zip(&second[256..]).filter(|(one, other)| one == other).count();
    assert!(token[8..16] != second[8..16] && same < 32, "they have nothing in common: {same}");
}

#[test]
fn a_change_ends_those_that_stand_for_what_it_changes() {
    let world = World::new();
    assert!(!world.tokens.are_there());
    let (first, second) = (world.make("a", 0, 0).unwrap(), world.make("a", 1, 0).unwrap());
    let used = world.find("a", &first, 0).unwrap();
    world.tokens.cancel(&[Range { offset_bytes: 512, length_bytes: 0 }]);
    assert_eq!(used.check(0), Ok(()));
    world.tokens.cancel(&[Range { offset_bytes: 0, length_bytes: 512 }]);
    assert_eq!(used.check(0).map_err(|sense| sense.additional), Err(AdditionalSense::TOKEN_CANCELLED));
    assert_eq!(world.end("a", &first, 0), AdditionalSense::TOKEN_CANCELLED);
    assert_eq!(world.end("b", &first, 0), AdditionalSense::TOKEN_UNKNOWN, "that is not b's business");
    let left = world.find("a", &second, 0).unwrap();
    assert_eq!((left.check(0), world.tokens.are_there()), (Ok(()), true));
    assert_eq!(left.check(1).map_err(|sense| sense.additional), Err(AdditionalSense::TOKEN_CANCELLED), "other content");
    world.tokens.delete(&left);
    assert_eq!(world.end("a", &second, 0), AdditionalSense::TOKEN_DELETED);
    assert!(!world.tokens.are_there());
}

#[test]
fn a_token_is_kept_while_it_is_used_and_some_time_after() {
    let world = World::new();
    let token = world.make("a", 0, 0).unwrap();
    world.tokens.look(at(29));
    let used = world.find("a", &token, 29).unwrap();
    for seconds in 30..100 {
        world.tokens.look(at(seconds));
    }
    assert_eq!(used.check(0), Ok(()));
    drop(used);
    world.tokens.look(at(100));
    world.tokens.look(at(129));
    drop(world.find("a", &token, 129).unwrap());
    world.tokens.look(at(130));
    world.tokens.look(at(160));
    assert!(!world.tokens.are_there(), "nobody has asked for it");
    assert_eq!(world.end("a", &token, 160), AdditionalSense::TOKEN_EXPIRED);
    // Each use keeps a token from its inactivity timeout, never beyond its longest lifetime.
    let token = world.make("a", 0, 0).unwrap();
    for seconds in (0..u64::from(LIFETIME_S)).step_by(10) {
        drop(world.find("a", &token, seconds).unwrap());
        world.tokens.look(at(seconds + 1));
    }
    assert_eq!(world.end("a", &token, u64::from(LIFETIME_S)), AdditionalSense::TOKEN_EXPIRED);
}

#[test]
fn there_is_room_for_some_of_each_and_for_not_too_many_of_all() {
    let world = World::new();
    let of_a: Vec<_> = (0..TOKENS_OF_PRINCIPAL_MAX as u64).map(|at_s| world.make("a", 0, at_s % 20).unwrap()).collect();
    let used = world.find("a", &of_a[0], 20).unwrap();
    let more = world.make("a", 0, 20).unwrap();
    assert_eq!(used.check(0), Ok(()), "in use");
    assert_eq!(world.end("a", &of_a[20], 20), AdditionalSense::TOKEN_CANCELLED, "the one that was idle longest");
    drop(world.find("a", &more, 20).unwrap());
    for name in ["b", "c", "d"] {
        (0..TOKENS_OF_PRINCIPAL_MAX).for_each(|_| _ = world.make(name, 0, 20).unwrap());
    }
    assert_eq!(world.make("e", 0, 20), Err(NO_ROOM), "all of them are those of others");
    world.tokens.cancel(&[Range { offset_bytes: 0, length_bytes: 512 }]);
    (0..2).for_each(|_| _ = world.make("e", 0, 20).unwrap());
    world.tokens.cancel(&[Range { offset_bytes: 0, length_bytes: 512 }]);
    assert_eq!(world.end("a", &of_a[20], 20), AdditionalSense::TOKEN_UNKNOWN, "so many others have ended since");
    assert_eq!(world.end("a", &more, 20), AdditionalSense::TOKEN_CANCELLED);
    assert!(!Tokens::new(None).can_be_made());
}

/// By what both take here, whatever else this machine does.
#[test]
fn a_change_elsewhere_takes_about_as_long_whatever_tokens_there_are() {
    let places = |from: u64| (0..64).map(move |at| Range { offset_bytes: (from + 4 * at) * 512, length_bytes: 512 });
    let world = |count: u64| {
        let world = World::new();
        for number in 0..count {
            let places: Vec<Range> = places(1000 * number).collect();
            let principal = named(&(number / TOKENS_OF_PRINCIPAL_MAX as u64).to_string());
            let inactivity = Duration::from_secs(30);
            let ranges = places.clone();
            let origin = Origin { unit: world.unit, medium: 0, principal, ranges, places, inactivity };
            world.tokens.make(origin, (1, &CAPACITY, &TargetPort::default()), at(0)).unwrap();
        }
        world
    };
    let took = |world: &World| {
        let begun = std::time::Instant::now();
        // Between the places of tokens.
        (0..2000)
            .for_each(|write| world.tokens.cancel(&[Range { offset_bytes: (4 * write + 1) * 512, length_bytes: 512 }]));
        begun.elapsed()
    };
    let (few, many) = (world(1), world(TOKENS_MAX as u64));
    let best = |world: &World| (0..5).map(|_| took(world)).min().unwrap();
    let (few_took, many_took) = (best(&few), best(&many));
    assert!(many_took < 50 * few_took, "{few_took:?} with one, {many_took:?} with all that there may be");
    let count = many.tokens.lock().valid.len();
    assert_eq!(count, TOKENS_MAX, "none has ended");
}
