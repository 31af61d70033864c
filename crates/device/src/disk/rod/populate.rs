//! POPULATE TOKEN (SBC-4 5.12): makes a token of blocks while none of them is being changed.

use std::sync::Arc;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, NexusId};
use sanwire_scsi::rod::PopulateToken;
use sanwire_scsi::vpd::TargetPort;
use sanwire_scsi::{Capacity, OperationClass, Sense, SenseKey, Task, operation_code as code};
use sanwire_store::{Completion, Request};

use super::ranges::{judge, placed};
use crate::beginning::Beginning;
use crate::copies::{AskedCopy, Copies, Ticket};
use crate::data::{frame, parameter_list};
use crate::disk::capacity::capacity;
use crate::exclusion::{Access, Claim, Lane, Permit};
use crate::fault;
use crate::hold::Turn;
use crate::range::Range;
use crate::refusal::Refusal;
use crate::step::{CommandState, Ongoing, Step};
use crate::tokens::Origin;
use crate::unit_state::UnitState;

/// A token that is about to be made.
#[derive(Debug)]
struct Populating {
    origin: Origin,
    capacity: Capacity,
    port: TargetPort,
    now: Instant,
    still: Still,
    ticket: Ticket,
}

/// Blocks that nobody changes: a claim on them that is no change itself, by which no other initiator loses anything.
#[derive(Debug)]
struct Still {
    unit: Arc<UnitState>,
    permit: Permit,
}

impl Still {
    fn begin(unit: &Arc<UnitState>, range: Range, nexus: NexusId) -> Still {
        let permit = unit.exclusion.enter(Claim { range, access: Access::Alone }, Lane::of(nexus));
        Still { unit: Arc::clone(unit), permit }
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        self.unit.exclusion.leave(&self.permit);
    }
}

pub(crate) fn populate(
    (list_id, parameter_bytes): (u32, u32),
    copies: &Arc<Copies>,
    begun: &Beginning<'_>,
    task: &Task,
) -> Result<Step, Refusal> {
    if parameter_bytes == 0 {
        return Ok(Step::Good);
    }
    let block_bytes = begun.geometry.block_bytes;
    let asked = PopulateToken::parse(&parameter_list(task, parameter_bytes as usize)?, block_bytes)?;
    let mut ranges = placed(&asked.ranges, &begun.geometry)?;
    let creator = begun.own_target();
    let refused = |additional| Sense::new(SenseKey::IllegalRequest, additional);
    creator.check_allowed(OperationClass::CopySource).map_err(refused)?;
    // Without memory nothing must have happened.
    let buffer = frame(begun.memory, block_bytes as usize)?;
    judge((&creator, OperationClass::CopySource), &mut ranges, begun)?;
    let action = code::POPULATE_TOKEN_ACTION;
    let asked_copy = AskedCopy { action, block_bytes, is_background: asked.is_immediate };
    let mut ticket = copies.begin(begun.nexus, list_id, asked_copy, begun.unit.exclusion.bell())?;
    let Some(first) = ranges.first() else {
        // Of no data there is no token.
        ticket.end(None);
        return Ok(Step::Good);
    };
    // That it can be read is seen at its first block.
    let request = Request::Read { offset_bytes: first.offset_bytes, buffer };
    let origin = Origin {
        unit: begun.unit.id(),
        medium: begun.unit.medium(),
        principal: begun.target.principal(begun.nexus),
        places: ranges.iter().flat_map(|range| begun.unit.places(*range)).collect(),
        inactivity: Duration::from_secs(asked.inactivity_s.into()),
        ranges,
    };
    let (capacity, port) = (capacity(&begun.geometry), begun.target.port(begun.nexus));
    let still = Still::begin(begun.unit, around(&origin.ranges), begun.nexus);
    let populating = Populating { origin, capacity, port, now: begun.now, still, ticket };
    Ok(Step::Store(CommandState::Ongoing(Box::new(populating)), request))
}

/// All ranges, and what lies between them.
fn around(ranges: &[Range]) -> Range {
    let from = ranges.iter().map(|range| range.offset_bytes).min().unwrap_or(0);
    let end = ranges.iter().map(|range| range.offset_bytes + range.length_bytes).max().unwrap_or(from);
    Range { offset_bytes: from, length_bytes: end - from }
}

impl Ongoing for Populating {
    fn next(mut self: Box<Self>, unit: &UnitState, completion: Completion, _: &Region) -> Result<Step, Sense> {
        let made = self.make(unit, completion);
        match made {
            Ok(()) => {
                self.ticket.end(None);
                Ok(Step::Good)
            }
            Err(sense) => {
                self.ticket.failed(sense);
                Err(sense)
            }
        }
    }

    /// It has one that is no command's.
    fn claim(&self, _first: &Request) -> Option<Claim> {
        None
    }

    fn may_go(&mut self) -> Turn {
        match self.ticket.check() {
            Err(sense) => {
                self.ticket.failed(sense);
                Turn::Never(sense)
            }
            Ok(()) => {
                let unit = &self.still.unit;
                let root = unit.root();
                // A handover of the tenure that is over may be in the way.
                root.tenures.settle(&root.exclusion, &root.nexuses);
                if unit.exclusion.may_go(&self.still.permit) { Turn::Now } else { Turn::Later }
            }
        }
    }
}

impl Populating {
    fn make(&self, unit: &UnitState, completion: Completion) -> Result<(), Sense> {
        completion.map_err(|error| unit.fault(&error))?;
        self.ticket.check()?;
        self.ticket.request_done();
        if unit.medium() != self.origin.medium {
            return Err(fault::MEDIUM_CHANGED);
        }
        let creator = (unit.identity().naa(), &self.capacity, &self.port);
        let token = unit.tokens().make(self.origin.clone(), creator, self.now)?;
        self.ticket.made(&token);
        Ok(())
    }
}
