//! Packets that a rule-breaking end makes out of the fuzzer's bytes: near enough to legal ones to get past the checks.

use std::time::Duration;

use arbitrary::{Result, Unstructured};
use sanwire_hyperscsi::wire::command::{Answer, Ask, Fragment, Function, ReplyHead, RequestHead, UnitTerms};
use sanwire_hyperscsi::wire::flow::{Ack, AckKind, Pause, Snr, Window, Windows};
use sanwire_hyperscsi::wire::links::{AddrReply, AddrReport, Address, LinkLimits};
use sanwire_hyperscsi::wire::live::{LiveReply, LiveRequest, NewKeys, NewOptions, write_disconnect};
use sanwire_hyperscsi::wire::options::{Offered, OptionNumber, Options, Stance};
use sanwire_hyperscsi::wire::{Header, Opcode, Protection, Tag};
use sanwire_scsi::{Cdb, Status};

use crate::impostor::{Keys, checked};
use crate::world::path;

/// Memory that no packet has written has this byte; what impostors send has its highest bit clear.
pub const CANARY: u8 = 0xa5;

/// Steps of one run at the most.
const STEPS_MAX: usize = 300;

/// The other end of a connection: it knows the keys and keeps no rule.
#[derive(Default)]
pub struct Impostor {
    /// The keys of its connection, once hands were shaken.
    pub keys: Option<Keys>,
    /// Its counters.
    pub numbers: Numbers,
}

/// An end that is tried by an impostor.
pub trait Tried {
    /// What the impostor's data packets carry: requests to a server, replies to a client.
    const DATA: Opcode;

    /// Who tries it.
    fn impostor(&mut self) -> &mut Impostor;

    /// A packet comes, and everything that follows from it is taken.
    fn input(&mut self, packet: &[u8]);

    /// Time passes.
    fn wait(&mut self, time: Duration);

    /// The layer above does something, if there is anything to do.
    fn act(&mut self, u: &mut Unstructured<'_>) -> Result<()>;

    /// The impostor takes part in a handshake.
    fn shake_hands(&mut self, u: &mut Unstructured<'_>) -> Result<()>;
}

/// Tries the end until the fuzzer's bytes are used up.
pub fn run(end: &mut impl Tried, u: &mut Unstructured<'_>) -> Result<()> {
    for _ in 0..STEPS_MAX {
        if u.is_empty() {
            break;
        }
        step(end, u)?;
    }
    Ok(())
}

fn step<T: Tried>(end: &mut T, u: &mut Unstructured<'_>) -> Result<()> {
    let kind = u.int_in_range(0..=15u8)?;
    let Impostor { keys, numbers } = end.impostor();
    let packet = match (kind, keys) {
        (0, _) => {
            let length = u.int_in_range(0..=120usize)?;
            u.bytes(length.min(u.len()))?.to_vec()
        }
        (1, keys) => {
            let opcode = opcode(u)?;
            let connection = keys.as_ref().map_or(5, |keys| keys.connection);
            let header = header(u, opcode)?;
            let (number, body) = (u.arbitrary()?, payload(u, 420)?);
            checked(None, header, connection, number, &body)
        }
        (2..=4, _) => {
            end.wait(Duration::from_micros(100 << u.int_in_range(0..=20u32)?));
            return Ok(());
        }
        (5 | 6, _) => return end.act(u),
        (7..=10, Some(keys)) => control(u, keys, numbers)?,
        (11..=14, Some(keys)) => data(u, keys, numbers, T::DATA)?,
        _ => return end.shake_hands(u),
    };
    end.input(&packet);
    Ok(())
}

/// Counters of an impostor's own.
#[derive(Default)]
pub struct Numbers {
    data: u64,
    control: u64,
    command: u64,
}

/// Any operation code.
fn opcode(u: &mut Unstructured<'_>) -> Result<Opcode> {
    u.choose(&Opcode::ALL).copied()
}

/// A header with any fields.
fn header(u: &mut Unstructured<'_>, opcode: Opcode) -> Result<Header> {
    let tag = Tag::new(u.int_in_range(0..=511)?).unwrap_or_default();
    Ok(Header { tag, last: u.arbitrary()?, fragment: u.int_in_range(0..=1023)?, opcode })
}

/// A few bytes with the highest bit clear.
pub fn payload(u: &mut Unstructured<'_>, max: usize) -> Result<Vec<u8>> {
    let length = u.int_in_range(0..=max)?;
    let seed: u8 = u.arbitrary()?;
    Ok((0..length).map(|i| (i as u8).wrapping_add(seed) & 0x7f).collect())
}

fn near(u: &mut Unstructured<'_>, next: u64) -> Result<u64> {
    Ok(match u.int_in_range(0..=9u8)? {
        0..=6 => next,
        7 => next.saturating_sub(u64::from(u.arbitrary::<u8>()?)),
        8 => next.saturating_add(u64::from(u.arbitrary::<u16>()?)),
        _ => u.arbitrary()?,
    })
}

/// A data packet: mostly fragments of small messages whose offsets nearly fit together.
fn data(u: &mut Unstructured<'_>, keys: &Keys, numbers: &mut Numbers, opcode: Opcode) -> Result<Vec<u8>> {
    let number = near(u, numbers.data)?;
    // Now and then a part of management, which is always sealed.
    let local = if opcode == Opcode::HcbeRequest { Opcode::LocalRequest } else { Opcode::LocalReply };
    let opcode = if u.ratio(1, 16)? { local } else { opcode };
    numbers.data = numbers.data.max(number.saturating_add(1)).min(number.saturating_add(5000));
    if u.ratio(1, 16)? {
        let header = header(u, opcode)?;
        let body = payload(u, 200)?;
        return Ok(keys.data(header, number, &body));
    }
    if u.ratio(1, 16)? {
        let header = Header::single(opcode, Tag::new(u.int_in_range(0..=1)?).unwrap_or_default());
        return Ok(keys.data(header, number, &compressed(u, numbers, opcode, number)?));
    }
    let tag = Tag::new(u.int_in_range(0..=1)?).unwrap_or_default();
    let fragment = u.int_in_range(0..=4u16)?;
    let header = Header { tag, last: u.arbitrary()?, fragment, opcode };
    // Mostly pieces of a grid of 4 x 16 bytes, so that messages come whole now and then, rightly or wrongly.
    let (grid, whole) = (16u32, 64u32);
    let (offset, length, total) = if u.ratio(7, 8)? {
        let offset = (grid * u32::from(fragment)).min(whole);
        (offset, (grid * u.int_in_range(0..=3u32)?).min(whole - offset), whole)
    } else {
        let offset = u.int_in_range(0..=128u32)?;
        let length = u.int_in_range(0..=64u32)?;
        (offset, length, if u.arbitrary()? { offset + length } else { u.arbitrary()? })
    };
    let head = if fragment == 0 { message_head(u, numbers, opcode)? } else { Vec::new() };
    let acknowledgement = if u.arbitrary()? { u32::from(u.arbitrary::<u8>()?) } else { u.arbitrary()? };
    let head_length = head.len() as u16;
    let (sequence, data_offset, data_length) = (number, offset, total);
    let answer_at_once = u.arbitrary()?;
    let expanded_kib = if u.ratio(1, 4)? { u.int_in_range(0..=2)? } else { 0 };
    let lengths = Fragment { data_offset, data_length, head_length, expanded_kib, ..Fragment::default() };
    let fields = Fragment { sequence, acknowledgement, answer_at_once, ..lengths };
    let mut body = [&fields.write()[..], &head].concat();
    let seed: u8 = u.arbitrary()?;
    body.extend((0..length).map(|i| (i as u8).wrapping_add(seed) & 0x7f));
    let is_local = matches!(opcode, Opcode::LocalRequest | Opcode::LocalReply);
    Ok(if is_local { keys.sealed(header, number, &body) } else { keys.data(header, number, &body) })
}

/// A message in one packet whose data expands, to as much as it says or to something else: an LZ4 block of literals.
fn compressed(u: &mut Unstructured<'_>, numbers: &mut Numbers, opcode: Opcode, sequence: u64) -> Result<Vec<u8>> {
    let length = u.int_in_range(1..=14u8)?;
    let said = if u.ratio(7, 8)? { u32::from(length) } else { u.arbitrary()? };
    let block =
        [&said.to_be_bytes()[..], &[length << 4], &[u.int_in_range(0..=0x7f)?; 14][..usize::from(length)]].concat();
    let head = message_head(u, numbers, opcode)?;
    let (data_length, head_length) = (block.len() as u32, head.len() as u16);
    let fragment = Fragment { sequence, data_length, head_length, expanded_kib: 1, ..Fragment::default() };
    Ok([&fragment.write()[..], &head, &block].concat())
}

fn message_head(u: &mut Unstructured<'_>, numbers: &mut Numbers, opcode: Opcode) -> Result<Vec<u8>> {
    let number = near(u, numbers.command)?;
    if u.ratio(1, 16)? {
        return payload(u, 80);
    }
    if matches!(opcode, Opcode::HcbeReply | Opcode::LocalReply) {
        let sense = payload(u, 40)?;
        let status = *u.choose(&[Status::Good, Status::CheckCondition, Status::TaskSetFull])?;
        let answer = match u.int_in_range(0..=7u8)? {
            _ if opcode == Opcode::LocalReply && u.ratio(7, 8)? => Answer::Administered,
            0 | 1 => Answer::Managed { done: u.arbitrary()? },
            _ => Answer::Command { status, sense },
        };
        let number = if u.arbitrary()? { u64::from(u.int_in_range(0..=8u8)?) } else { number };
        let protection = *u.choose(&Protection::ALL)?;
        let answer = (!u.ratio(1, 8)?).then_some(answer);
        let unit = UnitTerms { protection, is_compressible: u.arbitrary()? };
        return Ok(ReplyHead { number, unit, receipt: u.int_in_range(0..=3)?, answer }.write().to_vec());
    }
    numbers.command = numbers.command.max(number.saturating_add(1)).min(number.saturating_add(2000));
    let ask = match u.int_in_range(0..=7u8)? {
        _ if opcode == Opcode::LocalRequest && u.ratio(7, 8)? => Ask::Administer,
        0 => Ask::Manage { function: Function::AbortTask, task: near(u, number)? },
        1 => Ask::Manage { function: Function::LogicalUnitReset, task: 0 },
        _ => Ask::Command(Cdb::from([*u.choose(&[0x28u8, 0x2a, 0x12, 0x35])?, 0, 0, 0, 0, 0, 0, 0, 1, 0])),
    };
    let settled_below = if u.arbitrary()? { number } else { number.saturating_sub(u64::from(u.arbitrary::<u8>()?)) };
    let head = RequestHead {
        number,
        settled_below,
        receipts: u.int_in_range(0..=3)?,
        lun: [0, u.int_in_range(0..=2u8)?, 0, 0, 0, 0, 0, 0],
        data_in_max_bytes: u32::from(u.arbitrary::<u16>()?),
        ask,
    };
    Ok(head.write().to_vec())
}

fn window(u: &mut Unstructured<'_>) -> Result<Window> {
    let (packets, in_flight) = (u.int_in_range(1..=64)?, u.int_in_range(1..=64)?);
    Ok(Window::new(packets, in_flight).unwrap_or(Window::fitting(1)))
}

/// Half of an exchange for new keys: mostly the next, which the impostor then does not use.
fn new_keys(u: &mut Unstructured<'_>) -> Result<NewKeys> {
    let epoch = if u.ratio(7, 8)? { u64::from(u.int_in_range(0..=3u8)?) } else { u.arbitrary()? };
    Ok(NewKeys { epoch, public: if u.arbitrary()? { [9; 32] } else { u.arbitrary()? } })
}

fn pause(u: &mut Unstructured<'_>) -> Result<Pause> {
    Ok(match u.int_in_range(0..=3u8)? {
        0 => Pause::Owner(u.arbitrary()?),
        1 => Pause::Room(None),
        _ => Pause::Room(Some(u64::from(u.arbitrary::<u8>()?))),
    })
}

/// Options of an end: those that are known, with values of a right length or a wrong one.
fn new_options(u: &mut Unstructured<'_>) -> Result<NewOptions> {
    let mut options = Options::default();
    for _ in 0..u.int_in_range(0..=4u8)? {
        let number = OptionNumber::new(u.int_in_range(1..=10)?).unwrap_or(OptionNumber::VENDOR_FIRST);
        let value = vec![u.arbitrary()?; *u.choose(&[0usize, 1, 4, 8])?];
        // What is one too many is left out.
        let _ = options.set(number, Offered { stance: *u.choose(&Stance::ALL)?, value });
    }
    Ok(NewOptions { change: u32::from(u.arbitrary::<u8>()?), options })
}

fn end(u: &mut Unstructured<'_>) -> Result<LinkLimits> {
    let packet_max_bytes = if u.ratio(7, 8)? { 9000 } else { u.arbitrary()? };
    Ok(LinkLimits { packet_max_bytes, receive_capacity_packets: u.arbitrary()? })
}

/// A word about further links: the nonces are those that the honest end may have drawn, or not.
fn addr_report(u: &mut Unstructured<'_>, nonce: u64) -> Result<AddrReport> {
    Ok(match u.int_in_range(0..=2u8)? {
        0 => {
            let count = u.int_in_range(0..=8u8)?;
            let address = |host| Address { peer: path(true, host).peer, packet_max_bytes: 9000, speed_mbit: 1000 };
            AddrReport::Addresses((0..count).map(address).collect())
        }
        1 => AddrReport::Join { nonce, end: end(u)? },
        _ => AddrReport::Confirm { nonce },
    })
}

fn addr_reply(u: &mut Unstructured<'_>, nonce: u64) -> Result<AddrReply> {
    Ok(match u.int_in_range(0..=2u8)? {
        0 => AddrReply::Addresses,
        1 => AddrReply::Join { nonce, own_nonce: u.arbitrary()?, end: end(u)? },
        _ => AddrReply::Confirm { nonce },
    })
}

/// A control packet whose seal holds.
fn control(u: &mut Unstructured<'_>, keys: &Keys, numbers: &mut Numbers) -> Result<Vec<u8>> {
    let number = near(u, numbers.control)?;
    numbers.control = numbers.control.max(number).saturating_add(1).min(number.saturating_add(100));
    let windows = Windows { outward: window(u)?, inward: window(u)? };
    let marker = u64::from(u.arbitrary::<u16>()?);
    let (opcode, plain) = match u.int_in_range(0..=14u8)? {
        0 => (
            Opcode::AckSnr,
            Snr::SetWindows { resumed: u.arbitrary()?, number: u.arbitrary()?, windows, weight: u.arbitrary()? }
                .write(0),
        ),
        1 => (Opcode::AckSnr, Snr::Query { marker }.write(0)),
        2 => {
            let size = u.int_in_range(60..=9000usize)?;
            (Opcode::AckSnr, Snr::Probe { size_bytes: size as u16 }.write(size.saturating_sub(40)))
        }
        3..=6 => {
            let map = payload(u, 40)?;
            let kind = match u.int_in_range(0..=4u8)? {
                0 => AckKind::Plain,
                1 => AckKind::Windows { number: u.arbitrary()?, windows },
                2 => AckKind::Query { marker },
                3 => AckKind::Pause { number: marker as u32 },
                _ => AckKind::Probe { size_bytes: *u.choose(&[1500, 4352, 8952, 8972, 9000, 65535])? },
            };
            let cumulative = if u.ratio(7, 8)? { u64::from(u.arbitrary::<u8>()?) } else { u.arbitrary()? };
            (Opcode::AckReply, Ack { kind, cumulative, map: &map }.write())
        }
        7 if u.arbitrary()? => (Opcode::AdnReply, LiveReply::NewKeys(new_keys(u)?).write()),
        7 => (Opcode::AdnReply, LiveReply::KeepAlive { nonce: marker }.write()),
        8 if u.arbitrary()? => (Opcode::AdnRequest, LiveRequest::NewKeys(new_keys(u)?).write()),
        8 => (Opcode::AdnRequest, LiveRequest::KeepAlive { nonce: marker }.write()),
        9 if u.ratio(1, 4)? => (Opcode::AdnRequest, LiveRequest::Farewell.write()),
        11 => (Opcode::AckSnr, Snr::Pause { number: marker as u32, pause: pause(u)? }.write(0)),
        12 if u.arbitrary()? => (
            Opcode::AdnReply,
            LiveReply::Options { change: u32::from(u.arbitrary::<u8>()?), options: new_options(u)? }.write(),
        ),
        12 => (Opcode::AdnRequest, LiveRequest::Options(new_options(u)?).write()),
        13 => (Opcode::AddrReport, addr_report(u, marker)?.write()),
        14 => (Opcode::AddrReply, addr_reply(u, marker)?.write()),
        10 if u.ratio(1, 4)? => (Opcode::Disconnect, write_disconnect()),
        _ => (opcode(u)?, payload(u, 64)?),
    };
    Ok(keys.sealed(Header::single(opcode, Tag::default()), number, &plain))
}
