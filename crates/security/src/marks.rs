//! Marks in the ids of connections: by them a server knows after a restart which packets may be of its former clients.
//!
//! It tells these that it does not know their connections any more, so that they come again at once. Strangers learn nothing by that:
//! a peer that has had no connection here does not know which ids have the mark, whatever its true or forged address.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

/// Bits of an id that are its mark. What is left must be enough for the connections of many shards.
const MARK_BITS: u32 = 10;
const DRAWN_BITS: u32 = u32::BITS - MARK_BITS;

/// Makes and knows the ids of one server, whichever of its shards and runs they come from.
pub struct Marks(SipHasher24);

impl Marks {
    /// With this key of the server.
    pub fn new(key: &[u8; 16]) -> Self {
        Marks(SipHasher24::new_with_key(key))
    }

    /// An id with a mark, made of the lower bits of a random number.
    pub fn id(&self, drawn: u32) -> u32 {
        let drawn = drawn << MARK_BITS >> MARK_BITS;
        self.mark(drawn) << DRAWN_BITS | drawn
    }

    /// Whether this server may have made the id; of others about one in a thousand seems so.
    pub fn is_ours(&self, id: u32) -> bool {
        self.id(id) == id
    }

    fn mark(&self, drawn: u32) -> u32 {
        let mut hasher = self.0;
        hasher.write(&drawn.to_be_bytes());
        hasher.finish() as u32 >> DRAWN_BITS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_knows_its_ids_and_hardly_any_others() {
        let (marks, again, other) = (Marks::new(&[1; 16]), Marks::new(&[1; 16]), Marks::new(&[2; 16]));
        let ids: Vec<u32> = (0..10_000u32).map(|number| marks.id(number.wrapping_mul(0x9e37_79b1))).collect();
        assert!(ids.iter().all(|id| again.is_ours(*id)));
        let taken = ids.iter().filter(|id| other.is_ours(**id)).count();
        assert!(taken < 50, "{taken} of 10,000 seem to be another server's");
        let guessed = (0..10_000u32).filter(|number| marks.is_ours(number.wrapping_mul(0x85eb_ca6b))).count();
        assert!(guessed < 50, "{guessed} of 10,000 are guessed");
    }
}
