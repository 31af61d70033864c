//! How another path becomes a link of a living connection: both ends must have seen that it works in both directions.
//!
//! The client asks on the new path, the server answers there, the client confirms there, the server agrees. All of it is
//! sealed: nobody else can make a path a link.

use std::time::Duration;

use sanwire_core::{Instant, Path};

use super::link::{Capacity, Link, Sizes};
use super::{Channel, LinkAt};
use crate::packet_base_bytes;
use crate::wire::Opcode;
use crate::wire::links::{AddrReply, AddrReport, Address, LINKS_MAX, LinkLimits};

/// A path that did not answer is tried again after this, and ever more seldom.
const AGAIN_FIRST: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(5);

/// Paths that are tried at once: from each of some interfaces to each address of the server.
const WANTED_MAX: usize = LINKS_MAX * LINKS_MAX;

/// How long a path that asked may take to confirm.
const CANDIDATE_LIFETIME: Duration = Duration::from_secs(5);

/// A path that we should like to have as a link.
#[derive(Debug)]
struct Joining {
    path: Path,
    nonce: u64,
    own: LinkLimits,
    /// The answer: the nonce to confirm, and the other end.
    answer: Option<(u64, LinkLimits)>,
    again_at: Instant,
    wait: Duration,
}

/// A path that the peer should like to have as a link.
#[derive(Debug)]
struct Candidate {
    path: Path,
    own_nonce: u64,
    own: LinkLimits,
    theirs: LinkLimits,
    expires_at: Instant,
}

/// Paths that are not links yet.
#[derive(Debug, Default)]
pub(super) struct Joins {
    wanted: Vec<Joining>,
    candidates: Vec<Candidate>,
}

impl Joins {
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.wanted.iter().map(|joining| joining.again_at).min()
    }
}

impl Channel {
    /// Tries to make a path a link, again and again.
    pub(crate) fn join(&mut self, path: Path, own: LinkLimits, nonce: u64, now: Instant) {
        let lives = |link: &Link| link.path().link == path.link && link.is_live();
        let is_known = self.is_joining(path) || self.links.iter().any(lives);
        if !is_known && self.joins.wanted.len() < WANTED_MAX {
            let joining = Joining { path, nonce, own, answer: None, again_at: now, wait: AGAIN_FIRST };
            self.joins.wanted.push(joining);
        }
    }

    /// Tries no longer.
    pub(crate) fn give_up_joining(&mut self, path: Path) {
        self.joins.wanted.retain(|joining| joining.path != path);
    }

    /// Whether an answer on this path is waited for.
    pub(crate) fn is_joining(&self, path: Path) -> bool {
        self.joins.wanted.iter().any(|joining| joining.path == path)
    }

    pub(super) fn tend_joins(&mut self, now: Instant) {
        for joining in &mut self.joins.wanted {
            if joining.again_at <= now {
                joining.again_at = now + joining.wait;
                joining.wait = (joining.wait * 2).min(AGAIN_MAX);
                let report = match joining.answer {
                    None => AddrReport::Join { nonce: joining.nonce, end: joining.own },
                    Some((nonce, _)) => AddrReport::Confirm { nonce },
                };
                self.control.push(Opcode::AddrReport, report.write(), Some(joining.path));
            }
        }
    }

    /// Takes an ADDR_REPORT that came on a path, link or not. Gives the addresses that it tells. `own`: our end of the
    /// path, and a number to prove that the peer hears us there.
    pub(crate) fn handle_report(
        &mut self,
        plain: &[u8],
        path: Path,
        own: (LinkLimits, u64),
        now: Instant,
    ) -> Option<Vec<Address>> {
        let (reply, addresses) = match AddrReport::read(plain).ok()? {
            AddrReport::Addresses(addresses) => (AddrReply::Addresses, Some(addresses)),
            AddrReport::Join { nonce, end } => {
                let own_nonce = self.candidate(path, own, end, now)?;
                (AddrReply::Join { nonce, own_nonce, end: own.0 }, None)
            }
            AddrReport::Confirm { nonce } => {
                self.confirmed(path, nonce, now)?;
                (AddrReply::Confirm { nonce }, None)
            }
        };
        self.control.push(Opcode::AddrReply, reply.write(), Some(path));
        addresses
    }

    /// Notes who asks; gives the nonce that must be confirmed.
    fn candidate(&mut self, path: Path, own: (LinkLimits, u64), theirs: LinkLimits, now: Instant) -> Option<u64> {
        let candidates = &mut self.joins.candidates;
        candidates.retain(|candidate| candidate.expires_at > now);
        if let Some(known) = candidates.iter().find(|candidate| candidate.path == path) {
            return Some(known.own_nonce);
        }
        let (expires_at, (own, own_nonce)) = (now + CANDIDATE_LIFETIME, own);
        let has_room = candidates.len() < LINKS_MAX;
        has_room.then(|| candidates.push(Candidate { path, own_nonce, own, theirs, expires_at }))?;
        Some(own_nonce)
    }

    /// The peer hears us on the path. `None`: it was not asked.
    fn confirmed(&mut self, path: Path, nonce: u64, now: Instant) -> Option<()> {
        // A suspected one is joined anew: the other end counts from the beginning, and so must we.
        if self.link_of(path).is_some_and(|LinkAt(at)| self.links[at].is_live()) {
            return Some(());
        }
        let is_meant = |candidate: &Candidate| candidate.path == path && candidate.own_nonce == nonce;
        let at = self.joins.candidates.iter().position(is_meant)?;
        let Candidate { own, theirs, .. } = self.joins.candidates[at];
        self.add_link(path, own, theirs, now)
    }

    /// Takes an ADDR_REPLY that came on a path.
    pub(crate) fn handle_reply(&mut self, plain: &[u8], path: Path, now: Instant) {
        let Some(at) = self.joins.wanted.iter().position(|joining| joining.path == path) else { return };
        let joining = &mut self.joins.wanted[at];
        match AddrReply::read(plain) {
            Ok(AddrReply::Join { nonce, own_nonce, end }) if nonce == joining.nonce => {
                joining.answer = Some((own_nonce, end));
                (joining.again_at, joining.wait) = (now, AGAIN_FIRST);
            }
            Ok(AddrReply::Confirm { nonce }) => {
                let own = joining.own;
                if let Some((_, theirs)) = joining.answer.filter(|(asked, _)| *asked == nonce) {
                    // One way by each end of ours is enough.
                    self.joins.wanted.retain(|joining| joining.path.link != path.link);
                    self.add_link(path, own, theirs, now);
                }
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// A path is a link from now on, in the place of a dead one if it was one, or if there are too many. `None`: they are too many.
    fn add_link(&mut self, path: Path, own: LinkLimits, theirs: LinkLimits, now: Instant) -> Option<()> {
        let known = self.link_of(path).map(|LinkAt(at)| at);
        if known.is_some_and(|at| self.links[at].is_live()) {
            return Some(());
        }
        let packet_limit_bytes = own.packet_max_bytes.min(theirs.packet_max_bytes) as usize;
        let packet_base_bytes = packet_base_bytes(path.peer).min(packet_limit_bytes);
        let sizes = Sizes { packet_base_bytes, packet_limit_bytes };
        let capacity = Capacity { ours: own.receive_capacity_packets, theirs: theirs.receive_capacity_packets };
        let mut link = Link::new(path, sizes, capacity, now);
        link.prober.start(now);
        link.set_weight(self.weight);
        if known.is_none() && self.links.len() < LINKS_MAX {
            self.links.push(link);
        } else {
            // The link of the handshake keeps its place: by its path others tell which connection it is.
            let at = known.or_else(|| (1..self.links.len()).find(|&at| !self.links[at].is_live()))?;
            // What goes by a link while none answers may be under way still: the new one owes nothing of it.
            self.outgoing.abandon_link(at as u8, &mut self.links);
            self.links[at] = link.in_place_of(&self.links[at]);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use sanwire_buffer::{Head, Recycler};
    use sanwire_core::{LinkId, Peer};

    use super::super::Marker;
    use super::super::messages::Message;
    use super::super::{Recovery, Setup};
    use super::*;
    use crate::handshake::{Initiator, Responder, SecondStep};
    use crate::keys::{Identity, Randomness};
    use crate::ring::KeyRing;
    use crate::wire::flow::{Ack, AckKind, Window};
    use crate::wire::{Protection, Tag};

    const LIMITS: LinkLimits = LinkLimits { packet_max_bytes: 1500, receive_capacity_packets: 64 };

    fn path(link: u8) -> Path {
        Path { link: LinkId(link), peer: Peer::Udp(([127, 0, 0, 1], u16::from(link)).into()) }
    }

    /// The keys of a client after a handshake.
    fn ring() -> KeyRing {
        let (mut random, psk) = (Randomness::new([9; 32]), [3; 32]);
        let [client, server] = [[1; 32], [2; 32]].map(|private| Identity::from_private(private).unwrap());
        let (initiator, first) = Initiator::new(b"", &mut random).unwrap();
        let (_, noise, mark) = Responder::new((&server, &psk), b"", &first, (1, b""), &mut random).unwrap();
        let met = initiator.read(SecondStep { connection: 1, noise: &noise, mark }).unwrap();
        met.answer((&client, &psk), b"", &mut random).unwrap().1.of_client().unwrap()
    }

    fn channel(now: Instant) -> Channel {
        Channel::new(Setup {
            path: path(0),
            connection: 1,
            ring: ring(),
            floor: Protection::Checksum,
            data_opcode: Opcode::HcbeRequest,
            window: Window::fitting(64),
            recovery: Recovery::default(),
            sizes: Sizes { packet_base_bytes: 1200, packet_limit_bytes: 1500 },
            capacity: Capacity { ours: 64, theirs: 64 },
            memory: Recycler::new(),
            now,
        })
    }

    #[test]
    fn a_link_in_the_place_of_a_dead_one_owes_nothing_of_what_went_by_that() {
        let mut now = Instant::ZERO;
        let mut channel = channel(now);
        for link in 1..LINKS_MAX as u8 {
            channel.add_link(path(link), LIMITS, LIMITS, now).unwrap();
        }
        for link in &mut channel.links {
            link.query(now);
            link.watched(true, now + Duration::from_secs(1));
        }
        now += Duration::from_secs(2);
        let data = Some(vec![0; 500].into());
        channel.outgoing.push(Message::new(Tag::default(), 0, Protection::Checksum, Head::new(), data));
        let Channel { outgoing, links, guard, .. } = &mut channel;
        outgoing.transmit(now, guard, (1, &mut links[1]), 1200, 0).unwrap();
        assert_eq!(channel.outgoing.lost_bytes(), None);
        channel.add_link(path(100), LIMITS, LIMITS, now).unwrap();
        assert_eq!((channel.path(), channel.links[1].path()), (path(0), path(100)), "the handshake's keeps its place");
        assert!(channel.outgoing.lost_bytes().is_some(), "what went by the dead one goes again");
    }

    #[test]
    fn a_late_answer_about_a_link_tells_nothing_of_the_one_in_its_place() {
        let now = Instant::ZERO;
        let mut channel = channel(now);
        channel.add_link(path(1), LIMITS, LIMITS, now).unwrap();
        let send = |channel: &mut Channel| {
            let data = Some(vec![0; 500].into());
            channel.outgoing.push(Message::new(Tag::default(), 0, Protection::Checksum, Head::new(), data));
            let Channel { outgoing, links, guard, .. } = channel;
            outgoing.transmit(now, guard, (1, &mut links[1]), 1200, 0).unwrap();
        };
        (0..5).for_each(|_| send(&mut channel));
        let asked = Marker { link: 1, order: channel.links[1].query(now) };
        let later = now + Duration::from_secs(2);
        channel.links[1].watched(true, later);
        channel.add_link(path(1), LIMITS, LIMITS, later).unwrap();
        let status = channel.links().nth(1).unwrap();
        assert_eq!(status.sent_packets, 0, "it has sent nothing yet");
        // The peer has all that went by the former link, and then something goes by the new one.
        channel.outgoing.acknowledge(5, &[], &mut channel.links, later);
        send(&mut channel);
        let late = Ack { kind: AckKind::Query { marker: asked.number() }, cumulative: 5, map: &[] };
        channel.handle_ack(&late.write(), LinkAt(1), later);
        assert_eq!(channel.outgoing.lost_bytes(), None, "nothing is known of it");
    }

    #[test]
    fn a_suspected_link_that_is_joined_anew_is_a_new_one_at_both_ends() {
        let now = Instant::ZERO;
        let mut channel = channel(now);
        channel.add_link(path(1), LIMITS, LIMITS, now).unwrap();
        channel.links[1].query(now);
        let now = now + Duration::from_secs(2);
        channel.links[1].watched(true, now);
        assert!(!channel.links[1].is_live());
        let join = AddrReport::Join { nonce: 7, end: LIMITS }.write();
        channel.handle_report(&join, path(1), (LIMITS, 9), now);
        let confirm = AddrReport::Confirm { nonce: 9 }.write();
        channel.handle_report(&confirm, path(1), (LIMITS, 11), now);
        assert!(channel.links[1].is_live() && channel.links.len() == 2);
    }
}
