//! Members whose places others have taken, as they stand in a label.

use sanwire_core::read::{ReadError, Reader};

/// So many are known, the last ones.
pub(crate) const FORMER_MAX: usize = 32;

/// A member whose place another one has taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Former {
    /// Its place among the members, from 0 on.
    pub place: usize,
    /// Its identity.
    pub id: [u8; 16],
    /// The generation of the first table in which the other one has the place.
    pub until: u64,
}

impl Former {
    /// Writes them: their number in 8 bytes, and 32 bytes for each.
    pub(crate) fn put(all: &[Former], out: &mut Vec<u8>) {
        // It is at most FORMER_MAX.
        out.extend((all.len() as u16).to_be_bytes());
        out.extend([0; 6]);
        for Former { place, id, until } in all {
            out.extend(id);
            out.extend(until.to_be_bytes());
            // It is below MEMBERS_MAX.
            out.push(*place as u8);
            out.extend([0; 7]);
        }
    }

    /// Reads them. A label of who did not know of this has zeroes there: none.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Vec<Former>, ReadError> {
        let count = usize::from(reader.u16()?);
        if count > FORMER_MAX {
            return Err(ReadError::Field("former members"));
        }
        reader.bytes(6)?;
        (0..count).map(|_| Former::read_one(reader)).collect()
    }

    fn read_one(reader: &mut Reader<'_>) -> Result<Former, ReadError> {
        let (id, until, place) = (reader.array()?, reader.u64()?, usize::from(reader.u8()?));
        reader.bytes(7)?;
        Ok(Former { place, id, until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_older_label_has_there_are_no_members_and_what_is_too_much_is_none() {
        let all: Vec<_> = (0..FORMER_MAX).map(|place| Former { place, id: [place as u8; 16], until: 7 }).collect();
        let mut bytes = Vec::new();
        Former::put(&all, &mut bytes);
        assert_eq!(bytes.len(), 8 + 32 * FORMER_MAX);
        assert_eq!(Former::read(&mut Reader::new(&bytes)).unwrap(), all);
        bytes[1] += 1;
        assert!(Former::read(&mut Reader::new(&bytes)).is_err());
        assert_eq!(Former::read(&mut Reader::new(&[0; 8])).unwrap(), []);
    }
}
