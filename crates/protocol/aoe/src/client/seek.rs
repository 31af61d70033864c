//! Finding a target, and finding it again.

use sanwire_ata::{Host, IdentifyDevice};
use sanwire_buffer::{Head, Packet};
use sanwire_core::{Instant, LinkId, MacAddress, Path, Peer};

use super::machine::{Client, OWN_TAG, PROBES_MAX, SEEK_EVERY, State};
use super::types::{ClientEvent, Failure, Place};
use super::window::Window;
use crate::wire::{self, Address, AtaHeader, Config, ConfigOrder, Header, command};

/// Sectors of one command where a target says none.
const SECTORS_UNSAID: u8 = 2;

/// Sectors that are written together without reading a part of a page, or of a physical sector, first.
const SECTORS_TOGETHER: u8 = 8;

/// A question to targets which of them are there.
#[must_use]
pub fn question(address: Address, tag: u32) -> Packet {
    let header = Header::request(address, command::CONFIG, tag);
    let argument = Config::query(ConfigOrder::Read, &[]).to_bytes();
    Packet::new(wire::head(&header, &argument, 0), None)
}

/// A target that has answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Where it is.
    pub address: Address,
    /// Sectors of one command.
    pub sectors: u8,
    /// Commands that it takes before it has answered any.
    pub buffers: u16,
    /// What its owner has written there.
    pub config: Vec<u8>,
    /// By which the question was known.
    pub tag: u32,
}

/// Reads the answer to [`question`].
#[must_use]
pub fn found(bytes: &[u8]) -> Option<Found> {
    let (header, argument) = Header::parse(bytes)?;
    let is_answer = header.is_response && header.error.is_none() && header.command == command::CONFIG;
    let config = Config::parse(argument).filter(|_| is_answer && header.address.is_one())?;
    let sectors = if config.sectors == 0 { SECTORS_UNSAID } else { config.sectors };
    let (address, tag) = (header.address, header.tag);
    Some(Found { address, sectors, buffers: config.buffers.max(1), config: config.string.to_vec(), tag })
}

impl Client {
    /// Asks for the target on every link.
    pub(super) fn seek(&mut self, now: Instant) {
        let tag = self.tag();
        self.probe_tag = Some(tag);
        for (link, _) in self.config.links.clone() {
            let path = Path { link, peer: Peer::Ethernet(MacAddress::BROADCAST) };
            self.outbox.push_back((path, question(self.config.address, tag)));
        }
        self.ask_at = Some(now + SEEK_EVERY);
    }

    /// Asks the target whether it is there.
    pub(super) fn probe(&mut self, place: Place) {
        let tag = self.tag();
        self.outbox.push_back((place.path, question(self.config.address, tag)));
    }

    /// Asks a target what it is.
    pub(super) fn identify(&mut self, place: Place, now: Instant) {
        // A target may take longer for the answer than this end waits until it asks again.
        let tag = self.probe_tag.unwrap_or_else(|| self.tag());
        self.probe_tag = Some(tag);
        self.probes_left = self.probes_left.saturating_sub(1);
        let header = Header::request(self.config.address, command::ATA, tag);
        if let Some(ata) = AtaHeader::of(&Host::identify(), false) {
            let head: Head = wire::head(&header, &ata.to_bytes(), 0);
            self.outbox.push_back((place.path, Packet::new(head, None)));
        }
        self.ask_at = Some(now + SEEK_EVERY);
    }

    /// A target has said that it is there.
    pub(super) fn announced(&mut self, path: Path, found: &Found, now: Instant) {
        match self.state {
            State::Seeking => {
                let Some(place) = self.place_of(path, found) else { return };
                self.found = Some(found.clone());
                (self.state, self.probes_left) = (State::Identifying(place), PROBES_MAX);
                (self.heard_at, self.probe_tag) = (now, None);
                self.identify(place, now);
            }
            State::Up(place) if place.path == path => {
                self.found = Some(found.clone());
                self.move_to(place, found);
                // It says so unasked when it has been started: it may be another disk by now.
                if found.tag & OWN_TAG == 0 && !(self.probe_tag.is_some() && self.is_probe_for_announcement) {
                    (self.probes_left, self.probe_tag, self.is_probe_for_announcement) = (PROBES_MAX, None, true);
                    self.identify(place, now);
                }
            }
            State::Up(_) | State::Identifying(_) | State::Over => {}
        }
    }

    /// The largest packet of a link has changed.
    pub fn set_link(&mut self, link: LinkId, packet_max_bytes: usize) {
        let Some((_, known)) = self.config.links.iter_mut().find(|(known, _)| *known == link) else { return };
        let has_changed = std::mem::replace(known, packet_max_bytes) != packet_max_bytes;
        let Some(found) = self.found.clone().filter(|_| has_changed) else { return };
        match self.state {
            State::Up(place) => self.move_to(place, &found),
            State::Identifying(place) => {
                self.state = State::Identifying(self.place_of(place.path, &found).unwrap_or(place));
            }
            State::Seeking | State::Over => {}
        }
    }

    /// The target takes more or less in one message, or at once, than it did: what is under way begins anew.
    fn move_to(&mut self, from: Place, found: &Found) {
        let Some(place) = self.place_of(from.path, found).filter(|place| *place != from) else { return };
        self.recall();
        self.forget_confirmations();
        (self.state, self.window) = (State::Up(place), Window::new(place.buffers));
        let free = self.orders.iter().filter(|(_, order)| !order.is_held);
        self.queue = free.map(|(number, _)| *number).collect();
    }

    fn forget_confirmations(&mut self) {
        self.confirming.clear();
        self.to_confirm.clear();
    }

    /// Where a target is that was found: with as much in one message as it and the link take.
    fn place_of(&self, path: Path, found: &Found) -> Option<Place> {
        let link = |(link, _): &&(LinkId, usize)| *link == path.link;
        let (_, packet_max_bytes) = self.config.links.iter().find(link)?;
        let sectors = wire::sectors_of(*packet_max_bytes).min(found.sectors);
        let whole = if sectors >= SECTORS_TOGETHER { sectors / SECTORS_TOGETHER * SECTORS_TOGETHER } else { sectors };
        (whole > 0).then_some(Place { path, sectors: whole.into(), buffers: found.buffers })
    }

    /// The target has said what it is.
    pub(super) fn identified(&mut self, data: &[u8], now: Instant) {
        let disk = match IdentifyDevice::parse(data) {
            Ok(disk) if disk.sector_bytes as usize == wire::SECTOR_BYTES => disk,
            Ok(disk) => {
                let bytes = disk.sector_bytes;
                let what = format!("the target's sectors have {bytes} bytes; over AoE they must have 512");
                return self.unusable(what, now);
            }
            Err(error) => return self.unusable(error.to_string(), now),
        };
        match self.state {
            State::Identifying(place) => {
                self.host = Host::new(&self.config.address.to_string(), disk);
                self.connected(place, now);
            }
            // It is the same, whatever was set of it or became of its size; or it has to be looked at.
            State::Up(_) if self.host.as_ref().is_some_and(|host| is_the_same(host.disk(), &disk)) => {
                self.host = Host::new(&self.config.address.to_string(), disk);
                self.is_probe_for_announcement = false;
                self.confirmed(now);
            }
            State::Up(_) => self.lose(now),
            State::Seeking | State::Over => {}
        }
    }

    /// A flush was answered. A server that was started anew between the writes and the flush answers it too, whatever it has lost.
    pub(super) fn confirm(&mut self, order: u64, now: Instant) {
        self.to_confirm.push(order);
        self.ask_for_confirmation(now);
    }

    fn ask_for_confirmation(&mut self, now: Instant) {
        if let State::Up(place) = self.state
            && self.probe_tag.is_none()
            && !self.to_confirm.is_empty()
        {
            self.confirming.append(&mut self.to_confirm);
            self.probes_left = PROBES_MAX;
            self.identify(place, now);
        }
    }

    /// The target was, when it was asked last, what it is known to be.
    fn confirmed(&mut self, now: Instant) {
        for order in std::mem::take(&mut self.confirming) {
            self.answer_flush(order);
        }
        self.ask_for_confirmation(now);
    }

    fn unusable(&mut self, what: String, now: Instant) {
        match self.state {
            State::Identifying(_) if !self.was_up => self.end(Failure::NoDisk(what)),
            // It is not what it was: nothing more is to go there.
            State::Up(_) => self.lose(now),
            _ => {}
        }
    }

    fn connected(&mut self, place: Place, now: Instant) {
        self.state = State::Up(place);
        self.window = Window::new(place.buffers);
        (self.was_up, self.heard_at) = (true, now);
        (self.probe_tag, self.ask_at, self.patience_ends) = (None, None, None);
        // Whether it is what it was before the layer above sees first, if it wants to.
        let is_held = self.holds_after_restart;
        self.orders.values_mut().for_each(|order| order.is_held = is_held);
        self.queue = if is_held { Default::default() } else { self.orders.keys().copied().collect() };
        self.events.push_back(ClientEvent::Connected(place));
    }

    /// The target is away: it is sought, and what was under way begins anew when it is back.
    pub(super) fn lose(&mut self, now: Instant) {
        self.recall();
        self.forget_confirmations();
        self.state = State::Seeking;
        (self.host, self.ask_at) = (None, Some(now));
        self.patience_ends = self.config.reconnect_patience.map(|patience| now + patience);
        self.events.push_back(ClientEvent::Lost);
    }
}

/// Whether it is one disk, in one run of its target.
fn is_the_same(one: &IdentifyDevice, other: &IdentifyDevice) -> bool {
    let identity = |disk: &IdentifyDevice| (disk.model.clone(), disk.serial.clone(), disk.world_wide_name, disk.run);
    identity(one) == identity(other)
}
