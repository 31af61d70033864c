//! Places where the data of encrypted packets is decrypted to, so that it need not be copied there.
//!
//! Where a packet's data belongs stands in its fragment fields, which are encrypted themselves. What its header says is enough to guess
//! it, but anybody may have written the header, and decrypting writes before the tag is verified. So a place is guessed only where
//! nothing has come yet, and what is written there counts for nothing until an authentic packet says that it belongs there.

use std::ops::Range;

use crate::wire::command::{FRAGMENT_BYTES, Fragment};

/// Where the data of a packet belongs, perhaps: a part of its message to which nothing has come.
pub(crate) struct Vacancy<'a> {
    /// The place, and before it as many bytes as the fragment fields take, which are decrypted in one piece with the data.
    memory: &'a mut [u8],
    data_offset: u32,
}

/// A packet's data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Data<'a> {
    /// It is to be put where it belongs.
    Apart(&'a [u8]),
    /// So many bytes are where they belong.
    InPlace(usize),
}

/// The fragment fields of a packet, its part of the message head, and its data.
pub(crate) type Parts<'a> = (Fragment, &'a [u8], Data<'a>);

impl Data<'_> {
    pub(crate) fn len(self) -> usize {
        match self {
            Data::Apart(data) => data.len(),
            Data::InPlace(bytes) => bytes,
        }
    }
}

impl<'a> Vacancy<'a> {
    /// The vacancy in this place of a message. `None` where a packet's fragment fields find no room before it.
    pub(crate) fn new(message: &'a mut [u8], place: Range<usize>) -> Option<Self> {
        let data_offset = u32::try_from(place.start).ok()?;
        let memory = message.get_mut(place.start.checked_sub(FRAGMENT_BYTES)?..place.end)?;
        Some(Vacancy { memory, data_offset })
    }

    /// Has a packet's body, which is as long as the fragment fields and the place, decrypted here; gives the fields. What lay
    /// before the place may have come already: it is put back, whether the packet is authentic or not.
    pub(crate) fn fill(&mut self, open: impl FnOnce(&mut [u8]) -> Option<()>) -> Option<[u8; FRAGMENT_BYTES]> {
        let (mut before, mut fields) = ([0; FRAGMENT_BYTES], [0; FRAGMENT_BYTES]);
        before.copy_from_slice(&self.memory[..FRAGMENT_BYTES]);
        let opened = open(self.memory);
        fields.copy_from_slice(&self.memory[..FRAGMENT_BYTES]);
        self.memory[..FRAGMENT_BYTES].copy_from_slice(&before);
        opened.map(|()| fields)
    }

    /// The parts of the authentic packet with these fields, whose body was decrypted here. Where it belongs elsewhere, or has a head,
    /// it is moved into `plain`.
    ///
    /// `None` when its lengths do not fit together.
    pub(crate) fn parts<'p>(self, fields: &[u8; FRAGMENT_BYTES], plain: &'p mut Vec<u8>) -> Option<Parts<'p>> {
        let data = &self.memory[FRAGMENT_BYTES..];
        if let Ok((fragment, ..)) = Fragment::read(fields)
            && fragment.head_length == 0
            && fragment.data_offset == self.data_offset
            && u64::from(fragment.data_offset) + data.len() as u64 <= u64::from(fragment.data_length)
        {
            return Some((fragment, &[], Data::InPlace(data.len())));
        }
        plain.clear();
        plain.extend_from_slice(fields);
        plain.extend_from_slice(data);
        parts(plain)
    }
}

/// The parts of a body that is not where its data belongs; `None` when its lengths do not fit together.
pub(crate) fn parts(body: &[u8]) -> Option<Parts<'_>> {
    let (fragment, head, data) = Fragment::read(body).ok()?;
    Some((fragment, head, Data::Apart(data)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Fragment = Fragment { data_offset: 30, data_length: 100, ..NOWHERE };
    const NOWHERE: Fragment = Fragment {
        sequence: 7,
        data_offset: 0,
        data_length: 0,
        acknowledgement: 0,
        head_length: 0,
        answer_at_once: false,
        expanded_kib: 0,
    };

    /// A message of which 30 bytes have come.
    fn message() -> Vec<u8> {
        [&[1u8; 30][..], &[0; 70]].concat()
    }

    /// Decrypts a packet with these fields and data of tens behind what has come.
    fn decrypt<'p>(message: &mut [u8], fields: Fragment, plain: &'p mut Vec<u8>) -> Option<Parts<'p>> {
        let mut vacancy = Vacancy::new(message, 30..40).unwrap();
        let fields = vacancy.fill(|body| {
            body.copy_from_slice(&[&fields.write()[..], &[10; 10]].concat());
            Some(())
        });
        vacancy.parts(&fields.unwrap(), plain)
    }

    #[test]
    fn data_stays_where_it_was_decrypted_when_it_belongs_there_and_what_lay_before_it_is_put_back() {
        let (mut message, mut plain) = (message(), Vec::new());
        let parts = decrypt(&mut message, HERE, &mut plain);
        assert_eq!(parts, Some((HERE, &b""[..], Data::InPlace(10))));
        assert_eq!(message, [&[1u8; 30][..], &[10; 10], &[0; 60]].concat());
    }

    #[test]
    fn what_belongs_elsewhere_or_has_a_head_is_moved_away() {
        for fields in [Fragment { data_offset: 50, ..HERE }, Fragment { data_offset: 0, ..HERE }] {
            let (mut message, mut plain) = (message(), Vec::new());
            assert_eq!(
                decrypt(&mut message, fields, &mut plain),
                Some((fields, &b""[..], Data::Apart(&[10; 10]))),
                "{fields:?}"
            );
            assert_eq!(message[..30], [1; 30], "{fields:?}");
        }
        let (mut plain, fields) = (Vec::new(), Fragment { head_length: 4, ..HERE });
        let parts = decrypt(&mut message(), fields, &mut plain);
        assert_eq!(parts, Some((fields, &[10u8; 4][..], Data::Apart(&[10; 6]))));
        for fields in [Fragment { data_length: 39, ..HERE }, Fragment { head_length: 11, ..HERE }] {
            assert_eq!(decrypt(&mut message(), fields, &mut Vec::new()), None, "{fields:?}");
        }
    }

    #[test]
    fn a_forged_packet_changes_nothing_but_the_vacancy() {
        let mut message = message();
        let mut vacancy = Vacancy::new(&mut message, 30..40).unwrap();
        let opened = vacancy.fill(|body| {
            body.fill(66);
            None
        });
        assert_eq!(opened, None);
        assert_eq!(message, [&[1u8; 30][..], &[66; 10], &[0; 60]].concat());
    }

    #[test]
    fn a_vacancy_and_the_fields_before_it_lie_within_the_message() {
        assert!(Vacancy::new(&mut message(), 24..100).is_some());
        assert!(Vacancy::new(&mut message(), 23..100).is_none(), "the fields would not");
        assert!(Vacancy::new(&mut message(), 24..101).is_none());
        assert!(Vacancy::new(&mut [], 24..30).is_none());
    }
}
