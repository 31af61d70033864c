//! How another path becomes a link of a living connection: both ends must have seen that it works in both directions.
//!
//! The client asks on the new path, the server answers there, the client confirms there, the server agrees. All of it is
//! sealed: nobody else can make a path a link.

use std::time::Duration;

use sanwire_core::{Instant, Path};

use super::Channel;
use super::link::{Capacity, Link, Sizes};
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
        let is_known = self.is_joining(path) || self.links.iter().any(|link| link.path().link == path.link);
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
        if self.link_of(path).is_some() {
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

    /// A path is a link from now on, in the place of a dead one if there are too many. `None`: they are too many.
    fn add_link(&mut self, path: Path, own: LinkLimits, theirs: LinkLimits, now: Instant) -> Option<()> {
        if self.link_of(path).is_some() {
            return Some(());
        }
        let packet_limit_bytes = own.packet_max_bytes.min(theirs.packet_max_bytes) as usize;
        let packet_base_bytes = packet_base_bytes(path.peer).min(packet_limit_bytes);
        let sizes = Sizes { packet_base_bytes, packet_limit_bytes };
        let capacity = Capacity { ours: own.receive_capacity_packets, theirs: theirs.receive_capacity_packets };
        let mut link = Link::new(path, sizes, capacity, now);
        link.prober.start(now);
        link.set_weight(self.weight);
        if self.links.len() < LINKS_MAX {
            self.links.push(link);
        } else {
            // What was under way on a link that is suspected counts as lost already.
            let dead = self.links.iter_mut().find(|link| !link.is_live())?;
            *dead = link;
        }
        Some(())
    }
}
