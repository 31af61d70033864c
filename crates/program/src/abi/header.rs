//! The structure by which a program says, once, where everything is.

use sanwire_scsi::OperationClasses;

use super::{ANSWER_BYTES, COMMAND_BYTES, DATA_MAX_BYTES, Place, RANGE_BYTES, RANGES_MAX, STATE_MAX_BYTES, number};
use crate::error::LoadError;

const HEADER_BYTES: u32 = 48;
/// Where the fields begin that must be 0.
const RESERVED_AT: u32 = 36;

/// Where things are in a program's memory, and which commands it wants to see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) command: Place,
    pub(crate) answer: Place,
    pub(crate) ranges: Place,
    pub(crate) data: Place,
    pub(crate) state: Place,
    /// Of commands that need none of these it is not asked.
    pub(crate) classes: OperationClasses,
}

impl Header {
    /// Reads the header at this address.
    ///
    /// # Errors
    /// Which field is wrong.
    pub(crate) fn read(memory: &[u8], at: u32) -> Result<Header, LoadError> {
        let own = Place { at, bytes: HEADER_BYTES };
        if own.end() > memory.len() as u64 {
            let reason = format!("it is at address {at}, and ends outside the memory of {} bytes", memory.len());
            return Err(LoadError::Header { at: 0, reason });
        }
        let bytes = own.of(memory);
        let field = |field: u32| number(bytes, field as usize);
        // What has no bytes may be anywhere.
        let place = |at, bytes| Place { at: if bytes > 0 { field(at) } else { 0 }, bytes };
        let header = Header {
            command: place(0, COMMAND_BYTES),
            answer: place(4, ANSWER_BYTES),
            ranges: place(8, at_most(12, field(12), RANGES_MAX, "ranges")? * RANGE_BYTES),
            data: place(16, at_most(20, field(20), DATA_MAX_BYTES, "bytes of data")?),
            state: place(24, at_most(28, field(28), STATE_MAX_BYTES, "bytes of state")?),
            classes: classes(field(32))?,
        };
        header.check_places(own, memory.len())?;
        match (RESERVED_AT..HEADER_BYTES).step_by(4).find(|at| field(*at) != 0) {
            Some(at) => Err(LoadError::Header { at, reason: "this field is reserved, and must be 0".into() }),
            None => Ok(header),
        }
    }

    /// Each place is within the memory, and none is in another one.
    fn check_places(&self, own: Place, memory_bytes: usize) -> Result<(), LoadError> {
        let places = [
            (0, "the command", self.command),
            (4, "the answer", self.answer),
            (8, "the ranges", self.ranges),
            (16, "the data", self.data),
            (24, "the state", self.state),
        ];
        for (number, (at, what, place)) in places.into_iter().enumerate() {
            let wrong = |reason| Err(LoadError::Header { at, reason });
            if place.end() > memory_bytes as u64 {
                return wrong(format!(
                    "{what}, {} bytes at address {}, is not within the memory of {memory_bytes} bytes",
                    place.bytes, place.at
                ));
            }
            if place.overlaps(own) {
                return wrong(format!("{what} lies over the header"));
            }
            if let Some((_, other, _)) = places[..number].iter().find(|(_, _, before)| before.overlaps(place)) {
                return wrong(format!("{what} lies over {other}"));
            }
        }
        Ok(())
    }
}

/// The classes whose bits are set. These numbers are those of [`OperationClasses`], and never change.
fn classes(bits: u32) -> Result<OperationClasses, LoadError> {
    let wrong = |reason| Err(LoadError::Header { at: 32, reason });
    match u8::try_from(bits) {
        Ok(0) => wrong("it names no class of operations, so no command would be judged".into()),
        Ok(bits) => Ok(OperationClasses::from_bits(bits)),
        Err(_) => wrong(format!("{bits:#x} has bits of no class of operations")),
    }
}

fn at_most(at: u32, count: u32, max: u32, what: &str) -> Result<u32, LoadError> {
    if count <= max {
        return Ok(count);
    }
    Err(LoadError::Header { at, reason: format!("{count} {what} are asked for, and at most {max} are given") })
}

#[cfg(test)]
mod tests {
    use sanwire_scsi::OperationClass;

    use super::*;

    const MEMORY: usize = 64 << 10;

    /// The fields of a header that is right.
    fn fields() -> [u32; 12] {
        [1024, 2048, 3072, 4, 4096, 512, 8192, 8, 0x06, 0, 0, 0]
    }

    fn read(fields: [u32; 12]) -> Result<Header, LoadError> {
        let mut memory = vec![0; MEMORY];
        for (number, field) in fields.into_iter().enumerate() {
            memory[64 + 4 * number..][..4].copy_from_slice(&field.to_le_bytes());
        }
        Header::read(&memory, 64)
    }

    #[test]
    fn each_field_stands_where_the_document_says() {
        let place = |at, bytes| Place { at, bytes };
        let expected = Header {
            command: place(1024, 384),
            answer: place(2048, 64),
            ranges: place(3072, 64),
            data: place(4096, 512),
            state: place(8192, 8),
            classes: OperationClasses::READ | OperationClasses::WRITE,
        };
        assert_eq!(read(fields()).unwrap(), expected);
    }

    /// Programs are compiled with them.
    #[test]
    fn the_bits_of_the_classes_are_those_of_the_document() {
        for (word, bit) in [
            ("information", 0x01),
            ("read", 0x02),
            ("write", 0x04),
            ("discard", 0x08),
            ("management", 0x10),
            ("reservations", 0x20),
            ("copy-source", 0x40),
            ("copy-target", 0x80),
        ] {
            assert_eq!(OperationClass::from_word(word).map(|class| OperationClasses::of(class).bits()), Some(bit));
        }
    }

    #[test]
    fn a_field_that_is_wrong_is_named() {
        let end = MEMORY as u32;
        for (field, value, reason) in [
            (0, end - 383, "is not within the memory"),
            (0, u32::MAX, "is not within the memory"),
            (1, end - 63, "is not within the memory"),
            (2, end, "is not within the memory"),
            (4, end - 511, "is not within the memory"),
            (6, end - 7, "is not within the memory"),
            (0, 100, "the command lies over the header"),
            (1, 1024 + 383, "the answer lies over the command"),
            (6, 4096 + 511, "the state lies over the data"),
            (3, 257, "257 ranges are asked for"),
            (5, 4097, "4097 bytes of data are asked for"),
            (7, 65537, "65537 bytes of state are asked for"),
            (8, 0, "no class"),
            (8, 0x106, "0x106 has bits of no class"),
            (9, 1, "reserved"),
            (11, 1, "reserved"),
        ] {
            let mut fields = fields();
            fields[field] = value;
            let error = read(fields).unwrap_err();
            let LoadError::Header { at, reason: found } = &error else { panic!("{error}") };
            assert!(found.contains(reason), "{found}");
            let number_of_place =
                if matches!(field, 3 | 5 | 7) && !reason.contains("asked") { field - 1 } else { field };
            assert_eq!(*at as usize, 4 * number_of_place, "{error}");
        }
    }

    #[test]
    fn what_has_no_bytes_is_nowhere() {
        let mut fields = fields();
        (fields[2], fields[3]) = (u32::MAX, 0);
        (fields[4], fields[5]) = (1024, 0);
        (fields[6], fields[7]) = (0, 0);
        let header = read(fields).unwrap();
        for place in [header.ranges, header.data, header.state] {
            assert_eq!(place.of(&[]), []);
        }
    }

    #[test]
    fn a_header_outside_the_memory_is_refused() {
        for at in [MEMORY as u32 - 47, MEMORY as u32, u32::MAX] {
            let error = Header::read(&vec![0; MEMORY], at).unwrap_err();
            assert!(error.to_string().contains("ends outside the memory"), "{error}");
        }
    }
}
