//! A whole target of iSER, over streams and by adapters, and initiators that have RDMA and keep no rule above it: no panic, no memory of others in a command's data or
//! in what is written to an initiator, nothing that grows without end, all memory back in the end.
#![no_main]

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_buffer::{Region, Slices};
use sanwire_core::{Instant, NexusId};
use sanwire_fuzz::iser_line::Line;
use sanwire_fuzz::iser_peer::{Carriage, Driven, Peer};
use sanwire_fuzz::login::NoTarget;
use sanwire_fuzz::steps::{CANARY, payload};
use sanwire_fuzz::world::marked_region;
use sanwire_iscsi::wire::{
    DataOut, HEADER_BYTES, Header, LoginRequest, LogoutRequest, NopOut, ScsiCommand, TAG_NONE, TaskRequest,
};
use sanwire_iscsi::{
    Admission, Admitted, CommandHandle, ConnectionId, ConnectionParameters, Digests, IscsiName, Isid, ManageHandle,
    ManageOutcome, Portal, PortalCarrier, Server, ServerConfig, ServerEvent, SessionKind, SessionParameters, TargetId,
};
use sanwire_iser::wire::IserHeader;
use sanwire_scsi::{Reply, Status};

/// Times in a row that something moves, at the most.
const ROUNDS_MAX: usize = 10_000;

/// A connection of the target.
struct ByServer<'a> {
    server: &'a mut Server,
    connection: ConnectionId,
    now: Instant,
}

impl Driven for ByServer<'_> {
    fn sent(&mut self) -> Vec<u8> {
        let packets = std::iter::from_fn(|| self.server.poll_transmit(self.connection));
        packets.flat_map(|packet| packet.to_vec()).collect()
    }

    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut count = 0;
        for space in self.server.spaces(self.connection) {
            let part = space.len().min(bytes.len() - count);
            space[..part].copy_from_slice(&bytes[count..count + part]);
            count += part;
        }
        if count > 0 {
            self.server.filled(self.connection, count, self.now);
        }
        count
    }

    fn ready(&mut self) {
        self.server.handle_ready(self.connection, self.now);
    }
}

struct World {
    server: Server,
    lines: BTreeMap<ConnectionId, Line>,
    now: Instant,
    admitted: u16,
    command_number: u32,
    working: Vec<CommandHandle>,
    managing: Vec<ManageHandle>,
}

impl World {
    fn drain(&mut self) {
        while let Some(event) = self.server.poll_event() {
            match event {
                ServerEvent::Command { handle, task, .. } => {
                    let data = task.data_out.as_ref().map(Slices::to_vec).unwrap_or_default();
                    assert!(!data.contains(&CANARY), "{handle:?} carries memory that it did not send");
                    self.working.push(handle);
                }
                ServerEvent::Manage { handle, .. } => self.managing.push(handle),
                ServerEvent::SessionOpened { .. } | ServerEvent::SessionClosed { .. } | ServerEvent::Broken { .. } => {}
                ServerEvent::Close { connection } | ServerEvent::Cut { connection } => self.lose(connection),
            }
        }
        while self.server.poll_ready().is_some() {}
    }

    fn lose(&mut self, connection: ConnectionId) {
        let mut packets = 0;
        while self.server.poll_transmit(connection).is_some() {
            packets += 1;
            assert!(packets < 500_000, "the server never stops sending");
        }
        self.lines.remove(&connection).into_iter().for_each(|line| line.peer.leave());
        self.server.connection_lost(connection, self.now);
    }

    fn admit(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        self.admitted += 1;
        let id = ConnectionId(self.admitted.into());
        let carriage = if u.ratio(2, 3)? { Carriage::Stream } else { Carriage::Adapter };
        let (mut peer, mut datamover) = Peer::meet(u, true, carriage)?;
        peer.pass(&mut datamover);
        let line = Line { peer, opened: Vec::new() };
        let session = SessionParameters {
            initial_r2t: u.ratio(1, 2)?,
            immediate_data: u.ratio(3, 4)?,
            max_burst_bytes: 512 << u.int_in_range(0..=7u8)?,
            first_burst_bytes: 512 << u.int_in_range(0..=5u8)?,
            max_outstanding_r2t: 1,
            data_pdu_in_order: true,
            data_sequence_in_order: true,
            error_recovery_level: 0,
            max_connections: u.int_in_range(1..=3)?,
            time_to_wait_s: 0,
            time_to_retain_s: 0,
            protocol_level: 1,
            unexpected_max: if u.ratio(1, 2)? { 0 } else { u.int_in_range(2..=4)? },
        };
        let tsih = if u.ratio(2, 3)? { u.int_in_range(0..=self.admitted)? } else { 0 };
        if tsih == 0 {
            self.command_number = 1;
        }
        let name = |text: &str| text.parse::<IscsiName>().unwrap();
        let admitted = Admitted {
            request: LoginRequest {
                tsih,
                connection: u.int_in_range(0..=2)?,
                command_number: self.command_number,
                ..LoginRequest::default()
            },
            text: Vec::new(),
            status_number: u.arbitrary()?,
            initiator: name("iqn.1993-08.org.debian:01:abc"),
            alias: String::new(),
            isid: Isid([0, 0, 0, 0, 0, u.int_in_range(0..=1)?]),
            user: None,
            peer: Ipv4Addr::LOCALHOST.into(),
            portal: Portal {
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, 3260)),
                group_tag: 1,
                carrier: if carriage == Carriage::Stream { PortalCarrier::Iwarp } else { PortalCarrier::Adapter },
            },
            kind: SessionKind::Normal { target: TargetId(0), name: name("iqn.2026-11.org.sanwire:disk0") },
            connection: ConnectionParameters {
                digests: Digests { header: false, data: false },
                send_data_max_bytes: 128,
                receive_data_max_bytes: 4096,
            },
            session,
            datamover,
            leftover: Vec::new(),
        };
        let admission = Admission { tsih: self.admitted, nexus: NexusId(self.admitted.into()) };
        self.lines.insert(id, line);
        self.server.admit(id, admitted, admission, self.now);
        Ok(())
    }

    fn number(&mut self, u: &mut Unstructured<'_>) -> Result<u32> {
        Ok(match u.int_in_range(0..=9u8)? {
            0 => u.arbitrary()?,
            1 => self.command_number.wrapping_add(u.int_in_range(0..=4)?),
            _ => {
                self.command_number = self.command_number.wrapping_add(1);
                self.command_number.wrapping_sub(1)
            }
        })
    }

    fn header(&mut self, u: &mut Unstructured<'_>) -> Result<Header> {
        let task_tag = u.int_in_range(0..=5)?;
        let (is_immediate, is_final) = (u.ratio(1, 4)?, u.ratio(2, 3)?);
        let lun = [0, u.int_in_range(0..=1)?, 0, 0, 0, 0, 0, 0];
        let offset_bytes = 512 * u.int_in_range(0..=16)?;
        let header = match u.int_in_range(0..=11u8)? {
            0..=5 => ScsiCommand {
                is_immediate,
                is_final,
                is_read: u.ratio(1, 3)?,
                is_write: u.ratio(2, 3)?,
                lun,
                task_tag,
                expected_bytes: offset_bytes,
                command_number: self.number(u)?,
                cdb: [*u.choose(&[0x28, 0x2a, 0x12])?; 16],
                ..ScsiCommand::default()
            }
            .write(),
            6 => {
                DataOut { is_final, lun, task_tag, transfer_tag: TAG_NONE, offset_bytes, ..DataOut::default() }.write()
            }
            7 | 8 => TaskRequest {
                is_immediate: u.ratio(7, 8)?,
                is_final,
                function: u.int_in_range(0..=13)?,
                lun,
                task_tag: 90,
                referenced_task_tag: task_tag,
                command_number: self.number(u)?,
                referenced_command_number: self.number(u)?,
                ..TaskRequest::default()
            }
            .write(),
            9 => NopOut {
                is_immediate,
                is_final,
                task_tag,
                transfer_tag: TAG_NONE,
                command_number: self.number(u)?,
                ..NopOut::default()
            }
            .write(),
            10 if u.ratio(1, 8)? => LogoutRequest {
                is_immediate,
                is_final,
                reason: u.int_in_range(0..=3)?,
                task_tag,
                connection: u.int_in_range(0..=2)?,
                command_number: self.number(u)?,
                ..LogoutRequest::default()
            }
            .write(),
            _ => Header::from_bytes(u.arbitrary::<[u8; HEADER_BYTES]>()?),
        };
        Ok(header)
    }

    /// An initiator sends a message.
    fn say(&mut self, id: ConnectionId, u: &mut Unstructured<'_>) -> Result<()> {
        let mut header = self.header(u)?;
        let data = match u.int_in_range(0..=3u8)? {
            0 | 1 => Vec::new(),
            2 => payload(u, 600)?,
            _ => vec![3; 512 * u.int_in_range(1..=8usize)?],
        };
        header.set_data_bytes(data.len());
        if u.ratio(31, 32)? {
            header.set_additional_bytes(0);
        }
        let Some(line) = self.lines.get_mut(&id) else { return Ok(()) };
        let message = if u.ratio(1, 32)? {
            IserHeader::Hello { versions: u.arbitrary()?, ird: u.arbitrary()? }.write().to_vec()
        } else {
            let control = IserHeader::Control { write: line.key(u)?, read: line.key(u)? };
            [&control.write()[..], header.as_bytes(), &data].concat()
        };
        line.peer.send(message, None);
        Ok(())
    }

    /// What both ends of a connection have to send arrives, as far as it is taken.
    fn pass(&mut self, connection: ConnectionId) {
        for _ in 0..ROUNDS_MAX {
            let Some(line) = self.lines.get_mut(&connection) else { return };
            let mut ours = ByServer { server: &mut self.server, connection, now: self.now };
            let has_moved = line.peer.step(&mut ours, &mut Vec::new());
            if self.server.poll_timeout().is_some_and(|at| at <= self.now) {
                self.server.handle_timeout(self.now);
            }
            self.drain();
            if !has_moved {
                return;
            }
        }
        panic!("both ends never stop sending");
    }

    fn end_work(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if !self.managing.is_empty() && u.ratio(1, 2)? {
            let handle = self.managing.swap_remove(u.choose_index(self.managing.len())?);
            let outcomes = [ManageOutcome::Complete, ManageOutcome::Complete, ManageOutcome::NoLogicalUnit];
            let outcome = *u.choose(&outcomes)?;
            self.server.managed(handle, outcome, self.now);
        } else if !self.working.is_empty() {
            let handle = self.working.swap_remove(u.choose_index(self.working.len())?);
            if u.ratio(1, 8)? {
                self.server.aborted(handle, self.now);
                return Ok(());
            }
            let data_in = if u.ratio(1, 3)? { None } else { Some(payload(u, 9000)?.into()) };
            let status = *u.choose(&[Status::Good, Status::Good, Status::CheckCondition])?;
            let reply = Reply { sense: payload(u, 20)?, data_in, ..Reply::bare(status) };
            self.server.reply(handle, reply, self.now);
        }
        Ok(())
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let ids: Vec<ConnectionId> = self.lines.keys().copied().collect();
        let kind = u.int_in_range(0..=19u8)?;
        if ids.is_empty() || kind == 0 {
            self.admit(u)?;
            self.drain();
            return Ok(());
        }
        let id = *u.choose(&ids)?;
        match kind {
            1 => {
                self.now += Duration::from_millis(1 << u.int_in_range(0..=15u32)?);
                self.server.handle_timeout(self.now);
            }
            2..=4 => self.end_work(u)?,
            5 if u.ratio(1, 4)? => self.lose(id),
            6 if u.ratio(1, 4)? => {
                if let Some(line) = self.lines.get_mut(&id) {
                    line.peer.is_deaf = !line.peer.is_deaf;
                }
            }
            7..=10 => {
                if let Some(line) = self.lines.get_mut(&id) {
                    line.open_or_close(u)?;
                }
            }
            11..=13 => self.pass(id),
            _ => self.say(id, u)?,
        }
        self.drain();
        Ok(())
    }
}

fn run(input: &[u8], memory: &Region) -> Result<()> {
    let mut u = Unstructured::new(input);
    let config = ServerConfig {
        memory: memory.clone(),
        directory: Arc::new(NoTarget { listed: 0 }),
        commands_max: 8,
        transfer_max_bytes: 16384,
    };
    let mut world = World {
        server: Server::new(config),
        lines: BTreeMap::new(),
        now: Instant::ZERO,
        admitted: 0,
        command_number: 1,
        working: Vec::new(),
        managing: Vec::new(),
    };
    let mut result = Ok(());
    for _ in 0..300 {
        if u.is_empty() || result.is_err() {
            break;
        }
        result = world.step(&mut u);
    }
    for id in world.lines.keys().copied().collect::<Vec<_>>() {
        world.lose(id);
    }
    world.drain();
    world.now += Duration::from_secs(600);
    world.server.handle_timeout(world.now);
    world.drain();
    for handle in std::mem::take(&mut world.working) {
        world.server.aborted(handle, world.now);
    }
    assert_eq!(memory.free_bytes(), memory.length_bytes(), "memory is left behind");
    result
}

fuzz_target!(|input: &[u8]| {
    let memory = marked_region(65536);
    let _ = run(input, &memory);
});
