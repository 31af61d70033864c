//! What has arrived, as its owner is told: PDUs, and before those with data the question where that belongs.

use std::collections::VecDeque;
use std::ops::Range;

use sanwire_buffer::Frame;
use sanwire_iscsi::wire::Header;
use sanwire_iscsi::{Destination, Pdu as Told, Step};

use crate::message::Pdu;

/// What is told next.
#[derive(Debug)]
enum Next {
    /// It has arrived.
    Pdu(Told),
    /// Its data waits in the message for a place.
    Waits { header: Header, additional: Vec<u8>, buffer: Frame, data: Range<usize> },
    /// Its data is in the frame already that its owner has.
    IsThere { header: Header },
}

/// The PDUs of one connection that have arrived, in their order.
#[derive(Default)]
pub(crate) struct Incoming {
    next: VecDeque<Next>,
    /// Bytes that have come into frames out of messages.
    placed_bytes: u64,
}

impl Incoming {
    /// A PDU that has come in a message.
    pub(crate) fn push(&mut self, pdu: Pdu) {
        let Pdu { header, additional, buffer, data, .. } = pdu;
        self.next.push_back(if data.is_empty() {
            Next::Pdu(Told { header, additional, data: None, is_intact: true })
        } else {
            Next::Waits { header, additional, buffer, data }
        });
    }

    /// Data that has come without one, with the frame that it lies in.
    pub(crate) fn push_data(&mut self, header: Header, frame: Frame) {
        self.next.push_back(Next::Pdu(told(header, Some(frame))));
    }

    /// More of it, in the same frame.
    pub(crate) fn push_more_data(&mut self, header: Header) {
        self.next.push_back(Next::IsThere { header });
    }

    /// What is told next, if anything is.
    pub(crate) fn poll(&mut self) -> Option<Step> {
        match self.next.pop_front()? {
            Next::Pdu(pdu) => Some(Step::Pdu(pdu)),
            next @ (Next::Waits { header, .. } | Next::IsThere { header }) => {
                self.next.push_front(next);
                Some(Step::Header(header))
            }
        }
    }

    /// Where the data belongs of the header that was told last.
    pub(crate) fn place(&mut self, destination: Destination) {
        let pdu = match self.next.pop_front() {
            Some(Next::Waits { header, additional, buffer, data }) => {
                let is_kept = matches!(destination, Destination::Frame(..));
                self.placed_bytes += if is_kept { data.len() as u64 } else { 0 };
                Told { additional, ..told(header, destination.put(&buffer[data])) }
            }
            Some(Next::IsThere { header }) => match destination {
                Destination::Frame(frame, _) => told(header, Some(frame)),
                Destination::Beginning(_) | Destination::Nowhere => told(header, None),
            },
            Some(next @ Next::Pdu(_)) => return self.next.push_front(next),
            None => return,
        };
        self.next.push_front(Next::Pdu(pdu));
    }

    /// Bytes that have come into frames out of messages.
    pub(crate) fn placed_bytes(&self) -> u64 {
        self.placed_bytes
    }

    /// Takes out the frames in which data lies that was not told, with the tags of their tasks.
    pub(crate) fn withdraw(&mut self) -> Vec<(u32, Frame)> {
        let with_frames = self.next.iter_mut().filter_map(|next| match next {
            Next::Pdu(pdu) => Some((pdu.header.task_tag(), pdu.data.take()?)),
            Next::Waits { .. } | Next::IsThere { .. } => None,
        });
        with_frames.collect()
    }
}

fn told(header: Header, data: Option<Frame>) -> Told {
    Told { header, additional: Vec::new(), data, is_intact: true }
}
