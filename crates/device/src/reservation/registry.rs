//! The rules of persistent reservations (SPC-5 5.14.7 to 5.14.11): orders change a registry, or are refused.

mod clearing;
mod report;

use std::collections::{BTreeMap, BTreeSet};

use sanwire_scsi::reservation::{Order, ReservationType, TransportId};
use sanwire_scsi::{AdditionalSense, Sense, SenseKey};

use crate::nexus::NexusPorts;
use crate::refusal::Refusal;
use crate::unit_attention::UnitAttention;

/// Whose registration it is: an initiator port by its way through one target port, or through all of them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Registrant {
    pub(crate) initiator: TransportId,
    /// The relative target port identifier; `None` for all (ALL_TG_PT).
    pub(crate) target_port: Option<u16>,
}

impl Registrant {
    /// The two names under which the registration of a nexus may stand.
    pub(crate) fn names_of(ports: &NexusPorts) -> [Registrant; 2] {
        [Some(ports.target.relative_id), None]
            .map(|target_port| Registrant { initiator: ports.initiator.clone(), target_port })
    }

    fn covers(&self, initiator: &TransportId, target_port: u16) -> bool {
        self.initiator == *initiator && self.target_port.is_none_or(|port| port == target_port)
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Reservation {
    kind: ReservationType,
    /// One of the registrants; `None` when all of them are.
    holder: Option<Registrant>,
}

/// The registrations and the reservation of one disk.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Registry {
    /// PRGENERATION: zero after a restart, whatever is kept (SPC-5 6.15.2).
    generation: u32,
    is_kept: bool,
    registrations: BTreeMap<Registrant, u64>,
    reservation: Option<Reservation>,
}

/// What follows for others from an order.
#[derive(Default, Debug)]
pub(crate) struct Effects {
    told: BTreeMap<UnitAttention, BTreeSet<Registrant>>,
    /// Those whose commands are to be aborted.
    pub(crate) aborted: BTreeSet<Registrant>,
}

impl Effects {
    /// The attentions that orders raise.
    pub(crate) const ATTENTIONS: [UnitAttention; 3] = [
        UnitAttention::ReservationsPreempted,
        UnitAttention::ReservationsReleased,
        UnitAttention::RegistrationsPreempted,
    ];

    /// The nexuses that must be told of it.
    pub(crate) fn told(&self, attention: UnitAttention) -> impl Iterator<Item = &Registrant> {
        self.told.get(&attention).into_iter().flatten()
    }

    fn tell(attention: UnitAttention, told: impl Iterator<Item = Registrant>) -> Effects {
        Effects { told: BTreeMap::from([(attention, told.collect())]), ..Effects::default() }
    }
}

type Done = Result<Effects, Refusal>;

/// The fields of REGISTER that belong to the new registration.
struct Registering<'a> {
    new_key: u64,
    keep: bool,
    all_ports: bool,
    others: Option<&'a [TransportId]>,
}

impl Registry {
    /// What was kept; `None` when it contradicts itself.
    pub(crate) fn kept(
        registrations: Vec<(Registrant, u64)>,
        kind: Option<ReservationType>,
        holder: Option<Registrant>,
    ) -> Option<Self> {
        let count = registrations.len();
        let registrations: BTreeMap<_, _> = registrations.into_iter().collect();
        let is_held_rightly = match kind {
            None => holder.is_none(),
            Some(kind) => holder.is_none() == kind.is_of_all_registrants() && count > 0,
        };
        if registrations.len() != count || !is_held_rightly {
            return None;
        }
        let reservation = kind.map(|kind| Reservation { kind, holder });
        Some(Registry { generation: 0, is_kept: count > 0, registrations, reservation })
    }

    /// Carries an order out for the nexus of these ports. A refused order may leave anything behind: it works on a copy.
    pub(crate) fn execute(&mut self, order: &Order, by: &NexusPorts) -> Done {
        match *order {
            Order::Register { key, new_key, keep, all_ports, ref others } => {
                let registering = Registering { new_key, keep, all_ports, others: others.as_deref() };
                self.register(by, key, &registering)
            }
            Order::Reserve { key, kind } => self.reserve(&self.registered(by, key)?, kind),
            Order::Release { key, kind } => self.release(&self.registered(by, key)?, kind),
            Order::Clear { key } => self.clear(&self.registered(by, key)?),
            Order::Preempt { key, victims, kind, abort } => {
                let by = self.registered(by, key)?;
                let mut effects = self.preempt(&by, victims, kind)?;
                if !abort {
                    effects.aborted.clear();
                }
                Ok(effects)
            }
            Order::Move { key, new_key, unregister, keep, target_port, ref initiator } => {
                let to = Registrant { initiator: initiator.clone(), target_port: Some(target_port) };
                self.move_to(&self.registered(by, key)?, to, new_key, unregister)?;
                self.is_kept = keep;
                Ok(Effects::default())
            }
        }
    }

    /// Whether this nexus is registered.
    pub(crate) fn has(&self, ports: &NexusPorts) -> bool {
        self.find(ports).is_some()
    }

    fn find(&self, ports: &NexusPorts) -> Option<(Registrant, u64)> {
        let names = Registrant::names_of(ports);
        names.into_iter().find_map(|name| self.registrations.get(&name).copied().map(|key| (name, key)))
    }

    /// The registrant that gives the order, when registered with this key.
    fn registered(&self, ports: &NexusPorts, key: u64) -> Result<Registrant, Refusal> {
        self.find(ports).filter(|(_, has)| *has == key).map(|(by, _)| by).ok_or(Refusal::Conflict)
    }

    /// SPC-5 tables 69 and 70.
    fn register(&mut self, ports: &NexusPorts, key: Option<u64>, new: &Registering<'_>) -> Done {
        let Some((by, has)) = self.find(ports) else {
            if key.is_some_and(|key| key != 0) {
                return Err(Refusal::Conflict);
            }
            if new.new_key == 0 {
                return if new.others.is_some() { Err(INITIATORS_SPECIFIED.into()) } else { Ok(Effects::default()) };
            }
            self.add(ports, key.is_none(), new)?;
            self.is_kept = new.keep;
            return Ok(self.count(Effects::default()));
        };
        if key.is_some_and(|key| key != has) {
            return Err(Refusal::Conflict);
        }
        if new.others.is_some() {
            return Err(INITIATORS_SPECIFIED.into());
        }
        self.is_kept = new.keep;
        if new.new_key == 0 {
            let effects = self.unregister(&by);
            return Ok(self.count(effects));
        }
        if key.is_none() && new.all_ports {
            self.widen(&by.initiator, new.new_key);
        } else {
            self.registrations.insert(by, new.new_key);
        }
        Ok(self.count(Effects::default()))
    }

    fn add(&mut self, ports: &NexusPorts, ignore: bool, new: &Registering<'_>) -> Result<(), Refusal> {
        if ignore && new.all_ports {
            self.widen(&ports.initiator, new.new_key);
            return Ok(());
        }
        let target_port = (!new.all_ports).then_some(ports.target.relative_id);
        let initiators: BTreeSet<&TransportId> = new.others.unwrap_or(&[]).iter().chain([&ports.initiator]).collect();
        for initiator in initiators {
            let overlaps = |other: &Registrant| match (other.target_port, target_port) {
                (Some(other), Some(port)) => other == port,
                _ => true,
            };
            if self.of_initiator(initiator).any(overlaps) {
                return Err(Refusal::Conflict);
            }
            self.registrations.insert(Registrant { initiator: initiator.clone(), target_port }, new.new_key);
        }
        Ok(())
    }

    /// Replaces the registrations of an initiator port by one for all target ports.
    fn widen(&mut self, initiator: &TransportId, key: u64) {
        let wide = Registrant { initiator: initiator.clone(), target_port: None };
        self.registrations.retain(|registrant, _| registrant.initiator != *initiator);
        self.registrations.insert(wide.clone(), key);
        if let Some(Reservation { holder: Some(holder), .. }) = &mut self.reservation
            && holder.initiator == *initiator
        {
            *holder = wide;
        }
    }

    fn of_initiator(&self, initiator: &TransportId) -> impl Iterator<Item = &Registrant> {
        let first = Registrant { initiator: initiator.clone(), target_port: None };
        let registrants = self.registrations.range(first..).map(|(registrant, _)| registrant);
        registrants.take_while(move |registrant| registrant.initiator == *initiator)
    }

    /// SPC-5 5.14.11.3.
    fn unregister(&mut self, by: &Registrant) -> Effects {
        let is_holder = self.is_holder(by);
        self.registrations.remove(by);
        let Some(reservation) = &self.reservation else { return Effects::default() };
        let kind = reservation.kind;
        let is_left = !is_holder || (kind.is_of_all_registrants() && !self.registrations.is_empty());
        if is_left {
            return Effects::default();
        }
        self.reservation = None;
        if kind.admits_registrants() {
            self.tell_others(UnitAttention::ReservationsReleased, by)
        } else {
            Effects::default()
        }
    }

    /// SPC-5 5.14.9.
    fn reserve(&mut self, by: &Registrant, kind: ReservationType) -> Done {
        match &self.reservation {
            Some(held) if held.kind != kind || !self.is_holder(by) => return Err(Refusal::Conflict),
            Some(_) => {}
            None => self.hold(by, kind),
        }
        Ok(Effects::default())
    }

    fn hold(&mut self, by: &Registrant, kind: ReservationType) {
        let holder = (!kind.is_of_all_registrants()).then(|| by.clone());
        self.reservation = Some(Reservation { kind, holder });
    }

    /// SPC-5 5.14.11.2.
    fn release(&mut self, by: &Registrant, kind: Option<ReservationType>) -> Done {
        let Some(held) = self.reservation.as_ref().filter(|_| self.is_holder(by)) else {
            return Ok(Effects::default());
        };
        let held = held.kind;
        if kind != Some(held) {
            let additional = AdditionalSense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION;
            return Err(Sense::new(SenseKey::IllegalRequest, additional).into());
        }
        self.reservation = None;
        let is_told = held.admits_registrants();
        Ok(if is_told { self.tell_others(UnitAttention::ReservationsReleased, by) } else { Effects::default() })
    }

    /// SPC-5 5.14.11.6.
    fn clear(&mut self, by: &Registrant) -> Done {
        let effects = self.tell_others(UnitAttention::ReservationsPreempted, by);
        self.registrations.clear();
        self.reservation = None;
        Ok(self.count(effects))
    }

    /// SPC-5 5.14.11.4 and 5.14.11.5. Who names its own key and stays registered means the other nexuses that share its registration:
    /// where a wire knows a client by its id alone, all its sessions do, also those of a program that this one succeeds.
    fn preempt(&mut self, by: &Registrant, victims: u64, kind: Result<ReservationType, Sense>) -> Done {
        let held = self.reservation.clone();
        let is_of_all = held.as_ref().is_some_and(|held| held.kind.is_of_all_registrants());
        let holders_key = held.as_ref().and_then(|held| self.registrations.get(held.holder.as_ref()?).copied());
        let takes_over = if is_of_all { victims == 0 } else { victims != 0 && holders_key == Some(victims) };
        if victims == 0 && !takes_over {
            return Err(Sense::invalid_field_in_parameters(8, None).into());
        }
        let spares_itself = takes_over || is_of_all;
        let is_named = spares_itself && self.registrations.get(by) == Some(&victims);
        let is_victim = |registrant: &Registrant, key: u64| {
            (victims == 0 || key == victims) && !(spares_itself && registrant == by)
        };
        let mut preempted: BTreeSet<Registrant> =
            self.registrations.extract_if(.., |registrant, key| is_victim(registrant, *key)).map(|(r, _)| r).collect();
        if preempted.is_empty() && !takes_over {
            return Err(Refusal::Conflict);
        }
        if is_named {
            preempted.insert(by.clone());
        }
        let told = preempted.iter().filter(|registrant| is_named || *registrant != by).cloned();
        let mut effects = Effects::tell(UnitAttention::RegistrationsPreempted, told);
        if let Some(held) = held.filter(|_| takes_over) {
            let kind = kind?;
            self.hold(by, kind);
            if held.kind != kind {
                effects.told.extend(self.tell_others(UnitAttention::ReservationsReleased, by).told);
            }
        }
        effects.aborted = preempted;
        Ok(self.count(effects))
    }

    /// SPC-5 5.14.8.
    fn move_to(&mut self, by: &Registrant, to: Registrant, new_key: u64, unregister: bool) -> Result<(), Refusal> {
        let port = to.target_port.unwrap_or_default();
        let existing = self.of_initiator(&to.initiator).find(|other| other.covers(&to.initiator, port)).cloned();
        let Some(held) = self.reservation.as_mut().filter(|held| held.holder.as_ref() == Some(by)) else {
            return Err(Refusal::Conflict);
        };
        if by.covers(&to.initiator, port) {
            return Err(Sense::invalid_field_in_parameters(24, None).into());
        }
        let to = existing.unwrap_or(to);
        held.holder = Some(to.clone());
        if unregister {
            self.registrations.remove(by);
        }
        self.registrations.insert(to, new_key);
        self.count(Effects::default());
        Ok(())
    }

    fn is_holder(&self, registrant: &Registrant) -> bool {
        let Some(held) = &self.reservation else { return false };
        held.holder.as_ref().map_or_else(|| self.registrations.contains_key(registrant), |holder| holder == registrant)
    }

    fn tell_others(&self, attention: UnitAttention, by: &Registrant) -> Effects {
        Effects::tell(attention, self.registrations.keys().filter(|registrant| *registrant != by).cloned())
    }

    /// SPC-5 6.15.2: one more of the orders that PRGENERATION counts.
    fn count(&mut self, effects: Effects) -> Effects {
        self.generation = self.generation.wrapping_add(1);
        effects
    }

    /// No nexus is registered.
    pub(crate) fn is_empty(&self) -> bool {
        self.registrations.is_empty()
    }

    /// How many registrations there are.
    pub(crate) fn len(&self) -> usize {
        self.registrations.len()
    }

    /// How many of them the device of this initiator port has, by whichever of its ports.
    pub(crate) fn len_of(&self, initiator: &TransportId) -> usize {
        self.registrations.keys().filter(|registrant| registrant.initiator.is_of_device_of(initiator)).count()
    }

    /// Whether all this must survive power loss: APTPL of the last registration.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Every registration with its key.
    pub(crate) fn registrations(&self) -> impl Iterator<Item = (&Registrant, u64)> {
        self.registrations.iter().map(|(registrant, key)| (registrant, *key))
    }

    /// The type of the reservation.
    pub(crate) fn kind(&self) -> Option<ReservationType> {
        self.reservation.as_ref().map(|held| held.kind)
    }

    /// The only holder of the reservation.
    pub(crate) fn holder(&self) -> Option<&Registrant> {
        self.reservation.as_ref()?.holder.as_ref()
    }

    /// The reservation's type, and the registrants that it lets do everything.
    pub(crate) fn admitted(&self) -> Option<(ReservationType, Vec<&Registrant>)> {
        let held = self.reservation.as_ref()?;
        let admitted = match &held.holder {
            Some(holder) if !held.kind.admits_registrants() => vec![holder],
            _ => self.registrations.keys().collect(),
        };
        Some((held.kind, admitted))
    }
}

/// SPC-5 tables 69 and 70: initiator ports cannot be specified where nothing new is registered.
const INITIATORS_SPECIFIED: Sense = Sense::invalid_field_in_parameters(20, Some(3));
