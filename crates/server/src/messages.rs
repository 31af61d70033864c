//! What threads of a server tell each other.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use sanwire_core::{Lun, Protection};
use sanwire_engine::AbortBarrier;
use sanwire_io::Waker;

use crate::command::{CommandRef, Selection};
use crate::counting::{CommandUnderWay, Counted};
use crate::front::NexusSelection;
use crate::login_listener::Arrival;
use crate::opener::Reopened;

/// Something for a shard to do.
pub(crate) enum ShardMessage {
    /// Take over a connection that has passed its login.
    Admit(Box<Arrival>),
    /// See which connections have ended before this one comes.
    Look(Arc<AdmittedConnection>),
    /// End tasks. The barrier is dropped when they have ended.
    Abort(Selection, Arc<AbortBarrier>),
    /// All shards have ended the tasks that somebody here wanted ended: nobody holds the barrier any more.
    BarrierPassed(Wanted),
    /// Ask the sessions with a target node to go where it has moved.
    Redirect(u32),
    /// End these nexuses.
    Drop(NexusSelection),
    /// Let the commands of a principal wait, or go on.
    Pause(String, bool),
    /// Other terms hold for clients: drop those that are not served any more, share the windows anew.
    ClientsConfig,
    /// A volume is about to demand more of its packets than this.
    DemandsMore(Lun, Protection),
    /// Tell what was counted.
    Count(Sender<Counted>),
    /// Tell which commands for the volume in this slot have been under way for longest, so many at the most.
    Commands(u16, usize, Sender<Vec<CommandUnderWay>>),
    /// Say that the shard turns.
    Turn(Sender<()>),
    /// This came of a request to manage the server.
    Administered(CommandRef, Vec<u8>),
    /// Volumes are not there any more: commands that wait for memory may be for one of them.
    VolumesRemoved,
    /// Count the volumes of these slots from zero.
    CountFromZero(Arc<[u16]>),
    /// Go on with this port of a wire that was away.
    Reopened(Reopened),
}

/// Who wants tasks ended.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted {
    /// A task management request.
    ByRequest(CommandRef),
    /// A command of the shard's engine, by the number that it has there.
    ByCommand(u64),
}

/// The way to a shard.
#[derive(Clone)]
pub(crate) struct Mailbox {
    sender: Sender<ShardMessage>,
    waker: Waker,
}

impl Mailbox {
    /// A mailbox, and the end that the shard itself reads.
    pub(crate) fn new(waker: Waker) -> (Mailbox, Receiver<ShardMessage>) {
        let (sender, receiver) = mpsc::channel();
        (Mailbox { sender, waker }, receiver)
    }

    pub(crate) fn send(&self, mail: ShardMessage) {
        // A shard that has ended has no tasks and takes no connections.
        if self.sender.send(mail).is_ok() {
            self.waker.wake();
        }
    }

    /// A barrier for the shards that are to end tasks: this one is told when all have.
    pub(crate) fn barrier(&self, wanted: Wanted) -> Arc<AbortBarrier> {
        let home = self.clone();
        AbortBarrier::new(move || home.send(ShardMessage::BarrierPassed(wanted)))
    }

    /// Has the shard look whether it is to stop.
    pub(crate) fn wake(&self) {
        self.waker.wake();
    }
}

/// A connection on its way to its shard. The other shards look first which of theirs have ended, and when the last one has let go of
/// it, it goes on: an initiator that comes back under another port finds its former nexus lost, and all over that ends with one
/// (SAM-5 6.3.4), also where another shard had that.
pub(crate) struct AdmittedConnection {
    home: Mailbox,
    arrival: Option<Box<Arrival>>,
}

impl AdmittedConnection {
    pub(crate) fn new(home: Mailbox, arrival: Box<Arrival>) -> Arc<Self> {
        Arc::new(AdmittedConnection { home, arrival: Some(arrival) })
    }
}

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        if let Some(arrival) = self.arrival.take() {
            self.home.send(ShardMessage::Admit(arrival));
        }
    }
}
