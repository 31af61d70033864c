//! What is lost, and what becomes of it (RFC 7143 7.1, 7.2).

use std::time::Duration;

use sanwire_core::Instant;

use super::backoff::BACKOFF_MAX;
use super::link::{Link, Request};
use super::seek::Attempt;
use super::session::{Lost, LostStage};
use super::{Client, ClientAction, ClientEvent, Failure, Stage, State, Trouble};
use crate::ConnectionId;

/// Sessions in a row that a target ends by breaking the protocol, before it is given up.
const VIOLATIONS_MAX: u8 = 5;

impl Client {
    /// A connection cannot go on: closes it, and sees what that means.
    pub(super) fn drop_connection(&mut self, connection: ConnectionId, trouble: Trouble, now: Instant) {
        let Some(at) = self.connections.iter().position(|known| known.id == connection) else { return };
        let mut gone = self.connections.swap_remove(at);
        self.actions.push_back(ClientAction::Close { connection });
        let link = match &mut gone.stage {
            Stage::Full(link) => link,
            Stage::Opening => return self.attempt_failed(Attempt::Unanswered, now),
            Stage::Login(entering) => {
                let is_silent = trouble == Trouble::Silent;
                let failure = if is_silent { Failure::LoginUnanswered } else { Failure::LoginClosed };
                return self.attempt_failed(Attempt::Ended(entering.trouble().unwrap_or(failure)), now);
            }
        };
        let told = link.mover.trouble();
        // What an adapter cannot do will not be otherwise at once: the same commands would end the next session, too.
        let pause = if told.is_some() { BACKOFF_MAX } else { Duration::ZERO };
        self.trouble = told.or(self.trouble.take());
        self.tasks.put_back(link.withdraw());
        if trouble == Trouble::Broken {
            self.note_end(now);
        }
        match &self.state {
            State::Leaving(_) => {
                if !self.has_link() {
                    self.close();
                }
            }
            State::Live(session) => match trouble {
                Trouble::Violation(what) => self.lose_by_violation(what, now),
                Trouble::Broken | Trouble::Silent if session.recovers_connections() && !session.is_leaving => {
                    self.lose_link(gone.number, link, now);
                }
                Trouble::Broken | Trouble::Silent => {
                    let (announced, at) = (session.leave_at.is_some(), now + session.wait().max(pause));
                    self.lose_session(announced, at, now);
                }
            },
            State::Seeking(_) | State::Closed => {}
        }
    }

    /// Gives up the connections that have failed by what was to be sent on them: what comes may never say so.
    pub(super) fn drop_failed(&mut self, now: Instant) {
        let links = self.connections.iter().filter_map(|known| match &known.stage {
            Stage::Full(link) => Some((known.id, link)),
            _ => None,
        });
        let failed: Vec<ConnectionId> = links.filter(|(_, link)| link.mover.has_failed()).map(|(id, _)| id).collect();
        failed.into_iter().for_each(|id| self.drop_connection(id, Trouble::Broken, now));
    }

    pub(super) fn has_link(&self) -> bool {
        self.connections.iter().any(|known| matches!(known.stage, Stage::Full(_)))
    }

    /// At error recovery level 2 the tasks of a lost connection outlive it.
    fn lose_link(&mut self, number: u16, link: &mut Link, now: Instant) {
        let State::Live(session) = &mut self.state else { return };
        for asked in link.requests.drain(..) {
            match asked.request {
                // Asked again, on another connection.
                Request::Recover(number) => {
                    let known = session.lost.iter_mut().filter(|lost| lost.number == number);
                    known.for_each(|lost| lost.stage = LostStage::Found);
                }
                Request::Text => {
                    self.wants_targets |= session.text.take().is_some_and(|exchange| exchange.is_discovery());
                }
                Request::Ping | Request::Leave | Request::Reassign(_) | Request::Abort(_) => {}
            }
        }
        session.lost.push(Lost { number, stage: LostStage::Found });
        if self.has_link() {
            self.recover_connections(now);
        } else {
            self.suspend(now);
        }
    }

    /// All connections are lost; the target keeps the tasks for a while.
    fn suspend(&mut self, now: Instant) {
        let State::Live(mut session) = std::mem::replace(&mut self.state, State::Seeking(None)) else { return };
        session.lost.iter_mut().for_each(|lost| lost.stage = LostStage::Found);
        let at = now + session.wait();
        session.retained_until = at + session.retention();
        self.close_where(|_| true);
        self.events.push_back(ClientEvent::Lost { announced: false });
        self.seek.begin(session.is_settled, at, now);
        self.state = State::Seeking(Some(session));
        self.seek_on(now);
    }

    /// The session is over; it is sought anew from `at` on.
    pub(super) fn lose_session(&mut self, announced: bool, at: Instant, now: Instant) {
        let State::Live(session) = std::mem::replace(&mut self.state, State::Seeking(None)) else { return };
        self.withdraw_frames();
        // Another target may answer there next time.
        self.fallbacks.clear();
        self.close_where(|_| true);
        self.wants_targets |= session.text.as_ref().is_some_and(|exchange| exchange.is_discovery());
        self.events.push_back(ClientEvent::Lost { announced });
        self.seek.begin(session.is_settled, at, now);
        self.seek_on(now);
    }

    /// The target broke the rules: a new session may do better, but not without end.
    fn lose_by_violation(&mut self, what: String, now: Instant) {
        self.seek.violations += 1;
        let failure = Failure::Protocol { what };
        if self.seek.violations >= VIOLATIONS_MAX {
            return self.give_up(failure);
        }
        self.seek.last = Some(failure);
        let State::Live(session) = &self.state else { return };
        let at = now + session.wait();
        self.lose_session(false, at, now);
    }
}
