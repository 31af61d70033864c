//! Every limit there is.

use super::{Holder, Quota};
use crate::limits::COMMANDS_IN_TRANSIT_MAX;

/// Handshakes that begin without a cookie. Above it a cookie is asked for, which costs the server one short hash.
pub const HANDSHAKES_UNPROVEN: Quota = Quota::per_second(Holder::Strangers, "handshakes without a cookie", 100, 64);

/// What all others of a volume are told of before their next command, and must look at: who did it without end would let nobody
/// else come to his turn, in however many sessions.
pub const DISTURBANCES: Quota = Quota::per_second(Holder::Volume, "resets and changes of mode pages", 10, 32);

/// Those of one client, or iSCSI initiator: so few that some are left to others. Error recovery needs one or two for each volume.
pub const DISTURBANCES_OF_CLIENT: Quota =
    Quota::per_second(Holder::Client, "resets and changes of mode pages of a volume", 2, 16);

/// Cold resets of an iSCSI target, each of which ends all its sessions. Initiators that wait some seconds between two logins come back
/// and work for most of a minute; some hosts may still do it at one moment, as the last thing that they try against an error.
pub const COLD_RESETS: Quota = Quota::per_minute(Holder::Target, "cold resets", 1, 4);

/// Handshakes that begin with a cookie, from all addresses: a tenth of a processor at 200 us each.
pub const HANDSHAKES_PROVEN: Quota = Quota::per_second(Holder::Shard, "handshakes with a cookie", 500, 128);

/// Handshakes that begin with a cookie, from one address, or of one client that the server knows.
pub const HANDSHAKES_OF_ADDRESS: Quota = Quota::per_second(Holder::Address, "handshakes with a cookie", 50, 32);

/// Those from one network of IPv6, whose hosts may all come at once.
pub const HANDSHAKES_OF_NETWORK: Quota = Quota::per_second(Holder::Network, "handshakes with a cookie", 200, 64);

/// Answers to packets of connections that are not known, by which clients learn that the server was restarted.
pub const HINTS: Quota = Quota::per_second(Holder::Shard, "hints that a connection is not known", 640, 64);

/// Wrong passwords of clients that the server neither lists nor has a session of, from one network: a client whose owner has
/// mistyped it takes a quarter of that.
pub const GUESSES_OF_NETWORK: Quota = Quota::per_second(Holder::Network, "wrong passwords of unknown clients", 2, 16);

/// The same from all addresses together.
pub const GUESSES: Quota = Quota::per_second(Holder::Strangers, "wrong passwords of unknown clients", 8, 64);

/// Clients whose wrong passwords are remembered, so that each makes the next one wait for longer.
pub const GUESSERS: Quota = Quota::held(Holder::Shard, "clients remembered for a wrong password", 256);

/// Networks that are remembered so: more than can give one within the minute for which that counts.
pub const GUESSING_NETWORKS: Quota = Quota::held(Holder::Shard, "networks remembered for a wrong password", 1024);

/// Packets outside connections that wait until the wire takes them.
pub const LOOSE_PACKETS: Quota = Quota::held(Holder::Shard, "packets of handshakes that wait to be sent", 64);

/// Handshakes under way: what a server that has just started may have when all its clients come at the same moment.
pub const HALF_OPENS: Quota = Quota::held(Holder::Shard, "handshakes under way", 1024);

/// Handshakes of a session under way on one path. Each path has its own, so that who names a session from elsewhere ends none of them.
pub const HALF_OPENS_OF_SESSION: Quota = Quota::held(Holder::Session, "handshakes under way on one path", 8);

/// Lines of a shard's log about what anybody can be refused who reaches the server; the next one says how many were left out.
pub const LOGGED_OFFENCES: Quota = Quota::per_minute(Holder::Strangers, "log lines about what was refused", 60, 20);

/// The same about what clients were refused that have shown who they are: no stranger keeps it out of the log.
pub const LOGGED_REFUSALS: Quota =
    Quota::per_minute(Holder::Shard, "log lines about what clients were refused", 60, 20);

/// Lines of a shard's log about sessions that begin and end.
pub const LOGGED_SESSIONS: Quota = Quota::per_minute(Holder::Shard, "log lines about sessions", 600, 200);

/// Lines of the log about logins over TCP that are refused, or sent elsewhere.
pub const LOGGED_LOGINS: Quota = Quota::per_minute(Holder::Strangers, "log lines about logins over TCP", 60, 20);

/// Lines of the audit log about what anybody can be refused who reaches the server: so few that in a year they do not push out what
/// was changed.
pub const AUDITED_OFFENCES: Quota = Quota::per_day(Holder::Strangers, "audit lines about what was refused", 96, 20);

/// Lines of the audit log about what clients were refused that have shown who they are.
pub const AUDITED_REFUSALS: Quota =
    Quota::per_day(Holder::Server, "audit lines about what clients were refused", 144, 60);

/// Bytes of the audit log, all its files together.
pub const AUDIT_BYTES: Quota = Quota::bytes(Holder::Server, "audit log", 128 << 20);

/// Logins under way of hosts that some access rule may name: iSCSI's, and VISA's connections until their first packet.
pub const LOGINS: Quota = Quota::held(Holder::Server, "logins over TCP under way", 512);

/// Those of one network.
pub const LOGINS_OF_NETWORK: Quota = Quota::held(Holder::Network, "logins over TCP under way", 128);

/// Those of all other hosts together: they are told that they are refused, and why, as long as that costs nobody else a place.
pub const LOGINS_OF_STRANGERS: Quota = Quota::held(Holder::Strangers, "logins over TCP under way", 64);

/// Connections of iSCSI and VISA that have passed their logins; an iSCSI session without one counts as one. A quarter is kept for networks that have
/// few. Of the rest a holder has at most three times what is left to others; the limits below are what that comes to for who is alone.
pub const TCP_CONNECTIONS: Quota = Quota::held(Holder::Server, "TCP connections", 32_768);

/// Those of one network: three times as many as are left for all.
pub const TCP_CONNECTIONS_OF_NETWORK: Quota = Quota::held(Holder::Network, "TCP connections", 18_432);

/// Those of one address: three times as many as are left for its network.
pub const TCP_CONNECTIONS_OF_ADDRESS: Quota = Quota::held(Holder::Address, "TCP connections", 17_015);

/// Those of one initiator at one address: three times as many as are left for that.
pub const TCP_CONNECTIONS_OF_CLIENT: Quota = Quota::held(Holder::Client, "TCP connections", 16_589);

/// Discovery sessions of all who have shown nothing, and could use nothing before they do.
pub const DISCOVERIES_OF_STRANGERS: Quota = Quota::held(Holder::Strangers, "iSCSI discovery sessions", 64);

/// VISA's connections over TCP of all who have no session yet: they come and go within seconds, and show nothing before.
pub const VISA_NEWCOMERS: Quota = Quota::held(Holder::Strangers, "VISA connections over TCP without a session", 256);

/// Memory for data of a client or an iSCSI initiator, of all its sessions in a shard: three times what it leaves for others. Its two
/// largest transfers are guaranteed to it, also where they are more.
pub const MEMORY_OF_CLIENT: Quota = Quota::percent(Holder::Client, "memory for data of its shard", 75);

/// Commands of a session that are executed. As much task management besides may be under way, to end them.
pub const COMMANDS_OF_SESSION: Quota =
    Quota::held(Holder::Session, "commands under way", COMMANDS_IN_TRANSIT_MAX as u64);

/// Numbers of a session's commands, from the oldest of which the client has not said that it has the answer.
pub const COMMAND_NUMBERS_OF_SESSION: Quota = Quota::held(Holder::Session, "span of command numbers", 1024);

/// Incomplete requests: one for each command in transit, and as many for management.
pub const INCOMING_OF_SESSION: Quota =
    Quota::held(Holder::Session, "requests that are coming in", 2 * COMMANDS_OF_SESSION.limit);

/// Answers of which the client has not acknowledged all. Who acknowledges what comes has no more than a span of command numbers, and
/// a few that were asked twice.
pub const ANSWERS_OF_SESSION: Quota = Quota::held(
    Holder::Session,
    "answers that are not acknowledged",
    COMMAND_NUMBERS_OF_SESSION.limit + 2 * COMMANDS_OF_SESSION.limit,
);

/// What stores keep in memory and they share, with all that it is a part of. Whoever writes there meanwhile makes it memory that no
/// store has any more.
pub const LENT_BYTES_OF_SESSION: Quota = Quota::bytes(Holder::Session, "memory of stores that answers share", 64 << 20);

/// What of their data is in no share of the memory for data: what does not come from a store, or is compressed.
pub const ANSWER_BYTES_OF_SESSION: Quota =
    Quota::bytes(Holder::Session, "answers that are not acknowledged, but plain data of stores", 8 << 20);

/// Commands of an iSCSI session that are executed or wait for that, by the window of command numbers. As many immediate ones, which
/// have no number of their own, may be under way besides.
pub const ISCSI_COMMANDS_OF_SESSION: Quota = Quota::held(Holder::Session, "iSCSI commands under way", 128);

/// Connections of an iSCSI session with a target; one that is for discovery has one.
pub const ISCSI_CONNECTIONS_OF_SESSION: Quota = Quota::held(Holder::Session, "iSCSI connections", 8);

/// Ping and text data of requests that came before those with lower numbers. It is in no share of the memory for data.
pub const ISCSI_EARLY_BYTES: Quota =
    Quota::bytes(Holder::Session, "iSCSI ping and text data that came early", 64 << 10);

/// Answers of a connection that are not sent.
pub const ISCSI_UNSENT_BYTES: Quota = Quota::bytes(Holder::Session, "answers unsent on an iSCSI connection", 8 << 20);

/// What of them is in no share of the memory for data: headers, and what does not come from a store.
pub const ISCSI_UNSENT_HEAP_BYTES: Quota =
    Quota::bytes(Holder::Session, "answers unsent on an iSCSI connection, but their data", 256 << 10);

/// Answers of a connection that its initiator has not acknowledged, at error recovery level 1 or 2.
pub const ISCSI_KEPT_BYTES: Quota =
    Quota::bytes(Holder::Session, "answers kept for recovery on an iSCSI connection", 4 << 20);

/// What of them is in no share of the memory for data.
pub const ISCSI_KEPT_HEAP_BYTES: Quota =
    Quota::bytes(Holder::Session, "answers kept for recovery on an iSCSI connection, but their data", 256 << 10);

/// What stores keep in memory and unsent answers share, as over HyperSCSI.
pub const ISCSI_LENT_BYTES: Quota =
    Quota::bytes(Holder::Session, "memory of stores that answers on an iSCSI connection share", 64 << 20);

/// Requests of clients to manage the server that wait for the one before.
pub const MANAGEMENT_WAITING: Quota = Quota::held(Holder::Server, "requests to manage it that wait", 64);

/// Those of one client: who asks without waiting for its answers leaves others room to ask.
pub const MANAGEMENT_OF_CLIENT: Quota = Quota::held(Holder::Client, "requests to manage the server that wait", 8);

/// Changes of a client that owns volumes and may not manage the server: each is told by events, and stands in the audit log.
pub const CHANGES_OF_OWNER: Quota = Quota::per_minute(Holder::Client, "changes of an owner of volumes", 30, 256);

/// Those of all of them.
pub const CHANGES_OF_OWNERS: Quota = Quota::per_minute(Holder::Server, "changes of owners of volumes", 120, 1024);

/// What an owner has last for a short time from each time on, as files that are served as devices, six times a minute each: it is written down,
/// and no event tells it.
pub const RENEWALS_OF_OWNER: Quota = Quota::per_minute(Holder::Client, "renewals by an owner of volumes", 120, 64);

/// Those of all of them.
pub const RENEWALS_OF_OWNERS: Quota = Quota::per_minute(Holder::Server, "renewals by owners of volumes", 240, 256);

/// Copies to other servers that go on: each has a thread, a connection, and up to 160 MiB for what is not stable there yet.
pub const COPIES: Quota = Quota::held(Holder::Server, "copies to other servers", 8);

/// Those of all who own volumes and may not manage the server.
pub const COPIES_OF_OWNERS: Quota = Quota::held(Holder::Server, "copies of owners to other servers", 4);

/// Those of one of them.
pub const COPIES_OF_OWNER: Quota = Quota::held(Holder::Client, "copies of an owner to other servers", 2);

/// Refused ones that wait to be written down.
pub const ATTEMPTS_WAITING: Quota = Quota::held(Holder::Server, "refused management that waits to be noted", 16);

/// What else anybody was refused, and waits for that.
pub const OFFENCES_WAITING: Quota = Quota::held(Holder::Strangers, "refusals that wait to be noted", 64);

/// The same of clients that have shown who they are.
pub const REFUSALS_WAITING: Quota = Quota::held(Holder::Server, "refusals of clients that wait to be noted", 64);

/// Sessions of a client: programs that use one key at once, and what is left of some that have not taken leave. A host that has 256
/// volumes attached, each by a program of its own, has room for others.
pub const SESSIONS_OF_CLIENT: Quota = Quota::held(Holder::Client, "sessions", 256 + 64);

/// What is remembered of commands for the sessions of a client that have no connection: what all that it may have have in transit, 32
/// each, or ten whole spans of command numbers.
pub const SLOTS_OF_CLIENT: Quota =
    Quota::held(Holder::Client, "commands remembered without a connection", SESSIONS_OF_CLIENT.limit * 32);

/// Sessions from one address in a shard, of clients that it does not list.
pub const SESSIONS_OF_ADDRESS: Quota = Quota::held(Holder::Address, "sessions of clients that are not listed", 512);

/// The same from one network.
pub const SESSIONS_OF_NETWORK: Quota = Quota::held(Holder::Network, "sessions of clients that are not listed", 2048);

/// Registrations by PERSISTENT RESERVE OUT, of all who use a volume. A quarter is kept for initiators that register themselves and have
/// few: who registers others, or himself by many ports, keeps nobody from fencing him off.
pub const REGISTRATIONS: Quota = Quota::held(Holder::Volume, "reservation registrations", 4096);

/// Times at which commands begin to wait for a store of which a line in the log tells, and another one when none waits any more.
pub const LOGGED_STALLS: Quota =
    Quota::per_minute(Holder::Volume, "pairs of log lines about a store that stalls", 6, 6);

/// Instructions of the programs of a derived volume, and of all that is derived from it: a twentieth of a processor where an instruction takes a
/// nanosecond, and a half at the most. A program of a dozen instructions is asked about a million commands in a second.
pub const PROGRAM_FUEL: Quota = Quota::per_second(Holder::Volume, "fuel of programs", 50_000_000, PROGRAM_FUEL_BURST);

/// So much of it at one moment: 40 calls of as long as one may take.
pub const PROGRAM_FUEL_BURST: u32 = 4_000_000;

/// Sessions of a shard. Each has one connection or none.
pub const SESSIONS: Quota = Quota::held(Holder::Shard, "sessions", 16_384);

/// Stations at AoE targets. The one that was idle for the longest time gives way to a new one.
pub const AOE_STATIONS: Quota = Quota::held(Holder::Shard, "AoE stations at targets", 4096);

/// AoE stations that give a target their first command: after a restart all come back, and any MAC address can be made up, each of which
/// takes memory and the place of one that is idle.
pub const AOE_BEGINNINGS: Quota =
    Quota::per_second(Holder::Shard, "AoE stations that begin to use a target", 256, 1024);

/// Commands of an AoE station at a target: what the target announces as its buffers. Linux keeps up to 64.
pub const AOE_COMMANDS: Quota = Quota::held(Holder::Session, "AoE commands under way", 128);

/// Those of them that read without an answer that would take time to send.
pub const AOE_VERIFIES: Quota = Quota::held(Holder::Session, "AoE VERIFY commands that are executed", 8);

/// Questions that one frame asks all AoE targets, each of which answers.
pub const AOE_QUESTIONS: Quota = Quota::per_second(Holder::Shard, "AoE questions to all targets", 100, 64);

/// Those of one station.
pub const AOE_QUESTIONS_OF_ADDRESS: Quota = Quota::per_second(Holder::Address, "AoE questions to all targets", 10, 4);

/// Every quota, in the order in which people are shown them.
pub const ALL: &[&Quota] = &[
    &HANDSHAKES_UNPROVEN,
    &GUESSES,
    &LOGINS_OF_STRANGERS,
    &DISCOVERIES_OF_STRANGERS,
    &VISA_NEWCOMERS,
    &LOGGED_LOGINS,
    &LOGGED_OFFENCES,
    &OFFENCES_WAITING,
    &AUDITED_OFFENCES,
    &HANDSHAKES_OF_NETWORK,
    &GUESSES_OF_NETWORK,
    &LOGINS_OF_NETWORK,
    &SESSIONS_OF_NETWORK,
    &TCP_CONNECTIONS_OF_NETWORK,
    &HANDSHAKES_OF_ADDRESS,
    &SESSIONS_OF_ADDRESS,
    &TCP_CONNECTIONS_OF_ADDRESS,
    &AOE_QUESTIONS_OF_ADDRESS,
    &MEMORY_OF_CLIENT,
    &SESSIONS_OF_CLIENT,
    &SLOTS_OF_CLIENT,
    &TCP_CONNECTIONS_OF_CLIENT,
    &MANAGEMENT_OF_CLIENT,
    &CHANGES_OF_OWNER,
    &RENEWALS_OF_OWNER,
    &COPIES_OF_OWNER,
    &DISTURBANCES_OF_CLIENT,
    &COMMANDS_OF_SESSION,
    &COMMAND_NUMBERS_OF_SESSION,
    &INCOMING_OF_SESSION,
    &ANSWERS_OF_SESSION,
    &ANSWER_BYTES_OF_SESSION,
    &LENT_BYTES_OF_SESSION,
    &ISCSI_COMMANDS_OF_SESSION,
    &ISCSI_CONNECTIONS_OF_SESSION,
    &ISCSI_EARLY_BYTES,
    &ISCSI_UNSENT_BYTES,
    &ISCSI_UNSENT_HEAP_BYTES,
    &ISCSI_KEPT_BYTES,
    &ISCSI_KEPT_HEAP_BYTES,
    &ISCSI_LENT_BYTES,
    &HALF_OPENS_OF_SESSION,
    &AOE_COMMANDS,
    &AOE_VERIFIES,
    &REGISTRATIONS,
    &DISTURBANCES,
    &LOGGED_STALLS,
    &PROGRAM_FUEL,
    &COLD_RESETS,
    &HANDSHAKES_PROVEN,
    &HINTS,
    &LOOSE_PACKETS,
    &GUESSERS,
    &GUESSING_NETWORKS,
    &HALF_OPENS,
    &SESSIONS,
    &AOE_STATIONS,
    &AOE_BEGINNINGS,
    &AOE_QUESTIONS,
    &LOGGED_REFUSALS,
    &LOGGED_SESSIONS,
    &LOGINS,
    &TCP_CONNECTIONS,
    &MANAGEMENT_WAITING,
    &CHANGES_OF_OWNERS,
    &RENEWALS_OF_OWNERS,
    &COPIES,
    &COPIES_OF_OWNERS,
    &ATTEMPTS_WAITING,
    &REFUSALS_WAITING,
    &AUDITED_REFUSALS,
    &AUDIT_BYTES,
];
