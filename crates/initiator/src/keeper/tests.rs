//! Two clients of one device that loses its power at any moment, in random orders: whatever happens, a flush that succeeds
//! tells the truth, and nothing old comes over what is newer.

use super::*;

const BLOCKS: usize = 4;
const ROUNDS: u64 = 3000;
const STEPS: usize = 120;

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % end
    }
}

/// A write: its value, greater than that of all before, and who gave it.
type Value = (u64, usize);

/// What the server's end does, as far as it matters here (`device/src/tenure.rs`).
#[derive(Default)]
struct Device {
    stable: [Value; BLOCKS],
    /// Later contents of each block, the last one visible.
    cache: [Vec<Value>; BLOCKS],
    verifier: u8,
    tenures: u8,
    holder: Option<(u8, usize)>,
    offers: [Option<u8>; 2],
    is_contended: bool,
}

impl Device {
    fn word(&mut self, who: usize) -> Word {
        let tenure = match self.holder {
            Some((tenure, holder)) if holder == who => Some(tenure),
            Some(_) => None,
            None if self.is_contended => None,
            None => {
                self.tenures += 1;
                Some(*self.offers[who].get_or_insert(self.tenures))
            }
        };
        let field = |number: u8| [number; 16];
        Word::Verified { verifier: field(self.verifier), tenure: tenure.map(field) }
    }

    fn visible(&self, block: usize) -> Value {
        self.cache[block].last().copied().unwrap_or(self.stable[block])
    }

    fn write(&mut self, who: usize, block: usize, value: Value) {
        match self.holder {
            Some((_, holder)) if holder == who => {}
            Some(_) => (self.holder, self.is_contended, self.offers) = (None, true, [None; 2]),
            None => {
                self.holder = self.offers[who].map(|tenure| (tenure, who));
                self.is_contended |= self.holder.is_none();
                self.offers = [None; 2];
            }
        }
        self.cache[block].push(value);
    }

    fn flush(&mut self) {
        for block in 0..BLOCKS {
            self.stable[block] = self.visible(block);
            self.cache[block].clear();
        }
    }

    /// Any of the contents since the last flush may be what is left of each block.
    fn lose_power(&mut self, chance: &mut Chance) {
        self.verifier += 1;
        for block in 0..BLOCKS {
            let left = chance.below(self.cache[block].len() as u64 + 1) as usize;
            self.cache[block].truncate(left);
            self.stable[block] = self.visible(block);
            self.cache[block].clear();
        }
    }
}

struct Client {
    keeper: Keeper<(usize, Value)>,
    told: u64,
    must_look: bool,
    /// The last value of each block that it must find stable after a flush, if nobody wrote there since.
    owed: [Option<Value>; BLOCKS],
}

struct World {
    chance: Chance,
    device: Device,
    clients: [Client; 2],
    last: [Value; BLOCKS],
    /// Of those that were stable at once.
    last_stable: [u64; BLOCKS],
    values: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut device = Device::default();
        let bounds = [[1000, 1000], [3, 1000], [0, 5]][(seed % 3) as usize];
        let clients = [0, 1].map(|who| Client {
            keeper: Keeper::new(bounds[who], device.word(who)),
            told: 0,
            must_look: false,
            owed: [None; BLOCKS],
        });
        World { chance: Chance(seed), device, clients, last: [(0, 0); BLOCKS], last_stable: [0; BLOCKS], values: 0 }
    }

    fn step(&mut self) {
        let who = self.chance.below(2) as usize;
        match self.chance.below(20) {
            0 => {
                self.device.lose_power(&mut self.chance);
                self.clients.iter_mut().for_each(|client| client.must_look = true);
            }
            // A lost connection, or a unit attention.
            1 => self.clients[who].must_look = true,
            2..5 => self.flush(who),
            // The second one writes in some rounds only.
            _ if who == 1 && !self.chance.0.is_multiple_of(5) => {}
            _ => self.write(who),
        }
    }

    fn write(&mut self, who: usize) {
        if !self.look(who) {
            return;
        }
        self.values += 1;
        let (block, value) = (self.chance.below(BLOCKS as u64) as usize, (self.values, who));
        let is_stable = self.chance.below(6) == 0;
        self.device.write(who, block, value);
        if is_stable {
            self.device.stable[block] = value;
            self.device.cache[block].clear();
            self.last_stable[block] = value.0;
        }
        self.last[block] = value;
        self.clients.iter_mut().for_each(|client| client.owed[block] = None);
        self.clients[who].owed[block] = Some(value);
        let keeper = &mut self.clients[who].keeper;
        match is_stable {
            true => keeper.overwritten(1, |(at, _)| (*at == block).then(Vec::new)),
            false => keeper.acknowledged(1, || (block, value)),
        }
        // Who holds no tenure any more hears of it before its next command.
        for other in &mut self.clients {
            other.must_look |= other.keeper.is_needed() && self.device.is_contended;
        }
    }

    fn flush(&mut self, who: usize) {
        if !self.look(who) {
            return;
        }
        let below = self.clients[who].keeper.flush_given();
        self.device.flush();
        let client = &mut self.clients[who];
        client.keeper.flushed(below);
        if client.told < client.keeper.losses() {
            client.told = client.keeper.losses();
            client.owed = [None; BLOCKS];
            return;
        }
        for block in 0..BLOCKS {
            if let Some(value) = client.owed[block] {
                assert_eq!(self.device.stable[block], value, "block {block} of client {who}: the flush succeeded");
            }
        }
    }

    /// What a client does in a new session, or when it was told something; false when it was interrupted.
    fn look(&mut self, who: usize) -> bool {
        while self.clients[who].must_look {
            self.clients[who].must_look = false;
            let word = self.device.word(who);
            if self.clients[who].keeper.heard(word, false) == Fate::WriteAgain && !self.write_again(who, word) {
                return false;
            }
        }
        true
    }

    fn write_again(&mut self, who: usize, word: Word) -> bool {
        let writes: Vec<(usize, Value)> = self.clients[who].keeper.writes().copied().collect();
        for (block, value) in writes {
            match self.chance.below(12) {
                // The connection is lost again, or the power.
                0 => self.clients[who].must_look = true,
                1 => {
                    self.device.lose_power(&mut self.chance);
                    self.clients.iter_mut().for_each(|client| client.must_look = true);
                }
                2 => {
                    self.values += 1;
                    let newer = (self.values, 1 - who);
                    self.device.write(1 - who, block, newer);
                    self.last[block] = newer;
                    self.clients.iter_mut().for_each(|client| client.owed[block] = None);
                    self.clients[1 - who].keeper.acknowledged(1, || (block, newer));
                    self.clients[1 - who].owed[block] = Some(newer);
                    self.clients[1 - who].must_look = true;
                }
                _ => {}
            }
            let is_refused = self.device.holder.is_none_or(|(_, holder)| holder != who);
            if self.clients[who].must_look || is_refused {
                self.clients[who].must_look = true;
                return false;
            }
            let (newest, by) = self.last[block];
            assert!(by == who || newest <= value.0, "{value:?} over {:?}", self.last[block]);
            assert!(self.last_stable[block] < value.0, "{value:?} over what is stable");
            self.device.write(who, block, value);
        }
        self.clients[who].keeper.written_again(word);
        true
    }
}

#[test]
fn a_flush_that_succeeds_tells_the_truth_and_nothing_old_comes_over_what_is_newer() {
    for seed in 0..ROUNDS {
        let mut world = World::new(seed);
        (0..STEPS).for_each(|_| world.step());
    }
}

fn said(verifier: u8, tenure: u8) -> Word {
    Word::Verified { verifier: [verifier; 16], tenure: Some([tenure; 16]).filter(|_| tenure > 0) }
}

fn kept(keeper: &Keeper<u8>) -> Vec<u8> {
    keeper.writes().copied().collect()
}

#[test]
fn what_is_flushed_is_let_go_and_what_came_after_the_flush_was_given_is_not() {
    let mut keeper = Keeper::new(100, said(1, 1));
    keeper.acknowledged(10, || 1);
    let below = keeper.flush_given();
    keeper.acknowledged(10, || 2);
    keeper.flushed(below);
    assert_eq!(kept(&keeper), [2]);
    assert_eq!(keeper.heard(said(2, 1), false), Fate::WriteAgain);
    assert_eq!(keeper.heard(said(2, 1), false), Fate::WriteAgain, "until it was done");
    keeper.written_again(said(2, 1));
    assert_eq!((keeper.heard(said(2, 1), false), kept(&keeper)), (Fate::Kept, vec![2]));
    keeper.flushed(keeper.flush_given());
    assert_eq!((keeper.heard(said(3, 1), false), keeper.losses()), (Fate::Kept, 0), "nothing was at stake");
}

#[test]
fn what_was_not_kept_is_lost_once() {
    let mut keeper = Keeper::new(20, said(1, 1));
    keeper.acknowledged(10, || 1);
    assert!(!keeper.wants_flush());
    keeper.acknowledged(10, || 2);
    assert!(keeper.wants_flush());
    keeper.acknowledged(10, || 3);
    assert!(keeper.is_empty() && keeper.wants_flush(), "a part alone could come over what is not there");
    assert_eq!((keeper.heard(said(2, 1), false), keeper.losses()), (Fate::Lost, 1));
    assert_eq!((keeper.heard(said(3, 1), false), keeper.losses()), (Fate::Kept, 1));
    for word in [said(3, 0), Word::Silent] {
        let mut keeper = Keeper::new(20, word);
        keeper.acknowledged(10, || 1);
        assert!(keeper.is_empty(), "{word:?}");
        assert_eq!(keeper.wants_flush(), word == Word::Silent, "what nobody tells of is not left lying: {word:?}");
        assert_eq!(keeper.heard(if word == Word::Silent { word } else { said(4, 0) }, true), Fate::Lost);
    }
    let mut none: Keeper<u8> = Keeper::new(0, said(1, 1));
    none.acknowledged(10, || 1);
    assert!(!none.wants_flush(), "it is not wanted");
    assert_eq!(none.heard(said(2, 1), false), Fate::Lost);
}

#[test]
fn what_a_stable_write_has_overwritten_is_not_given_again() {
    let halves = |number: u8, of: u8| (number == of).then(|| vec![of + 1, of + 2]);
    let mut keeper = Keeper::new(30, said(1, 1));
    keeper.overwritten(5, |_| Some(vec![9]));
    assert!(keeper.is_empty());
    keeper.acknowledged(10, || 10);
    let below = keeper.flush_given();
    keeper.acknowledged(10, || 20);
    keeper.overwritten(5, |number| halves(*number, 10));
    assert_eq!(kept(&keeper), [11, 12, 20]);
    keeper.overwritten(5, |number| (*number == 20).then(Vec::new));
    assert_eq!(kept(&keeper), [11, 12]);
    keeper.acknowledged(10, || 30);
    keeper.flushed(below);
    assert_eq!(kept(&keeper), [30], "both parts are as old as the whole");
    keeper.acknowledged(20, || 40);
    assert_eq!(kept(&keeper), [30, 40], "there is room for what was let go");
    keeper.overwritten(5, |number| halves(*number, 40));
    assert!(keeper.is_empty(), "parts are bounded too");
    assert_eq!(keeper.heard(said(2, 1), false), Fate::Lost);
}

/// Others say so in each new session: who was lost for a moment only is not to blame.
#[test]
fn a_device_that_says_nothing_is_taken_to_have_lost_what_it_had_when_it_had_no_power() {
    let mut keeper = Keeper::new(100, Word::Silent);
    assert_eq!(keeper.heard(Word::Silent, true), Fate::Kept, "nothing was written");
    keeper.acknowledged(10, || 1);
    assert_eq!(keeper.heard(Word::Silent, false), Fate::Kept);
    assert_eq!(keeper.heard(Word::Silent, true), Fate::Lost);
    keeper.acknowledged(10, || 2);
    keeper.flushed(keeper.flush_given());
    assert_eq!(keeper.heard(Word::Silent, true), Fate::Kept);
}

const STABLE: Word = Word::Stable { verifier: None };

#[test]
fn what_is_stable_by_itself_concerns_nobody_until_it_is_not_any_more() {
    let mut keeper = Keeper::new(100, STABLE);
    assert!(!keeper.is_needed());
    keeper.acknowledged(10, || 1);
    assert_eq!((keeper.heard(STABLE, true), keeper.is_empty()), (Fate::Kept, true));
    assert_eq!(keeper.heard(said(1, 1), false), Fate::Kept);
    assert_eq!(keeper.heard(said(2, 1), false), Fate::Lost, "since when it was not nobody knows");
}

/// Neither a cache that is switched off nor a unit that lets nobody write has lost anything by that.
#[test]
fn what_was_written_before_the_unit_lost_its_cache_is_lost_with_its_power_only() {
    let off = |verifier: u8| Word::Stable { verifier: Some([verifier; 16]) };
    for (before, after, power) in
        [(said(1, 1), off(1), off(2)), (said(1, 0), off(1), off(2)), (Word::Silent, STABLE, STABLE)]
    {
        let mut keeper = Keeper::new(100, before);
        keeper.acknowledged(10, || 1);
        assert_eq!((keeper.heard(after, false), keeper.losses()), (Fate::Kept, 0), "{before:?}");
        keeper.acknowledged(10, || 2);
        assert_eq!(keeper.heard(power, true), Fate::Lost, "{before:?}: the first one");
        assert_eq!(keeper.heard(power, true), Fate::Kept, "once");
        let mut keeper = Keeper::new(100, before);
        keeper.acknowledged(10, || 1);
        assert_eq!(keeper.heard(after, false), Fate::Kept);
        keeper.flushed(keeper.flush_given());
        assert_eq!(keeper.heard(power, true), Fate::Kept, "it was flushed");
    }
    let mut keeper = Keeper::new(100, said(1, 1));
    keeper.acknowledged(10, || 1);
    assert_eq!(keeper.heard(STABLE, false), Fate::Lost, "it does not say what became of what came before");
}
