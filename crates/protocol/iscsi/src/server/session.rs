//! A session: its connections, the order of its commands, and what it has under way.

use std::collections::VecDeque;
use std::net::IpAddr;

use sanwire_buffer::{Region, Slices};
use sanwire_core::quota::{Account, ISCSI_CONNECTIONS_OF_SESSION, Usage};
use sanwire_core::{Alarm, Headway, Instant, Lun, NexusId, SessionEnd};
use sanwire_scsi::Receipts;

use super::command_window::{Held, Order};
use super::commands::{Command, Commands, Phase};
use super::connection::Connection;
use super::event::{Admission, Function, ManageHandle, ServerEvent};
use super::manage::{Asker, Managements};
use super::receipts::Sent;
use super::recovery::Suspended;
use super::shared::{Leaving, Shared, Starved};
use super::timeouts::Patience;
use crate::ConnectionId;
use crate::login::{Admitted, Portal, SessionKind, TargetId};
use crate::name::{IscsiName, Isid};
use crate::parameters::SessionParameters;
use crate::serial::Serial;
use crate::wire::{Header, Reject, TAG_NONE};

/// Tags of commands that ended while their data was still on its way.
const LINGERING_MAX: usize = 64;

/// Why a PDU is rejected (RFC 7143 11.17.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Rejection {
    DataDigest = 0x02,
    Snack = 0x03,
    Protocol = 0x04,
    NotSupported = 0x05,
    TooManyImmediate = 0x06,
    TaskInProgress = 0x07,
    InvalidDataAck = 0x08,
    InvalidField = 0x09,
}

/// Whose a session is, as far as its login has shown. A name is what anybody says: the same at another address, or of another user, is
/// another's.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Owner {
    address: IpAddr,
    initiator: IscsiName,
    user: Option<String>,
}

impl Owner {
    pub(super) fn of(admitted: &Admitted) -> Self {
        let Admitted { peer, initiator, user, .. } = admitted;
        Owner { address: peer.to_canonical(), initiator: initiator.clone(), user: user.clone() }
    }

    /// The CHAP user that its login has shown.
    pub(super) fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Whether a login has shown the same CHAP user, or both have shown none.
    pub(super) fn is_user_of(&self, admitted: &Admitted) -> bool {
        self.user == admitted.user
    }

    /// Whether a login has shown to be the same: the same CHAP user; where none was shown, all that is known is the address.
    pub(super) fn has_shown_the_same(&self, admitted: &Admitted) -> bool {
        self.is_user_of(admitted) && (self.user.is_some() || self.address == admitted.peer.to_canonical())
    }
}

/// A session of an initiator port.
pub(super) struct Session {
    pub(super) nexus: NexusId,
    pub(super) tsih: u16,
    pub(super) owner: Owner,
    /// The share of its owner.
    pub(super) memory: Region,
    /// Something of it waits for memory.
    pub(super) is_starved: bool,
    /// That has its turn to get some.
    pub(super) has_turn: bool,
    pub(super) kind: SessionKind,
    pub(super) initiator: IscsiName,
    pub(super) isid: Isid,
    /// Where its first connection came in.
    pub(super) portal: Portal,
    pub(super) parameters: SessionParameters,
    pub(super) connections: Vec<Connection>,
    /// How many it may have.
    seats: Account,
    pub(super) order: Order,
    pub(super) commands: Commands,
    pub(super) managements: Managements,
    /// Answers of which it must be known that they have arrived.
    pub(super) receipts: Receipts<Sent>,
    /// The tag of the next R2T.
    pub(super) next_transfer_tag: u32,
    /// Commands that ended while their data was on its way: it is read and forgotten.
    pub(super) lingering: VecDeque<u32>,
    pub(super) patience: Patience,
    /// How what requests wait for comes, that have arrived before their turn.
    pub(super) headway: Headway,
    /// What connections have left behind that are gone.
    pub(super) suspended: Vec<Suspended>,
    /// When data that is awaited is looked for.
    pub(super) reception_at: Option<Instant>,
    /// When it is next seen what of it is due.
    pub(super) alarm: Alarm,
    /// It is over: nothing of it may be used any more.
    pub(super) is_over: bool,
}

impl Session {
    /// The session that an admitted connection begins.
    pub(super) fn new(admitted: &Admitted, admission: Admission, memory: Region, commands_max: u32) -> Self {
        Session {
            nexus: admission.nexus,
            tsih: admission.tsih,
            owner: Owner::of(admitted),
            memory,
            is_starved: false,
            has_turn: false,
            kind: admitted.kind.clone(),
            initiator: admitted.initiator.clone(),
            isid: admitted.isid,
            portal: admitted.portal,
            parameters: admitted.session,
            connections: Vec::new(),
            seats: Account::within(&ISCSI_CONNECTIONS_OF_SESSION, admitted.session.max_connections.into()),
            order: Order::new(Serial(admitted.request.command_number), commands_max),
            commands: Commands::default(),
            managements: Managements::default(),
            receipts: Receipts::default(),
            next_transfer_tag: 0,
            lingering: VecDeque::new(),
            patience: Patience::default(),
            headway: Headway::default(),
            suspended: Vec::new(),
            reception_at: None,
            alarm: Alarm::default(),
            is_over: false,
        }
    }

    /// The target that it uses; none for a discovery session.
    pub(super) fn target(&self) -> Option<TargetId> {
        match &self.kind {
            SessionKind::Normal { target, .. } => Some(*target),
            SessionKind::Discovery => None,
        }
    }

    /// Whether another connection may join it.
    pub(super) fn has_seat(&mut self) -> bool {
        self.seats.admits(self.connections.len() as u64, 1)
    }

    /// How the quotas of what it has are used, its connections left out.
    pub(super) fn usages(&self) -> impl Iterator<Item = Usage> {
        self.order.usages().into_iter().chain([self.seats.usage()])
    }

    /// Where a connection stands among the others.
    pub(super) fn position(&self, connection: ConnectionId) -> Option<usize> {
        self.connections.iter().position(|other| other.id == connection)
    }

    /// Sends a PDU with a status number on one of the connections.
    pub(super) fn send_status(&mut self, at: usize, header: Header, data: Option<Slices>, shared: &mut Shared) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        connection.push_status(header, data, &self.order);
        shared.wake(connection);
    }

    /// Sends one that the initiator does not expect, if it takes more of them.
    pub(super) fn send_unexpected(&mut self, at: usize, header: Header, data: Option<Slices>, shared: &mut Shared) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        connection.push_unexpected(header, data, &self.order);
        shared.wake(connection);
        self.ask_if_any_wait(at, shared);
    }

    /// Sends a PDU without a status number.
    pub(super) fn send(&mut self, at: usize, header: Header, data: Option<Slices>, shared: &mut Shared) {
        let Some(connection) = self.connections.get_mut(at) else { return };
        connection.push(header, data, &self.order);
        shared.wake(connection);
    }

    /// Rejects a PDU, of which the header goes back (RFC 7143 11.17).
    pub(super) fn reject(&mut self, at: usize, rejected: &Header, reason: Rejection, shared: &mut Shared) {
        shared.tally.data_digest_errors += u64::from(reason == Rejection::DataDigest);
        let header =
            Reject { is_final: true, reason: reason as u8, task_tag: TAG_NONE, data_number: 0, ..Reject::default() };
        self.send_unexpected(at, header.write(), Some(rejected.as_bytes().to_vec().into()), shared);
    }

    /// A command is over without an answer.
    pub(super) fn end_command(&mut self, number: u64) -> Option<Command> {
        self.forget_memory(number);
        self.settle_command(number)
    }

    /// The memory that an initiator has opened for a command is not reached into any more.
    pub(super) fn forget_memory(&mut self, number: u64) {
        let Some(command) = self.commands.get_mut(number) else { return };
        let (tag, connection) = (command.tag, command.connection);
        // Its tag may be another command's by now.
        let is_its_own = self.commands.by_tag(tag).is_some_and(|command| command.number == number);
        if is_its_own && let Some(at) = self.position(connection) {
            self.connections[at].mover.forget(tag);
        }
    }

    /// A command is over: its number is settled. What is still on its way for it will be read and forgotten.
    pub(super) fn settle_command(&mut self, number: u64) -> Option<Command> {
        let command = self.commands.remove(number)?;
        if !command.is_immediate {
            self.order.release();
        }
        if matches!(command.phase, Phase::Gathering(_)) {
            if self.lingering.len() >= LINGERING_MAX {
                self.lingering.pop_front();
            }
            self.lingering.push_back(command.tag);
        }
        Some(command)
    }

    /// A connection leaves the session: what is queued is still sent, then it is closed. Its commands wait for another
    /// connection where that was agreed on, or are ended.
    pub(super) fn drop_connection(&mut self, at: usize, shared: &mut Shared, now: Instant) {
        if let Some((connection, is_suspended)) = self.part_with(at, shared, now) {
            let broken = connection.mover.trouble().map(|why| ServerEvent::Broken { nexus: self.nexus, why });
            shared.events.extend(broken);
            self.go_on_without(connection.id, is_suspended, shared);
            shared.close(connection.id, self.leaving(connection));
        }
    }

    /// A connection is gone, and nothing can be sent on it any more.
    pub(super) fn lose_connection(&mut self, at: usize, shared: &mut Shared, now: Instant) {
        if let Some((connection, is_suspended)) = self.part_with(at, shared, now) {
            shared.homes.remove(&connection.id);
            self.go_on_without(connection.id, is_suspended, shared);
        }
    }

    /// A new connection takes the place of an old one: the session lives on.
    pub(super) fn replace_connection(&mut self, at: usize, shared: &mut Shared, now: Instant) {
        if let Some((connection, is_suspended)) = self.part_with(at, shared, now) {
            if !is_suspended {
                self.end_commands_of(connection.id, shared);
            }
            shared.close(connection.id, self.leaving(connection));
        }
    }

    /// An initiator has logged a connection out, for good.
    pub(super) fn leave(&mut self, at: usize, shared: &mut Shared) {
        if let Some(connection) = self.detach(at, shared) {
            self.go_on_without(connection.id, false, shared);
            shared.close(connection.id, self.leaving(connection));
        }
    }

    /// What is still to be sent on a connection that the session has no more.
    fn leaving(&self, connection: Connection) -> Leaving {
        let Connection { mut mover, delivery, .. } = connection;
        // What still comes has nobody who waits for it.
        drop(mover.withdraw());
        Leaving { mover, delivery, nexus: self.nexus, memory: Some(self.memory.clone()) }
    }

    fn part_with(&mut self, at: usize, shared: &mut Shared, now: Instant) -> Option<(Connection, bool)> {
        let mut connection = self.detach(at, shared)?;
        let is_suspended = self.suspend(&mut connection, shared, now);
        Some((connection, is_suspended))
    }

    fn go_on_without(&mut self, lost: ConnectionId, is_suspended: bool, shared: &mut Shared) {
        if self.connections.is_empty() && self.suspended.is_empty() {
            self.close(SessionEnd::Lost, shared);
        } else if !is_suspended {
            self.end_commands_of(lost, shared);
        }
    }

    fn detach(&mut self, at: usize, shared: &mut Shared) -> Option<Connection> {
        if at >= self.connections.len() {
            return None;
        }
        let connection = self.connections.remove(at);
        shared.usages.add(connection.usages());
        shared.movements.add(&connection.mover.movement().past());
        self.lose_receipts(connection.id);
        // What was not acknowledged is sent again by the initiator (RFC 7143 7.2.1).
        self.order.forget(|held| matches!(held, Held::Request(from, _) if *from == connection.id));
        shared.starved.retain(|starved| *starved != Starved::Connection(connection.id));
        let nexus = self.nexus;
        self.note_starved(shared.starved.iter().any(|starved| shared.session_of(*starved) == Some(nexus)));
        // Nothing is read on it any more.
        self.answer_settled(shared);
        Some(connection)
    }

    /// Ends the commands of a connection without an answer: the layer above is told to abort what it works on.
    pub(super) fn end_commands_of(&mut self, connection: ConnectionId, shared: &mut Shared) {
        let own: Vec<(u64, bool)> = self
            .commands
            .iter()
            .filter(|command| command.connection == connection)
            .map(|command| (command.number, command.is_above()))
            .collect();
        for (number, is_above) in own {
            if is_above {
                self.forsake(number, shared);
            } else {
                self.end_command(number);
            }
        }
    }

    /// Has the layer above manage tasks.
    pub(super) fn ask_above(
        &mut self,
        function: Function,
        lun: Option<Lun>,
        asker: Option<Asker>,
        shared: &mut Shared,
    ) {
        let Some(target) = self.target() else { return };
        let number = self.managements.begin(function, asker);
        let handle = ManageHandle { nexus: self.nexus, number };
        shared.events.push_back(ServerEvent::Manage { handle, target, lun, function });
    }

    /// The session is over: its connections are closed once what is queued is sent.
    pub(super) fn close(&mut self, end: SessionEnd, shared: &mut Shared) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        shared.deadlines.forget(self.nexus, &mut self.alarm);
        shared.usages.add(self.usages());
        shared.events.push_back(ServerEvent::SessionClosed { nexus: self.nexus, end, tsih: self.tsih });
        while !self.connections.is_empty() {
            if let Some(connection) = self.detach(0, shared) {
                shared.close(connection.id, self.leaving(connection));
            }
        }
        let nexus = self.nexus;
        shared.starved.retain(|starved| !matches!(starved, Starved::Command(of, _) if *of == nexus));
        self.note_starved(false);
    }

    /// Whether something of it still waits for memory. If not, it wants none.
    pub(super) fn note_starved(&mut self, is_starved: bool) {
        if std::mem::replace(&mut self.is_starved, is_starved) && !is_starved {
            self.memory.forgo();
        }
    }
}
