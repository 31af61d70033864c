//! An iSCSI session of the plainest kind, by hand: a login without anything to negotiate, one command at a time. A thousand of
//! them take little more than their sockets.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, bail, ensure};

/// The basic header segment (RFC 7143 11.2.1).
const HEADER_BYTES: usize = 48;
const TIMEOUT: Duration = Duration::from_secs(20);

const LOGIN_REQUEST: u8 = 0x43;
const LOGIN_RESPONSE: u8 = 0x23;
const COMMAND: u8 = 0x01;
const RESPONSE: u8 = 0x21;
const DATA_IN: u8 = 0x25;
/// The last PDU of a sequence, and in Data-In: the status is in it.
const FINAL: u8 = 0x80;
const HAS_STATUS: u8 = 0x01;
/// It sends data.
const READS: u8 = 0x40;
/// It takes data.
const WRITES: u8 = 0x20;
/// From operational negotiation to full feature phase, at once.
const TRANSIT_TO_FULL: u8 = 0x87;

/// A session, logged in.
pub(crate) struct IscsiSession {
    stream: TcpStream,
    command_number: u32,
    status_number: u32,
}

impl IscsiSession {
    /// Logs in as the initiator of this number.
    ///
    /// # Errors
    /// When the server refuses.
    pub(crate) fn log_in(portal: SocketAddr, target: &str, number: u32) -> Result<Self> {
        let stream = TcpStream::connect(portal)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut session = IscsiSession { stream, command_number: 1, status_number: 0 };
        let keys = format!(
            "InitiatorName=iqn.2026-01.net.sanwire:bench-{number}\0TargetName={target}\0SessionType=Normal\0\
             HeaderDigest=None\0DataDigest=None\0"
        );
        let mut header = [0; HEADER_BYTES];
        header[0] = LOGIN_REQUEST;
        header[1] = TRANSIT_TO_FULL;
        // The ISID of a random number (RFC 7143 11.12.5).
        header[8] = 0x80;
        header[9..13].copy_from_slice(&number.to_be_bytes());
        header[24..28].copy_from_slice(&session.command_number.to_be_bytes());
        session.send(&mut header, keys.as_bytes())?;
        let (answer, _) = session.receive()?;
        ensure!(answer[0] & 0x3f == LOGIN_RESPONSE, "the answer to a login is a PDU {:#04x}", answer[0]);
        ensure!(answer[36..38] == [0, 0], "the login is refused with {:02x?}", &answer[36..38]);
        ensure!(answer[1] == TRANSIT_TO_FULL, "the login is not over");
        Ok(session)
    }

    /// Has a unit execute a command that sends this much at the most; gives its status and data.
    ///
    /// # Errors
    /// When the session is lost.
    pub(crate) fn execute(&mut self, lun: u16, cdb: &[u8], data_in_bytes: u32) -> Result<(u8, Vec<u8>)> {
        self.exchange(lun, cdb, data_in_bytes, &[])
    }

    /// Has a unit execute a command with so much data, all of it immediate: no more than a server takes unasked; gives its status.
    ///
    /// # Errors
    /// When the session is lost.
    pub(crate) fn write(&mut self, lun: u16, cdb: &[u8], data: &[u8]) -> Result<u8> {
        Ok(self.exchange(lun, cdb, 0, data)?.0)
    }

    fn exchange(&mut self, lun: u16, cdb: &[u8], data_in_bytes: u32, data_out: &[u8]) -> Result<(u8, Vec<u8>)> {
        let mut header = [0; HEADER_BYTES];
        header[0] = COMMAND;
        header[1] = FINAL | if data_in_bytes > 0 { READS } else { 0 } | if data_out.is_empty() { 0 } else { WRITES };
        header[8] = if lun < 256 { 0 } else { 0x40 } | (lun >> 8) as u8;
        header[9] = lun as u8;
        header[16..20].copy_from_slice(&self.command_number.to_be_bytes());
        let length = data_in_bytes.max(data_out.len() as u32);
        header[20..24].copy_from_slice(&length.to_be_bytes());
        header[24..28].copy_from_slice(&self.command_number.to_be_bytes());
        header[28..32].copy_from_slice(&self.status_number.wrapping_add(1).to_be_bytes());
        header[32..32 + cdb.len()].copy_from_slice(cdb);
        self.command_number = self.command_number.wrapping_add(1);
        self.send(&mut header, data_out)?;
        let mut data = Vec::new();
        loop {
            let (answer, part) = self.receive()?;
            match answer[0] & 0x3f {
                RESPONSE => return Ok((answer[3], data)),
                DATA_IN => {
                    data.extend(part);
                    if answer[1] & HAS_STATUS != 0 {
                        return Ok((answer[3], data));
                    }
                }
                // A ping, or a message: whoever stays for so short a time need not answer.
                _ => {}
            }
        }
    }

    fn send(&mut self, header: &mut [u8; HEADER_BYTES], data: &[u8]) -> Result<()> {
        header[4..8].copy_from_slice(&(data.len() as u32).to_be_bytes());
        let mut pdu = header.to_vec();
        pdu.extend(data);
        pdu.resize(pdu.len().next_multiple_of(4), 0);
        Ok(self.stream.write_all(&pdu)?)
    }

    fn receive(&mut self) -> Result<([u8; HEADER_BYTES], Vec<u8>)> {
        let mut header = [0; HEADER_BYTES];
        self.stream.read_exact(&mut header)?;
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let mut data = vec![0; length.next_multiple_of(4)];
        self.stream.read_exact(&mut data)?;
        data.truncate(length);
        if header[4] != 0 {
            bail!("a PDU with an additional header");
        }
        self.status_number = u32::from_be_bytes([header[24], header[25], header[26], header[27]]);
        Ok((header, data))
    }
}
