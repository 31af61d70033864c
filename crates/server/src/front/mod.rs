//! What a shard knows of a wire: a front end.
//!
//! A front end joins one protocol's server to the shard, which drives all of them alike and names none; what a protocol says and does is known
//! only in its folder here. After every call that lets one go on, the shard drains its events, then what it has to send, then reads its timeout.
//!
//! What a front end sends and receives goes by one of two carriers, which belong to the shard: packets by the ports of
//! [`crate::link::Links`] ([`DatagramEnd`]), bytes by the connections of [`crate::streams::Streams`] ([`StreamEnd`]).

mod administration;
pub(crate) mod aoe;
pub(crate) mod copies;
mod fronts;
pub(crate) mod hdsp;
pub(crate) mod hyperscsi;
pub(crate) mod iscsi;
mod logins;
mod table;
mod tally;
pub(crate) mod visa;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::{Arrival, Packet, Region, Shortage};
use sanwire_core::quota::Usage;
use sanwire_core::{ClientId, Instant, LinkId, Lun, Movement, NexusId, Path, Principal, Protection, SessionEnd};
use sanwire_device::{LogicalUnit, LogicalUnits, NexusPorts};
use sanwire_scsi::{Reply, Task};

pub(crate) use self::fronts::{FrontBuilder, Fronts};
pub(crate) use self::logins::{Caller, LoginOutcome, LoginPhase, LoginService, Newcomer, SessionPort};
pub(crate) use self::table::{
    DATA_AT, FrontParts, LOGIN_RESULTS, PROTOCOLS, WIRE_DEFAULT, WIRES, builders, logins, wire_name,
};
pub(crate) use self::tally::{CarriedFamilies, Tally, TallyFamily, TallyOf};
use crate::command::CommandRef;
use crate::counting::PacketCount;
use crate::link::LinkAddress;

/// One protocol's server in one shard.
pub(crate) trait FrontEnd {
    /// What people call the protocol.
    fn name(&self) -> &'static str;

    /// As [`LoginStatus::iser_path`], of one of its nexuses.
    fn iser_path(&self, _nexus: NexusId) -> Option<&'static str> {
        None
    }

    /// What the shard must know or do.
    fn poll_event(&mut self, now: Instant) -> Option<FrontEvent>;

    /// How many events wait, as far as that is known: many commands are answered in parts. What a lost connection has raised counts.
    fn events_waiting(&self) -> usize {
        0
    }

    /// Lets time pass.
    fn handle_timeout(&mut self, now: Instant);

    /// When [`FrontEnd::handle_timeout`] is next due.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Its end of packets, if its carrier is the ports.
    fn datagrams(&mut self) -> Option<&mut dyn DatagramEnd> {
        None
    }

    /// Its end of connections, if its carrier is the streams.
    fn streams(&mut self) -> Option<&mut dyn StreamEnd> {
        None
    }

    /// A command is over; `None` when its own nexus has aborted it. With [`Reply::rest`] only a piece of it is over.
    fn reply(&mut self, command: CommandRef, reply: Option<Reply>, now: Instant);

    /// Task management is over.
    fn managed(&mut self, request: CommandRef, outcome: ManageOutcome, now: Instant);

    /// A command of a nexus without a connection was not begun, and is forgotten.
    fn withdrawn(&mut self, _command: CommandRef, _now: Instant) {}

    /// The answer to a request to manage the server.
    fn administered(&mut self, _request: CommandRef, _answer: Vec<u8>, _now: Instant) {}

    /// Of these commands, its own wait for stores and keep too much memory: no more data is taken for them. Those that were named
    /// before and are not named now go on.
    fn hold_back(&mut self, commands: &[CommandRef], now: Instant);

    /// Whether nexuses wait for memory. They go on when the shard's region has memory again: that takes a turn.
    fn is_starved(&self) -> bool;

    /// The nexuses that wait for memory, with their shares of it.
    fn starving(&self) -> Box<dyn Iterator<Item = (NexusId, &Region)> + '_>;

    /// Takes memory from connections that do nothing by which it would be given back.
    fn relieve(&mut self, shortage: &Shortage, now: Instant);

    /// Gives memory back that it keeps for what it has not begun, because commands wait for some; whether it did.
    fn give_memory_back(&mut self, _now: Instant) -> bool {
        false
    }

    /// Takes over a connection whose login has passed.
    fn admit(&mut self, _stream: StreamId, _login: Box<dyn PassedLogin>, _admission: Admission, _now: Instant) {}

    /// Ends nexuses.
    fn drop_nexuses(&mut self, selection: &NexusSelection, now: Instant);

    /// Asks the nexuses with a target node to go where it has moved.
    fn redirect(&mut self, _target: u32, _now: Instant) {}

    /// Tells the initiators of a principal to send nothing, or to go on, where the protocol has words for that: the shard lets their
    /// commands wait in any case.
    fn pause(&mut self, _principal: &str, _is_paused: bool, _now: Instant) {}

    /// What principals may do has changed.
    fn terms_changed(&mut self, _now: Instant) {}

    /// A volume is about to demand more of its packets than this.
    fn demands_more(&mut self, _lun: Lun, _than: Protection, _now: Instant) {}

    /// The server ends: initiators are told.
    fn shut_down(&mut self, now: Instant);

    /// Whether nobody need be told any more. Connections of the stream carrier are looked at by the shard itself.
    fn is_drained(&self) -> bool {
        true
    }

    /// Its connections, as far as only it knows them.
    fn connections(&self) -> Vec<ConnectionStatus>;

    /// What it did not take, with the reasons.
    fn dropped(&self) -> Vec<(&'static str, u64)>;

    /// The links of its connections, where these have any.
    fn links(&self) -> Vec<LinkState> {
        Vec::new()
    }

    /// What it has counted in the words of its own protocol.
    fn tallies(&self) -> Vec<Tally> {
        Vec::new()
    }

    /// How its quotas are used.
    fn quotas(&self) -> Vec<Usage>;
}

/// Something for the shard to know or to do.
pub(crate) enum FrontEvent {
    /// An I_T nexus begins.
    NexusOpened(Box<NewNexus>),
    /// A nexus sees something else, or has another share, from now on.
    NexusChanged(NexusId, NexusView),
    /// A nexus is gone. What it has under way is to be ended, and not to be answered.
    NexusClosed {
        nexus: NexusId,
        /// Its number in the registry, for sessions whose connections came through the login listener.
        session: Option<u16>,
        /// Whether its initiator has left, or was away for longer than it would come back after.
        is_for_good: bool,
        /// Why, for the log.
        end: SessionEnd,
    },
    /// Execute this, and call [`FrontEnd::reply`].
    Command { command: CommandRef, task: Task },
    /// End a command as soon as that can be done; it is replied to in any case.
    Abort(CommandRef),
    /// Manage tasks, and call [`FrontEnd::managed`] once every command that it ends has been replied to.
    TaskManagement { request: CommandRef, function: Function },
    /// A nexus has no connection for now: what it has given and was not begun is not to wait for memory.
    Disconnected(NexusId),
    /// A nexus has lost a connection, for what has gone wrong with it. Where it was the last one, the nexus is closed behind it.
    Broken { nexus: NexusId, why: String },
    /// A nexus takes no answers for a while, or takes them again: what needs memory for its answer is to wait meanwhile.
    Held { nexus: NexusId, is_held: bool },
    /// End these nexuses in all shards.
    Drop(NexusSelection),
    /// Something was refused, so many times within a second.
    Refused { client: Option<ClientId>, path: Path, offence: Offence, count: u64 },
    /// Somebody who is not allowed asks, and gets no answer: so many packets since this was told last.
    NotAllowed { client: ClientId, path: Path, packets: u64 },
    /// Close a connection, now or when all is sent.
    CloseStream { stream: StreamId, is_at_once: bool },
}

/// A nexus that begins.
pub(crate) struct NewNexus {
    pub(crate) nexus: NexusId,
    /// The names of its two ports.
    pub(crate) ports: Arc<NexusPorts>,
    /// A name that its initiator has again after a restart of the server.
    pub(crate) writer: [u8; 16],
    /// What tells its initiator port from all others, after a restart of the server too; before the comma, whose it is.
    pub(crate) port: String,
    /// The iSCSI target, where it has one.
    pub(crate) target: Option<String>,
    /// Its share of the memory.
    pub(crate) memory: Region,
    pub(crate) view: NexusView,
    /// Whether those of the same principal may be of an earlier run of it: what they have under way keeps its blocks. Those that say no are
    /// not of any run either.
    pub(crate) ends_own: bool,
    /// That it begins, for the log.
    pub(crate) line: String,
}

/// What a nexus sees and has, and what else may change of it.
pub(crate) struct NexusView {
    pub(crate) units: Arc<LogicalUnits>,
    /// Who it is, for people.
    pub(crate) who: String,
    /// Who it is, for units that are derived.
    pub(crate) principal: Principal,
    /// Where it is.
    pub(crate) address: String,
    /// Whether its initiator wants to write nothing.
    pub(crate) is_read_only: bool,
    /// How much of what memory comes free it has beside others.
    pub(crate) weight: u32,
    /// Whether its units keep their media in while it is there.
    pub(crate) locks_media: bool,
}

/// The connection of a nexus as only its front end knows it, or its connections together.
pub(crate) struct ConnectionStatus {
    pub(crate) nexus: NexusId,
    /// How many connections there are, where they are not told apart; the links of one that goes by several.
    pub(crate) links: usize,
    /// How it is guarded, for people.
    pub(crate) security: String,
    /// Of an iSCSI session.
    pub(crate) login: Option<LoginStatus>,
    pub(crate) packets: Option<PacketCount>,
    /// How the data that came was brought to its place, as far as that is counted.
    pub(crate) movement: Option<Movement>,
}

/// How an iSCSI session was begun.
#[derive(Clone, Debug)]
pub(crate) struct LoginStatus {
    /// Where: `ADDR:PORT,GROUP`, as discovery tells portals.
    pub(crate) portal: String,
    /// As which CHAP user.
    pub(crate) user: Option<String>,
    /// Of iSER, by what: `tcp` or `rdma`.
    pub(crate) iser_path: Option<&'static str>,
    /// By which RDMA adapter, for people, if by one.
    pub(crate) adapter: Option<String>,
}

/// A link of a connection as it is now.
pub(crate) struct LinkState {
    pub(crate) nexus: NexusId,
    pub(crate) path: Path,
    pub(crate) is_up: bool,
    /// Once it was measured.
    pub(crate) round_trip: Option<Duration>,
}

/// What task management is to do (SAM-5 7).
pub(crate) enum Function {
    /// End one command.
    AbortTask(CommandRef),
    /// The same for a command that nobody can answer any more: only what is done for it is waited for.
    AbandonTask(CommandRef),
    /// End all commands of this nexus for the logical unit; `None` for one that cannot exist.
    AbortTaskSet(Option<Lun>),
    /// End all commands of all nexuses for the logical unit.
    ClearTaskSet(Option<Lun>),
    LogicalUnitReset(Option<Lun>),
    /// Reset these logical units, which are all that the nexus sees and may be reset.
    TargetReset(Vec<(Lun, Arc<LogicalUnit>)>),
    /// End what this nexus has under way, and forget what its units know of it.
    NexusReset,
}

/// How task management ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ManageOutcome {
    Complete,
    /// There is no such logical unit.
    NoLogicalUnit,
    /// Not now.
    Rejected,
}

/// Nexuses, of whichever front end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum NexusSelection {
    /// This one, whose place somebody else has.
    One(NexusId),
    /// This one, which may come again.
    Dropped(NexusId),
    /// Those of a principal: a client by its id, or an initiator by its name.
    Of(String),
    /// Those with this target node.
    With(u32),
}

/// Something that a peer did against the rules.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Offence {
    pub(crate) what: String,
    /// Whether it is proven who did it.
    pub(crate) is_proven: bool,
}

/// A protocol's end of the packet carrier. Links are numbered within the front end.
pub(crate) trait DatagramEnd {
    fn handle_input(&mut self, path: Path, packet: Arrival<'_>, now: Instant);

    fn poll_transmit(&mut self, now: Instant) -> Option<(Path, Packet)>;

    /// Where initiators can reach the links has changed, perhaps.
    fn set_addresses(&mut self, addresses: &[LinkAddress], now: Instant);

    /// What a link carries in one packet now, in bytes: its MTU may have changed.
    fn set_packet_max(&mut self, _link: LinkId, _packet_max_bytes: usize) {}
}

/// One connection of a shard; no number comes twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct StreamId(pub(crate) u64);

/// A protocol's end of the stream carrier.
pub(crate) trait StreamEnd {
    /// Where the next bytes of a connection go; both empty while there is no room.
    fn spaces(&mut self, stream: StreamId) -> [&mut [u8]; 2];

    /// So many bytes are there now.
    fn filled(&mut self, stream: StreamId, count: usize, now: Instant);

    /// A connection is gone.
    fn lost(&mut self, stream: StreamId, now: Instant);

    /// A connection that has something to send, or has room for input again.
    fn poll_ready(&mut self) -> Option<StreamId>;

    /// The next packet for a connection.
    fn poll_transmit(&mut self, stream: StreamId) -> Option<Packet>;

    /// So many bytes that were taken are not sent yet: they keep memory.
    fn note_unsent(&mut self, stream: StreamId, unsent_bytes: usize);

    /// The adapter that carries a connection has something, perhaps, or room. Then [`StreamEnd::poll_transmit`] is asked, and has nothing.
    fn handle_ready(&mut self, _stream: StreamId, _now: Instant) {}

    /// How far a connection has come that an adapter carries; `None` of one that is not there.
    fn carried(&self, _stream: StreamId) -> Option<Carried> {
        None
    }

    /// The segments of a connection's TCP have so many bytes.
    fn note_segment(&mut self, _stream: StreamId, _segment_bytes: usize) {}
}

/// How far a connection has come that an RDMA adapter carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Carried {
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// Nothing is left of what was to be sent.
    pub(crate) is_all_sent: bool,
}

/// Where the stream carrier finds the ends of its connections.
pub(crate) trait StreamEnds {
    /// How many front ends there are.
    fn count(&self) -> u8;

    /// The end of the connections of a front end.
    fn end(&mut self, front: u8) -> Option<&mut dyn StreamEnd>;
}

/// A connection that has passed its login, as its front end knows it.
pub(crate) trait PassedLogin: Any + Send + Sync {
    /// What to tell it when there is no room for it after all, before it is closed.
    fn out_of_resources(self: Box<Self>) -> Vec<Packet>;
}

/// The identity of a session that begins, or is joined by a further connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Admission {
    /// Its number among the sessions of the server: not zero, not that of another session that is there.
    pub(crate) session: u16,
    pub(crate) nexus: NexusId,
}
