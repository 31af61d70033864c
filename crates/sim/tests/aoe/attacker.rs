//! Somebody on the Ethernet whose MAC address is not admitted: he hears every frame, and sends it again, changed, and frames of his own.
//! Who takes an address that is admitted may do all that its owner may: AoE keeps nobody from that.

use sanwire_aoe::Address;
use sanwire_aoe::wire::{Config, ConfigOrder, Header, Reserve, ReserveOrder, command};
use sanwire_core::MacAddress;
use sanwire_sim::random::Random;

/// Frames that are remembered.
const HEARD_MAX: usize = 100;

/// What he has heard.
#[derive(Default)]
pub struct Attacker {
    heard: Vec<Vec<u8>>,
}

impl Attacker {
    /// A frame passes.
    pub fn hear(&mut self, bytes: &[u8], random: &mut Random) {
        if self.heard.len() < HEARD_MAX {
            self.heard.push(bytes.to_vec());
        } else {
            let place = random.range(0..=HEARD_MAX as u64 - 1) as usize;
            self.heard[place] = bytes.to_vec();
        }
    }

    /// A frame of his, as this station, for the target at this address.
    pub fn forge(&self, own: MacAddress, target: Address, random: &mut Random) -> Vec<u8> {
        let place = random.range(0..=HEARD_MAX as u64 - 1) as usize;
        let Some(heard) = self.heard.get(place) else { return order(own, target, random) };
        let mut bytes = heard.clone();
        match random.range(0..=4) {
            0 => {}
            1 => {
                for _ in 0..random.range(1..=3) {
                    let bit = random.range(0..=bytes.len() as u64 * 8 - 1) as usize;
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
            }
            2 => bytes.truncate(random.range(0..=bytes.len() as u64) as usize),
            // To all targets.
            3 => bytes[2..5].fill(0xff),
            _ => return order(own, target, random),
        }
        bytes
    }
}

/// What would keep others from the target.
fn order(own: MacAddress, target: Address, random: &mut Random) -> Vec<u8> {
    let address = random.choose(&[target, Address::EVERY]);
    let (command, argument) = match random.range(0..=2) {
        0 => (command::CONFIG, Config::query(ConfigOrder::ForceSet, b"his").to_bytes()),
        // AoEr11 3.3: edit the list; add this one.
        1 => (command::MASK, [&[0, 1, 0, 1, 0, 1][..], &own.0].concat()),
        _ => (command::RESERVE, Reserve { order: ReserveOrder::ForceSet, stations: vec![own] }.to_bytes()),
    };
    [&Header::request(address, command, random.u64() as u32).to_bytes()[..], &argument].concat()
}
