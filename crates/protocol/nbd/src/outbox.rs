//! What a connection is to send: heads, each with its data in the pieces in which that lies.

use std::collections::VecDeque;

use sanwire_buffer::{Head, Packet, Slices};

#[derive(Debug, Default)]
pub(crate) struct Outbox(VecDeque<Outgoing>);

#[derive(Debug)]
struct Outgoing {
    head: Head,
    data: Option<Slices>,
    /// Packets that it was polled for.
    polled: usize,
}

impl Outbox {
    pub(crate) fn push(&mut self, head: Head, data: Option<Slices>) {
        self.0.push_back(Outgoing { head, data, polled: 0 });
    }

    /// The next packet: a head with the first piece of its data, or a further piece alone.
    pub(crate) fn poll(&mut self) -> Option<Packet> {
        let Outgoing { head, data, polled } = self.0.front_mut()?;
        let pieces = data.as_ref().map_or(&[][..], Slices::pieces);
        let packet = Packet::new(std::mem::take(head), pieces.get(*polled).cloned());
        *polled += 1;
        if *polled >= pieces.len() {
            self.0.pop_front();
        }
        Some(packet)
    }

    /// Takes back that of which nothing was polled yet, and gives the heads: of what was begun the other end expects the rest.
    pub(crate) fn withdraw(&mut self) -> impl Iterator<Item = Head> + use<> {
        let begun = self.0.iter().take_while(|outgoing| outgoing.polled > 0).count();
        self.0.split_off(begun).into_iter().map(|outgoing| outgoing.head)
    }
}
