//! Who uses a derived unit, and what each has done with it.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};
use sanwire_core::{NexusId, Principal};

/// So many principals have a number and a count of their own.
const PRINCIPALS_MAX: usize = 256;

/// What was done with a derived unit.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct DerivedStatistics {
    /// By whom, in the order of their coming: at most 256.
    pub principals: Vec<PrincipalStatistics>,
    /// By all others together.
    pub others: PrincipalUsage,
    /// How many commands came from those who may not use it: they have found no unit.
    pub not_admitted: u64,
}

/// What a principal has done with a derived unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrincipalStatistics {
    /// Who, at the address from which it came first.
    pub principal: Principal,
    /// The number by which programs know it.
    pub number: u32,
    /// What.
    pub usage: PrincipalUsage,
}

/// What somebody has done with a derived unit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PrincipalUsage {
    /// Commands that were executed, or refused for one of the reasons below.
    pub commands: u64,
    /// Bytes that were read from its blocks, whatever for.
    pub read_bytes: u64,
    /// Bytes of its blocks that were written, whatever by.
    pub written_bytes: u64,
    /// Commands that were refused because there are no such blocks.
    pub refused_region: u64,
    /// Because such commands are not allowed.
    pub refused_operation: u64,
    /// Because a program said so, or said what makes no sense.
    pub refused_program: u64,
    /// Because the unit had come to the end of its time.
    pub refused_expired: u64,
}

impl PrincipalUsage {
    /// What both have done together.
    #[must_use]
    pub fn plus(self, other: PrincipalUsage) -> PrincipalUsage {
        PrincipalUsage {
            commands: self.commands.wrapping_add(other.commands),
            read_bytes: self.read_bytes.wrapping_add(other.read_bytes),
            written_bytes: self.written_bytes.wrapping_add(other.written_bytes),
            refused_region: self.refused_region.wrapping_add(other.refused_region),
            refused_operation: self.refused_operation.wrapping_add(other.refused_operation),
            refused_program: self.refused_program.wrapping_add(other.refused_program),
            refused_expired: self.refused_expired.wrapping_add(other.refused_expired),
        }
    }
}

/// Why a command was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    Region,
    Operation,
    Program,
    Expired,
}

/// A nexus that may use the unit.
#[derive(Debug)]
pub(crate) struct Guest {
    nexus: NexusId,
    pub(crate) principal: Principal,
    count: Arc<Count>,
}

impl Guest {
    /// By which programs know it.
    pub(crate) fn number(&self) -> u32 {
        self.count.number
    }

    pub(crate) fn note_command(&self) {
        self.count.commands.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_refused(&self, why: Refused) {
        self.count.refused(why).fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn note_read(&self, bytes: u64) {
        self.count.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn note_written(&self, bytes: u64) {
        self.count.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A nexus that may use the unit, for as long as one of its commands is looked at: it is on the list, and nobody counts who looks at that.
pub(crate) enum Present {
    Listed(Guard<Arc<Vec<Arc<Guest>>>>, usize),
    /// It was not there before.
    New(Arc<Guest>),
}

impl Deref for Present {
    type Target = Guest;

    fn deref(&self) -> &Guest {
        self.shared()
    }
}

impl Present {
    fn shared(&self) -> &Arc<Guest> {
        match self {
            Present::Listed(guests, at) => &guests[*at],
            Present::New(guest) => guest,
        }
    }

    /// The same, to be kept.
    pub(crate) fn to_guest(&self) -> Arc<Guest> {
        Arc::clone(self.shared())
    }
}

/// What is counted of a principal, on lines that it shares with no other one.
#[derive(Debug)]
#[repr(align(64))]
struct Count {
    principal: Principal,
    number: u32,
    commands: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    region: AtomicU64,
    operation: AtomicU64,
    program: AtomicU64,
    expired: AtomicU64,
}

impl Count {
    fn new(principal: Principal, number: usize) -> Self {
        Count {
            principal,
            number: number as u32,
            commands: AtomicU64::default(),
            read_bytes: AtomicU64::default(),
            written_bytes: AtomicU64::default(),
            region: AtomicU64::default(),
            operation: AtomicU64::default(),
            program: AtomicU64::default(),
            expired: AtomicU64::default(),
        }
    }

    fn refused(&self, why: Refused) -> &AtomicU64 {
        match why {
            Refused::Region => &self.region,
            Refused::Operation => &self.operation,
            Refused::Program => &self.program,
            Refused::Expired => &self.expired,
        }
    }

    fn usage(&self) -> PrincipalUsage {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        PrincipalUsage {
            commands: of(&self.commands),
            read_bytes: of(&self.read_bytes),
            written_bytes: of(&self.written_bytes),
            refused_region: of(&self.region),
            refused_operation: of(&self.operation),
            refused_program: of(&self.program),
            refused_expired: of(&self.expired),
        }
    }
}

/// Who uses a derived unit.
#[derive(Debug)]
pub(crate) struct Users {
    /// Ascending by nexus. Every command reads it, without a lock.
    guests: ArcSwap<Vec<Arc<Guest>>>,
    /// Held while it changes.
    principals: Mutex<Vec<Arc<Count>>>,
    others: Arc<Count>,
    not_admitted: AtomicU64,
}

impl Default for Users {
    fn default() -> Self {
        Users {
            guests: ArcSwap::default(),
            principals: Mutex::default(),
            others: Arc::new(Count::new(Principal::default(), PRINCIPALS_MAX)),
            not_admitted: AtomicU64::default(),
        }
    }
}

impl Users {
    /// The nexus, if it has been let in.
    pub(crate) fn guest(&self, nexus: NexusId) -> Option<Present> {
        let guests = self.guests.load();
        let at = guests.binary_search_by_key(&nexus, |guest| guest.nexus).ok()?;
        Some(Present::Listed(guests, at))
    }

    /// Lets a nexus in that may use the unit.
    pub(crate) fn let_in(&self, nexus: NexusId, principal: Principal) -> Arc<Guest> {
        let mut principals = self.lock();
        let count = self.count_of(&mut principals, &principal);
        let guest = Arc::new(Guest { nexus, principal, count });
        let mut guests: Vec<_> = self.guests.load().iter().filter(|guest| guest.nexus != nexus).cloned().collect();
        let at = guests.partition_point(|other| other.nexus < nexus);
        guests.insert(at, Arc::clone(&guest));
        self.guests.store(Arc::new(guests));
        guest
    }

    /// Somebody who uses the unit without a nexus of it: for a copy.
    pub(crate) fn visit(&self, nexus: NexusId, principal: Principal) -> Arc<Guest> {
        let count = self.count_of(&mut self.lock(), &principal);
        Arc::new(Guest { nexus, principal, count })
    }

    /// By which programs of the unit know somebody who uses one that is derived from it.
    pub(crate) fn number_of(&self, principal: &Principal) -> u32 {
        self.count_of(&mut self.lock(), principal).number
    }

    fn count_of(&self, principals: &mut Vec<Arc<Count>>, principal: &Principal) -> Arc<Count> {
        if let Some(known) = principals.iter().find(|known| known.principal.is_same_as(principal)) {
            return Arc::clone(known);
        }
        if principals.len() == PRINCIPALS_MAX {
            return Arc::clone(&self.others);
        }
        let count = Arc::new(Count::new(principal.clone(), principals.len()));
        principals.push(Arc::clone(&count));
        count
    }

    /// The nexus is gone, or is to be asked again who it is. What was counted stays.
    pub(crate) fn forget(&self, nexus: NexusId) {
        let _principals = self.lock();
        let guests = self.guests.load();
        if guests.iter().any(|guest| guest.nexus == nexus) {
            self.guests.store(Arc::new(guests.iter().filter(|guest| guest.nexus != nexus).cloned().collect()));
        }
    }

    /// Somebody has given a command who may not use the unit.
    pub(crate) fn note_not_admitted(&self) {
        self.not_admitted.fetch_add(1, Ordering::Relaxed);
    }

    /// What all have done together, and how many commands came from those who may not use the unit.
    pub(crate) fn sum(&self) -> (PrincipalUsage, u64) {
        let counts = self.lock();
        let all = counts.iter().chain([&self.others]).map(|count| count.usage());
        (all.fold(PrincipalUsage::default(), PrincipalUsage::plus), self.not_admitted.load(Ordering::Relaxed))
    }

    pub(crate) fn statistics(&self) -> DerivedStatistics {
        let of = |count: &Arc<Count>| PrincipalStatistics {
            principal: count.principal.clone(),
            number: count.number,
            usage: count.usage(),
        };
        DerivedStatistics {
            principals: self.lock().iter().map(of).collect(),
            others: self.others.usage(),
            not_admitted: self.not_admitted.load(Ordering::Relaxed),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Count>>> {
        // Nothing panics while it is changed: a poisoned one is still whole.
        self.principals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(number: u64) -> Principal {
        Principal { initiator_name: Some(format!("iqn.2026-11.org.example:{number}").into()), ..Principal::default() }
    }

    #[test]
    fn several_nexuses_of_a_principal_are_counted_together() {
        let users = Users::default();
        for nexus in [NexusId(7), NexusId(3)] {
            users.let_in(nexus, named(1));
            users.guest(nexus).unwrap().note_command();
        }
        users.let_in(NexusId(5), named(2)).note_refused(Refused::Program);
        users.forget(NexusId(3));
        users.note_not_admitted();
        assert!(users.guest(NexusId(3)).is_none() && users.guest(NexusId(7)).is_some());
        let DerivedStatistics { principals, others, not_admitted } = users.statistics();
        assert_eq!((principals.len(), principals[0].usage.commands, not_admitted), (2, 2, 1));
        assert_eq!((principals[1].number, principals[1].usage.refused_program), (1, 1));
        assert_eq!(others, PrincipalUsage::default());
    }

    #[test]
    fn those_for_whom_there_is_no_room_are_counted_together() {
        let users = Users::default();
        for number in 0..PRINCIPALS_MAX as u64 + 10 {
            users.let_in(NexusId(number), named(number)).note_read(512);
        }
        let DerivedStatistics { principals, others, .. } = users.statistics();
        assert_eq!((principals.len(), others.read_bytes), (PRINCIPALS_MAX, 10 * 512));
        users.guest(NexusId(0)).unwrap().note_refused(Refused::Region);
        users.note_not_admitted();
        let (sum, not_admitted) = users.sum();
        assert_eq!((sum.read_bytes, sum.refused_region, not_admitted), ((PRINCIPALS_MAX as u64 + 10) * 512, 1, 1));
        assert_eq!(users.number_of(&named(3)), 3);
        assert_eq!(users.number_of(&named(PRINCIPALS_MAX as u64 + 3)), PRINCIPALS_MAX as u32);
    }
}
