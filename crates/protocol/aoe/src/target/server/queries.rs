//! What is no ATA command: queries, config strings, and the lists of who may use a target.

use std::time::Duration;

use sanwire_buffer::Packet;
use sanwire_core::{Instant, LinkId, MacAddress, Path, Peer};

use super::{FIRMWARE, Target, TargetEvent};
use crate::wire::{
    self, Address, Config, ConfigOrder, Header, MaskAnswer, MaskError, MaskOrder, MaskRequest, Reserve, ReserveOrder,
    WireError, command,
};

/// Answers that wait until what was changed is kept, at the most.
const UNKEPT_MAX: usize = 256;

/// What was changed is kept within some milliseconds: so often it is looked whether it is.
const KEPT_WITHIN: Duration = Duration::from_millis(5);

impl Target {
    /// Tells everybody on every link which targets there are, so that initiators go on with them without waiting.
    pub(super) fn announce(&mut self) {
        (0..self.config.links.len()).for_each(|link| self.announce_on(LinkId(link as u8)));
    }

    pub(super) fn announce_on(&mut self, link: LinkId) {
        let path = Path { link, peer: Peer::Ethernet(MacAddress::BROADCAST) };
        for address in self.config.shelves.announced() {
            let header = Header::request(address, command::CONFIG, 0);
            self.configure(path, &header, address, &Config::query(ConfigOrder::Read, &[]));
        }
    }

    pub(super) fn turn_away(&mut self, path: Path, station: MacAddress) {
        const TOLD_MAX: usize = 1024;
        self.counters.not_allowed += 1;
        if self.told.len() < TOLD_MAX && self.told.insert(station) {
            self.events.push_back(TargetEvent::NotAllowed { path });
        }
    }

    /// Obeys what is no ATA command.
    pub(super) fn obey(&mut self, path: Path, station: MacAddress, header: &Header, own: Address, argument: &[u8]) {
        if !self.has_time_for_questions() {
            self.counters.crowded += 1;
            return;
        }
        if header.version != 1 {
            return self.refuse(path, header, own, WireError::Version);
        }
        let answered = match header.command {
            command::CONFIG => Config::parse(argument).map(|query| self.configure(path, header, own, &query)),
            command::MASK => self.mask(path, header, own, argument),
            command::RESERVE => self.reserve(path, station, header, own, argument),
            _ => return self.refuse(path, header, own, WireError::UnknownCommand),
        };
        if answered.is_none() {
            self.counters.malformed += 1;
            self.refuse(path, header, own, WireError::BadArgument);
        }
    }

    pub(super) fn configure(&mut self, path: Path, header: &Header, own: Address, query: &Config<'_>) {
        // What is for all of them is told by all; only one at a time is changed.
        let is_change = matches!(query.order(), Some(ConfigOrder::Set | ConfigOrder::ForceSet));
        if is_change && !header.address.is_one() {
            return self.refuse(path, header, own, WireError::BadArgument);
        }
        match self.config.shelves.configure(own, query) {
            Some(Ok(string)) => {
                let answer = query.answer(self.config.buffers, FIRMWARE, self.sectors_of(path), &string).to_bytes();
                self.answer(path, &header.response(own), &answer, is_change);
            }
            Some(Err(error)) => self.refuse(path, header, own, error),
            None => {}
        }
    }

    fn mask(&mut self, path: Path, header: &Header, own: Address, argument: &[u8]) -> Option<()> {
        let request = MaskRequest::parse(argument)?;
        let read = MaskRequest { order: MaskOrder::Read, directives: Vec::new() };
        // What is for all of them is told by all; only one at a time is changed.
        if request.as_ref().is_ok_and(|request| request.order != MaskOrder::Read) && !header.address.is_one() {
            return None;
        }
        let (order, (stations, error)) = match request {
            Ok(request) => (request.order, self.config.shelves.mask(own, &request)?),
            Err(error) => (MaskOrder::Edit, (self.config.shelves.mask(own, &read)?.0, Some(error))),
        };
        if error == Some(MaskError::Full) {
            self.list_is_full(path, own);
        }
        let answer = MaskAnswer { order, error, stations: &stations };
        self.answer(path, &header.response(own), &answer.to_bytes(), order != MaskOrder::Read);
        Some(())
    }

    fn reserve(
        &mut self,
        path: Path,
        station: MacAddress,
        header: &Header,
        own: Address,
        argument: &[u8],
    ) -> Option<()> {
        let request = Reserve::parse(argument)?;
        if request.order != ReserveOrder::Read && !header.address.is_one() {
            return None;
        }
        match self.config.shelves.reserve(own, station, &request)? {
            Ok(stations) => {
                let is_change = request.order != ReserveOrder::Read;
                let answer = Reserve { order: request.order, stations };
                self.answer(path, &header.response(own), &answer.to_bytes(), is_change);
            }
            // More stations than there is room for.
            Err(WireError::BadArgument) => {
                self.list_is_full(path, own);
                self.refuse(path, header, own, WireError::BadArgument);
            }
            Err(error) => self.refuse(path, header, own, error),
        }
        Some(())
    }

    /// Answers a question. What was changed has to outlive this server before anybody is told that it was.
    fn answer(&mut self, path: Path, header: &Header, argument: &[u8], is_change: bool) {
        match self.config.shelves.unkept().filter(|_| is_change) {
            Some(change) if self.unkept.len() < UNKEPT_MAX => {
                let packet = Packet::new(wire::head(header, argument, 0), None);
                self.unkept.push_back((change, path, packet));
            }
            // It is asked again.
            Some(_) => self.counters.crowded += 1,
            None => self.send(path, header, argument, None),
        }
    }

    fn list_is_full(&mut self, path: Path, address: Address) {
        self.counters.lists_full += 1;
        self.events.push_back(TargetEvent::ListFull { path, address });
    }

    /// Sends the answers whose changes are kept by now.
    pub(super) fn answer_kept(&mut self, now: Instant) {
        while let Some((change, ..)) = self.unkept.front()
            && self.config.shelves.is_kept(*change)
            && let Some((_, path, packet)) = self.unkept.pop_front()
        {
            self.outbox.push_back((path, packet));
        }
        self.look_at = (!self.unkept.is_empty()).then(|| now + KEPT_WITHIN);
    }

    pub(super) fn refuse(&mut self, path: Path, header: &Header, own: Address, error: WireError) {
        self.send(path, &header.response(own).refused(error), &[], None);
    }
}
