//! What sessions have under way, and what a shard keeps besides: each kept to its quota.

use sanwire_core::quota::{
    ANSWER_BYTES_OF_SESSION, ANSWERS_OF_SESSION, Account, COMMAND_NUMBERS_OF_SESSION, COMMANDS_OF_SESSION, HINTS,
    LENT_BYTES_OF_SESSION, Limiter, Usage,
};

/// The quotas of all sessions of a shard.
pub(super) struct Accounts {
    /// Commands that are executed.
    pub(super) commands: Account,
    /// Numbers of commands from the oldest that is not settled.
    pub(super) numbers: Account,
    /// Answers of which not all was taken.
    pub(super) answers: Account,
    /// Their data outside the memory for data.
    pub(super) answer_bytes: Account,
    /// What stores keep in memory and they share.
    pub(super) lent_bytes: Account,
    /// Answers to packets of unknown connections.
    pub(super) hints: Limiter,
}

impl Accounts {
    /// Where a session has so many commands at once.
    pub(super) fn new(commands_max: u16) -> Self {
        Accounts {
            commands: Account::within(&COMMANDS_OF_SESSION, commands_max.into()),
            numbers: Account::new(&COMMAND_NUMBERS_OF_SESSION),
            answers: Account::new(&ANSWERS_OF_SESSION),
            answer_bytes: Account::new(&ANSWER_BYTES_OF_SESSION),
            lent_bytes: Account::new(&LENT_BYTES_OF_SESSION),
            hints: Limiter::new(&HINTS),
        }
    }

    /// How they are used.
    pub(super) fn usages(&self) -> impl Iterator<Item = Usage> + use<> {
        let Accounts { commands, numbers, answers, answer_bytes, lent_bytes, hints } = self;
        let held = [commands, numbers, answers, answer_bytes, lent_bytes].map(Account::usage);
        held.into_iter().chain([hints.usage()])
    }
}
