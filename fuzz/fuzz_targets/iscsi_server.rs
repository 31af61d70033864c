//! An iSCSI server and initiators that keep no rule: no panic, no memory of others in a command's data, nothing that
//! grows without end, all memory back in the end.
#![no_main]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use sanwire_buffer::{Region, Slices};
use sanwire_core::{Instant, NexusId};
use sanwire_fuzz::login::NoTarget;
use sanwire_fuzz::steps::{CANARY, payload};
use sanwire_fuzz::world::marked_region;
use sanwire_iscsi::wire::{
    DataOut, HEADER_BYTES, Header, LoginRequest, LogoutRequest, NopOut, ScsiCommand, SnackRequest, TAG_NONE,
    TaskRequest, TextRequest,
};
use sanwire_iscsi::{
    Admission, Admitted, CommandHandle, ConnectionId, ConnectionParameters, Digests, IscsiName, Isid, ManageHandle,
    ManageOutcome, Portal, PortalCarrier, Server, ServerConfig, ServerEvent, SessionKind, SessionParameters, TargetId,
};
use sanwire_scsi::{Reply, Status};

struct World {
    server: Server,
    memory: Region,
    now: Instant,
    connections: Vec<ConnectionId>,
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
                ServerEvent::Close { connection } | ServerEvent::Cut { connection } => {
                    while self.server.poll_transmit(connection).is_some() {}
                    self.connections.retain(|other| *other != connection);
                    self.server.connection_lost(connection, self.now);
                }
            }
        }
    }

    fn transmit(&mut self) {
        while let Some(connection) = self.server.poll_ready() {
            let mut packets = 0;
            while self.server.poll_transmit(connection).is_some() {
                packets += 1;
                assert!(packets < 500_000, "the server never stops sending");
            }
        }
    }

    fn admit(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        self.admitted += 1;
        let connection = ConnectionId(self.admitted.into());
        let bit = |u: &mut Unstructured<'_>| u.ratio(1, 2);
        let session = SessionParameters {
            initial_r2t: bit(u)?,
            immediate_data: bit(u)?,
            max_burst_bytes: 512 << u.int_in_range(0..=7u8)?,
            first_burst_bytes: 512 << u.int_in_range(0..=5u8)?,
            max_outstanding_r2t: u.int_in_range(1..=3)?,
            data_pdu_in_order: bit(u)?,
            data_sequence_in_order: bit(u)?,
            error_recovery_level: u.int_in_range(0..=2)?,
            max_connections: u.int_in_range(1..=3)?,
            time_to_wait_s: 2,
            time_to_retain_s: u.int_in_range(0..=20)?,
            protocol_level: u.int_in_range(1..=2)?,
            unexpected_max: 0,
        };
        let tsih = if u.ratio(2, 3)? { u.int_in_range(0..=self.admitted)? } else { 0 };
        let name = |text: &str| text.parse::<IscsiName>().unwrap();
        let target = SessionKind::Normal { target: TargetId(0), name: name("iqn.2026-11.org.sanwire:disk0") };
        if tsih == 0 {
            self.command_number = 1;
        }
        let admitted = Admitted {
            request: LoginRequest {
                tsih,
                connection: u.int_in_range(0..=2)?,
                command_number: self.command_number,
                ..LoginRequest::default()
            },
            text: b"TargetPortalGroupTag=1\0".to_vec(),
            status_number: u.arbitrary()?,
            initiator: name("iqn.1993-08.org.debian:01:abc"),
            alias: String::new(),
            isid: Isid([0, 0, 0, 0, 0, u.int_in_range(0..=1)?]),
            user: None,
            peer: Ipv4Addr::LOCALHOST.into(),
            portal: Portal {
                address: SocketAddr::from((Ipv4Addr::LOCALHOST, 3260)),
                group_tag: 1,
                carrier: PortalCarrier::Tcp,
            },
            kind: if u.ratio(1, 8)? { SessionKind::Discovery } else { target },
            connection: ConnectionParameters {
                // Header digests would only hide what is behind them.
                digests: Digests { header: false, data: u.ratio(1, 8)? },
                send_data_max_bytes: 512 << u.int_in_range(0..=5u8)?,
                receive_data_max_bytes: 8192,
            },
            session,
            datamover: Box::new(sanwire_iscsi::ByteStream::new(0)),
            leftover: payload(u, 60)?,
        };
        let admission = Admission { tsih: self.admitted, nexus: NexusId(self.admitted.into()) };
        self.connections.push(connection);
        self.server.admit(connection, admitted, admission, self.now);
        Ok(())
    }

    fn number(&mut self, u: &mut Unstructured<'_>) -> Result<u32> {
        Ok(match u.int_in_range(0..=9u8)? {
            0 => u.arbitrary()?,
            1 => self.command_number.wrapping_add(u.int_in_range(0..=4)?),
            2 => self.command_number.wrapping_sub(u.int_in_range(0..=4)?),
            _ => {
                self.command_number = self.command_number.wrapping_add(1);
                self.command_number.wrapping_sub(1)
            }
        })
    }

    fn header(&mut self, u: &mut Unstructured<'_>) -> Result<Header> {
        let task_tag = if u.ratio(1, 32)? { TAG_NONE } else { u.int_in_range(0..=5)? };
        let transfer_tag = if u.ratio(1, 3)? { TAG_NONE } else { u.int_in_range(0..=20)? };
        let (is_immediate, is_final) = (u.ratio(1, 4)?, u.ratio(2, 3)?);
        let expected_status_number = if u.ratio(1, 4)? { u.arbitrary()? } else { 0 };
        let lun = [0, u.int_in_range(0..=1)?, 0, 0, 0, 0, 0, 0];
        let header = match u.int_in_range(0..=11u8)? {
            0..=2 => ScsiCommand {
                is_immediate,
                is_final,
                is_read: u.ratio(1, 4)?,
                is_write: u.ratio(3, 4)?,
                lun,
                task_tag,
                expected_bytes: if u.ratio(1, 16)? { u.arbitrary()? } else { 512 * u.int_in_range(0..=16)? },
                command_number: self.number(u)?,
                expected_status_number,
                cdb: [*u.choose(&[0x28, 0x2a, 0x12])?; 16],
                ..ScsiCommand::default()
            }
            .write(),
            3..=6 => DataOut {
                is_final,
                lun,
                task_tag,
                transfer_tag,
                expected_status_number,
                data_number: u.int_in_range(0..=3)?,
                offset_bytes: if u.ratio(1, 16)? { u.arbitrary()? } else { 512 * u.int_in_range(0..=16)? },
            }
            .write(),
            7 => TaskRequest {
                is_immediate,
                is_final,
                function: u.int_in_range(0..=13)?,
                lun,
                task_tag: 90,
                referenced_task_tag: task_tag,
                command_number: self.number(u)?,
                expected_status_number,
                referenced_command_number: self.number(u)?,
                expected_data_number: u.int_in_range(0..=3)?,
            }
            .write(),
            other => return self.other_header(u, other, (task_tag, transfer_tag), (is_immediate, is_final)),
        };
        Ok(header)
    }

    fn other_header(
        &mut self,
        u: &mut Unstructured<'_>,
        kind: u8,
        (task_tag, transfer_tag): (u32, u32),
        (is_immediate, is_final): (bool, bool),
    ) -> Result<Header> {
        let expected_status_number = if u.ratio(1, 4)? { u.arbitrary()? } else { 0 };
        let lun = [0; 8];
        let header = match kind {
            8 => SnackRequest {
                is_final,
                kind: u.int_in_range(0..=4)?,
                lun,
                task_tag,
                transfer_tag,
                expected_status_number,
                first: u.arbitrary::<u8>()?.into(),
                count: u.int_in_range(0..=4)?,
            }
            .write(),
            9 => TextRequest {
                is_immediate,
                is_final,
                continues: u.ratio(1, 4)?,
                lun,
                task_tag,
                transfer_tag,
                command_number: self.number(u)?,
                expected_status_number,
            }
            .write(),
            10 => NopOut {
                is_immediate,
                is_final,
                lun,
                task_tag,
                transfer_tag,
                command_number: self.number(u)?,
                expected_status_number,
            }
            .write(),
            _ if u.ratio(1, 8)? => LogoutRequest {
                is_immediate,
                is_final,
                reason: u.int_in_range(0..=3)?,
                task_tag,
                connection: u.int_in_range(0..=2)?,
                command_number: self.number(u)?,
                expected_status_number,
            }
            .write(),
            _ => Header::from_bytes(u.arbitrary::<[u8; HEADER_BYTES]>()?),
        };
        Ok(header)
    }

    fn pdu(&mut self, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        let mut bytes = self.header(u)?.as_bytes().to_vec();
        let data = match u.int_in_range(0..=5u8)? {
            0 => Vec::new(),
            1 => payload(u, 600)?,
            2 => b"SendTargets=All\0MaxRecvDataSegmentLength=512\0".to_vec(),
            _ => vec![u.int_in_range(0..=0x7f)?; 512 * u.int_in_range(0..=8usize)?],
        };
        bytes[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        if u.ratio(1, 64)? {
            bytes[5] = u.arbitrary()?;
        }
        if u.ratio(31, 32)? {
            bytes[4] = 0;
        }
        bytes.extend(&data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Ok(bytes)
    }

    fn send(&mut self, connection: ConnectionId, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let mut count = 0;
            for space in self.server.spaces(connection) {
                let part = space.len().min(bytes.len() - count);
                space[..part].copy_from_slice(&bytes[count..count + part]);
                count += part;
            }
            if count == 0 {
                return;
            }
            self.server.filled(connection, count, self.now);
            bytes = &bytes[count..];
            self.drain();
        }
    }

    fn end_work(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if !self.managing.is_empty() && u.ratio(1, 2)? {
            let handle = self.managing.swap_remove(u.choose_index(self.managing.len())?);
            let outcomes = [ManageOutcome::Complete, ManageOutcome::NoLogicalUnit, ManageOutcome::NotSupported];
            let outcome = *u.choose(&outcomes)?;
            self.server.managed(handle, outcome, self.now);
        } else if !self.working.is_empty() {
            let handle = self.working.swap_remove(u.choose_index(self.working.len())?);
            if u.ratio(1, 8)? {
                self.server.aborted(handle, self.now);
                return Ok(());
            }
            let data_in = match u.int_in_range(0..=2u8)? {
                0 => None,
                1 => Some(payload(u, 3000)?.into()),
                _ => self.memory.frame(512 * u.int_in_range(1..=32usize)?).map(|mut frame| {
                    frame.fill(CANARY);
                    frame.freeze().into()
                }),
            };
            let status = *u.choose(&[Status::Good, Status::Good, Status::CheckCondition])?;
            self.server.reply(
                handle,
                Reply { sense: payload(u, 20)?, data_in, data_out_bytes: u.arbitrary()?, ..Reply::bare(status) },
                self.now,
            );
        }
        Ok(())
    }

    fn step(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        match u.int_in_range(0..=19u8)? {
            0 => self.admit(u)?,
            1 => {
                self.now += Duration::from_millis(1 << u.int_in_range(0..=15u32)?);
                self.server.handle_timeout(self.now);
            }
            2..=5 => self.end_work(u)?,
            6 if u.ratio(1, 4)? && !self.connections.is_empty() => {
                let lost = self.connections.swap_remove(u.choose_index(self.connections.len())?);
                self.server.connection_lost(lost, self.now);
            }
            7 if u.ratio(1, 32)? => self.server.drop_target(TargetId(0), self.now),
            8 if u.ratio(1, 64)? => self.server.shut_down(self.now),
            9 => self.transmit(),
            _ if self.connections.is_empty() => self.admit(u)?,
            _ => {
                let connection = *u.choose(&self.connections)?;
                let bytes = self.pdu(u)?;
                self.send(connection, &bytes);
            }
        }
        self.drain();
        Ok(())
    }
}

fn run(input: &[u8], memory: &Region) -> Result<()> {
    let mut u = Unstructured::new(input);
    let config = ServerConfig {
        memory: memory.clone(),
        directory: Arc::new(NoTarget { listed: 40 }),
        commands_max: 8,
        transfer_max_bytes: 16384,
    };
    let mut world = World {
        server: Server::new(config),
        memory: memory.clone(),
        now: Instant::ZERO,
        connections: Vec::new(),
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
    for connection in std::mem::take(&mut world.connections) {
        world.server.connection_lost(connection, world.now);
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
