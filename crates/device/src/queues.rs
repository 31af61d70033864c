//! Commands that wait for memory: each session's in the order of coming, the sessions in turns by their weights (deficit round
//! robin, M. Shreedhar and G. Varghese, 1996). A session that asks for much keeps only itself waiting.

use std::collections::{BTreeMap, VecDeque};

use sanwire_core::NexusId;

/// What a session of weight 1 takes in a turn, in bytes.
const QUANTUM_BYTES: i64 = 64 << 10;

/// What became of a command that was tried again.
#[derive(Debug)]
pub(crate) enum Tried<C> {
    /// It has begun, and has taken so many bytes.
    Begun(usize),
    /// It goes on waiting.
    Waits(C),
}

/// The queues of all sessions of which something waits.
#[derive(Debug)]
pub(crate) struct Queues<C> {
    by_session: BTreeMap<NexusId, Queue<C>>,
    /// The sessions, whose turn it is first.
    turns: VecDeque<NexusId>,
}

#[derive(Debug)]
struct Queue<C> {
    commands: VecDeque<C>,
    weight: u32,
    left_bytes: i64,
}

impl<C> Queue<C> {
    fn quantum_bytes(&self) -> i64 {
        QUANTUM_BYTES * i64::from(self.weight.max(1))
    }

    /// Tries what is first as long as it is the session's turn; true when it goes on waiting.
    fn serve(&mut self, mut attempt: impl FnMut(C) -> Tried<C>) -> bool {
        while self.left_bytes > 0
            && let Some(command) = self.commands.pop_front()
        {
            match attempt(command) {
                Tried::Begun(bytes) => self.left_bytes -= i64::try_from(bytes).unwrap_or(i64::MAX),
                Tried::Waits(command) => {
                    self.commands.push_front(command);
                    return true;
                }
            }
        }
        false
    }
}

impl<C> Default for Queues<C> {
    fn default() -> Self {
        Queues { by_session: BTreeMap::new(), turns: VecDeque::new() }
    }
}

impl<C> Queues<C> {
    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_session.is_empty()
    }

    /// How many commands wait.
    pub(crate) fn len(&self) -> usize {
        self.by_session.values().map(|queue| queue.commands.len()).sum()
    }

    /// Whether something of a session waits.
    pub(crate) fn has(&self, nexus: NexusId) -> bool {
        self.by_session.contains_key(&nexus)
    }

    /// The commands that are first of their sessions.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = (NexusId, &C)> {
        self.by_session.iter().filter_map(|(nexus, queue)| Some((*nexus, queue.commands.front()?)))
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &C> {
        self.by_session.values().flat_map(|queue| &queue.commands)
    }

    /// The commands of a session.
    pub(crate) fn of(&mut self, nexus: NexusId) -> impl Iterator<Item = &mut C> {
        self.by_session.get_mut(&nexus).into_iter().flat_map(|queue| queue.commands.iter_mut())
    }

    /// A command waits, behind those of its session. From now on the session has this weight.
    pub(crate) fn push(&mut self, nexus: NexusId, weight: u32, command: C) {
        let queue = self.by_session.entry(nexus).or_insert_with(|| {
            self.turns.push_back(nexus);
            let mut queue = Queue { commands: VecDeque::new(), weight, left_bytes: 0 };
            queue.left_bytes = queue.quantum_bytes();
            queue
        });
        queue.weight = weight;
        queue.commands.push_back(command);
    }

    /// Tries the commands, until the first of each session goes on waiting.
    pub(crate) fn serve(&mut self, mut attempt: impl FnMut(NexusId, C) -> Tried<C>) {
        let mut waiting = VecDeque::new();
        while let Some(nexus) = self.turns.pop_front() {
            let Some(queue) = self.by_session.get_mut(&nexus) else { continue };
            let waits = queue.serve(|command| attempt(nexus, command));
            if queue.commands.is_empty() {
                self.by_session.remove(&nexus);
            } else if waits {
                waiting.push_back(nexus);
            } else {
                queue.left_bytes += queue.quantum_bytes();
                self.turns.push_back(nexus);
            }
        }
        self.turns = waiting;
    }

    /// Takes out the commands that are meant.
    pub(crate) fn extract(&mut self, mut is_meant: impl FnMut(&C) -> bool) -> Vec<C> {
        let mut extracted = Vec::new();
        for queue in self.by_session.values_mut() {
            for command in std::mem::take(&mut queue.commands) {
                if is_meant(&command) {
                    extracted.push(command);
                } else {
                    queue.commands.push_back(command);
                }
            }
        }
        self.by_session.retain(|_, queue| !queue.commands.is_empty());
        self.turns.retain(|nexus| self.by_session.contains_key(nexus));
        extracted
    }

    /// Takes out all commands of a session, in their order.
    pub(crate) fn take(&mut self, nexus: NexusId) -> Vec<C> {
        self.turns.retain(|other| *other != nexus);
        self.by_session.remove(&nexus).map_or_else(Vec::new, |queue| queue.commands.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// A command that needs so many bytes.
    fn of(sessions: &[(u64, u32, usize)], each: usize) -> Queues<usize> {
        let mut queues = Queues::default();
        for _ in 0..each {
            sessions.iter().for_each(|(nexus, weight, bytes)| queues.push(NexusId(*nexus), *weight, *bytes));
        }
        queues
    }

    /// Which session gets how many of so many bytes that come free piece by piece.
    fn served(queues: &mut Queues<usize>, free: usize, piece: usize) -> BTreeMap<u64, usize> {
        let (mut given, mut left) = (BTreeMap::new(), 0);
        for _ in 0..free / piece {
            left += piece;
            queues.serve(|nexus, bytes| {
                if bytes > left {
                    return Tried::Waits(bytes);
                }
                left -= bytes;
                *given.entry(nexus.0).or_default() += bytes;
                Tried::Begun(bytes)
            });
        }
        given
    }

    #[test]
    fn sessions_share_by_their_weights_whatever_they_ask_for() {
        let mut queues = of(&[(1, 1, MIB), (2, 1, MIB / 4), (3, 2, MIB)], 1000);
        let given = served(&mut queues, 400 * MIB, 2 * MIB);
        assert!(given[&1].abs_diff(100 * MIB) <= 4 * MIB && given[&2].abs_diff(100 * MIB) <= 4 * MIB, "{given:?}");
        assert!(given[&3].abs_diff(200 * MIB) <= 4 * MIB, "{given:?}");
    }

    #[test]
    fn who_can_go_on_passes_who_cannot() {
        let mut queues = of(&[(1, 1, 10), (2, 1, 1)], 3);
        let mut order = Vec::new();
        queues.serve(|nexus, bytes| {
            order.push(nexus.0);
            if bytes > 5 { Tried::Waits(bytes) } else { Tried::Begun(bytes) }
        });
        assert_eq!(order, [1, 2, 2, 2]);
        assert!(queues.has(NexusId(1)) && !queues.has(NexusId(2)) && queues.len() == 3);
    }

    #[test]
    fn commands_of_a_session_keep_their_order() {
        let mut queues = Queues::default();
        (0..4).for_each(|command| queues.push(NexusId(1), 1, command));
        assert_eq!(queues.extract(|command| *command == 1), [1]);
        let mut begun = Vec::new();
        queues.serve(|_, command| {
            if command == 3 {
                return Tried::Waits(command);
            }
            begun.push(command);
            Tried::Begun(0)
        });
        assert_eq!((begun, queues.firsts().collect::<Vec<_>>()), (vec![0, 2], vec![(NexusId(1), &3)]));
        assert_eq!((queues.take(NexusId(1)), queues.take(NexusId(2))), (vec![3], vec![]));
        assert!(queues.is_empty());
    }
}
