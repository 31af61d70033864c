//! A client of iSCSI over iSER, and a target that has RDMA and keeps no rule above it: no panic, every command ends exactly once, every
//! frame comes back, over a stream with nothing in it that the target has not written, no memory read that was not opened, no endless sending.
#![no_main]

use std::collections::BTreeMap;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_fuzz::caller::{Caller, Surroundings, login_response, plausible};
use sanwire_fuzz::iser_peer::{ByClient, Carriage, Peer, message};
use sanwire_iscsi::ConnectionId;
use sanwire_iscsi::wire::{HEADER_BYTES as PDU_BYTES, Header, LoginRequest, Opcode, ScsiCommand, ScsiResponse};
use sanwire_iser::wire::{HEADER_BYTES, HeaderForm, IserHeader, Window};
use sanwire_iser::{initiator, initiator_by};
use sanwire_iwarp::{Event, Stag};

/// Codes of the PDUs that a target sends, and some that end the connection.
const CODES: [u8; 14] = [0x20, 0x21, 0x21, 0x21, 0x22, 0x23, 0x24, 0x24, 0x25, 0x26, 0x31, 0x32, 0x3f, 0x05];

/// Times in a row that something moves, at the most.
const ROUNDS_MAX: usize = 20_000;

/// What a login states, and gets no answer.
const STATED: [&str; 5] = ["InitiatorName", "InitiatorAlias", "TargetName", "SessionType", "MaxRecvDataSegmentLength"];

/// What a target may want less of.
const LOWERABLE: [&str; 4] =
    ["MaxBurstLength", "FirstBurstLength", "InitiatorRecvDataSegmentLength", "TargetRecvDataSegmentLength"];

/// The target's end of a connection.
struct Link {
    peer: Peer,
    /// The last message.
    last: Option<(Header, Vec<u8>)>,
}

/// A PDU of the client, and the memory that came with it.
struct Heard {
    connection: ConnectionId,
    header: Header,
    write: Option<Window>,
    read: Option<Window>,
}

struct World {
    caller: Caller,
    carriage: Carriage,
    links: BTreeMap<ConnectionId, Link>,
    heard: Vec<Heard>,
    status: u32,
    /// Adapters do no more at a time.
    rounds_max: usize,
}

impl Surroundings for World {
    fn caller(&mut self) -> &mut Caller {
        &mut self.caller
    }

    fn drain(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let closed = self.caller.note();
            let ready = self.caller.client.poll_ready();
            if closed.is_empty() && ready.is_none() {
                return;
            }
            closed.into_iter().for_each(|connection| self.part(connection));
            ready.into_iter().for_each(|connection| self.pass(connection));
        }
        panic!("the client never stops sending");
    }
}

impl World {
    /// The client has closed a connection. What adapters carry is not over before the target has ended it, too.
    fn part(&mut self, connection: ConnectionId) {
        self.links.remove(&connection).into_iter().for_each(|link| link.peer.leave());
        if self.carriage == Carriage::Adapter {
            self.caller.client.is_parted(connection);
            self.caller.client.connection_lost(connection, self.caller.now);
        }
    }

    /// What both ends have to send arrives.
    fn pass(&mut self, connection: ConnectionId) {
        let Caller { client, now, .. } = &mut self.caller;
        let Some(link) = self.links.get_mut(&connection) else {
            while client.poll_transmit(connection).is_some() {}
            return;
        };
        let mut ours = ByClient { client, connection, now: *now };
        let told = match self.carriage {
            Carriage::Stream => link.peer.pass(&mut ours),
            Carriage::Adapter => link.peer.pass_some(self.rounds_max, &mut ours).0,
        };
        for event in told {
            match event {
                Event::Message(message) => self.hear(connection, &message.buffer),
                // The data of commands, and nothing else.
                Event::ReadDone { frame, .. } => assert!(frame.iter().all(|byte| [7, 8].contains(byte))),
                _ => {}
            }
        }
    }

    fn hear(&mut self, connection: ConnectionId, message: &[u8]) {
        let (front, rest) = message.split_first_chunk::<HEADER_BYTES>().expect("a header in front of everything");
        let Some(IserHeader::Control { write, read }) = IserHeader::read(front) else { panic!("no PDU: {front:?}") };
        let (header, rest) = rest.split_first_chunk::<PDU_BYTES>().expect("a header of a PDU");
        let header = Header::from_bytes(*header);
        assert_eq!(rest.len(), header.additional_bytes() + header.data_bytes(), "a message as long as it says");
        let said = rest[header.additional_bytes()..].to_vec();
        self.links.entry(connection).and_modify(|link| link.last = Some((header, said)));
        self.heard.push(Heard { connection, header, write, read });
        let surplus = self.heard.len().saturating_sub(64);
        self.heard.drain(..surplus);
    }

    fn some_connection(&self, u: &mut Unstructured<'_>) -> Result<Option<ConnectionId>> {
        let known: Vec<ConnectionId> = self.links.keys().copied().collect();
        if known.is_empty() { Ok(None) } else { u.choose(&known).copied().map(Some) }
    }

    fn open(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        while let Some(connection) = self.caller.opening.pop() {
            let now = self.caller.now;
            let peer = match self.carriage {
                Carriage::Stream => {
                    let peer = Peer::over_stream(u, false)?;
                    self.caller.client.connected(connection, now);
                    peer
                }
                Carriage::Adapter => {
                    let (peer, end) = Peer::by_adapter(u, false)?;
                    self.caller.client.connected_over(connection, initiator_by(Box::new(end)), now);
                    peer
                }
            };
            self.links.insert(connection, Link { peer, last: None });
            self.pass(connection);
            self.drain();
        }
        Ok(())
    }

    /// Answers a login as an honest target would, mostly.
    fn log_in(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let Some(connection) = self.some_connection(u)? else { return Ok(()) };
        for _ in 0..6 {
            self.pass(connection);
            let Some(link) = self.links.get_mut(&connection) else { return Ok(()) };
            let Some((header, said)) = link.last.take() else { return Ok(()) };
            if header.opcode() != Some(Opcode::LoginRequest) {
                return Ok(());
            }
            let is_odd = u.ratio(1, 16)?;
            let mut response = login_response(u, &LoginRequest::read(&header), self.status, is_odd)?.write();
            let text = if is_odd { u.bytes(u.len().min(64))?.to_vec() } else { agree(u, &said)? };
            response.set_data_bytes(text.len());
            self.status = self.status.wrapping_add(1);
            let message = [&IserHeader::PLAIN.write()[..], response.as_bytes(), &text].concat();
            link.peer.send(message, None);
            self.pass(connection);
            self.drain();
        }
        Ok(())
    }

    /// Answers a command as an honest target would, mostly.
    fn answer(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let is_command = |heard: &&Heard| heard.header.opcode() == Some(Opcode::ScsiCommand);
        let commands: Vec<&Heard> = self.heard.iter().filter(is_command).collect();
        if commands.is_empty() {
            return Ok(());
        }
        let Heard { connection, header, write, read } = *u.choose(&commands)?;
        let Some(link) = self.links.get_mut(connection) else { return Ok(()) };
        let command = ScsiCommand::read(header);
        let wanted = command.expected_bytes as usize;
        let (mut underflow, mut left) = (u.ratio(1, 8)?, wanted);
        if let Some(window) = read {
            let (from, length) = (if u.ratio(1, 8)? { u.int_in_range(0..=100)? } else { 0 }, wanted.min(20_000));
            let length = if u.arbitrary()? { length } else { u.int_in_range(0..=length)? };
            let place = Window { offset: window.offset.wrapping_add(from), ..*window };
            link.peer.write(place, vec![1; length.saturating_sub(from as usize)]);
            (underflow, left) = (underflow || length < wanted && u.ratio(7, 8)?, wanted - length);
        }
        if let Some(window) = write {
            let behind = wanted.saturating_sub(header.data_bytes()).min(20_000);
            link.peer.read(*window, if u.arbitrary()? { behind } else { u.int_in_range(0..=behind)? });
            left = 0;
        }
        let response = ScsiResponse {
            is_final: true,
            underflow,
            residual_bytes: if u.ratio(1, 8)? { u.int_in_range(0..=70_000)? } else { left as u32 },
            task_tag: command.task_tag,
            status: *u.choose(&[0, 0, 0, 2, 8])?,
            status_number: self.status,
            expected_command_number: command.command_number.wrapping_add(1),
            max_command_number: command.command_number.wrapping_add(u.int_in_range(0..=20)?),
            ..ScsiResponse::default()
        };
        let own = read.or(*write).map(|window| window.stag);
        let invalidate = match u.int_in_range(0..=15u8)? {
            0 => Some(Stag(u.arbitrary()?)),
            1..=4 => None,
            _ => own,
        };
        self.status = self.status.wrapping_add(u32::from(u.ratio(15, 16)?));
        let message = [&IserHeader::PLAIN.write()[..], response.write().as_bytes()].concat();
        link.peer.send(message, invalidate);
        let connection = *connection;
        self.pass(connection);
        Ok(())
    }

    /// The target reads or writes memory that it was told of, or none.
    fn reach(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let Some(connection) = self.some_connection(u)? else { return Ok(()) };
        let windows = self.heard.iter().flat_map(|heard| heard.write.into_iter().chain(heard.read));
        let windows: Vec<Window> = windows.collect();
        let Window { stag, offset } = if windows.is_empty() || u.ratio(1, 16)? {
            Window { stag: Stag(u.arbitrary()?), offset: u.arbitrary()? }
        } else {
            *u.choose(&windows)?
        };
        let place = Window { stag, offset: offset.wrapping_add(u.int_in_range(0..=100)?) };
        let length = u.int_in_range(0..=3000)?;
        let Some(link) = self.links.get_mut(&connection) else { return Ok(()) };
        if u.arbitrary()? {
            link.peer.read(place, length)
        } else {
            link.peer.write(place, vec![1; length])
        }
        self.pass(connection);
        Ok(())
    }

    /// The target says something.
    fn say(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let Some(connection) = self.some_connection(u)? else { return Ok(()) };
        let sent: Vec<Header> = self.heard.iter().map(|heard| heard.header).collect();
        let (mut header, data) = plausible(u, &CODES, &sent, &mut self.status)?;
        header.set_data_bytes(data.len());
        header.set_additional_bytes(0);
        let pdu = [header.as_bytes(), &data[..]].concat();
        let Some(link) = self.links.get_mut(&connection) else { return Ok(()) };
        link.peer.send(message(u, HeaderForm::Rfc7145, &pdu)?, None);
        self.pass(connection);
        Ok(())
    }

    /// A connection ends, or is cut without a word.
    fn lose(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let Some(connection) = self.some_connection(u)? else { return Ok(()) };
        if self.carriage == Carriage::Adapter && u.arbitrary()? {
            let is_noticed = u.arbitrary()?;
            self.links.entry(connection).and_modify(|link| link.peer.cut(is_noticed));
            return Ok(());
        }
        self.links.remove(&connection);
        self.caller.client.connection_lost(connection, self.caller.now);
        Ok(())
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=17u8)? {
            0 => {
                if let Some(connection) = self.some_connection(u)? {
                    let length = u.int_in_range(0..=100usize)?;
                    let bytes = u.bytes(length.min(u.len()))?.to_vec();
                    self.links.entry(connection).and_modify(|link| link.peer.send(bytes, None));
                    self.pass(connection);
                }
            }
            1 => self.caller.wait(u)?,
            2 => self.lose(u)?,
            3 => self.caller.ask(u)?,
            4..=6 => self.caller.order(u)?,
            7..=9 => {
                self.open(u)?;
                self.log_in(u)?;
            }
            10..=13 => self.answer(u)?,
            14 => self.reach(u)?,
            15 => {
                self.rounds_max = *u.choose(&[1, 3, 10, ROUNDS_MAX])?;
                self.links.keys().copied().collect::<Vec<_>>().into_iter().for_each(|id| self.pass(id));
            }
            _ => self.say(u)?,
        }
        self.drain();
        Ok(())
    }
}

/// The answers of a target that wants what it is offered, or less.
fn agree(u: &mut Unstructured<'_>, said: &[u8]) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    for pair in String::from_utf8_lossy(said).split_terminator('\0') {
        let (key, value) = pair.split_once('=').expect("a pair");
        if STATED.contains(&key) {
            continue;
        }
        let value = if LOWERABLE.contains(&key) && u.ratio(1, 4)? { "512" } else { value };
        text.extend_from_slice(format!("{key}={value}\0").as_bytes());
    }
    Ok(text)
}

fn run(input: &[u8]) -> Result<()> {
    let mut u = Unstructured::new(input);
    let carriage = if u.arbitrary()? { Carriage::Stream } else { Carriage::Adapter };
    let mut caller = Caller::new(&mut u, Some(initiator))?;
    if carriage == Carriage::Stream {
        caller.mark();
    }
    let (links, heard, rounds_max) = (BTreeMap::new(), Vec::new(), ROUNDS_MAX);
    let mut world = World { caller, carriage, links, heard, status: 1, rounds_max };
    world.drain();
    let leaves = u.arbitrary()?;
    for _ in 0..300 {
        if u.is_empty() {
            break;
        }
        if world.step(&mut u).is_err() {
            break;
        }
    }
    world.rounds_max = ROUNDS_MAX;
    world.end(leaves);
    Ok(())
}

fuzz_target!(|input: &[u8]| {
    let _ = run(input);
});
