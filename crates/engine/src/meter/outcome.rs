//! How a command has ended, as it is counted.

use sanwire_scsi::{Reply, SenseKey, Status};

/// Why a command has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FailureKind {
    /// The store cannot read or write, or the device has met a flaw of its own.
    Store,
    /// There is no space behind a thin volume.
    Full,
    /// The store, or the medium, is away.
    Gone,
    /// The volume is write-protected.
    Protection,
    /// Another initiator has a reservation.
    Reservation,
    /// It was aborted, by its initiator or by another one.
    Aborted,
    /// Its initiator has asked for what cannot be.
    Request,
    /// Blocks differ from those that they were compared with.
    Miscompare,
    /// There was no room for it: it may be given again.
    Busy,
    /// Something else.
    Other,
}

impl FailureKind {
    /// All of them, in the order of their places.
    pub const ALL: [FailureKind; 10] = [
        FailureKind::Store,
        FailureKind::Full,
        FailureKind::Gone,
        FailureKind::Protection,
        FailureKind::Reservation,
        FailureKind::Aborted,
        FailureKind::Request,
        FailureKind::Miscompare,
        FailureKind::Busy,
        FailureKind::Other,
    ];

    /// Its name in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            FailureKind::Store => "store",
            FailureKind::Full => "full",
            FailureKind::Gone => "gone",
            FailureKind::Protection => "protection",
            FailureKind::Reservation => "reservation",
            FailureKind::Aborted => "aborted",
            FailureKind::Request => "request",
            FailureKind::Miscompare => "miscompare",
            FailureKind::Busy => "busy",
            FailureKind::Other => "other",
        }
    }
}

/// How a command has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Done {
        read_bytes: u64,
    },
    /// SPC-5 4.4: a unit attention tells of something else than the command.
    Attention,
    Failed(FailureKind),
}

impl Outcome {
    pub(super) fn of(reply: Option<&Reply>) -> Outcome {
        let Some(reply) = reply else { return Outcome::Failed(FailureKind::Aborted) };
        match reply.status {
            Status::Good | Status::ConditionMet => {
                Outcome::Done { read_bytes: reply.data_in.as_ref().map_or(0, |data| data.len() as u64) }
            }
            Status::CheckCondition => of_sense(&reply.sense),
            Status::ReservationConflict => Outcome::Failed(FailureKind::Reservation),
            Status::TaskAborted => Outcome::Failed(FailureKind::Aborted),
            Status::Busy | Status::TaskSetFull => Outcome::Failed(FailureKind::Busy),
        }
    }
}

/// The sense key and the additional sense code tell, in fixed and in descriptor format (SPC-5 4.5).
fn of_sense(sense: &[u8]) -> Outcome {
    /// SPACE ALLOCATION FAILED WRITE PROTECT (SBC-4 4.7.3.6).
    const SPACE_ALLOCATION_FAILED: [Option<&u8>; 2] = [Some(&0x27), Some(&0x07)];
    let (key, additional) = match sense.first().map(|code| code & 0x7f) {
        Some(0x70 | 0x71) => (sense.get(2), [sense.get(12), sense.get(13)]),
        Some(0x72 | 0x73) => (sense.get(1), [sense.get(2), sense.get(3)]),
        _ => (None, [None; 2]),
    };
    let kind = match key.and_then(|key| SenseKey::from_code(key & 0x0f)) {
        Some(SenseKey::UnitAttention) => return Outcome::Attention,
        Some(SenseKey::MediumError | SenseKey::HardwareError) => FailureKind::Store,
        Some(SenseKey::DataProtect) if additional == SPACE_ALLOCATION_FAILED => FailureKind::Full,
        Some(SenseKey::DataProtect) => FailureKind::Protection,
        Some(SenseKey::NotReady) => FailureKind::Gone,
        Some(SenseKey::AbortedCommand | SenseKey::CopyAborted) => FailureKind::Aborted,
        Some(SenseKey::IllegalRequest) => FailureKind::Request,
        Some(SenseKey::Miscompare) => FailureKind::Miscompare,
        _ => FailureKind::Other,
    };
    Outcome::Failed(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_counted_by_its_kind() {
        let fails = |sense: Vec<u8>| Outcome::of(Some(&Reply { sense, ..Reply::bare(Status::CheckCondition) }));
        let fixed = |key: u8, code: u8, qualifier: u8| {
            let mut sense = vec![0; 18];
            (sense[0], sense[2], sense[12], sense[13]) = (0x70, key, code, qualifier);
            fails(sense)
        };
        let cases = [
            (fixed(3, 0x11, 0), "store"),
            (fixed(7, 0x27, 7), "full"),
            (fixed(7, 0x27, 0), "protection"),
            (fails(vec![0x72, 7, 0x27, 7]), "full"),
            (fails(vec![0x72, 2, 4, 3]), "gone"),
            (fixed(5, 0x20, 0), "request"),
            (fixed(0xe, 0x1d, 0), "miscompare"),
            (fails(Vec::new()), "other"),
            (Outcome::of(None), "aborted"),
            (Outcome::of(Some(&Reply::bare(Status::TaskAborted))), "aborted"),
            (Outcome::of(Some(&Reply::bare(Status::ReservationConflict))), "reservation"),
            (Outcome::of(Some(&Reply::bare(Status::TaskSetFull))), "busy"),
        ];
        for (outcome, name) in cases {
            let Outcome::Failed(kind) = outcome else { panic!("{name}: {outcome:?}") };
            assert_eq!(kind.name(), name);
        }
        assert_eq!([fixed(6, 0x29, 0), fails(vec![0x72, 6])], [Outcome::Attention; 2]);
        assert!(FailureKind::ALL.iter().zip(0..).all(|(kind, place)| *kind as u8 == place));
    }
}
