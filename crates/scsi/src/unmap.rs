//! The parameter list of UNMAP (SBC-4 5.35).

use crate::bytes::{put, u16_at, u32_at, u64_at};
use crate::command::Extent;
use crate::sense::{AdditionalSense, Sense, SenseKey};

const HEADER_BYTES: usize = 8;
const DESCRIPTOR_BYTES: usize = 16;

/// A checked UNMAP parameter list: its descriptors, not copied.
#[derive(Clone, Copy, Debug)]
pub struct UnmapList<'a>(&'a [[u8; DESCRIPTOR_BYTES]]);

impl<'a> UnmapList<'a> {
    /// Reads a parameter list. An empty one is legal and unmaps nothing.
    ///
    /// # Errors
    /// PARAMETER LIST LENGTH ERROR when it ends before its header or within a descriptor that it announces.
    pub fn parse(list: &'a [u8]) -> Result<Self, Sense> {
        if list.is_empty() {
            return Ok(UnmapList(&[]));
        }
        let error = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        let length = usize::from(u16_at(list, 2).ok_or(error)?);
        let descriptors = list.get(HEADER_BYTES..).ok_or(error)?.get(..length).ok_or(error)?;
        // SBC-4 5.35.2: a remainder that is no whole descriptor is ignored.
        Ok(UnmapList(descriptors.as_chunks().0))
    }

    /// How many descriptors there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nothing to unmap.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The extents, in order.
    pub fn extents(&self) -> impl Iterator<Item = Extent> + 'a {
        self.0.iter().map(|bytes| Extent { lba: u64_at(bytes, 0).unwrap_or(0), blocks: u32_at(bytes, 8).unwrap_or(0) })
    }
}

/// The parameter list that unmaps these extents; `None` when there are more than it can hold (4,095).
#[must_use]
pub fn unmap_parameters(extents: &[Extent]) -> Option<Vec<u8>> {
    let descriptors_bytes = u16::try_from(extents.len().checked_mul(DESCRIPTOR_BYTES)?).ok()?;
    let data_bytes = descriptors_bytes.checked_add(HEADER_BYTES as u16 - 2)?;
    let mut bytes = vec![0; HEADER_BYTES];
    put(&mut bytes, 0, data_bytes.to_be_bytes());
    put(&mut bytes, 2, descriptors_bytes.to_be_bytes());
    for extent in extents {
        bytes.extend(extent.lba.to_be_bytes());
        bytes.extend(extent.blocks.to_be_bytes());
        bytes.extend([0; 4]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_survives() {
        let extents = [Extent { lba: 0x0102_0304_0506_0708, blocks: 9 }, Extent { lba: 1, blocks: 0 }];
        let bytes = unmap_parameters(&extents).unwrap();
        assert_eq!(bytes[..24], [0, 38, 0, 32, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 0, 0, 0, 0]);
        let list = UnmapList::parse(&bytes).unwrap();
        assert_eq!(list.extents().collect::<Vec<_>>(), extents);
        assert_eq!(unmap_parameters(&[extents[0]; 4096]), None);
        assert!(unmap_parameters(&[extents[0]; 4095]).is_some());
    }

    #[test]
    fn lists_that_end_early_are_refused() {
        let bytes = unmap_parameters(&[Extent { lba: 1, blocks: 2 }; 2]).unwrap();
        let error = Sense::new(SenseKey::IllegalRequest, AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        for length in [1, 3, 7, 8, 24, 39] {
            assert_eq!(UnmapList::parse(&bytes[..length]).unwrap_err(), error, "{length}");
        }
        assert!(UnmapList::parse(&[]).unwrap().is_empty());
        assert!(UnmapList::parse(&[0; 8]).unwrap().is_empty());
        let mut odd = bytes.clone();
        odd[3] = 31;
        assert_eq!(UnmapList::parse(&odd).unwrap().len(), 1, "an incomplete descriptor is ignored");
    }
}
