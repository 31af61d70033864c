//! The write verifier page (vendor specific, C0h): whether writes that were complete, but not stable, may have been lost, and
//! whether the initiator that has given them may give them again.

use super::{build, page, parse};
use crate::bytes::AnswerError;
use crate::reservation::TransportId;

/// What tells this page from those that other vendors have under its number.
const SIGNATURE: [u8; 8] = *b"SANWIRE\0";

/// Nothing that is complete is ever lost while the unit is the same.
const STABLE: u8 = 0x01;

/// What a unit says of writes that are complete, and not stable before the next SYNCHRONIZE CACHE.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct WriteVerifier {
    /// Nothing that is complete is ever lost while the unit is the same.
    pub is_stable: bool,
    /// Another one than before: complete writes that were not stable may be lost.
    pub verifier: [u8; 16],
    /// From its first write on, no nexus but the one that asks has written while it is told this same number, through restarts of
    /// both ends' sessions and of the target; `None`: that cannot be said.
    pub tenure: Option<[u8; 16]>,
    /// Another initiator port that has written, and has a session still: the one that has done so last.
    pub other_writer: Option<TransportId>,
}

impl WriteVerifier {
    /// The page.
    #[must_use]
    pub fn to_page(&self) -> Vec<u8> {
        let mut body = SIGNATURE.to_vec();
        body.extend([if self.is_stable { STABLE } else { 0 }, 0, 0, 0, 0, 0, 0, 0]);
        body.extend(self.verifier);
        body.extend(self.tenure.unwrap_or_default());
        body.extend(self.other_writer.iter().flat_map(|port| port.as_bytes()));
        build(page::WRITE_VERIFIER, &body)
    }

    /// Reads the page; `None` for one of another vendor.
    ///
    /// # Errors
    /// [`AnswerError`] when it is another page or cut short.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, AnswerError> {
        let body = parse(bytes, page::WRITE_VERIFIER)?;
        let Some(rest) = body.strip_prefix(&SIGNATURE) else { return Ok(None) };
        let short = AnswerError::Short("INQUIRY (page C0h)");
        let field = |at: usize| rest.get(at..).and_then(|rest| rest.first_chunk::<16>()).copied().ok_or(short);
        let (flags, verifier, tenure) = (rest.first().copied().ok_or(short)?, field(8)?, field(24)?);
        let tenure = Some(tenure).filter(|tenure| *tenure != [0; 16]);
        // Earlier versions end here.
        let other_writer = rest.get(40..).and_then(TransportId::split_first).map(|(port, _)| port);
        Ok(Some(WriteVerifier { is_stable: flags & STABLE != 0, verifier, tenure, other_writer }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanwire_core::ClientId;

    #[test]
    fn the_page_survives_and_others_are_not_taken_for_it() {
        let some = WriteVerifier { verifier: [7; 16], tenure: Some([9; 16]), ..WriteVerifier::default() };
        for said in [some.clone(), WriteVerifier { is_stable: true, tenure: None, ..some.clone() }] {
            let page = said.to_page();
            assert_eq!((page[..4].to_vec(), page.len()), (vec![0, 0xc0, 0, 48], 52));
            assert_eq!(WriteVerifier::parse(&page), Ok(Some(said)));
            (12..52).for_each(|length| assert!(WriteVerifier::parse(&page[..length]).is_err(), "{length}"));
        }
        let others = [TransportId::hyperscsi(ClientId([5; 16])), TransportId::iscsi_port("iqn.a", [1; 6]).unwrap()];
        for other in others {
            let said = WriteVerifier { other_writer: Some(other), ..some.clone() };
            assert_eq!(WriteVerifier::parse(&said.to_page()), Ok(Some(said)));
        }
        assert_eq!(WriteVerifier::parse(&[0, 0xc0, 0, 4, 1, 2, 3, 4]), Ok(None));
    }
}
