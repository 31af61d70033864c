//! Commands as a device tells a program of them.

use std::sync::{Arc, Mutex};

use sanwire_core::Principal;
use sanwire_device::{BlockRange, JudgedCommand, Judgement, Verdict};
use sanwire_program::{Limits, Program, StateKeeper};
use sanwire_scsi::{Cdb, OperationClasses, SenseKey};

/// A device of 4096 blocks of 512 bytes.
pub(crate) const CAPACITY_BLOCKS: u64 = 4096;

/// A command, and who gives it when.
#[derive(Clone)]
pub(crate) struct Asked {
    cdb: Cdb,
    classes: OperationClasses,
    ranges: Vec<BlockRange>,
    data: Vec<u8>,
    who: u32,
    unix_ms: u64,
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    Allowed,
    /// By a sense key, code and qualifier.
    Refused(SenseKey, u8, u8),
    Redirected(u64),
    Rewritten(Cdb),
    Deferred(u32),
}

pub(crate) const WRITE_PROTECTED: Answer = Answer::Refused(SenseKey::DataProtect, 0x27, 0);
pub(crate) const NO_ACCESS: Answer = Answer::Refused(SenseKey::IllegalRequest, 0x20, 0x02);

fn asked(cdb: Cdb, classes: OperationClasses, ranges: &[(u64, u64)]) -> Asked {
    let ranges = ranges.iter().map(|(lba, blocks)| BlockRange { lba: *lba, blocks: *blocks }).collect();
    // Noon of a day in 2026.
    Asked { cdb, classes, ranges, data: vec![], who: 0, unix_ms: 1_780_315_200_000 }
}

fn transfer(code: u8, lba: u64, blocks: u64) -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = code;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&(blocks as u32).to_be_bytes());
    Cdb::from(cdb)
}

pub(crate) fn read(lba: u64, blocks: u64) -> Asked {
    asked(transfer(0x88, lba, blocks), OperationClasses::READ, &[(lba, blocks)])
}

pub(crate) fn write(lba: u64, blocks: u64) -> Asked {
    asked(transfer(0x8a, lba, blocks), OperationClasses::WRITE, &[(lba, blocks)])
}

pub(crate) fn flush() -> Asked {
    asked(transfer(0x91, 0, 0), OperationClasses::WRITE, &[(0, CAPACITY_BLOCKS)])
}

pub(crate) fn unmap(ranges: &[(u64, u64)]) -> Asked {
    asked(Cdb::from([0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0]), OperationClasses::DISCARD, ranges)
}

pub(crate) fn sanitize() -> Asked {
    let classes = OperationClasses::MANAGEMENT | OperationClasses::WRITE;
    asked(Cdb::from([0x48, 0x03, 0, 0, 0, 0, 0, 0, 0, 0]), classes, &[(0, CAPACITY_BLOCKS)])
}

/// A part of a copy from or to other units.
pub(crate) fn copied(from: bool, lba: u64, blocks: u64) -> Asked {
    let (command, classes) = if from {
        (read(lba, blocks), OperationClasses::COPY_SOURCE)
    } else {
        (write(lba, blocks), OperationClasses::COPY_TARGET)
    };
    Asked { classes, ..command }
}

pub(crate) fn compare_and_write(lba: u64, blocks: u64) -> Asked {
    let mut cdb = [0; 16];
    cdb[0] = 0x89;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[13] = blocks as u8;
    asked(Cdb::from(cdb), OperationClasses::READ | OperationClasses::WRITE, &[(lba, blocks)])
}

impl Asked {
    pub(crate) fn by(self, who: u32) -> Asked {
        Asked { who, ..self }
    }

    pub(crate) fn at(self, unix_ms: u64) -> Asked {
        Asked { unix_ms, ..self }
    }

    /// So many milliseconds after those that say nothing.
    pub(crate) fn after_ms(self, ms: u64) -> Asked {
        let unix_ms = self.unix_ms + ms;
        self.at(unix_ms)
    }

    pub(crate) fn with(self, data: &[u8]) -> Asked {
        Asked { data: data.to_vec(), ..self }
    }
}

/// What the program says of the command.
pub(crate) fn judgement(program: &Program, asked: &Asked) -> (Answer, Judgement) {
    let judged = program.run(&JudgedCommand {
        cdb: &asked.cdb,
        classes: asked.classes,
        ranges: &asked.ranges,
        capacity_blocks: CAPACITY_BLOCKS,
        block_bytes: 512,
        principal: &Principal::default(),
        principal_number: asked.who,
        unix_ms: asked.unix_ms,
        waited_ms: 0,
        data_out: &asked.data,
    });
    assert_eq!(judged.failure, None, "{:?} {:?}", asked.cdb, asked.ranges);
    let answer = match &judged.judgement.verdict {
        Verdict::Allow => Answer::Allowed,
        Verdict::Refuse(sense) => Answer::Refused(sense.key, sense.additional.code, sense.additional.qualifier),
        Verdict::Redirect { lba } => Answer::Redirected(*lba),
        Verdict::Rewrite(cdb) => Answer::Rewritten(*cdb),
        Verdict::Defer { milliseconds } => Answer::Deferred(*milliseconds),
    };
    (answer, judged.judgement)
}

/// All of these, one after the other.
pub(crate) fn check(program: &Program, expected: &[(Asked, Answer)]) {
    for (number, (asked, expected)) in expected.iter().enumerate() {
        let (answer, _) = judgement(program, asked);
        assert_eq!(answer, *expected, "command {number}: {:?} {:?}", asked.cdb, asked.ranges);
    }
}

/// A place in memory for a state.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Option<Vec<u8>>>);

impl StateKeeper for Kept {
    fn load(&self) -> std::io::Result<Option<Vec<u8>>> {
        Ok(self.0.lock().unwrap().clone())
    }

    fn save(&self, record: &[u8]) -> std::io::Result<()> {
        *self.0.lock().unwrap() = Some(record.to_vec());
        Ok(())
    }

    fn place(&self) -> String {
        "memory".into()
    }
}

pub(crate) fn load(module: &[u8], kept: &Arc<Kept>) -> Program {
    let keeper = Arc::clone(kept) as Arc<dyn StateKeeper>;
    Program::load(module, Limits::default(), Some(keeper)).unwrap_or_else(|error| panic!("{error}"))
}
