//! What both ends want of their connections, how that changes while they work, and what must come of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sanwire_core::limits::HYPERSCSI_TRANSFER_MAX_BYTES;
use sanwire_core::{ClientId, Protection};
use sanwire_hyperscsi::{Agreed, DesiredOptions, DeviceOption, Options, Stance};

use super::participants::identity;
use super::plan::{PacketPlan, Plan};
use super::wire::{Packets, World};
use crate::derived::Standing;
use crate::random::Random;
use crate::world::{Outcome, Wire};

/// The largest transfers that are drawn: what clients read in the end fits into each.
const TRANSFERS_MAX_BYTES: [u32; 3] = [64 << 10, 256 << 10, 1 << 20];

/// The caps that are drawn, in bytes per second: all work is done in time under each.
const CAPS: [u64; 3] = [200_000, 1_000_000, 20_000_000];

/// What is wanted of the connections with one client.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// By the server, at first.
    pub server: DesiredOptions,
    /// By the client.
    pub client: DesiredOptions,
    /// How the client wants packets of data guarded at least.
    pub protection_min: Protection,
}

/// What the server wants of a client from now on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Whether data may be compressed.
    Compression(Stance),
    /// Whether the client may only read.
    ReadOnly(bool),
    /// Bytes of data in a second at the most.
    RateCap(Option<u64>),
    /// Whose turn comes sooner.
    Priority(Option<u8>),
    /// Whether removable media stay in.
    MediumLock(bool),
    /// The largest transfer.
    TransferMax(Option<u32>),
    /// How packets of data are guarded at least: by the server those of all clients, by a client its own.
    Protection(Protection),
}

/// What the server wants of each client now.
#[derive(Clone, Debug)]
pub(super) struct Wanted(Arc<Mutex<Now>>);

#[derive(Debug)]
struct Now {
    wishes: BTreeMap<ClientId, DesiredOptions>,
    protection: Protection,
}

impl Wanted {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server wants of a client.
    pub(super) fn of(&self, client: ClientId) -> DesiredOptions {
        self.now().wishes.get(&client).cloned().unwrap_or_default()
    }

    /// How the server guards its disks.
    pub(super) fn protection(&self) -> Protection {
        self.now().protection
    }

    fn change(&self, client: ClientId, change: Change) {
        match change {
            Change::Protection(protection) => self.now().protection = protection,
            _ => change.make(self.now().wishes.entry(client).or_default()),
        }
    }

    /// As a plan has it.
    pub(super) fn new(plan: &Plan) -> Self {
        let wishes = (0..plan.clients).filter_map(|client| {
            let id = identity(client).ok()?.client_id();
            Some((id, plan.wire.terms_of(client).server))
        });
        Wanted(Arc::new(Mutex::new(Now { wishes: wishes.collect(), protection: plan.wire.protection })))
    }
}

impl Terms {
    /// Terms drawn by chance, on which both ends can agree.
    #[must_use]
    pub fn any(random: &mut Random) -> Self {
        let mut terms = Terms { protection_min: random.choose(&Protection::ALL), ..Terms::default() };
        for option in DeviceOption::ALL {
            if random.chance(500_000) {
                terms.turn_on(option, random);
            }
        }
        terms
    }

    /// Lets either end, or both, want an option.
    pub fn turn_on(&mut self, option: DeviceOption, random: &mut Random) {
        let (by_server, by_client) = random.choose(&[(true, false), (false, true), (true, true)]);
        let ends = [by_server.then_some(&mut self.server), by_client.then_some(&mut self.client)];
        let mut ends: Vec<&mut DesiredOptions> = ends.into_iter().flatten().collect();
        let mut both = |wish: &mut dyn FnMut(&mut DesiredOptions)| ends.iter_mut().for_each(|end| wish(end));
        match option {
            // The server's part is the plan's own.
            DeviceOption::Encryption => self.protection_min = random.choose(&Protection::ALL[2..]),
            DeviceOption::Hashing => self.protection_min = Protection::Hash,
            DeviceOption::Compression => {
                let stances = [(Stance::Supported, Stance::Supported), (Stance::Enforced, Stance::Supported)];
                (self.server.compression, self.client.compression) = random.choose(&stances);
            }
            DeviceOption::ReadOnly => both(&mut |end| end.read_only = true),
            DeviceOption::MediumLock => both(&mut |end| end.medium_lock = true),
            DeviceOption::TransferMax => {
                both(&mut |end| end.transfer_max_bytes = Some(random.choose(&TRANSFERS_MAX_BYTES)));
            }
            DeviceOption::RateCap => both(&mut |end| end.rate_cap_bytes_per_second = Some(random.choose(&CAPS))),
            DeviceOption::Priority => {
                both(&mut |end| end.priority = Some(random.range(0..=7) as u8));
            }
        }
    }

    /// Whether the client may only read at first.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.server.read_only || self.client.read_only
    }

    /// The largest transfer on which both ends agree.
    #[must_use]
    pub fn transfer_max_bytes(&self) -> u32 {
        let wishes = [self.server.transfer_max_bytes, self.client.transfer_max_bytes];
        wishes.into_iter().flatten().min().unwrap_or(u32::MAX)
    }

    /// What becomes of these wishes of a server that guards all its disks at least so.
    fn agreed(&self, server: DesiredOptions, least: Protection) -> Outcome<Agreed> {
        let options = |wishes: DesiredOptions, least| wishes.options(least).map_err(|error| error.to_string());
        // A server grants no priority of which it says nothing.
        let server = DesiredOptions { priority: server.priority.or(Some(0)), ..server };
        let ours: Options = options(self.client.clone(), self.protection_min)?;
        Agreed::new(&ours, &options(server, least)?).map_err(|error| error.to_string())
    }
}

impl Change {
    /// A change to which a client on these terms can agree.
    #[must_use]
    pub fn any(terms: &Terms, random: &mut Random) -> Self {
        match random.range(0..=6) {
            0 => Change::Compression(match terms.client.compression {
                Stance::Ignored => random.choose(&[Stance::Ignored, Stance::Supported]),
                Stance::Supported => random.choose(&Stance::ALL),
                Stance::Enforced => random.choose(&[Stance::Supported, Stance::Enforced]),
            }),
            1 => Change::ReadOnly(random.chance(500_000)),
            2 => Change::RateCap(random.choose(&[None, Some(CAPS[0]), Some(CAPS[1]), Some(CAPS[2])])),
            3 => Change::Priority(random.choose(&[None, Some(0), Some(3), Some(7)])),
            _ => Change::of_either_end(random),
        }
    }

    /// A change that a client can wish for as well.
    #[must_use]
    pub fn of_either_end(random: &mut Random) -> Self {
        match random.range(0..=3) {
            0 => Change::MediumLock(random.chance(500_000)),
            1 => {
                Change::TransferMax(random.choose(&[None, Some(TRANSFERS_MAX_BYTES[0]), Some(TRANSFERS_MAX_BYTES[1])]))
            }
            2 => Change::RateCap(random.choose(&[None, Some(CAPS[0]), Some(CAPS[1]), Some(CAPS[2])])),
            _ => Change::Protection(random.choose(&Protection::ALL)),
        }
    }

    fn make(self, wishes: &mut DesiredOptions) {
        match self {
            Change::Compression(stance) => wishes.compression = stance,
            Change::ReadOnly(is_read_only) => wishes.read_only = is_read_only,
            Change::RateCap(cap) => wishes.rate_cap_bytes_per_second = cap,
            Change::Priority(priority) => wishes.priority = priority,
            Change::MediumLock(is_locked) => wishes.medium_lock = is_locked,
            Change::TransferMax(bytes) => wishes.transfer_max_bytes = bytes,
            Change::Protection(_) => {}
        }
    }
}

impl PacketPlan {
    /// The terms of a client.
    #[must_use]
    pub fn terms_of(&self, client: usize) -> Terms {
        self.terms.get(client).cloned().unwrap_or_default()
    }

    /// The least that the server guards any disk, when it guards the one there is so.
    pub(super) fn least(&self, protection: Protection) -> Protection {
        if self.is_mixed { Protection::Checksum } else { protection }
    }
}

impl World {
    /// The server wants something else of a client from now on.
    pub(super) fn change(&mut self, client: usize, change: Change) -> Outcome<()> {
        let id = identity(client)?.client_id();
        self.wire.wanted.change(id, change);
        if matches!(change, Change::ReadOnly(_)) {
            self.wire.changes += 1;
            let is_read_only = self.wire.wanted.of(id).read_only || self.plan.wire.terms_of(client).client.read_only;
            let since = self.wire.read_only.get(&client).copied().unwrap_or(self.wire.changes);
            match is_read_only {
                true => self.wire.read_only.insert(client, since),
                false => self.wire.read_only.remove(&client),
            };
            self.workers[client].read_only_since = self.wire.read_only_since(client);
        }
        self.note_terms()?;
        let Some(host) = &mut self.host else { return Ok(()) };
        host.look_after_terms(self.now);
        Packets::drain_server(self)
    }

    /// A client wants something else from now on.
    pub(super) fn wish(&mut self, client: usize, change: Change) -> Outcome<()> {
        let Some(terms) = self.plan.wire.terms.get_mut(client) else { return Ok(()) };
        match change {
            Change::Protection(protection) => terms.protection_min = protection,
            _ => change.make(&mut terms.client),
        }
        self.note_terms()?;
        self.wish_again(client)
    }

    /// A client says once more what it wants: it gives up when it has no answer.
    pub(super) fn wish_again(&mut self, client: usize) -> Outcome<()> {
        if self.plan.wire.terms.is_empty() {
            return Ok(());
        }
        let Terms { client: wishes, protection_min, .. } = self.plan.wire.terms_of(client);
        let machine = &mut self.workers[client].client;
        machine.wish(wishes, protection_min, self.now).map_err(|error| error.to_string())?;
        Packets::drain_client(self, client)
    }

    /// Until both ends have agreed on a change, it need not hold.
    pub(super) fn note_terms(&mut self) -> Outcome<()> {
        let least = self.plan.wire.least(self.wire.wanted.protection());
        for client in 0..self.plan.wire.terms.len().min(self.plan.clients) {
            let (terms, server) = (self.plan.wire.terms_of(client), self.wire.wanted.of(identity(client)?.client_id()));
            let caps = [server.rate_cap_bytes_per_second, terms.client.rate_cap_bytes_per_second];
            self.wire.meters.change(client, caps, [least, terms.protection_min]);
        }
        Ok(())
    }

    /// Both ends of each connection must agree, and do what they have agreed on.
    pub(super) fn check_terms(&self) -> Outcome<()> {
        for (client, worker) in self.workers.iter().enumerate() {
            let (terms, wanted) = (self.plan.wire.terms_of(client), self.wire.wanted.of(identity(client)?.client_id()));
            let agreed = terms.agreed(wanted, self.plan.wire.least(self.wire.wanted.protection()))?;
            let Some(server) = worker.client.server() else {
                return Err(format!("client {client} is not connected: {}", self.describe()));
            };
            if server.options != agreed {
                return Err(format!("client {client} has {:?}, not {agreed:?}: {}", server.options, self.describe()));
            }
            let transfer_max_bytes =
                agreed.transfer_max_bytes.unwrap_or(u32::MAX).min(HYPERSCSI_TRANSFER_MAX_BYTES as u32);
            if server.transfer_max_bytes != transfer_max_bytes {
                return Err(format!(
                    "client {client} moves {} bytes at once, not {transfer_max_bytes}",
                    server.transfer_max_bytes
                ));
            }
            let Some(host) = &self.host else { return Err("no server is left".to_owned()) };
            // A reset ends what was asked of removal (SBC-4 5.14), and who may not use the unit asks for nothing there.
            let locks = agreed.medium_lock && worker.standing != Standing::Outsider;
            if locks && self.plan.work.reset_per_million == 0 && !host.keeps_medium() {
                return Err(format!("client {client} has its medium locked, and it is not: {}", self.describe()));
            }
        }
        Ok(())
    }
}
