//! What a session has agreed on, and its numbers.

use std::net::SocketAddr;
use std::time::Duration;

use sanwire_core::Instant;

use super::backoff::Backoff;
use super::discovery::Exchange;
use super::tasks::CONTROL_TAG;
use super::types::{ClientConfig, ServerInfo};
use crate::parameters::{ConnectionParameters, SessionParameters};
use crate::serial::Serial;

/// The number of the first connection, and of the first command.
pub(super) const FIRST_CONNECTION: u16 = 0;
pub(super) const FIRST_COMMAND: Serial = Serial(1);

/// No target keeps us waiting longer than this.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// A session.
pub(super) struct Session {
    pub(super) tsih: u16,
    pub(super) parameters: SessionParameters,
    pub(super) connection: ConnectionParameters,
    pub(super) alias: String,
    pub(super) portal: SocketAddr,
    /// Lost connections (numbers) whose tasks are to go on elsewhere.
    pub(super) lost: Vec<Lost>,
    pub(super) begun_at: Instant,
    /// It has had several connections.
    pub(super) was_wide: bool,
    /// It has shown to work: a loss begins a new search, with its full patience.
    pub(super) is_settled: bool,
    /// The target wants us to leave: no new commands, and a logout at this time.
    pub(super) leave_at: Option<Instant>,
    /// The logout was sent.
    pub(super) is_leaving: bool,
    /// The target has ended the session and wants us to come back after so long.
    pub(super) ended: Option<Duration>,
    /// Connections (numbers) that the target has ended.
    pub(super) dropped: Vec<u16>,
    /// When a further connection is tried, and how long to wait after that; `None` when the target wants no more.
    pub(super) grow: Option<(Instant, Backoff)>,
    pub(super) text: Option<Exchange>,
    /// Until when the target keeps the tasks of a session without connections.
    pub(super) retained_until: Instant,
    connections_max: u16,
    next_connection: u16,
    next_tag: u32,
    next_command: Serial,
    expected_command: Serial,
    max_command: Serial,
}

/// A lost connection of a session.
pub(super) struct Lost {
    pub(super) number: u16,
    pub(super) stage: LostStage,
}

/// How far its recovery is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LostStage {
    /// The target has not been told.
    Found,
    /// It was told.
    LoggingOut,
    /// Its tasks may go on from then on; unless the target knows none of them.
    Waiting { until: Instant, is_known: bool },
}

/// What a leading login has brought.
pub(super) struct Beginning {
    pub(super) tsih: u16,
    pub(super) parameters: SessionParameters,
    pub(super) connection: ConnectionParameters,
    pub(super) alias: String,
    pub(super) portal: SocketAddr,
    pub(super) expected_command: Serial,
    pub(super) max_command: Serial,
}

impl Session {
    pub(super) fn new(beginning: Beginning, config: &ClientConfig, now: Instant) -> Self {
        let Beginning { tsih, parameters, connection, alias, portal, expected_command, max_command } = beginning;
        let mut session = Session {
            tsih,
            parameters,
            connection,
            alias,
            portal,
            lost: Vec::new(),
            begun_at: now,
            was_wide: false,
            is_settled: false,
            leave_at: None,
            is_leaving: false,
            ended: None,
            dropped: Vec::new(),
            grow: None,
            text: None,
            retained_until: now,
            connections_max: parameters.max_connections.min(config.wishes.connections).clamp(1, 8),
            next_connection: FIRST_CONNECTION + 1,
            next_tag: 0,
            next_command: FIRST_COMMAND,
            expected_command: FIRST_COMMAND,
            max_command: FIRST_COMMAND,
        };
        session.note_window(expected_command, max_command);
        session.grow = (session.connections_max > 1).then(|| (now, Backoff::default()));
        session
    }

    /// Data and statuses that are damaged or missing can be asked for once more.
    pub(super) fn recovers_data(&self) -> bool {
        self.parameters.error_recovery_level >= 1
    }

    /// Tasks outlive their connection.
    pub(super) fn recovers_connections(&self) -> bool {
        self.parameters.error_recovery_level >= 2
    }

    /// A tag for a request that is no command.
    pub(super) fn next_tag(&mut self) -> u32 {
        // Neither a command's nor the reserved tag (RFC 7143 11.2.1.8).
        self.next_tag = (self.next_tag + 1) % (CONTROL_TAG - 1);
        CONTROL_TAG | self.next_tag
    }

    /// A number for a further connection.
    pub(super) fn next_connection(&mut self) -> u16 {
        self.next_connection = self.next_connection.wrapping_add(1);
        self.next_connection.wrapping_sub(1)
    }

    /// The number that the next command will have; immediate requests show it too (RFC 7143 4.2.2.1).
    pub(super) fn command_number(&self) -> Serial {
        self.next_command
    }

    /// The number of a command that is sent now.
    pub(super) fn take_command_number(&mut self) -> Serial {
        self.next_command = self.next_command.next();
        Serial(self.next_command.0.wrapping_sub(1))
    }

    /// Whether another command may be sent.
    pub(super) fn has_room(&self) -> bool {
        self.next_command <= self.max_command
    }

    /// Whether the target has taken the command of this number.
    pub(super) fn has_arrived(&self, command: Serial) -> bool {
        command < self.expected_command
    }

    /// The number of the command that the target expects next, as far as is known.
    pub(super) fn expected_command(&self) -> Serial {
        self.expected_command
    }

    /// Takes what a PDU tells of the window (RFC 7143 4.2.2.1): old news, and numbers that cannot be, change nothing.
    pub(super) fn note_window(&mut self, expected: Serial, max: Serial) {
        if max.next() < expected {
            return;
        }
        if max > self.max_command {
            self.max_command = max;
        }
        if expected > self.expected_command && expected <= self.next_command {
            self.expected_command = expected;
        }
    }

    /// When something is due, with so many connections.
    pub(super) fn timeout(&self, connections: Option<usize>) -> Option<Instant> {
        let grow = self.grow.as_ref().filter(|_| self.wants_more(connections)).map(|&(at, _)| at);
        let waiting = self.lost.iter().filter_map(|lost| match lost.stage {
            LostStage::Waiting { until, .. } => Some(until),
            LostStage::Found | LostStage::LoggingOut => None,
        });
        waiting.chain(grow).chain(self.leave_at).min()
    }

    /// Whether a further connection is wanted: one after the other.
    pub(super) fn wants_more(&self, connections: Option<usize>) -> bool {
        self.leave_at.is_none() && connections.is_some_and(|count| count < usize::from(self.connections_max))
    }

    /// How long to wait after a loss before coming back (RFC 7143 13.15).
    pub(super) fn wait(&self) -> Duration {
        bounded_wait(self.parameters.time_to_wait_s)
    }

    /// How long the target keeps tasks after that (RFC 7143 13.16).
    pub(super) fn retention(&self) -> Duration {
        Duration::from_secs(u64::from(self.parameters.time_to_retain_s))
    }

    /// What the layer above knows of the session.
    pub(super) fn info(&self, config: &ClientConfig, connections: usize) -> ServerInfo {
        let window = self.max_command.since(self.expected_command).saturating_add(1);
        let window = u16::try_from(window.max(1)).unwrap_or(u16::MAX);
        ServerInfo {
            target: config.target.as_ref().map_or(String::new(), ToString::to_string),
            alias: self.alias.clone(),
            portal: self.portal,
            commands_max: config.commands_max.max(1).min(window),
            connections: connections as u16,
            is_narrowed: false,
            session: self.parameters,
            connection: self.connection,
        }
    }
}

/// Seconds that a target wants us to wait, within a limit.
pub(super) fn bounded_wait(seconds: u16) -> Duration {
    Duration::from_secs(u64::from(seconds)).min(WAIT_MAX)
}
