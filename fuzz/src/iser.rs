//! A datamover of iSER, and a peer that has a whole RDMA connection and keeps no rule above it: it sends what it likes, and reads and
//! writes by the keys that it has seen, and by others.

use arbitrary::{Result, Unstructured};
use sanwire_buffer::{Frame, Region, Slice};
use sanwire_iscsi::wire::{
    DataIn, HEADER_BYTES as PDU_BYTES, Header, LoginRequest, ReadyToTransfer, ScsiCommand, ScsiResponse,
};
use sanwire_iscsi::{ConnectionParameters, Datamover, Destination, Lent, Step};
use sanwire_iser::wire::{HeaderForm, IserHeader, Window};
use sanwire_iwarp::{Event, Registration, Stag};

use crate::iser_peer::{Carriage, Peer, front};
use crate::steps::payload;

/// What frames are made of.
pub const MEMORY_BYTES: usize = 1 << 20;

/// Tags of commands: few, so that they meet.
const TAGS: u32 = 6;

/// The longest transfer of a command.
const TRANSFER_BYTES: usize = 3000;

/// Packets in a row, at the most.
const PACKETS_MAX: usize = 50_000;

/// The end that is tried, and its peer.
struct Tried {
    ours: Box<dyn Datamover>,
    is_target: bool,
    theirs: Peer,
    /// The headers of both.
    form: HeaderForm,
    memory: Region,
    /// Keys that the peer has seen, and its own.
    seen: Vec<Window>,
    own: Vec<Window>,
    is_torn: bool,
}

/// Tries an end until the fuzzer's bytes are used up. Then all memory must be back.
///
/// # Errors
/// When these bytes end before.
pub fn run(u: &mut Unstructured<'_>, is_target: bool, carriage: Carriage, memory: &Region) -> Result<()> {
    let (theirs, ours) = Peer::meet(u, is_target, carriage)?;
    let (seen, own, memory) = (Vec::new(), Vec::new(), memory.clone());
    let form = HeaderForm::Rfc7145;
    let mut tried = Tried { ours, is_target, theirs, form, memory, seen, own, is_torn: false };
    tried.pass();
    let outcome = tried.steps(u, carriage);
    drop(tried.ours.withdraw());
    let memory = tried.memory.clone();
    drop(tried);
    assert_eq!(memory.free_bytes(), MEMORY_BYTES, "memory that nobody has");
    outcome
}

impl Tried {
    fn steps(&mut self, u: &mut Unstructured<'_>, carriage: Carriage) -> Result<()> {
        if self.is_target && u.ratio(1, 3)? {
            self.log_in_as_rfc_5046();
        }
        if u.arbitrary()? {
            let parameters = ConnectionParameters { receive_data_max_bytes: 4096, ..ConnectionParameters::default() };
            self.ours.begin(&parameters, 16);
        }
        while !u.is_empty() {
            match u.int_in_range(0..=6)? {
                0 | 1 => self.say(u)?,
                2 => self.reach(u)?,
                3 | 4 => self.work(u)?,
                5 => self.poll(u)?,
                // What adapters do takes its time.
                _ if carriage == Carriage::Adapter && u.ratio(3, 4)? => self.pass_some(u.int_in_range(1..=20)?),
                _ => self.pass(),
            }
        }
        self.pass();
        Ok(())
    }

    /// The first message of the peer shows that its headers are those of RFC 5046.
    fn log_in_as_rfc_5046(&mut self) {
        self.form = HeaderForm::Rfc5046;
        let login = LoginRequest::default().write();
        let message = [front(self.form, &IserHeader::PLAIN), login.as_bytes().to_vec()].concat();
        self.theirs.send(message, None);
        self.pass();
        while let Step::Pdu(_) = self.ours.poll() {}
    }

    fn frame(&self, length: usize) -> Option<Frame> {
        self.memory.frame(length.max(1))
    }

    /// A key that the peer has seen, or none.
    fn key(&self, u: &mut Unstructured<'_>) -> Result<Window> {
        if self.seen.is_empty() || u.ratio(1, 8)? {
            return Ok(Window { stag: Stag(u.arbitrary()?), offset: u.arbitrary()? });
        }
        u.choose(&self.seen).copied()
    }

    /// The peer sends a message.
    fn say(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let own = |u: &mut Unstructured<'_>, own: &[Window]| -> Result<Option<Window>> {
            if own.is_empty() || u.ratio(1, 4)? { Ok(None) } else { Ok(Some(*u.choose(own)?)) }
        };
        if self.is_target && u.arbitrary()? {
            let window = Registration::of_slices(vec![7; u.int_in_range(0..=TRANSFER_BYTES)?].into());
            self.own.extend(self.theirs.open(window));
        }
        let control = match u.int_in_range(0..=9)? {
            0 => IserHeader::Hello { versions: u.arbitrary()?, ird: u.arbitrary()? },
            _ => IserHeader::Control { write: own(u, &self.own)?, read: own(u, &self.own)? },
        };
        let mut bytes: [u8; PDU_BYTES] = u.arbitrary()?;
        bytes[0] = *u.choose(&[0x00, 0x01, 0x05, 0x20, 0x21, 0x25, 0x31, 0x3f, bytes[0]])?;
        bytes[4] = if u.ratio(1, 8)? { bytes[4] } else { 0 };
        bytes[16..20].copy_from_slice(&u.int_in_range(0..=TAGS)?.to_be_bytes());
        let data = payload(u, 300)?;
        if u.ratio(7, 8)? {
            bytes[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
        }
        let mut message = [&front(self.form, &control)[..], &bytes, &data].concat();
        if u.ratio(1, 16)? {
            message.truncate(u.int_in_range(0..=message.len())?);
        }
        let invalidate = if u.ratio(1, 3)? { Some(self.key(u)?.stag) } else { None };
        self.theirs.send(message, invalidate);
        Ok(())
    }

    /// The peer reads or writes memory of ours.
    fn reach(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let Window { stag, offset } = self.key(u)?;
        let place = Window { stag, offset: offset.wrapping_add(u.int_in_range(0..=100)?) };
        let length = u.int_in_range(0..=TRANSFER_BYTES)?;
        if u.arbitrary()? {
            self.theirs.read(place, length)
        } else {
            self.theirs.write(place, vec![1; length])
        }
        Ok(())
    }

    /// What the engine above ours does.
    fn work(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let (task_tag, length) = (u.int_in_range(0..=TAGS)?, u.int_in_range(0..=TRANSFER_BYTES)?);
        let data = || Slice::from(vec![2; length]);
        if self.is_target {
            match u.int_in_range(0..=3)? {
                0 => {
                    let part = DataIn {
                        task_tag,
                        has_status: u.arbitrary()?,
                        offset_bytes: u.arbitrary()?,
                        ..DataIn::default()
                    };
                    self.ours.push(part.write(), Some(data().into()));
                }
                1 => self.ours.push(ScsiResponse { task_tag, ..ScsiResponse::default() }.write(), None),
                2 => self.ours.forget(task_tag),
                _ => {
                    let (start, offset_bytes) = (u.int_in_range(0..=50)?, u.int_in_range(0..=100)?);
                    let desired_bytes = length as u32;
                    let ready = ReadyToTransfer { task_tag, offset_bytes, desired_bytes, ..ReadyToTransfer::default() };
                    if let Some(frame) = self.frame(TRANSFER_BYTES) {
                        drop(self.ours.get_data(&ready.write(), frame, start));
                    }
                }
            }
            return Ok(());
        }
        match u.int_in_range(0..=2)? {
            0 => drop(self.ours.recall(task_tag)),
            _ => {
                // A tag is given to one command at a time.
                drop(self.ours.recall(task_tag));
                let frame = if u.arbitrary()? { self.frame(length) } else { None };
                let lent = Lent { data: data(), unsolicited_bytes: u.int_in_range(0..=length as u32)? };
                let lent = if u.arbitrary()? { Some(lent) } else { None };
                drop(self.ours.lend(task_tag, frame, lent));
                self.ours.push(ScsiCommand { task_tag, ..ScsiCommand::default() }.write(), None);
            }
        }
        Ok(())
    }

    fn poll(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        for _ in 0..PACKETS_MAX {
            match self.ours.poll() {
                Step::Starving => return Ok(()),
                Step::Torn => {
                    self.is_torn = true;
                    return Ok(());
                }
                Step::Header(header) => {
                    assert!(!self.is_torn, "nothing comes after the end");
                    let length = header.data_bytes();
                    let place = self.frame(length).filter(|_| u.arbitrary().unwrap_or(true));
                    self.ours.place(place.map_or(Destination::Nowhere, |frame| Destination::Frame(frame, 0)));
                }
                Step::Pdu(pdu) => {
                    assert!(!self.is_torn, "nothing comes after the end");
                    let room = pdu.data.as_ref().map_or(usize::MAX, |frame| frame.len());
                    assert!(pdu.header.data_bytes() <= room.max(TRANSFER_BYTES), "data beyond its frame");
                }
            }
        }
        panic!("it never starves");
    }

    /// Everything that is to be sent arrives.
    fn pass(&mut self) {
        let told = self.theirs.pass(&mut self.ours);
        self.hear(&told);
    }

    /// Some of it arrives.
    fn pass_some(&mut self, rounds: usize) {
        let (told, _) = self.theirs.pass_some(rounds, &mut self.ours);
        self.hear(&told);
    }

    fn hear(&mut self, told: &[Event]) {
        for event in told {
            if let Event::Message(message) = event {
                self.learn(&message.buffer);
            }
        }
    }

    fn learn(&mut self, message: &[u8]) {
        let header = match self.form {
            HeaderForm::Rfc7145 => message.first_chunk().map(IserHeader::read),
            HeaderForm::Rfc5046 => message.first_chunk().map(IserHeader::read_short),
        };
        let header = header.expect("a header in front of everything").expect("a header of iSER");
        if let IserHeader::Control { write, read } = header {
            let start = self.form.length_bytes();
            let pdu = message[start..].first_chunk::<PDU_BYTES>().expect("a header of a PDU");
            let length = Header::from_bytes(*pdu).data_bytes();
            assert_eq!(message.len(), start + PDU_BYTES + length, "a message as long as it says");
            self.seen.extend(write.into_iter().chain(read));
        }
    }
}
