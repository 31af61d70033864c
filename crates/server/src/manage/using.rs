//! Who uses a volume, and which commands are under way there.

use sanwire_engine::{Place, UnderWay, WaitsFor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::slow::Step;
use super::{Answer, ManageError, Manager};
use crate::counting::{CommandUnderWay, Counted};
use crate::front::wire_name;
use crate::sessions::{SessionCount, spoken};

/// Commands that are told of, at the most.
const COMMANDS_MAX: usize = 64;

/// A command under way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct CommandStatus {
    /// What it does, as in metrics: `read`, `write`, `flush`, `unmap`, `compare`, `copy`, `other`.
    pub operation: String,
    /// The first block that it reads, writes or compares; `None` when its data says that.
    pub lba: Option<u64>,
    /// How many blocks.
    pub blocks: Option<u32>,
    /// For how long it has been under way.
    pub age_ms: u64,
    /// For what it waits.
    pub waits_for: Waits,
    /// The number of its session, in hexadecimal digits.
    pub session: String,
    /// Whose it is: a client by its id, or an initiator by its name.
    pub client: String,
    /// The protocol.
    #[schema(schema_with = wire_name)]
    pub wire: String,
    /// Of iSER, by what its session goes: `tcp` or `rdma`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iser_path: Option<String>,
    /// From where its session came last.
    pub address: String,
}

/// For what a command waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Waits {
    /// Its store works for it.
    Store,
    /// Its store is full or gone, and is asked again.
    Space,
    /// Other commands use its blocks, or must end before it.
    Others,
    /// All memory is used.
    Memory,
    /// The end of the commands that it aborts.
    Aborts,
    /// More of its data, or that its initiator takes some.
    Data,
    /// That its client is resumed.
    Resume,
}

impl Waits {
    /// As it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Waits::Store => "store",
            Waits::Space => "space",
            Waits::Others => "others",
            Waits::Memory => "memory",
            Waits::Aborts => "aborts",
            Waits::Data => "data",
            Waits::Resume => "resume",
        }
    }
}

impl From<WaitsFor> for Waits {
    fn from(waits_for: WaitsFor) -> Self {
        match waits_for {
            WaitsFor::Store => Waits::Store,
            WaitsFor::Space => Waits::Space,
            WaitsFor::Others => Waits::Others,
            WaitsFor::Memory => Waits::Memory,
            WaitsFor::Aborts => Waits::Aborts,
            WaitsFor::Data => Waits::Data,
            WaitsFor::Resume => Waits::Resume,
        }
    }
}

impl From<CommandUnderWay> for CommandStatus {
    fn from(CommandUnderWay { nexus, host, wire, iser_path, command }: CommandUnderWay) -> Self {
        let UnderWay { operation, place, age, waits_for, .. } = command;
        CommandStatus {
            operation: operation.name().to_owned(),
            lba: place.map(|Place { lba_blocks, .. }| lba_blocks),
            blocks: place.map(|Place { blocks, .. }| blocks),
            age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            waits_for: waits_for.into(),
            session: format!("{:x}", nexus.0),
            client: host.owner().to_owned(),
            wire: wire.to_owned(),
            iser_path: iser_path.map(str::to_owned),
            address: host.address.unwrap_or_default(),
        }
    }
}

impl CommandStatus {
    /// The protocol, for people, as [`crate::SessionStatus::spoken`].
    #[must_use]
    pub fn spoken(&self) -> &str {
        spoken(&self.wire, self.iser_path.as_deref())
    }
}

impl Manager {
    /// The sessions of all wires.
    pub(super) fn sessions(&self) -> Step {
        self.sessions_where(|_| true)
    }

    /// The sessions that have used a volume.
    pub(super) fn sessions_of_volume(&self, name: &str) -> Result<Step, ManageError> {
        let slot = self.slot_of(name)?;
        Ok(self.sessions_where(move |session| session.uses.has(slot)))
    }

    fn sessions_where(&self, is_wanted: impl Fn(&SessionCount) -> bool + Send + 'static) -> Step {
        // They are read before what they are of.
        let revisions = self.target.revisions().sessions_of_all();
        self.count(move |manager, mut counted: Vec<Counted>| {
            counted.iter_mut().for_each(|shard| shard.sessions.retain(&is_wanted));
            Answer::Sessions(manager.target.sessions_of(&counted, &revisions))
        })
    }

    /// The commands for a volume that have been under way for longest, the oldest first.
    pub(super) fn commands_of_volume(&self, name: &str) -> Result<Step, ManageError> {
        let (slot, counter) = (self.slot_of(name)?, self.target.counter());
        let ask = move || counter.commands(slot, COMMANDS_MAX);
        Ok(Step::slow("looking at commands", ask, |_, mut commands: Vec<CommandUnderWay>| {
            commands.sort_by_key(|under_way| std::cmp::Reverse(under_way.command.age));
            commands.truncate(COMMANDS_MAX);
            Ok(Step::Done(Answer::Commands(commands.into_iter().map(CommandStatus::from).collect())))
        }))
    }

    fn slot_of(&self, name: &str) -> Result<u16, ManageError> {
        let (_, unit) = self.find(name).ok_or_else(|| ManageError::NoVolume(name.to_owned()))?;
        Ok(unit.slot())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::config;
    use super::super::{Answer, ManageError, Manager, Request};

    #[test]
    fn a_volume_that_nobody_uses_has_no_clients_and_no_commands() {
        let mut manager = Manager::start(config(&["a=ram:1M"]), Box::new(|| Ok(config(&[])))).unwrap();
        let commands = |name: &str| Request::Commands { name: name.into() };
        let clients = |name: &str| Request::VolumeSessions { name: name.into() };
        for request in [commands("b"), clients("b")] {
            assert!(matches!(manager.execute(request), Err(ManageError::NoVolume(_))));
        }
        assert_eq!(manager.execute(commands("a")).unwrap(), Answer::Commands(Vec::new()));
        assert_eq!(manager.execute(clients("a")).unwrap(), Answer::Sessions(Vec::new()));
        manager.into_target().stop().unwrap();
    }
}
