//! An iSCSI initiator made by hand, for what no other one can be brought to do.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A server that sends nothing for longer has nothing to say: the test ends.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A session of one connection (RFC 7143).
#[derive(Debug)]
pub struct Initiator {
    /// Its connection.
    pub stream: TcpStream,
    /// The next command number, and task tag.
    number: u32,
}

/// What became of a command.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u8,
    /// What was read.
    pub data: Vec<u8>,
    /// The sense key, the additional sense code and its qualifier.
    pub sense: Option<(u8, u8, u8)>,
}

const HEADER_BYTES: usize = 48;
const CHECK_CONDITION: u8 = 2;
const UNIT_ATTENTION: u8 = 6;

impl Initiator {
    /// Opens a session of the initiator port that name and number make: straight to the operational stage, and from there to
    /// full feature (RFC 7143 11.12).
    ///
    /// # Errors
    /// Class and detail of the status of a refused login.
    pub fn log_in(address: &str, name: &str, target: &str, number: u8) -> Result<Initiator, [u8; 2]> {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a time");
        let text = format!("InitiatorName={name}\0SessionType=Normal\0TargetName={target}\0");
        let mut request = vec![0; HEADER_BYTES];
        request[0] = 0x43;
        request[1] = 0x87;
        request[8..14].copy_from_slice(&[0x80, 0, 0, 0, 0, number]);
        send(&mut stream, request, text.as_bytes());
        let (header, _) = receive(&mut stream);
        assert_eq!(header[0], 0x23, "a login response: {header:?}");
        match [header[36], header[37]] {
            [0, 0] if header[1] == 0x87 => Ok(Initiator { stream, number: 0 }),
            [0, 0] => panic!("the login goes on: {header:?}"),
            refused => Err(refused),
        }
    }

    /// Sends a command to logical unit 0, with data to write or room to read, and waits for its answer. The attentions that
    /// a new session is told are passed over.
    pub fn command(&mut self, cdb: &[u8], data_out: &[u8], read_bytes: u32) -> Answer {
        loop {
            let answer = self.execute(cdb, data_out, read_bytes);
            if answer.sense.is_none_or(|(key, ..)| key != UNIT_ATTENTION) {
                return answer;
            }
        }
    }

    /// A command that must succeed; gives what it reads.
    #[track_caller]
    pub fn good(&mut self, cdb: &[u8], data_out: &[u8], read_bytes: u32) -> Vec<u8> {
        let answer = self.command(cdb, data_out, read_bytes);
        assert_eq!(answer.status, 0, "{cdb:02x?}: {answer:02x?}");
        answer.data
    }

    /// The same once: an attention is its answer.
    pub fn execute(&mut self, cdb: &[u8], data_out: &[u8], read_bytes: u32) -> Answer {
        let mut request = vec![0; HEADER_BYTES];
        let (direction, expected) = match (data_out.len() as u32, read_bytes) {
            (0, 0) => (0, 0),
            (0, read) => (0x40, read),
            (write, _) => (0x20, write),
        };
        request[0] = 0x01;
        request[1] = 0x81 | direction;
        request[16..20].copy_from_slice(&self.number.to_be_bytes());
        request[20..24].copy_from_slice(&expected.to_be_bytes());
        request[24..28].copy_from_slice(&self.number.to_be_bytes());
        request[32..32 + cdb.len()].copy_from_slice(cdb);
        self.number += 1;
        send(&mut self.stream, request, data_out);
        let mut data = Vec::new();
        loop {
            let (header, segment) = receive(&mut self.stream);
            match header[0] & 0x3f {
                0x25 => {
                    data.extend(segment);
                    if header[1] & 1 != 0 {
                        return Answer { status: header[3], data, sense: None };
                    }
                }
                0x21 => {
                    let is_check = header[3] == CHECK_CONDITION;
                    let sense = is_check.then(|| (segment[4] & 0xf, segment[14], segment[15]));
                    return Answer { status: header[3], data, sense };
                }
                // A NOP-In that wants no answer, or none that matters here.
                0x20 => {}
                other => panic!("opcode {other:#x}"),
            }
        }
    }
}

fn send(stream: &mut TcpStream, mut header: Vec<u8>, data: &[u8]) {
    header[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    header.extend_from_slice(data);
    header.resize(header.len().next_multiple_of(4), 0);
    stream.write_all(&header).expect("the request is sent");
}

fn receive(stream: &mut TcpStream) -> ([u8; HEADER_BYTES], Vec<u8>) {
    let mut header = [0; HEADER_BYTES];
    stream.read_exact(&mut header).expect("a header");
    let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
    let mut data = vec![0; length.next_multiple_of(4)];
    stream.read_exact(&mut data).expect("its data");
    data.truncate(length);
    (header, data)
}
