//! From a challenge to a connection, and what is said of those that do not come about.

use std::time::Duration;

use sanwire_core::{Instant, Path};
use sanwire_security::handshake::SecondStep;

use super::seek::{Candidate, Challenged, IsNew};
use super::types::{ClientEvent, ServerInfo};
use super::{Client, Doubt, Former, Live};
use crate::channel::{Channel, Setup, data_bytes};
use crate::wire::connection::{Home, Step};
use crate::wire::offer::{Agreement, ClientOffer, Terms};
use crate::wire::pcu::RawPcu;
use crate::wire::{ErrorCode, Header};

/// A hint that the server does not know the connection is looked into no sooner than this after another one.
const HINT_INTERVAL: Duration = Duration::from_millis(500);

/// So often a client follows who says that it is at home elsewhere, before it has asked for as long as an attempt lasts.
const MOVES_MAX: u32 = 4;

impl Client {
    /// Whether an agreement is within what we have offered.
    pub(super) fn can_keep(&self, candidate: &Candidate, agreement: &Agreement) -> bool {
        let Terms { packet_max_bytes, window_packets, group_packets } = self.offer(candidate.path).terms;
        agreement.window_packets <= window_packets
            && agreement.group_packets <= group_packets
            && agreement.data_bytes <= data_bytes(packet_max_bytes, agreement.disk_type)
            && agreement.protection >= self.config.protection
    }

    pub(super) fn connected(&mut self, candidate: Candidate, agreement: Agreement, now: Instant) {
        let Candidate { path, header, key, offer, guard, .. } = candidate;
        let header = Header { disk_type: agreement.disk_type, disk_address: agreement.disk_address, ..header };
        let keep_alive = Duration::from_millis(u64::from(offer.keep_alive_ms).clamp(10, 60_000));
        let protection = agreement.protection;
        let mut guard = guard;
        guard.set_protection(protection);
        let mut channel = Channel::new(Setup { path, header, guard, agreement, keep_alive }, now);
        // The server hears at once that we have heard it.
        channel.ask(now);
        self.live = Some(Live {
            channel,
            agreement,
            write_room_bytes: offer.write_room_bytes,
            transfer_max_bytes: offer.transfer_max_bytes,
        });
        self.seek = None;
        self.moves = 0;
        self.doubt = None;
        self.said.clear();
        let now_with = (offer.instance, agreement.volume);
        self.known_key = Some(key);
        let is_first = self.former.is_none();
        let is_forgotten = is_forgotten(self.former.replace(now_with), now_with, agreement.is_known);
        let info = ServerInfo {
            name: offer.name,
            key,
            instance: offer.instance,
            path,
            disk_type: agreement.disk_type,
            disk_address: agreement.disk_address,
            volume: agreement.volume,
            protection,
            transfer_max_bytes: offer.transfer_max_bytes,
            is_resumed: !is_first && !is_forgotten,
        };
        self.events.push_back(ClientEvent::Connected(info));
        if is_forgotten {
            self.events.push_back(ClientEvent::Forgotten);
        }
        let pieces = self.orders.again(is_forgotten, agreement.data_bytes);
        self.send(pieces, now);
        self.give(now);
    }

    fn offer(&self, path: Path) -> ClientOffer {
        let link = self.config.links.get(usize::from(path.link.0)).copied();
        let link = link.unwrap_or(crate::LinkLimits { packet_max_bytes: 1500, window_packets: 32 });
        ClientOffer {
            terms: Terms {
                packet_max_bytes: link.packet_max_bytes,
                window_packets: link.window_packets.max(1),
                group_packets: self.config.group_packets,
            },
            protection: self.config.protection,
            disk_type: self.config.disk_type,
            disk_address: self.config.disk_address,
            volume: self.config.volume.clone(),
            waiting: self.orders.waiting(),
        }
    }

    pub(super) fn handle_open(&mut self, path: Path, header: Header, raw: &RawPcu<'_>, now: Instant) {
        let Ok(step) = Step::read(raw.operation) else {
            self.counters.malformed += 1;
            return;
        };
        let offer = self.offer(path);
        match step {
            Step::Challenge { attempt, mark, noise } => {
                let Some(seek) = &mut self.seek else { return };
                let second = SecondStep { connection: header.connection(), noise, mark };
                match seek.challenged((&self.config, &offer), (path, header), (attempt, second), &mut self.random) {
                    Challenged::Proof(proof, is_new) => {
                        if is_new == IsNew::Yes {
                            self.said.note(offer.waiting.next, now);
                        }
                        self.loose.push_back((path, *proof));
                    }
                    Challenged::OtherServer { key } => {
                        self.counters.not_authentic += 1;
                        self.events.push_back(ClientEvent::OtherServer { key });
                    }
                    Challenged::Ignore => {}
                }
            }
            Step::Cookie { attempt, cookie } => {
                let request =
                    self.seek.as_mut().and_then(|seek| seek.bring_back(attempt, cookie, &self.config.server_name));
                self.loose.extend(request.map(|request| (path, request)));
            }
            Step::Refusal { proof, .. } => self.refused(path, header, proof.as_ref(), now),
            Step::Elsewhere { attempt, home } => self.go_elsewhere(attempt, home, now),
            Step::Request(_) | Step::Proof { .. } => self.counters.malformed += 1,
        }
    }

    /// The server, or somebody, says that this client is at home in another shard: it comes again from a port that leads there. The
    /// connection that lives keeps its own.
    fn go_elsewhere(&mut self, attempt: u64, home: Home, now: Instant) {
        let is_asked = self.seek.as_ref().is_some_and(|seek| seek.is_of(attempt)) && self.moves < MOVES_MAX;
        let drawn = self.random.u32() as u16;
        if let Some(port) = home.nearest(drawn).filter(|_| is_asked && !home.has(self.port)) {
            self.moves += 1;
            self.port = port;
            self.begin_seek(now);
        }
    }

    fn refused(&mut self, path: Path, header: Header, proof: Option<&[u8; 16]>, now: Instant) {
        if let Some((reason, key)) = self.seek.as_mut().and_then(|seek| seek.refused((path, header), proof)) {
            // Anybody may say of himself that he has no such volume.
            let is_of_volume = matches!(reason, ErrorCode::NoSuchDisk | ErrorCode::DiskType);
            if let Some(seek) = self.seek.as_mut().filter(|_| is_of_volume && self.known_key == Some(key)) {
                seek.is_without_volume = true;
            }
            if reason == ErrorCode::UnknownConnection {
                // Another session has taken the place of this one.
                self.begin_anew(now);
            }
            self.events.push_back(ClientEvent::Refused(reason));
            return;
        }
        let is_of = self.live.as_ref().is_some_and(|live| live.channel.is_of(path, &header));
        let is_new = self.hinted_at.is_none_or(|at| now.saturating_since(at) >= HINT_INTERVAL);
        let is_hint = header.error == Some(ErrorCode::UnknownConnection) && self.seek.is_none();
        if let Some(live) = self.live.as_mut().filter(|_| is_of && is_new && is_hint) {
            // Anybody can have said so: the connection is asked first, and stays until there is another one.
            self.hinted_at = Some(now);
            live.channel.ask(now);
            self.doubt = Some(Doubt { until: now + live.channel.patience(), heard: live.channel.heard() });
        }
    }

    /// A connection that was said to be unknown and has not answered since: the server is sought beside it.
    pub(super) fn settle_doubt(&mut self, now: Instant) {
        let Some(doubt) = self.doubt.take_if(|doubt| doubt.until <= now) else { return };
        let is_silent = self.live.as_ref().is_some_and(|live| live.channel.heard() == doubt.heard);
        if is_silent && self.seek.is_none() {
            self.begin_seek(now);
        }
    }

    /// Goes on with another session. What was given in this one is not executed any more if it has not begun, and is held as after a
    /// restart of the server, until it is known whether it may be given again.
    pub fn renew(&mut self, now: Instant) {
        self.drop_live(now);
        self.session.epoch += 1;
        self.said.clear();
        // One that is under way is of the session that is over.
        self.begin_seek(now);
    }

    /// This session is over: all commands are lost, and the next ones are of another session. What a server still executes has numbers
    /// that others would have in this one.
    pub fn begin_anew(&mut self, now: Instant) {
        self.drop_live(now);
        self.abandon();
        self.orders.renumber();
        self.session.epoch += 1;
        self.former = None;
        self.said.clear();
        // One that is under way is of the session that is over.
        self.begin_seek(now);
    }
}

/// Whether a server that has accepted us knows nothing of what we were answered, whatever it says itself.
fn is_forgotten(former: Option<Former>, now_with: Former, is_known: bool) -> bool {
    former.is_some_and(|former| !is_known || former != now_with)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_run_or_of_another_volume_was_answered_is_forgotten() {
        let with = |instance: u8, volume: u8| ([instance; 16], [volume; 16]);
        assert!(!is_forgotten(None, with(1, 1), false), "there was nothing before");
        assert!(!is_forgotten(Some(with(1, 1)), with(1, 1), true));
        assert!(is_forgotten(Some(with(1, 1)), with(1, 1), false), "it says so");
        assert!(is_forgotten(Some(with(2, 1)), with(1, 1), true) && is_forgotten(Some(with(1, 2)), with(1, 1), true));
    }
}
