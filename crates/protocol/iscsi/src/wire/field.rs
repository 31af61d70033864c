//! Fields of a header, by their places: each kind knows how to read itself and how to write itself.

use super::header::Header;

/// A field of a header.
pub trait Field {
    /// What it holds.
    type Value;
    /// Reads it.
    fn get(header: &Header) -> Self::Value;
    /// Writes it.
    fn set(header: &mut Header, value: Self::Value);
}

/// Bit `BIT` (0 is the lowest) of byte `AT`.
pub struct Bit<const AT: usize, const BIT: u8>;
/// `WIDTH` bits of byte `AT`, of which the lowest is bit `SHIFT`.
pub struct Bits<const AT: usize, const SHIFT: u8, const WIDTH: u8>;
/// The byte at `AT`.
pub struct U8<const AT: usize>;
/// Two bytes from `AT`.
pub struct U16<const AT: usize>;
/// Four bytes from `AT`.
pub struct U32<const AT: usize>;
/// `N` bytes from `AT`, as they are.
pub struct Bytes<const AT: usize, const N: usize>;

impl<const AT: usize, const BIT: u8> Field for Bit<AT, BIT> {
    type Value = bool;

    fn get(header: &Header) -> bool {
        header.0[AT] >> BIT & 1 == 1
    }

    fn set(header: &mut Header, value: bool) {
        header.0[AT] = header.0[AT] & !(1 << BIT) | u8::from(value) << BIT;
    }
}

impl<const AT: usize, const SHIFT: u8, const WIDTH: u8> Field for Bits<AT, SHIFT, WIDTH> {
    type Value = u8;

    fn get(header: &Header) -> u8 {
        header.0[AT] >> SHIFT & mask(WIDTH)
    }

    fn set(header: &mut Header, value: u8) {
        header.0[AT] = header.0[AT] & !(mask(WIDTH) << SHIFT) | (value & mask(WIDTH)) << SHIFT;
    }
}

const fn mask(width: u8) -> u8 {
    (1 << width) - 1
}

impl<const AT: usize> Field for U8<AT> {
    type Value = u8;

    fn get(header: &Header) -> u8 {
        header.0[AT]
    }

    fn set(header: &mut Header, value: u8) {
        header.0[AT] = value;
    }
}

impl<const AT: usize> Field for U16<AT> {
    type Value = u16;

    fn get(header: &Header) -> u16 {
        u16::from_be_bytes(Bytes::<AT, 2>::get(header))
    }

    fn set(header: &mut Header, value: u16) {
        Bytes::<AT, 2>::set(header, value.to_be_bytes());
    }
}

impl<const AT: usize> Field for U32<AT> {
    type Value = u32;

    fn get(header: &Header) -> u32 {
        u32::from_be_bytes(Bytes::<AT, 4>::get(header))
    }

    fn set(header: &mut Header, value: u32) {
        Bytes::<AT, 4>::set(header, value.to_be_bytes());
    }
}

impl<const AT: usize, const N: usize> Field for Bytes<AT, N> {
    type Value = [u8; N];

    fn get(header: &Header) -> [u8; N] {
        std::array::from_fn(|index| header.0[AT + index])
    }

    fn set(header: &mut Header, value: [u8; N]) {
        header.0[AT..AT + N].copy_from_slice(&value);
    }
}

/// Declares a PDU's header: its fields and their places; reading and writing follow from the table.
macro_rules! header {
    ($(#[$meta:meta])* $name:ident = $opcode:ident { $($(#[$field_meta:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: <$kind as $crate::wire::field::Field>::Value,)*
        }

        impl $name {
            /// Reads the fields of a header, whose operation code the caller has looked at.
            #[must_use]
            pub fn read(header: &$crate::wire::Header) -> Self {
                $name { $($field: <$kind as $crate::wire::field::Field>::get(header),)* }
            }

            /// Writes the header; without additional segments and data.
            #[must_use]
            pub fn write(&self) -> $crate::wire::Header {
                let mut header = $crate::wire::Header::new($crate::wire::Opcode::$opcode);
                $(<$kind as $crate::wire::field::Field>::set(&mut header, self.$field);)*
                header
            }
        }
    };
}

pub(crate) use header;
