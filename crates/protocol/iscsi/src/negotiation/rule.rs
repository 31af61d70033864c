//! The keys and their rules, as a table (RFC 7143 13, RFC 7144 7).

use super::{Carriage, Negotiation, Position};
use crate::datamover::UNEXPECTED_MAX;
use crate::parameters::SessionParameters;

const RDMA_EXTENSIONS: &str = "RDMAExtensions";
pub(super) const MAX_RECEIVE: &str = "MaxRecvDataSegmentLength";

/// How two values become one.
#[derive(Clone, Copy)]
pub(super) enum Rule {
    /// The first of the list that we have too.
    HeaderDigest,
    DataDigest,
    /// Declared: how long data segments may be that go to the sender.
    Receive,
    /// The lower number, of a range.
    Lower(u32, u32),
    /// The higher number, of a range.
    Higher(u32, u32),
    /// Yes if one says yes.
    Or,
    /// Yes if both say yes.
    And,
    /// Always No: markers are gone (RFC 7143 13.25).
    No,
    /// Always refused.
    Reject,
    /// Of the list only the way of RFC 3720 (RFC 7143 13.23).
    TaskReporting,
    /// Yes if both say yes, and the session is carried by RDMA (RFC 7145 6.3).
    Rdma,
    /// The same at a target: it answers Hello, and no initiator of ours sends it.
    Hello,
    /// Declared: how many PDUs that nobody counts may be unanswered that go to the sender; none for as many as one likes (RFC 7145 6.7).
    Unexpected,
    /// Declared, and nothing follows from it.
    Ignored,
}

/// One key.
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) rule: Rule,
    /// Initiators offer it.
    pub(super) is_offered: bool,
    /// It means something in discovery sessions.
    pub(super) in_discovery: bool,
    /// Only the leading connection may negotiate it.
    pub(super) is_leading_only: bool,
    /// It means something over RDMA only (true), or without it only.
    pub(super) over: Option<bool>,
    field: Field,
}

/// Where a result goes.
#[derive(Clone, Copy)]
enum Field {
    None,
    MaxConnections,
    InitialR2t,
    ImmediateData,
    MaxBurst,
    FirstBurst,
    TimeToWait,
    TimeToRetain,
    MaxOutstandingR2t,
    PduInOrder,
    SequenceInOrder,
    RecoveryLevel,
    ProtocolLevel,
    UnexpectedMax,
    InitiatorReceive,
    TargetReceive,
}

const LENGTH_MAX: u32 = (1 << 24) - 1;

const fn session(name: &'static str, rule: Rule, field: Field) -> Key {
    Key { name, rule, is_offered: true, in_discovery: false, is_leading_only: true, over: None, field }
}

const fn plain(name: &'static str, rule: Rule) -> Key {
    Key { name, rule, is_offered: false, in_discovery: true, is_leading_only: false, over: None, field: Field::None }
}

/// One of RFC 7145.
const fn rdma(name: &'static str, rule: Rule, field: Field) -> Key {
    Key { in_discovery: false, over: Some(true), field, ..offered(name, rule) }
}

const fn offered(name: &'static str, rule: Rule) -> Key {
    Key { is_offered: true, ..plain(name, rule) }
}

pub(super) const KEYS: [Key; 28] = [
    offered("HeaderDigest", Rule::HeaderDigest),
    offered("DataDigest", Rule::DataDigest),
    Key { over: Some(false), ..offered(MAX_RECEIVE, Rule::Receive) },
    session("MaxConnections", Rule::Lower(1, 65_535), Field::MaxConnections),
    session("InitialR2T", Rule::Or, Field::InitialR2t),
    session("ImmediateData", Rule::And, Field::ImmediateData),
    session("MaxBurstLength", Rule::Lower(512, LENGTH_MAX), Field::MaxBurst),
    session("FirstBurstLength", Rule::Lower(512, LENGTH_MAX), Field::FirstBurst),
    Key { in_discovery: true, ..session("DefaultTime2Wait", Rule::Higher(0, 3600), Field::TimeToWait) },
    Key { in_discovery: true, ..session("DefaultTime2Retain", Rule::Lower(0, 3600), Field::TimeToRetain) },
    session("MaxOutstandingR2T", Rule::Lower(1, 65_535), Field::MaxOutstandingR2t),
    session("DataPDUInOrder", Rule::Or, Field::PduInOrder),
    session("DataSequenceInOrder", Rule::Or, Field::SequenceInOrder),
    Key { in_discovery: true, ..session("ErrorRecoveryLevel", Rule::Lower(0, 2), Field::RecoveryLevel) },
    // Initiators need nothing of level 2 here, and there are targets that close the connection on this key.
    Key { is_offered: false, ..session("iSCSIProtocolLevel", Rule::Lower(0, 31), Field::ProtocolLevel) },
    plain("IFMarker", Rule::No),
    plain("OFMarker", Rule::No),
    plain("IFMarkInt", Rule::Reject),
    plain("OFMarkInt", Rule::Reject),
    Key { is_offered: false, ..session("TaskReporting", Rule::TaskReporting, Field::None) },
    Key { is_leading_only: true, ..rdma(RDMA_EXTENSIONS, Rule::Rdma, Field::None) },
    rdma("InitiatorRecvDataSegmentLength", Rule::Lower(512, LENGTH_MAX), Field::InitiatorReceive),
    rdma("TargetRecvDataSegmentLength", Rule::Lower(512, LENGTH_MAX), Field::TargetReceive),
    // An initiator that wants it begins with it, and is answered.
    Key { is_offered: false, ..rdma("iSERHelloRequired", Rule::Hello, Field::None) },
    Key { is_leading_only: true, ..rdma("MaxOutstandingUnexpectedPDUs", Rule::Unexpected, Field::UnexpectedMax) },
    plain("MaxAHSLength", Rule::Ignored),
    plain("TaggedBufferForSolicitedDataOnly", Rule::Ignored),
    plain("X#NodeArchitecture", Rule::Ignored),
];

impl Key {
    /// The value that we offer; empty for nothing.
    pub(super) fn offer(&self, position: &Position) -> String {
        match self.rule {
            Rule::HeaderDigest | Rule::DataDigest => digest_offer(position).to_owned(),
            Rule::Receive => position.receive_data_max_bytes.to_string(),
            Rule::Or | Rule::And => yes_no(self.own(position) == 1).to_owned(),
            Rule::Rdma => yes_no(position.carriage.is_iser()).to_owned(),
            Rule::Lower(..) | Rule::Higher(..) | Rule::Unexpected => self.own(position).to_string(),
            _ => String::new(),
        }
    }

    /// The result of the other end's value and ours; `None` for a value that is none.
    pub(super) fn decide(&self, value: &str, position: &Position) -> Option<String> {
        Some(match self.rule {
            Rule::HeaderDigest | Rule::DataDigest => choose_digest(value, position)?.to_owned(),
            Rule::Receive => segment_length(value)?.to_string(),
            Rule::Unexpected => number(value, 0, u32::MAX).filter(|count| *count != 1)?.to_string(),
            Rule::Lower(least, most) => number(value, least, most)?.min(self.own(position)).to_string(),
            Rule::Higher(least, most) => number(value, least, most)?.max(self.own(position)).to_string(),
            Rule::Or => yes_no(is_yes(value)? | (self.own(position) == 1)).to_owned(),
            Rule::And => yes_no(is_yes(value)? & (self.own(position) == 1)).to_owned(),
            Rule::Rdma => yes_no(is_yes(value)? & position.carriage.is_iser()).to_owned(),
            Rule::Hello => yes_no(is_yes(value)? & position.carriage.is_target_of_iser()).to_owned(),
            Rule::No => yes_no(is_yes(value)? & false).to_owned(),
            Rule::TaskReporting => value.split(',').find(|way| *way == "RFC3720")?.to_owned(),
            Rule::Ignored => value.to_owned(),
            Rule::Reject => return None,
        })
    }

    /// Whether an answer of the other end says this result: numbers may be written in other ways.
    pub(super) fn is_same(&self, result: &str, answer: &str) -> bool {
        result == answer || number(answer, 0, u32::MAX).is_some_and(|number| number.to_string() == result)
    }

    /// Whether it is FirstBurstLength.
    pub(super) fn is_first_burst(&self) -> bool {
        matches!(self.field, Field::FirstBurst)
    }

    /// A result that is a number, but no more than this.
    pub(super) fn limit(&self, result: &str, most: u32) -> String {
        result.parse().map_or(most, |number: u32| number.min(most)).to_string()
    }

    /// Whether it is a statement, which has no answer.
    pub(super) fn is_declared(&self) -> bool {
        matches!(self.rule, Rule::Receive | Rule::Unexpected | Rule::Ignored)
    }

    /// What a target states of its own when an initiator has stated this. Not before: there are initiators that end a login for a key that
    /// they do not know.
    pub(super) fn statement_in_turn(&self, position: &Position) -> Option<String> {
        let is_due = position.is_assisted() && position.carriage.is_target_of_iser();
        (is_due && matches!(self.rule, Rule::Unexpected)).then(|| self.offer(position))
    }

    /// Puts a result where it belongs.
    pub(super) fn adopt(&self, result: &str, to: &mut Negotiation) {
        let (is_yes, number) = (result == "Yes", result.parse::<u32>().unwrap_or(0));
        let small = u16::try_from(number).unwrap_or(u16::MAX);
        match self.rule {
            Rule::HeaderDigest => to.connection.digests.header = result == "CRC32C",
            Rule::DataDigest => to.connection.digests.data = result == "CRC32C",
            Rule::Receive if !to.position.is_assisted() => to.connection.send_data_max_bytes = number,
            Rule::Rdma if self.name == RDMA_EXTENSIONS => to.is_iser_agreed = is_yes,
            _ => {}
        }
        let Negotiation { session, connection, position, .. } = to;
        let is_target = position.carriage.is_target_of_iser();
        match self.field {
            Field::None => {}
            Field::MaxConnections => session.max_connections = small,
            Field::InitialR2t => session.initial_r2t = is_yes,
            Field::ImmediateData => session.immediate_data = is_yes,
            Field::MaxBurst => session.max_burst_bytes = number,
            Field::FirstBurst => session.first_burst_bytes = number,
            Field::TimeToWait => session.time_to_wait_s = small,
            Field::TimeToRetain => session.time_to_retain_s = small,
            Field::MaxOutstandingR2t => session.max_outstanding_r2t = small,
            Field::PduInOrder => session.data_pdu_in_order = is_yes,
            Field::SequenceInOrder => session.data_sequence_in_order = is_yes,
            Field::RecoveryLevel => session.error_recovery_level = u8::try_from(number).unwrap_or(0),
            Field::ProtocolLevel => session.protocol_level = small,
            Field::UnexpectedMax if position.is_assisted() => session.unexpected_max = number,
            // Over plain TCP it is the stream that waits.
            Field::UnexpectedMax => {}
            Field::InitiatorReceive if is_target => connection.send_data_max_bytes = number,
            Field::InitiatorReceive => connection.receive_data_max_bytes = number,
            Field::TargetReceive if is_target => connection.receive_data_max_bytes = number,
            Field::TargetReceive => connection.send_data_max_bytes = number,
        }
    }

    /// Our own value, as a number; of a truth value 1 for yes.
    fn own(&self, position: &Position) -> u32 {
        let SessionParameters {
            initial_r2t,
            immediate_data,
            max_burst_bytes,
            first_burst_bytes,
            max_outstanding_r2t,
            data_pdu_in_order,
            data_sequence_in_order,
            error_recovery_level,
            max_connections,
            time_to_wait_s,
            time_to_retain_s,
            protocol_level,
            // It is said of the other end.
            unexpected_max: _,
        } = position.session;
        match self.field {
            Field::None => 0,
            Field::InitiatorReceive | Field::TargetReceive => self.own_receive(position.carriage),
            Field::MaxConnections => max_connections.into(),
            Field::InitialR2t => initial_r2t.into(),
            Field::ImmediateData => immediate_data.into(),
            Field::MaxBurst => max_burst_bytes,
            Field::FirstBurst => first_burst_bytes,
            Field::TimeToWait => time_to_wait_s.into(),
            Field::TimeToRetain => time_to_retain_s.into(),
            Field::MaxOutstandingR2t => max_outstanding_r2t.into(),
            Field::PduInOrder => data_pdu_in_order.into(),
            Field::SequenceInOrder => data_sequence_in_order.into(),
            Field::RecoveryLevel => error_recovery_level.into(),
            Field::ProtocolLevel => protocol_level.into(),
            Field::UnexpectedMax => UNEXPECTED_MAX,
        }
    }
}

impl Key {
    /// Whether it is offered where the session is carried so.
    pub(super) fn is_carried(&self, position: &Position) -> bool {
        match self.rule {
            // RFC 7145 6.1: iWARP has its own.
            Rule::HeaderDigest | Rule::DataDigest => !position.carriage.is_iser(),
            _ => self.over.is_none_or(|is_assisted| is_assisted == position.is_assisted()),
        }
    }

    /// Whether it means something where the session is carried so.
    pub(super) fn is_known(&self, position: &Position) -> bool {
        position.is_assisted() || !matches!(self.field, Field::InitiatorReceive | Field::TargetReceive)
    }

    fn own_receive(&self, carriage: Carriage) -> u32 {
        match (self.field, carriage) {
            (Field::InitiatorReceive, Carriage::Iser { initiator_receive_max_bytes, .. }) => {
                initiator_receive_max_bytes
            }
            (_, Carriage::Iser { target_receive_max_bytes, .. }) => target_receive_max_bytes,
            (_, Carriage::Plain) => LENGTH_MAX,
        }
    }
}

fn digest_offer(position: &Position) -> &'static str {
    match (position.requires_digests, position.prefers_digests) {
        (true, _) => "CRC32C",
        (false, true) => "CRC32C,None",
        (false, false) => "None,CRC32C",
    }
}

/// The first of the other end's list that we have too.
fn choose_digest(list: &str, position: &Position) -> Option<&'static str> {
    let has = |digest: &str| match digest {
        "CRC32C" if !position.carriage.is_iser() => Some("CRC32C"),
        "None" if !position.requires_digests => Some("None"),
        _ => None,
    };
    list.split(',').find_map(has)
}

/// A length of data segments (RFC 7143 13.12).
pub(super) fn segment_length(value: &str) -> Option<u32> {
    number(value, 512, LENGTH_MAX)
}

fn yes_no(is_yes: bool) -> &'static str {
    if is_yes { "Yes" } else { "No" }
}

fn is_yes(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// A number in decimal or hexadecimal notation (RFC 7143 6.1), within a range.
fn number(text: &str, least: u32, most: u32) -> Option<u32> {
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
            u32::from_str_radix(digits, 16).ok()?
        }
        Some(_) => return None,
        None if text.bytes().all(|digit| digit.is_ascii_digit()) => text.parse().ok()?,
        None => return None,
    };
    (least..=most).contains(&number).then_some(number)
}
