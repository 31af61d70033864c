//! Whether the volumes are still what they were, and under which numbers: asked before anything reaches a unit that may be
//! another one by now.

use sanwire_core::{Lun, Size};
use sanwire_scsi::AdditionalSense;

use super::keeping::tells_of_power;
use super::own::too_late;
use super::{ConnectionState, Driver, Served, Trust, Verifying, VolumeId, Waiting};
use crate::endpoint::ConnectError;
use crate::inventory::{self, Contents, VolumeFingerprint};
use crate::session::Failure;
use crate::volume::VolumeError;

/// What became of a look at a volume.
enum Look {
    /// It is known where it is, or that it is nowhere.
    Settled,
    /// The connection was lost meanwhile.
    Interrupted,
    /// Held commands leave no room for ours.
    NoRoom,
}

impl From<Failure> for Look {
    fn from(failure: Failure) -> Self {
        if failure == Failure::Full { Look::NoRoom } else { Look::Interrupted }
    }
}

/// Where a volume is.
enum Place {
    At(Lun),
    /// Under none of the numbers that could be asked; those that could not were another volume's.
    Nowhere,
    /// Behind a number that others still use.
    Unknown(Vec<VolumeId>),
}

impl Driver {
    /// The number of this volume may not be its own any more.
    pub(super) fn doubt(&mut self, id: VolumeId) {
        let Some(keeper) = self.served(id).map(|served| served.keeper) else { return };
        // With all its handles: what must be written again comes before whatever any of them gives.
        for served in self.volumes.iter_mut().flatten().filter(|served| served.keeper == keeper) {
            served.trust = Trust::Doubted;
        }
        self.has_doubts = true;
    }

    /// The unit of this number has told one of our own commands something that was meant for its users.
    pub(crate) fn overheard(&mut self, lun: Lun, told: AdditionalSense) {
        let users = self.volumes.iter_mut().flatten().filter(|served| served.lun == lun);
        let mut doubted = Vec::new();
        for served in users {
            served.has_lost_power |= tells_of_power(told);
            doubted.extend(served.trust.is_found().then_some(served.id));
        }
        doubted.into_iter().for_each(|id| self.doubt(id));
    }

    /// Looks at volumes where there is reason to, as soon as that is safe.
    pub(super) fn settle_doubts(&mut self) {
        if self.verifying != Verifying::Nothing || !matches!(self.link, ConnectionState::Up(_)) {
            return;
        }
        if self.must_verify {
            return self.verify_all();
        }
        while self.has_doubts
            && let Some(id) = self.next_doubted()
        {
            self.verifying = Verifying::One;
            let look = self.look(id);
            self.verifying = Verifying::Nothing;
            if !matches!(look, Look::Settled) {
                return;
            }
        }
    }

    /// A volume that can be looked at: what was given to it has ended. Those that were not found come last, when nobody else
    /// is in doubt.
    fn next_doubted(&mut self) -> Option<VolumeId> {
        let of =
            |trust| self.volumes.iter().flatten().filter(move |served| served.trust == trust).map(|served| served.id);
        let (doubted, lost): (Vec<_>, Vec<_>) = (of(Trust::Doubted).collect(), of(Trust::Lost).collect());
        self.has_doubts = !doubted.is_empty() || !lost.is_empty();
        match doubted.is_empty() {
            true => lost.into_iter().next(),
            false => doubted.into_iter().find(|&id| !self.is_any_in_flight(id)),
        }
    }

    /// Whether commands were given by any handle of the volume, and are not answered.
    fn is_any_in_flight(&self, id: VolumeId) -> bool {
        let keeper = self.served(id).map(|served| served.keeper);
        let handles = self.volumes.iter().flatten().filter(|served| Some(served.keeper) == keeper);
        handles.map(|served| served.id).any(|id| self.is_in_flight(id))
    }

    /// Lets held commands go only to volumes that are still what they were: a server may have come back with others.
    fn verify_all(&mut self) {
        self.must_verify = false;
        self.verifying = Verifying::All;
        self.withdraw_own(self.session.now());
        self.volumes.iter_mut().flatten().for_each(|served| served.trust = Trust::Doubted);
        self.has_doubts = true;
        while let Some(id) = self.next_held() {
            match self.look(id) {
                Look::Settled => {}
                Look::NoRoom => {
                    self.take_held_back();
                    self.must_verify = true;
                }
                // Another session begins with another look at all. Who has no more time for this one leaves it to the next.
                Look::Interrupted => self.must_verify |= self.is_too_late(),
            }
            let is_lost = !matches!(self.link, ConnectionState::Up(_));
            self.must_verify |= is_lost;
            if self.must_verify {
                self.verifying = Verifying::Nothing;
                return;
            }
        }
        self.verifying = Verifying::Nothing;
        self.session.release();
    }

    /// The next volume to be looked at in a new session, where all that was given is held.
    fn next_held(&self) -> Option<VolumeId> {
        let first = |trust| self.volumes.iter().flatten().find(|served| served.trust == trust).map(|served| served.id);
        first(Trust::Doubted).or_else(|| first(Trust::Lost))
    }

    /// Held commands are given anew when the verification is over.
    fn take_held_back(&mut self) {
        let luns: Vec<Lun> = self.volumes.iter().flatten().map(|served| served.lun).collect();
        luns.into_iter().for_each(|lun| self.withdraw_held(lun));
    }

    /// Takes the held commands of a unit out of the session, to be given anew.
    fn withdraw_held(&mut self, lun: Lun) {
        self.session.abandon(lun);
        self.is_moving = true;
        self.drain_events(self.session.now());
        self.is_moving = false;
    }

    fn look(&mut self, id: VolumeId) -> Look {
        let Some((lun, mark, block_bytes)) =
            self.served(id).map(|served| (served.lun, served.mark.clone(), served.block_bytes))
        else {
            return Look::Settled;
        };
        let place = match inventory::contents(self, lun) {
            Ok(contents) if contents.mark == mark => {
                let is_other = contents.has_other_block(block_bytes);
                return if is_other { self.drop_replaced(id) } else { self.settle(id, lun, &contents) };
            }
            Err(ConnectError::Handshake { failure, .. }) => return failure.into(),
            _ => self.find(id, &mark),
        };
        match place {
            Ok(Place::At(lun)) => self.moved(id, lun, &mark, block_bytes),
            Ok(Place::Nowhere) => self.drop_replaced(id),
            Ok(Place::Unknown(users)) => {
                users.into_iter().for_each(|user| self.doubt(user));
                if let Some(served) = self.served_mut(id) {
                    served.trust = Trust::Lost;
                }
                Look::Settled
            }
            Err(failure) => failure.into(),
        }
    }

    /// Seeks a volume that has lost its number among all units, but for those whose users do not doubt them, or whose
    /// commands are under way.
    fn find(&mut self, id: VolumeId, mark: &VolumeFingerprint) -> Result<Place, Failure> {
        if mark.is_empty() {
            return Ok(Place::Nowhere);
        }
        let is_last = self.served(id).is_some_and(|served| served.trust == Trust::Lost);
        let luns = match inventory::luns(self) {
            Ok(luns) => luns,
            Err(ConnectError::Handshake { failure, .. }) => return Err(failure),
            Err(_) => return Ok(Place::Nowhere),
        };
        let mut in_use = Vec::new();
        let found = inventory::find_marked(self, &luns, mark, |driver, lun| {
            let users = driver.volumes.iter().flatten().filter(|served| served.lun == lun && served.id != id);
            let before = in_use.len();
            let in_the_way = users.filter(|user| user.trust.is_found() || driver.has_live(user.id));
            in_use.extend(in_the_way.map(|served| served.id));
            in_use.len() == before
        })?;
        Ok(match found {
            Some(lun) => Place::At(lun),
            None if in_use.is_empty() || is_last => Place::Nowhere,
            None => Place::Unknown(in_use),
        })
    }

    /// Whether commands of the volume may be on their way to its unit.
    fn has_live(&self, id: VolumeId) -> bool {
        self.verifying != Verifying::All && self.is_in_flight(id)
    }

    fn moved(&mut self, id: VolumeId, to: Lun, mark: &VolumeFingerprint, block_bytes: u32) -> Look {
        let contents = match inventory::contents(self, to) {
            // It has moved on since it was found: it stays in doubt, and is sought again.
            Ok(contents) if contents.mark != *mark => return Look::Settled,
            Ok(contents) if contents.has_other_block(block_bytes) => return self.drop_replaced(id),
            Ok(contents) => contents,
            Err(ConnectError::Handshake { failure, .. }) => return failure.into(),
            Err(_) => return self.drop_replaced(id),
        };
        let Some(from) = self.served(id).map(|served| served.lun) else { return Look::Settled };
        if self.verifying == Verifying::All {
            self.withdraw_held(from);
        }
        let name = self.served(id).map(|served| served.info.get().name).unwrap_or_default();
        tracing::warn!("volume {name} is logical unit {to} of server {} now, {from} before", self.server_name);
        self.settle(id, to, &contents)
    }

    /// The volume is there.
    fn settle(&mut self, id: VolumeId, lun: Lun, contents: &Contents) -> Look {
        match self.stays_exclusive(id, lun) {
            Ok(true) => {}
            Ok(false) => return Look::Settled,
            Err(failure) => return failure.into(),
        }
        let ConnectionState::Up(server) = self.link.clone() else { return Look::Interrupted };
        // At another number it was not told as this volume's.
        if let Some(served) = self.served_mut(id) {
            served.has_lost_power |= contents.has_lost_power;
        }
        let trust = self.heed(id, contents.word);
        let Some((keeper, from, block)) = self.served(id).map(|served| (served.keeper, served.lun, served.block_bytes))
        else {
            return Look::Settled;
        };
        // What is true for one handle is for all: one that had to wait for its own look might wait for as long as others work.
        let is_its = |served: &&mut Served| (served.keeper, served.lun, served.block_bytes) == (keeper, from, block);
        let mut resized = None;
        for served in self.volumes.iter_mut().flatten().filter(is_its) {
            (served.lun, served.trust) = (lun, trust);
            served.limits = contents.limits.unwrap_or(served.limits);
            served.queue.set_lacks_fua(contents.lacks_fua);
            let mut info = served.info.get();
            info.lun = lun;
            info.read_only = contents.read_only.unwrap_or(info.read_only);
            if let Some((size_bytes, _)) = contents.capacity {
                if info.size_bytes != size_bytes {
                    resized.get_or_insert((info.name.clone(), info.size_bytes, size_bytes));
                }
                info.size_bytes = size_bytes;
            }
            served.info.set(info);
            served.tell(&server, &*self.session);
        }
        if let Some((name, before_bytes, now_bytes)) = resized {
            self.log_size(&name, Size(before_bytes), Size(now_bytes));
        }
        // What was given before comes after what is written again, and in parts if it is too much for one command by now.
        if self.verifying == Verifying::All && (trust == Trust::Rewriting || self.has_too_large(keeper)) {
            self.withdraw_held(lun);
        }
        Look::Settled
    }

    fn log_size(&self, name: &str, before: Size, now: Size) {
        if now.0 > before.0 {
            return tracing::info!("volume {name} of server {} has grown from {before} to {now}", self.server_name);
        }
        tracing::error!(
            "volume {name} of server {} has shrunk from {before} to {now}: what was behind its new end is out of reach; stop what \
             uses it, and restore its size",
            self.server_name
        );
    }

    /// Whether some command of the volume was given when more went at once.
    fn has_too_large(&self, keeper: usize) -> bool {
        self.waiting.values().any(|waiting| match waiting {
            Waiting::Operation { again, .. } => {
                let served = self.served(again.volume).filter(|served| served.keeper == keeper);
                served.is_some_and(|served| again.exceeds(self.limits(served)))
            }
            _ => false,
        })
    }

    /// The volume is not to be found: its handles work no more.
    fn drop_replaced(&mut self, id: VolumeId) -> Look {
        let Some(name) = self.served(id).map(|served| served.info.get().name) else { return Look::Settled };
        tracing::error!(
            "volume {name} of server {} was removed, or made anew: what was written to it is not there any more. All its I/O fails until it is \
             detached and attached again",
            self.server_name
        );
        let what = format!("volume {name} was removed or replaced at the server: check it, and open it again");
        self.drop_volume(id, VolumeError::Protocol { what: what.into() });
        Look::Settled
    }

    /// This handle works no more: all that it is asked ends so.
    pub(super) fn drop_volume(&mut self, id: VolumeId, error: VolumeError) {
        let Some(served) = self.volumes.get_mut(id.index).and_then(Option::take) else { return };
        served.queue.close(error.clone());
        self.let_go_of_unused();
        if self.verifying == Verifying::All {
            self.withdraw_held(served.lun);
        }
        let stalled = std::mem::take(&mut self.stalled).into_iter();
        let (its, others): (Vec<_>, Vec<_>) = stalled.partition(|stalled| stalled.again.volume == id);
        self.stalled = others.into();
        its.into_iter().for_each(|stalled| stalled.completer.complete(Err(error.clone())));
    }

    /// Asks a unit who it is while no command is on its way to it.
    pub(crate) fn while_quiet<T>(
        &mut self,
        lun: Lun,
        ask: impl FnOnce(&mut Self) -> Result<T, ConnectError>,
    ) -> Result<T, ConnectError> {
        let before = self.quiet.replace(lun);
        // In a session that begins meanwhile all that was given is held, until it has been seen to.
        let is_over = |driver: &Self| driver.must_verify && driver.verifying != Verifying::Nothing;
        while self.is_busy(lun)
            && !matches!(self.link, ConnectionState::Down(_))
            && !self.is_too_late()
            && !is_over(self)
        {
            self.turn_or_sleep();
        }
        let result = if self.is_busy(lun) { Err(self.unanswered()) } else { ask(self) };
        self.quiet = before;
        result
    }

    /// What was under way has not ended in time.
    fn unanswered(&self) -> ConnectError {
        let failure = if let ConnectionState::Down(failure) = &self.link { failure.clone() } else { too_late() };
        ConnectError::Handshake { server: self.server_name.to_string(), failure }
    }

    /// The unit of this number has said who it is.
    pub(crate) fn met(&mut self, lun: Lun, mark: &VolumeFingerprint) {
        let users = self.volumes.iter().flatten().filter(|served| served.lun == lun && served.mark != *mark);
        let others: Vec<VolumeId> = users.filter(|user| user.trust.is_found()).map(|served| served.id).collect();
        others.into_iter().for_each(|id| self.doubt(id));
    }

    /// Whether the unit of this number is, or was, some volume that is used here.
    pub(crate) fn is_used(&self, lun: Lun) -> bool {
        self.volumes.iter().flatten().any(|served| served.lun == lun)
    }

    /// Whether commands of a volume may be on their way to the unit of this number.
    fn is_busy(&self, lun: Lun) -> bool {
        let users = self.volumes.iter().flatten().filter(|served| served.lun == lun);
        users.map(|served| served.id).any(|id| self.has_live(id))
    }
}
