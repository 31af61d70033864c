//! A connection, as both ends have it: packets that go and come, acknowledgements, and signs of life.

mod guard;
mod incoming;
mod outgoing;

use std::collections::VecDeque;
use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, Path};
use sanwire_security::TAG_BYTES;

pub(crate) use self::guard::{Guard, Opened};
use self::incoming::{Incoming, Verdict};
use self::outgoing::Outgoing;
pub(crate) use self::outgoing::Piece;
use crate::counters::Traffic;
use crate::wire::connection::{ACCEPTED, RELEASE, RELEASED};
use crate::wire::flow::Flow;
use crate::wire::live::Live;
use crate::wire::offer::Agreement;
use crate::wire::pcu::RawPcu;
use crate::wire::pdu::{PDU_BYTES, SECTOR_BYTES};
use crate::wire::{Class, DiskType, Header, PacketType, Pcu, Pdu};

/// Who was silent for so many times the keep-alive is gone.
const SILENT_TIMES: u32 = 4;

/// The answer to a question may take so long at the least.
const PATIENCE_MIN: Duration = Duration::from_millis(50);

/// Control packets that wait to be sent; a flood of questions is not answered beyond.
const CONTROLS_MAX: usize = 64;

/// Why a packet was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rejected {
    Malformed,
    NotAuthentic,
    Duplicate,
    /// It comes again.
    NoMemory,
    /// The sender breaks the rules of the protocol.
    Violation,
}

/// What a control packet says to the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// Nothing that the channel has not done already.
    Nothing,
    /// The other end answers this question.
    Answer(u64),
    /// The other end has these answers, or commands, whole.
    Arrived(Vec<u16>),
    /// The server has accepted us.
    Accepted(Agreement),
    /// The other end releases the connection.
    Release,
    /// It has heard that we do.
    Released,
}

/// One end of a connection.
pub(crate) struct Channel {
    pub(crate) path: Path,
    header: Header,
    guard: Guard,
    outgoing: Outgoing,
    incoming: Incoming,
    controls: VecDeque<(Class, Vec<u8>)>,
    keep_alive: Duration,
    heard_at: Instant,
    /// Packets that were authentic and new.
    heard: u64,
    /// What both ends have agreed on: W and N.
    agreed: (u32, u16),
    /// The number of the newest packet by which the other end has changed that for us.
    changed_by: Option<u32>,
    asked_at: Instant,
    sent_packets: u64,
}

/// What a channel begins with.
pub(crate) struct Setup {
    pub(crate) path: Path,
    /// That of all packets that we send.
    pub(crate) header: Header,
    pub(crate) guard: Guard,
    pub(crate) agreement: Agreement,
    pub(crate) keep_alive: Duration,
}

impl Channel {
    pub(crate) fn new(setup: Setup, now: Instant) -> Self {
        let Setup { path, header, guard, agreement, keep_alive } = setup;
        let Agreement { window_packets, group_packets, data_bytes, .. } = agreement;
        Channel {
            path,
            header,
            guard,
            outgoing: Outgoing::new(data_bytes.into(), window_packets, group_packets),
            incoming: Incoming::new(window_packets, group_packets),
            controls: VecDeque::new(),
            keep_alive,
            heard_at: now,
            heard: 0,
            agreed: (window_packets, group_packets),
            changed_by: None,
            asked_at: now,
            sent_packets: 0,
        }
    }

    /// Another end has the same ports, perhaps.
    pub(crate) fn is_of(&self, path: Path, header: &Header) -> bool {
        self.path == path
            && self.header.server_port == header.server_port
            && self.header.client_port == header.client_port
    }

    /// The port of its client.
    pub(crate) fn client_port(&self) -> u16 {
        self.header.client_port
    }

    /// Whether another connection should take its place.
    pub(crate) fn is_worn(&self) -> bool {
        self.guard.is_worn() || self.outgoing.is_worn() || self.incoming.is_worn()
    }

    /// When the other end was heard last.
    pub(crate) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// As if the other end had said that it takes as much as was agreed, whatever it has said.
    #[cfg(test)]
    pub(crate) fn ignore_room(&mut self, now: Instant) {
        self.outgoing.ignore_room(now);
    }

    /// As if so many groups had been sent.
    #[cfg(test)]
    pub(crate) fn skip_groups(&mut self, groups: u32) {
        self.outgoing.skip_groups(groups);
    }

    /// Whether an authentic packet was received.
    pub(crate) fn is_heard(&self) -> bool {
        self.heard > 0
    }

    /// How many packets have come that nobody else can have sent, nor sent again.
    pub(crate) fn heard(&self) -> u64 {
        self.heard
    }

    /// How long the answer to a question may take.
    pub(crate) fn patience(&self) -> Duration {
        self.outgoing.smoothed().map_or(PATIENCE_MIN, |round_trip| (round_trip * 3).max(PATIENCE_MIN))
    }

    fn hear(&mut self, now: Instant) {
        self.heard_at = now;
        self.heard += 1;
    }

    /// Asks whether the other end is there.
    pub(crate) fn ask(&mut self, now: Instant) {
        self.question(now.as_nanos(), now);
    }

    /// The same by this number, with which the answer comes: the other end has what was sent before, if nothing is lost.
    pub(crate) fn question(&mut self, number: u64, now: Instant) {
        self.asked_at = now;
        self.control(Class::KeepAlive, Live::KeepAlive(number).write());
    }

    /// A packet with data that is authentic and new. It counts as come when [`Channel::took`] is told. `vacancy` gives the
    /// memory for the data of an encrypted one, from its header, which has not been authenticated yet; `None` where data has come already.
    pub(crate) fn open<'a, 'v>(
        &mut self,
        packet: &'a [u8],
        plain: &'a mut Vec<u8>,
        vacancy: impl FnOnce(&Pdu) -> Option<&'v mut [u8]>,
        now: Instant,
    ) -> Result<(Pdu, Opened<'a>), Rejected> {
        let mut pdu = Pdu::read(packet).map_err(|_| Rejected::Malformed)?;
        let is_ours =
            pdu.header.disk_type == self.header.disk_type && pdu.header.disk_address == self.header.disk_address;
        if !is_ours {
            return Err(Rejected::Malformed);
        }
        // First, so that nobody else has us acknowledge anything.
        let place = if self.guard.encrypts() { vacancy(&pdu) } else { None };
        let opened = self.guard.open_pdu(&pdu, packet, (plain, place), now)?;
        match self.incoming.judge((pdu.group, pdu.serial), now) {
            Verdict::New => self.hear(now),
            Verdict::Duplicate => return Err(Rejected::Duplicate),
            Verdict::Beyond => return Err(Rejected::Violation),
        }
        if let ([feature, count], true) = (opened.before, pdu.body().data_bytes == 0) {
            pdu.widen([*feature, *count]);
        }
        Ok((pdu, opened))
    }

    /// A packet that was opened has been taken. False: its sender contradicts itself.
    pub(crate) fn took(&mut self, pdu: &Pdu, now: Instant) -> bool {
        self.incoming.note(((pdu.group, pdu.serial), pdu.flags), self.outgoing.smoothed(), now)
    }

    /// A control packet has come.
    pub(crate) fn handle_control(&mut self, raw: &RawPcu<'_>, now: Instant) -> Result<Heard, Rejected> {
        let operation = self.guard.open_pcu(raw, now)?;
        self.hear(now);
        match raw.pcu.class {
            Class::Flow => self.handle_flow(&operation, raw.pcu.number, now),
            class @ (Class::Query | Class::KeepAlive) => {
                match Live::read(class, &operation).map_err(|_| Rejected::Malformed)? {
                    Live::Query(place) => self.incoming.queried(place, now),
                    Live::KeepAlive(nonce) => self.control(Class::KeepAlive, Live::Alive(nonce).write()),
                    Live::Alive(nonce) => return Ok(Heard::Answer(nonce)),
                }
                Ok(Heard::Nothing)
            }
            Class::Connection => match operation.first() {
                Some(&ACCEPTED) => Agreement::read(&operation).map(Heard::Accepted).map_err(|_| Rejected::Malformed),
                Some(&RELEASE) => Ok(Heard::Release),
                Some(&RELEASED) => Ok(Heard::Released),
                _ => Err(Rejected::Malformed),
            },
            Class::Discovery | Class::Management => Err(Rejected::Malformed),
        }
    }

    fn handle_flow(&mut self, operation: &[u8], number: u32, now: Instant) -> Result<Heard, Rejected> {
        match Flow::read(operation).map_err(|_| Rejected::Malformed)? {
            Flow::Ack(ack) => self.outgoing.acknowledged(&ack, now).map(Heard::Arrived).ok_or(Rejected::Violation),
            Flow::Nack { group, ranges } => {
                self.outgoing.missing(group, &ranges, now);
                Ok(Heard::Nothing)
            }
            Flow::Change { window_packets, group_packets, rate_bytes_per_second } => {
                // One that a later one has overtaken says nothing any more.
                if self.changed_by.is_none_or(|newest| newest < number) {
                    self.changed_by = Some(number);
                    self.outgoing.change(window_packets, group_packets, rate_bytes_per_second, now);
                }
                Ok(Heard::Nothing)
            }
        }
    }

    /// Sends a piece of a command or of an answer.
    pub(crate) fn send(&mut self, piece: Piece, now: Instant) {
        self.outgoing.push(piece, now);
    }

    /// Whether all that was sent has arrived, and nothing waits.
    pub(crate) fn is_idle(&self) -> bool {
        self.outgoing.is_idle()
    }

    /// Commands or answers of which not every packet was sent.
    pub(crate) fn queued(&self) -> usize {
        self.outgoing.queued()
    }

    /// Sends a control packet, unless very many wait.
    pub(crate) fn control(&mut self, class: Class, operation: Vec<u8>) {
        if self.controls.len() < CONTROLS_MAX {
            self.controls.push_back((class, operation));
        }
    }

    /// From now on we take so much: W, N, and bytes for each second (0: as many as come).
    pub(crate) fn change(&mut self, window_packets: u32, group_packets: u16, rate_bytes_per_second: u64, now: Instant) {
        let (window_agreed, group_agreed) = self.agreed;
        let (window_packets, group_packets) = (window_packets.min(window_agreed), group_packets.min(group_agreed));
        self.incoming.set_room(window_packets, group_packets, now);
        self.control(Class::Flow, Flow::Change { window_packets, group_packets, rate_bytes_per_second }.write());
    }

    /// W of the other end: what it was told last.
    pub(crate) fn room_packets(&self) -> u32 {
        self.incoming.room_packets()
    }

    /// How long an answer takes, once that is known.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.outgoing.smoothed()
    }

    /// The next packet to send.
    pub(crate) fn poll_transmit(&mut self, now: Instant) -> Option<Packet> {
        let packet = self.next_packet(now)?;
        self.sent_packets += 1;
        Some(packet)
    }

    /// What went through it.
    pub(crate) fn traffic(&self) -> Traffic {
        let (resent_packets, timeouts, window_packets) = self.outgoing.counts();
        Traffic {
            sent_packets: self.sent_packets,
            received_packets: self.heard,
            resent_packets,
            timeouts,
            window_packets,
            round_trip: self.outgoing.smoothed(),
        }
    }

    fn next_packet(&mut self, now: Instant) -> Option<Packet> {
        if let Some((class, operation)) = self.controls.pop_front() {
            return self.seal(class, &operation);
        }
        if let Some(ack) = self.incoming.poll_ack(now) {
            return self.seal(Class::Flow, &Flow::Ack(ack).write());
        }
        let gaps = self.incoming.poll_gaps(self.outgoing.smoothed(), now);
        for (group, ranges) in gaps {
            self.control(Class::Flow, Flow::Nack { group, ranges }.write());
        }
        if let Some((class, operation)) = self.controls.pop_front() {
            return self.seal(class, &operation);
        }
        let ((group, serial), piece) = self.outgoing.poll(now)?;
        let Piece { flags, fields, command, ref before, ref data } = *piece;
        let header = Header { packet_type: PacketType::Pdu, ..self.header };
        let pdu = Pdu { header, flags, fields, command, group, serial };
        self.guard.seal_pdu(&pdu, before, data.as_ref())
    }

    /// A control packet that goes at once.
    pub(crate) fn seal(&mut self, class: Class, operation: &[u8]) -> Option<Packet> {
        let header = Header { packet_type: PacketType::Pcu, ..self.header };
        self.guard.seal_pcu(Pcu { header, class, is_sealed: true, number: 0 }, operation)
    }

    /// When [`Channel::handle_timeout`] is to be called.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let alive_at = (self.heard_at.max(self.asked_at) + self.keep_alive).min(self.dead_at());
        let others = self.incoming.poll_timeout().into_iter().chain(self.outgoing.poll_timeout());
        others.chain([alive_at]).min()
    }

    fn dead_at(&self) -> Instant {
        self.heard_at + self.keep_alive * SILENT_TIMES
    }

    /// Time has passed. False: the other end is gone.
    pub(crate) fn handle_timeout(&mut self, now: Instant) -> bool {
        if let Some(place) = self.outgoing.handle_timeout(now) {
            self.control(Class::Query, Live::Query(place).write());
        }
        if self.heard_at.max(self.asked_at) + self.keep_alive <= now {
            self.ask(now);
        }
        now < self.dead_at()
    }
}

/// Bytes of a CDB or of sense data that have room before the data of a packet.
const BEFORE_MAX_BYTES: usize = 255;

/// Data of a packet, at the most: what both links take, as a multiple of 4 KiB or at least of a sector.
pub(crate) fn data_bytes(packet_max_bytes: u16, disk_type: DiskType) -> u16 {
    let before = if disk_type == DiskType::Scsi { BEFORE_MAX_BYTES } else { 0 };
    let room = usize::from(packet_max_bytes).saturating_sub(PDU_BYTES + before + TAG_BYTES);
    let unit = if room >= 4096 { 4096 } else { SECTOR_BYTES };
    (room / unit * unit) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::offer::PACKET_MIN_BYTES;

    #[test]
    fn packets_carry_what_the_links_take_in_sectors() {
        for (packet_max_bytes, expected) in [(1500, 1024), (9000, 8192), (4096, 3584), (65_535, 61_440), (555, 0)] {
            assert_eq!(data_bytes(packet_max_bytes, DiskType::Sata), expected);
        }
        assert_eq!([1500, 9000].map(|bytes| data_bytes(bytes, DiskType::Scsi)), [1024, 8192]);
        for disk_type in [DiskType::Ata, DiskType::Sata, DiskType::Scsi] {
            assert!(data_bytes(PACKET_MIN_BYTES, disk_type) > 0, "or nothing could be sent");
        }
        let (most, sectors) = (data_bytes(u16::MAX, DiskType::Sata), usize::from(u8::MAX) * SECTOR_BYTES);
        assert!(usize::from(most) <= sectors, "one byte counts them");
    }
}
