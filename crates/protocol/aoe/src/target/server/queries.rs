//! What is no ATA command: queries, config strings, and the lists of who may use a target.

use sanwire_core::{LinkId, MacAddress, Path, Peer};

use super::{FIRMWARE, Target, TargetEvent};
use crate::wire::{
    Address, Config, ConfigOrder, Header, MaskAnswer, MaskOrder, MaskRequest, Reserve, ReserveOrder, WireError, command,
};

impl Target {
    /// Tells everybody on every link which targets there are, so that initiators go on with them without waiting.
    pub(super) fn announce(&mut self) {
        (0..self.config.links.len()).for_each(|link| self.announce_on(LinkId(link as u8)));
    }

    pub(super) fn announce_on(&mut self, link: LinkId) {
        let path = Path { link, peer: Peer::Ethernet(MacAddress::BROADCAST) };
        for (address, _) in self.config.shelves.list() {
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
                let answer = query.answer(self.config.buffers, FIRMWARE, self.sectors_of(path), &string);
                self.send(path, &header.response(own), &answer.to_bytes(), None);
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
        let answer = MaskAnswer { order, error, stations: &stations };
        self.send(path, &header.response(own), &answer.to_bytes(), None);
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
                let answer = Reserve { order: request.order, stations };
                self.send(path, &header.response(own), &answer.to_bytes(), None);
            }
            Err(error) => self.refuse(path, header, own, error),
        }
        Some(())
    }

    pub(super) fn refuse(&mut self, path: Path, header: &Header, own: Address, error: WireError) {
        self.send(path, &header.response(own).refused(error), &[], None);
    }
}
