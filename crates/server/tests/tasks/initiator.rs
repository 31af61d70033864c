//! An iSCSI initiator that does what the test says, PDU by PDU.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use sanwire_iscsi::wire::{
    DataOut, HEADER_BYTES, Header, LoginRequest, LoginResponse, LogoutRequest, LogoutResponse, Opcode, ReadyToTransfer,
    ScsiCommand, ScsiResponse, TAG_NONE, TaskRequest, TaskResponse,
};

use sanwire_scsi::{Cdb, DeviceIdentification, Sense, Status};

use super::{DELAYED, GATED, PROMPT, TIMEOUT};

pub const GOOD: u8 = 0x00;
pub const TASK_ABORTED: u8 = 0x40;
pub const BLOCK_BYTES: usize = 512;

/// What a target says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// The command with this tag has this status.
    Status(u32, u8),
    /// The task management request with this tag has this response.
    Managed(u32, u8),
    /// The logout request with this tag has this response.
    LoggedOut(u32, u8),
    /// It closed the connection.
    End,
}

/// A connection of a session.
pub struct Initiator {
    stream: TcpStream,
    /// What the first login request of the session had.
    first: LoginRequest,
    text: String,
    /// The target's part of the session's identity.
    tsih: u16,
    command_number: u32,
    status_number: u32,
    next_tag: u32,
    /// What the last READ gave.
    data: Vec<u8>,
    /// What the last status that was not GOOD came with.
    sense: Option<Sense>,
}

impl Initiator {
    /// Logs in as the initiator port with this number and hears all unit attentions.
    pub fn login(portal: SocketAddr, target: &str, port: u8) -> Initiator {
        let text = format!(
            "InitiatorName=iqn.2026-11.org.sanwire:test\0TargetName={target}\0SessionType=Normal\0MaxConnections=2\0"
        );
        let first = LoginRequest {
            is_immediate: true,
            transits: true,
            current_stage: 1,
            next_stage: 3,
            isid: [0x80, 0, 0, 0, 0, port],
            command_number: 1,
            ..LoginRequest::default()
        };
        let mut own = Initiator::connect(portal, first, text);
        for lun in [GATED, DELAYED, PROMPT] {
            own.settle(lun);
        }
        own
    }

    /// A connection of the same session; one that has this number already is lost by that.
    pub fn join(&self, portal: SocketAddr, connection: u16) -> Initiator {
        let Initiator { first, tsih, command_number, .. } = *self;
        let next_tag = self.next_tag + 100;
        let joining = Initiator::connect(
            portal,
            LoginRequest { tsih, connection, command_number, ..first },
            self.text.replace("MaxConnections=2\0", ""),
        );
        Initiator { next_tag, ..joining }
    }

    fn connect(portal: SocketAddr, first: LoginRequest, text: String) -> Initiator {
        let stream = TcpStream::connect(portal).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let command_number = first.command_number;
        let mut own = Initiator {
            stream,
            first,
            text,
            tsih: 0,
            command_number,
            status_number: 0,
            next_tag: 1,
            data: Vec::new(),
            sense: None,
        };
        own.send(own.first.write(), own.text.clone().as_bytes());
        let (header, _) = own.receive().expect("an answer to the login");
        let response = LoginResponse::read(&header);
        assert_eq!((response.status_class, response.transits), (0, true), "{response:?}");
        own.tsih = response.tsih;
        own
    }

    /// Closes another connection of the session; gives the tag of the request.
    pub fn log_out(&mut self, connection: u16) -> u32 {
        let task_tag = self.tag();
        let request = LogoutRequest {
            is_immediate: true,
            is_final: true,
            reason: 1,
            task_tag,
            connection,
            command_number: self.command_number,
            expected_status_number: self.status_number,
        };
        self.send(request.write(), &[]);
        task_tag
    }

    /// Hears the unit attentions of a unit, as far as it is there.
    pub fn settle(&mut self, lun: u16) {
        for _ in 0..4 {
            let tag = self.command(lun, &[0; 6], &[], 0);
            if self.hear() == Said::Status(tag, GOOD) {
                return;
            }
        }
    }

    fn send(&mut self, header: Header, data: &[u8]) {
        self.stream.write_all(&pdu(&header, data)).unwrap();
    }

    fn receive(&mut self) -> Option<(Header, Vec<u8>)> {
        let mut header = [0; HEADER_BYTES];
        if let Err(error) = self.stream.read_exact(&mut header) {
            let is_end = !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
            assert!(is_end, "the target says nothing");
            return None;
        }
        let header = Header::from_bytes(header);
        let mut data = vec![0; header.data_bytes().next_multiple_of(4)];
        self.stream.read_exact(&mut data).unwrap();
        data.truncate(header.data_bytes());
        Some((header, data))
    }

    /// The next answer. Data and asynchronous messages are passed over.
    pub fn hear(&mut self) -> Said {
        self.hear_and_send(None)
    }

    /// The next answer, when all that is asked for before is full of a byte.
    pub fn hear_answering(&mut self, byte: u8) -> Said {
        self.hear_and_send(Some(byte))
    }

    fn hear_and_send(&mut self, byte: Option<u8>) -> Said {
        loop {
            let Some((header, data)) = self.receive() else { return Said::End };
            match header.opcode() {
                Some(Opcode::ReadyToTransfer) if byte.is_some() => {
                    self.answer_r2t(&ReadyToTransfer::read(&header), byte.unwrap_or_default());
                }
                Some(Opcode::ScsiResponse) => {
                    let response = ScsiResponse::read(&header);
                    self.status_number = response.status_number.wrapping_add(1);
                    self.sense = data.get(2..).and_then(Sense::parse);
                    return Said::Status(response.task_tag, response.status);
                }
                Some(Opcode::DataIn) => {
                    self.data = data;
                    let (has_status, status) = (header.as_bytes()[1] & 1 == 1, header.as_bytes()[3]);
                    if has_status {
                        self.status_number = self.status_number.wrapping_add(1);
                        return Said::Status(header.task_tag(), status);
                    }
                }
                Some(Opcode::TaskResponse) => {
                    let response = TaskResponse::read(&header);
                    self.status_number = response.status_number.wrapping_add(1);
                    return Said::Managed(response.task_tag, response.response);
                }
                Some(Opcode::LogoutResponse) => {
                    let response = LogoutResponse::read(&header);
                    self.status_number = response.status_number.wrapping_add(1);
                    return Said::LoggedOut(response.task_tag, response.response);
                }
                Some(Opcode::AsyncMessage) => {}
                other => panic!("{other:?} was not expected"),
            }
        }
    }

    fn tag(&mut self) -> u32 {
        self.next_tag += 1;
        self.next_tag
    }

    /// Gives a command; gives its tag.
    pub fn command(&mut self, lun: u16, cdb: &[u8], data_out: &[u8], data_in_bytes: u32) -> u32 {
        let task_tag = self.tag();
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        let request = ScsiCommand {
            is_final: true,
            is_read: data_in_bytes > 0,
            is_write: !data_out.is_empty(),
            attribute: 1,
            lun: lun_bytes(lun),
            task_tag,
            expected_bytes: data_in_bytes.max(data_out.len() as u32),
            command_number: self.command_number,
            expected_status_number: self.status_number,
            cdb: padded,
            ..ScsiCommand::default()
        };
        self.command_number = self.command_number.wrapping_add(1);
        self.send(request.write(), data_out);
        task_tag
    }

    /// Gives the command to write so many bytes from the first block on, all of which are to be asked for; gives its tag.
    pub fn give_long_write(&mut self, lun: u16, bytes: u32) -> u32 {
        self.give_long_write_at(lun, 0, bytes)
    }

    /// The same from this block on.
    pub fn give_long_write_at(&mut self, lun: u16, lba: u32, bytes: u32) -> u32 {
        let task_tag = self.tag();
        let mut cdb = [0; 16];
        cdb[0] = 0x8a;
        cdb[6..10].copy_from_slice(&lba.to_be_bytes());
        cdb[10..14].copy_from_slice(&(bytes / BLOCK_BYTES as u32).to_be_bytes());
        let request = ScsiCommand {
            is_final: true,
            is_write: true,
            attribute: 1,
            lun: lun_bytes(lun),
            task_tag,
            expected_bytes: bytes,
            command_number: self.command_number,
            expected_status_number: self.status_number,
            cdb,
            ..ScsiCommand::default()
        };
        self.command_number = self.command_number.wrapping_add(1);
        self.send(request.write(), &[]);
        task_tag
    }

    /// What the target asks for next.
    pub fn hear_r2t(&mut self) -> ReadyToTransfer {
        let (header, _) = self.receive().expect("the target asks for data");
        assert_eq!(header.opcode(), Some(Opcode::ReadyToTransfer), "{header:?}");
        ReadyToTransfer::read(&header)
    }

    /// Sends what the target asks for, full of a byte.
    pub fn answer_r2t(&mut self, r2t: &ReadyToTransfer, byte: u8) {
        const SEGMENT_BYTES: u32 = 8192;
        let end = r2t.offset_bytes + r2t.desired_bytes;
        for (data_number, offset_bytes) in (0..).zip((r2t.offset_bytes..end).step_by(SEGMENT_BYTES as usize)) {
            let length = SEGMENT_BYTES.min(end - offset_bytes);
            let data = DataOut {
                is_final: offset_bytes + length == end,
                lun: r2t.lun,
                task_tag: r2t.task_tag,
                transfer_tag: r2t.transfer_tag,
                expected_status_number: self.status_number,
                data_number,
                offset_bytes,
            };
            self.send(data.write(), &vec![byte; length as usize]);
        }
    }

    /// Gives a command that reads nothing; gives its status and its sense data.
    pub fn ask(&mut self, lun: u16, cdb: Cdb, data_out: &[u8]) -> (Status, Option<Sense>) {
        let tag = self.command(lun, &cdb, data_out, 0);
        let Said::Status(answered, status) = self.hear() else { panic!("a status") };
        assert_eq!(answered, tag);
        (Status::from_code(status).unwrap(), self.sense)
    }

    /// Gives the command to fill a block with a byte.
    pub fn write(&mut self, lun: u16, lba: u8, byte: u8) -> u32 {
        self.command(lun, &[0x2a, 0, 0, 0, 0, lba, 0, 0, 1, 0], &[byte; BLOCK_BYTES], 0)
    }

    /// What a block is full of.
    pub fn read(&mut self, lun: u16, lba: u8) -> u8 {
        let tag = self.give_read(lun, lba);
        self.hear_read(tag)
    }

    /// Gives the command to read a block; gives its tag.
    pub fn give_read(&mut self, lun: u16, lba: u8) -> u32 {
        self.command(lun, &[0x28, 0, 0, 0, 0, lba, 0, 0, 1, 0], &[], BLOCK_BYTES as u32)
    }

    /// Reads a block again and again until one is not answered any more; gives its tag.
    pub fn read_until_it_waits(&mut self, lun: u16, lba: u8) -> u32 {
        let give_up_at = Instant::now() + TIMEOUT;
        loop {
            let read = self.give_read(lun, lba);
            let inquiry = self.command(GATED, &[0x12, 0, 0, 0, 36, 0], &[], 36);
            if self.hear() == Said::Status(inquiry, GOOD) {
                return read;
            }
            assert_eq!(self.hear(), Said::Status(inquiry, GOOD), "the read was answered");
            assert!(Instant::now() < give_up_at, "reads do not wait");
        }
    }

    /// What a block is full of that this command reads, which is answered next.
    pub fn hear_read(&mut self, tag: u32) -> u8 {
        assert_eq!(self.hear(), Said::Status(tag, GOOD));
        assert!(self.data.iter().all(|byte| *byte == self.data[0]), "a block of one byte");
        self.data[0]
    }

    /// The name of a unit in the scheme that copies use: NAA.
    pub fn naa(&mut self, lun: u16) -> [u8; 8] {
        let tag = self.command(lun, &[0x12, 1, 0x83, 1, 0, 0], &[], 256);
        assert_eq!(self.hear(), Said::Status(tag, GOOD));
        DeviceIdentification::parse(&self.data).unwrap().naa().unwrap().to_be_bytes()
    }

    /// Asks something that needs no store, and hears the answer before any other: what was given before has been begun, and
    /// is not answered.
    pub fn hears_nothing_else(&mut self) {
        let tag = self.command(GATED, &[0x12, 0, 0, 0, 36, 0], &[], 36);
        assert_eq!(self.hear(), Said::Status(tag, GOOD), "the answer to INQUIRY");
    }

    /// Asks for task management; gives the tag of the request.
    pub fn manage(&mut self, function: u8, lun: u16, referenced: u32) -> u32 {
        let task_tag = self.tag();
        let request = TaskRequest {
            is_immediate: true,
            is_final: true,
            function,
            lun: lun_bytes(lun),
            task_tag,
            referenced_task_tag: referenced,
            command_number: self.command_number,
            expected_status_number: self.status_number,
            referenced_command_number: 1,
            ..TaskRequest::default()
        };
        self.send(request.write(), &[]);
        task_tag
    }
}

/// The bytes of a PDU.
pub fn pdu(header: &Header, data: &[u8]) -> Vec<u8> {
    let mut bytes = header.as_bytes().to_vec();
    bytes[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// The tag that refers to no task.
pub const NO_TASK: u32 = TAG_NONE;

fn lun_bytes(lun: u16) -> [u8; 8] {
    let [high, low] = lun.to_be_bytes();
    [high, low, 0, 0, 0, 0, 0, 0]
}
