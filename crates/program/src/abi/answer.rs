//! The structure in which a program says what is to be done with a command.

use std::fmt;

use sanwire_device::{BlockRange, JudgedCommand, Verdict};
use sanwire_scsi::{AdditionalSense, Cdb, CommandSet, Features, Sense, SenseKey};

use super::{Header, long_number, number};

/// What `judge` returns, in its lowest byte.
mod verdict {
    pub(super) const ALLOW: u32 = 1;
    pub(super) const REFUSE: u32 = 2;
    pub(super) const REDIRECT: u32 = 3;
    pub(super) const REWRITE: u32 = 4;
    pub(super) const DEFER: u32 = 5;
}
/// The state must be durable first.
const KEEP: u32 = 0x100;
/// The program wants to be told of the end of the command.
const TELL_END: u32 = 0x200;

/// The longest time for which a program may put a command off at once, in milliseconds.
const DELAY_MAX_MS: u32 = 60_000;

/// A refusal of a program that says nothing more.
const NO_ACCESS_RIGHTS: Sense = Sense::new(SenseKey::IllegalRequest, AdditionalSense::ACCESS_DENIED_NO_ACCESS_RIGHTS);

/// What a program has said of a command.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    /// Its state must be durable before the command begins.
    pub(crate) keeps: bool,
    /// It is to be told of the end of the command, by this number.
    pub(crate) token: Option<u64>,
}

/// An answer that is none. The text says what is wrong with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Nonsense {
    /// No verdict has this number, or it has flags that there are not.
    Verdict(u32),
    /// The program wants to hear of the end of the command, and exports no function for that.
    NoEnded,
    /// A refusal with a sense key of which no command can end, or with none that exists.
    SenseKey(u8),
    /// The command is to go to this LBA, where not all of it fits.
    Lba(u64),
    /// A command without blocks is to go elsewhere.
    NoBlocks,
    /// The command is to be put off for so long, in milliseconds.
    Delay(u32),
    /// A command block of so many bytes.
    CdbLength(u32),
    /// A command block that no disk understands.
    Cdb(u8),
    /// What `ended` returns has flags that there are not.
    Ended(u32),
}

impl fmt::Display for Nonsense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Nonsense::Verdict(returned) => write!(f, "judge returned {returned:#x}, which is no verdict"),
            Nonsense::NoEnded => f.write_str("it asked to be told of the end, and exports no function `ended`"),
            Nonsense::SenseKey(key) => {
                write!(f, "it refused with the sense key {key:#x}, which no refused command has")
            }
            Nonsense::Lba(lba) => write!(f, "it redirected to LBA {lba}, and the command does not fit there"),
            Nonsense::NoBlocks => {
                f.write_str("it redirected a command that is about no blocks, or about several ranges")
            }
            Nonsense::Delay(0) => f.write_str("it deferred for 0 ms"),
            Nonsense::Delay(delay_ms) => write!(f, "it deferred for {delay_ms} ms, and {DELAY_MAX_MS} are the most"),
            Nonsense::CdbLength(bytes) => write!(f, "it gave a command block of {bytes} bytes"),
            Nonsense::Cdb(code) => write!(f, "it gave a command block (operation code {code:02x}h) that is not valid"),
            Nonsense::Ended(returned) => write!(f, "ended returned {returned:#x}, which has unknown bits"),
        }
    }
}

impl Answer {
    /// Reads the answer to a command.
    ///
    /// # Errors
    /// It makes no sense.
    pub(crate) fn read(
        returned: u32,
        memory: &[u8],
        header: &Header,
        command: &JudgedCommand<'_>,
        hears_of_ends: bool,
    ) -> Result<Answer, Nonsense> {
        let bytes = header.answer.of(memory);
        let verdict = match returned & !(KEEP | TELL_END) {
            verdict::ALLOW => Verdict::Allow,
            verdict::REFUSE => Verdict::Refuse(refusal(bytes)?),
            verdict::REDIRECT => Verdict::Redirect { lba: redirection(bytes, command)? },
            verdict::REWRITE => Verdict::Rewrite(block(bytes)?),
            verdict::DEFER => Verdict::Defer { milliseconds: delay_ms(bytes)? },
            _ => return Err(Nonsense::Verdict(returned)),
        };
        let wants_end = returned & TELL_END != 0;
        if wants_end && !hears_of_ends {
            return Err(Nonsense::NoEnded);
        }
        let goes_on = !matches!(verdict, Verdict::Refuse(_) | Verdict::Defer { .. });
        let token = (wants_end && goes_on).then(|| long_number(bytes, 16));
        Ok(Answer { verdict, keeps: returned & KEEP != 0, token })
    }
}

/// Whether `judge` has returned that the command is executed as it is, and wants nothing besides.
pub(crate) fn is_allowance(returned: u32) -> bool {
    returned == verdict::ALLOW
}

/// Whether the state must be durable before the command is answered, by what `ended` returned.
///
/// # Errors
/// It makes no sense.
pub(crate) fn ended(returned: u32) -> Result<bool, Nonsense> {
    match returned {
        0 => Ok(false),
        KEEP => Ok(true),
        _ => Err(Nonsense::Ended(returned)),
    }
}

fn refusal(bytes: &[u8]) -> Result<Sense, Nonsense> {
    let (key, additional) = (bytes[0], AdditionalSense { code: bytes[1], qualifier: bytes[2] });
    if (key, additional) == (0, AdditionalSense::NONE) {
        return Ok(NO_ACCESS_RIGHTS);
    }
    let key = SenseKey::from_code(key).filter(|key| {
        // These do not say that a command has failed.
        !matches!(key, SenseKey::NoSense | SenseKey::RecoveredError | SenseKey::Completed)
    });
    let key = key.ok_or(Nonsense::SenseKey(bytes[0]))?;
    Ok(Sense::new(key, additional))
}

/// The command must be about one range of blocks, and fit where it goes.
fn redirection(bytes: &[u8], command: &JudgedCommand<'_>) -> Result<u64, Nonsense> {
    let lba = long_number(bytes, 8);
    let [BlockRange { blocks, .. }] = command.ranges else { return Err(Nonsense::NoBlocks) };
    let fits = lba.checked_add(*blocks).is_some_and(|end| end <= command.capacity_blocks);
    if fits { Ok(lba) } else { Err(Nonsense::Lba(lba)) }
}

/// A command block that a disk understands. What it may do, the device looks at.
fn block(bytes: &[u8]) -> Result<Cdb, Nonsense> {
    let length = number(bytes, 24);
    let block = usize::try_from(length).ok().and_then(|length| bytes.get(32..)?.get(..length));
    let cdb = block.and_then(Cdb::new).ok_or(Nonsense::CdbLength(length))?;
    let disk = CommandSet::disk(Features::ALL);
    if disk.find(&cdb).is_ok() { Ok(cdb) } else { Err(Nonsense::Cdb(cdb.operation_code())) }
}

fn delay_ms(bytes: &[u8]) -> Result<u32, Nonsense> {
    let delay_ms = number(bytes, 4);
    if (1..=DELAY_MAX_MS).contains(&delay_ms) { Ok(delay_ms) } else { Err(Nonsense::Delay(delay_ms)) }
}
