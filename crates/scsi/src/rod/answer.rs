//! What RECEIVE COPY STATUS (LID4) and RECEIVE ROD TOKEN INFORMATION answer (SPC-4 6.24 and 6.26, SBC-4 5.25).

use super::token::TOKEN_BYTES;
use crate::bytes::put;
use crate::operation::code::EXTENDED_COPY_LID1_ACTION;
use crate::task::Status;

/// How a copy stands (COPY OPERATION STATUS, SPC-4 table 249).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum RodState {
    /// Done.
    Done = 0x01,
    /// It ended with an error.
    Failed = 0x02,
    /// Done, but there was less data than was asked for.
    Partial = 0x03,
    /// Under way, and its initiator waits for it.
    Foreground = 0x11,
    /// Under way, and answered already.
    Background = 0x12,
    /// Ended before its time.
    Terminated = 0x60,
}

/// What is told of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RodAnswer<'a> {
    /// The service action of the command that began it.
    pub action: u8,
    /// How it stands.
    pub state: RodState,
    /// How many requests of it have ended well.
    pub operations: u16,
    /// How the command ended; GOOD as long as it has not.
    pub status: Status,
    /// Why, if it failed.
    pub sense: &'a [u8],
    /// How much was copied: in blocks of the unit; of EXTENDED COPY in bytes.
    pub count: u64,
    /// Segments that were copied, of EXTENDED COPY.
    pub segments: u16,
}

/// When to ask again about a copy that is under way, in milliseconds.
const ASK_AGAIN_MS: u32 = 100;
/// It is over (SPC-4 6.24).
const ASK_NO_MORE: u32 = 0xffff_fffe;
/// TRANSFER COUNT UNITS: blocks of what is copied to.
const BLOCKS: u8 = 0xf1;
const HEAD_BYTES: usize = 32;

impl RodAnswer<'_> {
    /// RECEIVE COPY STATUS (LID4) data.
    #[must_use]
    pub fn to_status(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEAD_BYTES];
        (bytes[4], bytes[5]) = (self.action, self.state as u8);
        put(&mut bytes, 6, self.operations.to_be_bytes());
        let is_over = !matches!(self.state, RodState::Foreground | RodState::Background);
        let again_ms = if is_over { ASK_NO_MORE } else { ASK_AGAIN_MS };
        put(&mut bytes, 8, again_ms.to_be_bytes());
        bytes[12] = self.status as u8;
        // Sense data has at most 252 bytes (SPC-5 4.5.1).
        (bytes[13], bytes[14]) = (self.sense.len().next_multiple_of(4) as u8, self.sense.len() as u8);
        bytes[15] = if self.action == EXTENDED_COPY_LID1_ACTION { 0 } else { BLOCKS };
        put(&mut bytes, 16, self.count.to_be_bytes());
        put(&mut bytes, 24, self.segments.to_be_bytes());
        bytes.extend(self.sense);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        counted(bytes)
    }

    /// RECEIVE ROD TOKEN INFORMATION data, with the token that was made, if one was.
    #[must_use]
    pub fn to_information(&self, token: Option<&[u8; TOKEN_BYTES]>) -> Vec<u8> {
        let mut bytes = self.to_status();
        let descriptor_bytes = if token.is_some() { 2 + TOKEN_BYTES as u32 } else { 0 };
        bytes.extend(descriptor_bytes.to_be_bytes());
        token.iter().for_each(|token| {
            bytes.extend([0, 0]);
            bytes.extend(*token);
        });
        counted(bytes)
    }
}

/// AVAILABLE DATA: what comes behind it.
fn counted(mut bytes: Vec<u8>) -> Vec<u8> {
    let available = (bytes.len() - 4) as u32;
    put(&mut bytes, 0, available.to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: RodAnswer<'_> = RodAnswer {
        action: 0x10,
        state: RodState::Done,
        operations: 0x0102,
        status: Status::Good,
        sense: &[],
        count: 0x0304,
        segments: 0,
    };

    #[test]
    fn answers_have_the_bytes_of_the_standard() {
        let told = DONE.to_information(Some(&[0x77; TOKEN_BYTES]));
        assert_eq!(told[..16], [0, 0, 2, 0x22, 0x10, 1, 1, 2, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 0xf1]);
        assert_eq!(told[16..32], [0, 0, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(told[32..38], [0, 0, 2, 2, 0, 0]);
        assert_eq!((&told[38..], told.len()), (&[0x77; TOKEN_BYTES][..], 550));
        let status = DONE.to_status();
        assert_eq!((status.len(), &status[..4], &status[4..]), (32, &[0, 0, 0, 28][..], &told[4..32]));
        let without = RodAnswer { action: 0x11, ..DONE }.to_information(None);
        assert_eq!((&without[..5], &without[32..]), (&[0, 0, 0, 32, 0x11][..], &[0; 4][..]));
    }

    #[test]
    fn sense_data_is_padded_and_its_length_told() {
        let sense = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x23, 8, 0, 0, 0, 0];
        let failed = RodAnswer { state: RodState::Failed, status: Status::CheckCondition, sense: &sense, ..DONE };
        let told = failed.to_information(None);
        assert_eq!((&told[..4], told[5], &told[12..15]), (&[0, 0, 0, 52][..], 2, &[2, 20, 18][..]));
        assert_eq!((&told[32..50], &told[50..]), (&sense[..], &[0; 6][..]));
    }

    #[test]
    fn who_asks_while_it_goes_on_is_told_when_to_ask_again() {
        for (state, code) in [(RodState::Foreground, 0x11), (RodState::Background, 0x12)] {
            let told = RodAnswer { state, ..DONE }.to_status();
            assert_eq!((told[5], &told[8..12]), (code, &[0, 0, 0, 100][..]));
        }
        let copied = RodAnswer { action: 0, segments: 3, ..DONE }.to_status();
        assert_eq!((copied[15], &copied[24..26]), (0, &[0, 3][..]), "EXTENDED COPY counts bytes");
    }
}
