//! The client's state, and time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use sanwire_ata::{Host, TaskFile, Work};
use sanwire_buffer::{Frame, Packet, Slice};
use sanwire_core::{Instant, Path};

use super::ghosts::Ghosts;
use super::seek::Found;
use super::types::{ClientConfig, ClientEvent, Failure, Place};
use super::window::Window;

/// How often the target is sought: the question may be lost.
pub(super) const SEEK_EVERY: Duration = Duration::from_millis(200);

/// A target that has answered nothing for so long, though it should, is asked whether it is there: that takes no disk.
const SUSPECT_AFTER: Duration = Duration::from_secs(1);

/// And if it has not answered that either, it is taken to be away.
const LOST_AFTER: Duration = Duration::from_secs(5);

/// A target is asked so often what it is.
pub(super) const PROBES_MAX: u32 = 25;

/// Tags have this bit: those without it are the kernel's, whose driver may use the same interface.
pub(super) const OWN_TAG: u32 = 0x8000_0000;

/// Where the client stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// It asks everywhere.
    Seeking,
    /// A target has answered, and is asked what it is.
    Identifying(Place),
    /// It is used.
    Up(Place),
    /// There will be nothing more.
    Over,
}

/// An order under way.
pub(super) struct Running {
    pub(super) cdb: sanwire_scsi::Cdb,
    pub(super) data_out: Option<Slice>,
    pub(super) data_in: Option<Frame>,
    /// What the disk has to do, once it is known.
    pub(super) work: Option<Work>,
    /// How much of it was given, and how much is done.
    pub(super) given: u32,
    pub(super) done: u32,
    /// Pieces under way.
    pub(super) pieces: u32,
    /// A piece has failed: no more are given.
    pub(super) failed: Option<sanwire_ata::Registers>,
    pub(super) is_held: bool,
}

/// A part of an order that goes in one message.
pub(super) struct Piece {
    pub(super) order: u64,
    pub(super) from: u32,
    pub(super) count: u32,
    pub(super) task_file: TaskFile,
    /// The tag of its first copy.
    pub(super) tag: Option<u32>,
    /// How often it was sent.
    pub(super) copies: u32,
    /// How many of its copies were answered with less data than was asked for.
    pub(super) short_answers: u32,
    pub(super) sent_at: Instant,
    pub(super) due_at: Instant,
}

/// What a tag stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) piece: u64,
    pub(super) at: Instant,
}

/// The initiator's end.
pub struct Client {
    pub(super) config: ClientConfig,
    pub(super) state: State,
    /// What the target has said last of where it is and how much it takes.
    pub(super) found: Option<Found>,
    /// The disk, once it has said what it is.
    pub(super) host: Option<Host>,
    pub(super) window: Window,
    pub(super) next_tag: u32,
    pub(super) next_order: u64,
    pub(super) next_piece: u64,
    pub(super) orders: BTreeMap<u64, Running>,
    /// Those with something to give, in the order in which they get their turns.
    pub(super) queue: VecDeque<u64>,
    pub(super) pieces: BTreeMap<u64, Piece>,
    /// When each piece is sent again.
    pub(super) due: BTreeSet<(Instant, u64)>,
    pub(super) tags: BTreeMap<u32, Sent>,
    pub(super) ghosts: Ghosts,
    /// Some order waits for ghosts or for another write.
    pub(super) is_haunted: bool,
    pub(super) holds_after_restart: bool,
    /// The question whether it is there, or what it is, that was asked last.
    pub(super) probe_tag: Option<u32>,
    /// Flushes that were answered before the question that is under way: they count if the target is still in the run that it was in.
    pub(super) confirming: Vec<u64>,
    /// Flushes that were answered since: they wait for the next question.
    pub(super) to_confirm: Vec<u64>,
    /// The question under way was caused by an announcement.
    pub(super) is_probe_for_announcement: bool,
    /// How often that may still be asked before the target is taken to be away.
    pub(super) probes_left: u32,
    /// When something is asked next.
    pub(super) ask_at: Option<Instant>,
    /// When the target was last heard of.
    pub(super) heard_at: Instant,
    /// Since when it owes an answer.
    pub(super) first_unanswered: Option<Instant>,
    /// Since when it is sought; until when that is waited for.
    pub(super) patience_ends: Option<Instant>,
    pub(super) was_up: bool,
    pub(super) events: VecDeque<ClientEvent>,
    pub(super) outbox: VecDeque<(Path, Packet)>,
}

impl Client {
    /// Begins to seek a target.
    #[must_use]
    pub fn new(config: ClientConfig, now: Instant) -> Client {
        let (next_tag, patience_ends) = (config.first_tag | OWN_TAG, Some(now + config.connect_patience));
        Client {
            config,
            state: State::Seeking,
            found: None,
            host: None,
            window: Window::new(1),
            next_tag,
            next_order: 0,
            next_piece: 0,
            orders: BTreeMap::new(),
            queue: VecDeque::new(),
            pieces: BTreeMap::new(),
            due: BTreeSet::new(),
            tags: BTreeMap::new(),
            ghosts: Ghosts::default(),
            is_haunted: false,
            holds_after_restart: false,
            probe_tag: None,
            confirming: Vec::new(),
            to_confirm: Vec::new(),
            is_probe_for_announcement: false,
            probes_left: PROBES_MAX,
            ask_at: Some(now),
            heard_at: now,
            first_unanswered: None,
            patience_ends,
            was_up: false,
            events: VecDeque::new(),
            outbox: VecDeque::new(),
        }
    }

    /// Where the target is, while it is there.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        match self.state {
            State::Up(place) => Some(place),
            _ => None,
        }
    }

    pub(super) fn tag(&mut self) -> u32 {
        let tag = self.next_tag;
        self.next_tag = tag.wrapping_add(1) | OWN_TAG;
        tag
    }

    /// What the layer above must know.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)> {
        if self.outbox.is_empty() {
            self.fill(now);
        }
        self.outbox.pop_front()
    }

    /// Lets time pass.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.patience_ends.is_some_and(|at| at <= now) {
            self.lose_patience();
        }
        let dead = self.ghosts.expire(now);
        if !dead.is_empty() {
            self.tags.retain(|_, sent| !dead.contains(&sent.piece));
        }
        self.send_again(now);
        if self.ask_at.is_some_and(|at| at <= now) {
            match self.state {
                State::Seeking => self.seek(now),
                State::Identifying(_) if self.probes_left == 0 => {
                    (self.state, self.probes_left) = (State::Seeking, PROBES_MAX);
                }
                State::Identifying(place) => self.identify(place, now),
                State::Up(_) if self.probe_tag.is_some() && self.probes_left == 0 => self.lose(now),
                State::Up(place) if self.probe_tag.is_some() => self.identify(place, now),
                State::Up(place) => self.suspect(place, now),
                State::Over => self.ask_at = None,
            }
        }
    }

    /// The target owes answers, and has not been heard of.
    fn suspect(&mut self, place: Place, now: Instant) {
        self.ask_at = None;
        let Some(first) = self.first_unanswered else { return };
        // After a quiet time the first message counts.
        let since = self.heard_at.max(first);
        if now.saturating_since(since) >= LOST_AFTER {
            return self.lose(now);
        }
        if now.saturating_since(since) >= SUSPECT_AFTER {
            self.probe(place);
        }
        self.ask_at = Some(now + SEEK_EVERY);
    }

    /// When [`Client::handle_timeout`] is next due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let haunted = self.ghosts.next_at().filter(|_| self.is_haunted);
        let due = self.due.first().map(|(at, _)| *at);
        [self.patience_ends, self.ask_at, haunted, due].into_iter().flatten().min()
    }

    fn lose_patience(&mut self) {
        self.patience_ends = None;
        if self.was_up {
            self.fail_all(&Failure::NoAnswer);
            self.events.push_back(ClientEvent::OutOfPatience);
        } else {
            self.end(Failure::NoAnswer);
        }
    }

    /// Ends for good.
    pub(super) fn end(&mut self, failure: Failure) {
        self.fail_all(&failure);
        self.state = State::Over;
        (self.ask_at, self.patience_ends) = (None, None);
        self.events.push_back(ClientEvent::GivenUp(failure));
    }

    /// Leaves the target: there is nothing to tell it.
    pub fn disconnect(&mut self) {
        if self.state != State::Over {
            self.end(Failure::Closed);
        }
    }
}
