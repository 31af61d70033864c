//! A peer of iWARP that keeps no rule: it knows the keys, the numbers and the CRC, and uses them as it likes.

use std::collections::VecDeque;

use arbitrary::{Result, Unstructured};
use sanwire_buffer::{Head, Region};
use sanwire_iwarp::wire::{
    DEPTH_ANY, Enhanced, READ_REQUEST_BYTES, ReadRequest, Segment, Stag, Startup, Target, padding_bytes,
};
use sanwire_iwarp::{Closed, Config, Connection, Event, Memory, Order, Registration, Rights, Rtr, SendKind, WorkId};

/// Memory that is not for the peer has this byte; what the peer sends has its highest bit clear.
const CANARY: u8 = 0xa5;

/// Before and behind each window.
const MARGIN_BYTES: usize = 16;

/// What frames are made of.
pub const MEMORY_BYTES: usize = 1 << 20;

/// More than all that an end may have to send at a time: orders, answers, and what they are cut into.
const PACKETS_MAX: usize = 50_000;

/// The end that is tried.
pub struct Tried {
    connection: Connection,
    is_initiator: bool,
    crc: bool,
    memory: Region,
    /// Keys that this end has given, also those that have ended, with the offsets of their windows and how long they are.
    keys: Vec<(Stag, u64, usize)>,
    windows: Vec<Stag>,
    reads: usize,
    closed: Option<Closed>,
    /// What the peer believes comes next in each queue.
    sequences: [u32; 3],
    /// Reads that this end has asked for, as far as they are not answered.
    asked: VecDeque<ReadRequest>,
}

/// An end with little room.
pub fn config(u: &mut Unstructured<'_>) -> Result<Config> {
    Ok(Config {
        revision: u.int_in_range(1..=2)?,
        crc: u.arbitrary()?,
        ird: u.int_in_range(0..=4)?,
        ord: u.int_in_range(0..=4)?,
        segment_bytes: *u.choose(&[128, 1460, 70_000])?,
        staging_bytes: 0,
        orders_max: 8,
        receives_max: 8,
        registrations_max: 8,
        ..Config::default()
    })
}

fn rtr(u: &mut Unstructured<'_>) -> Result<Rtr> {
    Ok(Rtr { send: u.arbitrary()?, write: u.arbitrary()?, read: u.arbitrary()? })
}

fn startup(u: &mut Unstructured<'_>, is_reply: bool, config: &Config) -> Result<Startup> {
    let depth = |u: &mut Unstructured<'_>| Ok(*u.choose(&[0, 1, 3, 128, DEPTH_ANY])?);
    let enhanced = if u.ratio(31, 32)? {
        Some(Enhanced { is_peer_to_peer: u.arbitrary()?, rtr: rtr(u)?, ird: depth(u)?, ord: depth(u)? })
    } else {
        None
    };
    let revision = if u.ratio(31, 32)? { config.revision } else { u.arbitrary()? };
    let enhanced = enhanced.filter(|_| revision == 2);
    Ok(Startup {
        is_reply,
        markers: u.ratio(1, 64)?,
        crc: u.arbitrary()?,
        is_rejected: is_reply && u.ratio(1, 64)?,
        revision,
        enhanced,
        private_data: vec![1; *u.choose(&[0, 0, 0, 0, 0, 4, 508, 512])?],
    })
}

/// Tries an end until the fuzzer's bytes are used up. Then everything that it was given must come back.
///
/// # Errors
/// When these bytes end before.
pub fn run(u: &mut Unstructured<'_>, is_initiator: bool, memory: &Region) -> Result<()> {
    let mut config = config(u)?;
    config.rtr = rtr(u)?;
    config.peer_to_peer = config.revision == 2 && u.arbitrary()?;
    let made = if is_initiator {
        Connection::initiator(config.clone(), b"hello")
    } else {
        Connection::responder(config.clone())
    };
    let Ok(connection) = made else { return Ok(()) };
    let mut tried = Tried {
        connection,
        is_initiator,
        crc: config.crc,
        memory: memory.clone(),
        keys: Vec::new(),
        windows: Vec::new(),
        reads: 0,
        closed: None,
        sequences: [1; 3],
        asked: VecDeque::new(),
    };
    let outcome = tried.steps(u, &config);
    tried.end();
    outcome
}

impl Tried {
    fn steps(&mut self, u: &mut Unstructured<'_>, config: &Config) -> Result<()> {
        if u.ratio(63, 64)? {
            let startup = startup(u, self.is_initiator, config)?;
            self.crc |= startup.crc;
            self.input(u, &startup.write())?;
        }
        while !u.is_empty() {
            match u.int_in_range(0..=31)? {
                0..=11 => self.own(u)?,
                12 => {
                    let junk: Vec<u8> = u.bytes(u.len().min(40))?.iter().map(|byte| byte & 0x7f).collect();
                    self.input(u, &junk)?;
                }
                _ => {
                    let fpdu = self.fpdu(u)?;
                    self.input(u, &fpdu)?;
                }
            }
        }
        Ok(())
    }

    /// What the layer above does.
    fn own(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let length = u.int_in_range(0..=9000)?;
        match u.int_in_range(0..=6)? {
            0 => {
                for _ in 0..u.int_in_range(1..=8)? {
                    let Some(frame) = self.memory.frame(length) else { break };
                    let _ = self.connection.post_receive(frame);
                }
            }
            1 | 2 => self.register(u, length)?,
            3 => {
                let Some(frame) = self.memory.frame(length) else { return Ok(()) };
                let from = u.int_in_range(0..=length)?;
                if self.connection.read(WorkId(1), frame, from..length, Stag(1), 0).is_ok() {
                    self.reads += 1;
                }
            }
            4 => {
                let invalidate = u.arbitrary::<Option<u32>>()?.map(Stag);
                let kind = SendKind { solicited: u.arbitrary()?, invalidate };
                let data = Some(vec![3; length].into());
                let _ = self.connection.order(Order::Send { kind, head: Head::new(), data }, Some(WorkId(2)));
            }
            5 => {
                let order = Order::Write { stag: Stag(1), offset: u.arbitrary()?, data: vec![3; length].into() };
                let _ = self.connection.order(order, None);
            }
            _ if u.ratio(1, 16)? => self.connection.disconnect(),
            _ => {
                if let Some(stag) = self.windows.pop() {
                    check(&self.connection.deregister(stag).expect("it was registered"));
                }
            }
        }
        self.drain();
        Ok(())
    }

    fn register(&mut self, u: &mut Unstructured<'_>, length: usize) -> Result<()> {
        let Some(mut frame) = self.memory.frame(length + 2 * MARGIN_BYTES) else { return Ok(()) };
        frame.fill(CANARY);
        let is_frame: bool = u.arbitrary()?;
        let rights = Rights {
            remote_read: u.arbitrary()?,
            remote_write: is_frame && u.arbitrary()?,
            remote_invalidate: u.arbitrary()?,
        };
        let memory = if is_frame { Memory::Frame(frame) } else { Memory::Slices(frame.freeze().into()) };
        let range = MARGIN_BYTES..MARGIN_BYTES + length;
        let base = if u.arbitrary()? { 0 } else { u.arbitrary()? };
        if let Ok(stag) = self.connection.register(Registration { memory, range, base, rights }) {
            self.keys.push((stag, base, length));
            self.windows.push(stag);
        }
        Ok(())
    }

    /// An FPDU that is nearly right.
    fn fpdu(&mut self, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let opcode = *u.choose(&[0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6, 6, 7, 15])?;
        let (target, is_last, payload) = self.content(u, opcode)?;
        let mut segment = Segment { is_last, ddp_version: 1, rdmap_version: 1, opcode, target };
        if u.ratio(1, 32)? {
            segment.ddp_version = u.int_in_range(0..=3)?;
            segment.rdmap_version = u.int_in_range(0..=3)?;
            segment.opcode = u.int_in_range(0..=15)?;
        }
        let mut head = Head::new();
        segment.write(&mut head);
        let whole = [&head, &payload[..]].concat();
        let length = if u.ratio(63, 64)? { whole.len() } else { usize::from(u.arbitrary::<u16>()?) };
        let mut bytes = (length as u16).to_be_bytes().to_vec();
        bytes.extend_from_slice(&whole);
        bytes.extend_from_slice(&[0; 3][..padding_bytes(whole.len())]);
        let crc = if self.crc { crc_fast::crc32_iscsi(&bytes) } else { 0 };
        bytes.extend_from_slice(&(crc ^ u32::from(u.ratio(1, 64)?)).to_le_bytes());
        Ok(bytes)
    }

    /// Where it goes, whether it is the last of its message, and what is in it.
    fn content(&mut self, u: &mut Unstructured<'_>, opcode: u8) -> Result<(Target, bool, Vec<u8>)> {
        match opcode {
            0 => {
                let (stag, offset, length) = self.window(u)?;
                Ok((Target::Tagged { stag, offset }, u.arbitrary()?, vec![u.arbitrary::<u8>()? & 0x7f; length]))
            }
            2 => self.response(u),
            1 => {
                let (source, source_offset, length) = self.window(u)?;
                let sink_offset = if u.ratio(7, 8)? { 0 } else { u.arbitrary()? };
                let length_bytes = length as u32;
                let request = ReadRequest { sink: Stag(7), sink_offset, length_bytes, source, source_offset };
                let mut header = request.write().to_vec();
                if u.ratio(1, 32)? {
                    header.resize(u.int_in_range(0..=2 * READ_REQUEST_BYTES)?, 1);
                }
                Ok((self.untagged(u, 1)?, u.ratio(31, 32)?, header))
            }
            7 => Ok((self.untagged(u, 2)?, u.ratio(31, 32)?, vec![1; u.int_in_range(0..=60)?])),
            _ => {
                let length = *u.choose(&[0, 1, 4, 100, 1000, 8000, 60_000])?;
                let is_last = u.ratio(7, 8)?;
                Ok((self.untagged(u, 0)?, is_last, vec![u.arbitrary::<u8>()? & 0x7f; length]))
            }
        }
    }

    /// A part of a window, mostly.
    fn window(&self, u: &mut Unstructured<'_>) -> Result<(Stag, u64, usize)> {
        if self.keys.is_empty() || u.ratio(1, 32)? {
            return Ok((Stag(u.arbitrary()?), u.arbitrary()?, u.int_in_range(0..=9000)?));
        }
        let (stag, base, length) = *u.choose(&self.keys)?;
        let from = u.int_in_range(0..=length)?;
        let rest = if u.ratio(15, 16)? { length - from } else { 2 * length };
        Ok((stag, base.wrapping_add(from as u64), u.int_in_range(0..=rest)?))
    }

    /// The next part of the answer to the oldest read, mostly.
    fn response(&mut self, u: &mut Unstructured<'_>) -> Result<(Target, bool, Vec<u8>)> {
        let Some(asked) = self.asked.front_mut() else {
            return Ok((Target::Tagged { stag: Stag(u.arbitrary()?), offset: 0 }, true, vec![1; 10]));
        };
        let mut length = asked.length_bytes;
        if u.ratio(1, 4)? {
            length = u.int_in_range(0..=length)?;
        } else if u.ratio(1, 16)? {
            length += u.int_in_range(0..=100)?;
        }
        let is_last = length == asked.length_bytes;
        let target = Target::Tagged { stag: asked.sink, offset: asked.sink_offset };
        asked.sink_offset += u64::from(length);
        asked.length_bytes = asked.length_bytes.saturating_sub(length);
        if is_last {
            self.asked.pop_front();
        }
        Ok((target, is_last != u.ratio(1, 32)?, vec![5; length as usize]))
    }

    fn untagged(&mut self, u: &mut Unstructured<'_>, queue: u32) -> Result<Target> {
        let invalidate = self.window(u)?.0;
        let next = &mut self.sequences[queue as usize];
        let sequence = if u.ratio(1, 32)? { u.arbitrary()? } else { *next };
        *next += u32::from(u.ratio(7, 8)?);
        let offset = if u.ratio(15, 16)? { 0 } else { u.int_in_range(0..=9000)? };
        let queue = if u.ratio(1, 64)? { u.arbitrary()? } else { queue };
        Ok(Target::Untagged { invalidate, queue, sequence, offset })
    }

    /// The bytes come as a socket gives them: in pieces.
    fn input(&mut self, u: &mut Unstructured<'_>, mut bytes: &[u8]) -> Result<()> {
        let most = *u.choose(&[usize::MAX, 5000, 100, 7])?;
        while !bytes.is_empty() {
            let mut taken = 0;
            for space in self.connection.spaces() {
                let count = space.len().min(bytes.len() - taken).min(most - taken);
                space[..count].copy_from_slice(&bytes[taken..taken + count]);
                taken += count;
            }
            assert!(taken > 0, "a stream that does not move");
            self.connection.filled(taken);
            bytes = &bytes[taken..];
            if u.ratio(7, 8)? {
                self.drain();
            }
        }
        self.drain();
        Ok(())
    }

    fn drain(&mut self) {
        self.drain_events();
        let mut packets = 0;
        while let Some(packet) = self.connection.poll_transmit() {
            packets += 1;
            assert!(packets < PACKETS_MAX, "it never stops sending");
            self.look_at(&packet.head);
        }
        self.drain_events();
    }

    /// What the peer learns from a packet: the keys of reads.
    fn look_at(&mut self, head: &[u8]) {
        if let Some(Segment { opcode: 1, .. }) = head.get(2..).and_then(Segment::read)
            && let Some(header) = head.get(20..).and_then(|rest| rest.first_chunk())
        {
            self.asked.push_back(ReadRequest::read(header));
        }
    }

    fn drain_events(&mut self) {
        while let Some(event) = self.connection.poll_event() {
            assert!(self.closed.is_none(), "nothing follows the end: {event:?}");
            match event {
                Event::Requested(request) if request.private_data.len() == 4 => {
                    let _ = self.connection.reject(b"no");
                }
                Event::Requested(_) => {
                    let _ = self.connection.accept(b"yes");
                }
                Event::ReadDone { .. } => self.reads -= 1,
                Event::Closed(closed) => self.closed = Some(closed),
                _ => {}
            }
        }
    }

    fn end(mut self) {
        self.connection.peer_closed();
        self.drain();
        assert!(self.closed.is_some() && self.connection.is_closed());
        let reclaimed = self.connection.reclaim();
        assert_eq!((reclaimed.reads.len(), reclaimed.registrations.len()), (self.reads, self.windows.len()));
        reclaimed.registrations.iter().for_each(|(_, memory)| check(memory));
    }
}

/// Nobody has written beside the window.
fn check(memory: &Memory) {
    let is_untouched = |bytes: &[u8]| {
        let (before, rest) = bytes.split_at(MARGIN_BYTES);
        let behind = &rest[rest.len() - MARGIN_BYTES..];
        before.iter().chain(behind).all(|byte| *byte == CANARY)
    };
    match memory {
        Memory::Frame(frame) => assert!(is_untouched(frame), "the peer wrote beside its window"),
        Memory::Slices(slices) => {
            assert!(slices.to_vec().iter().all(|byte| *byte == CANARY), "the peer wrote to what is only read");
        }
    }
}
