//! What differs between worlds: a protocol on its medium, with both ends.

use std::fmt::Debug;
use std::time::Duration;

use sanwire_buffer::Region;
use sanwire_core::{Instant, Principal};

use super::{Outcome, World};
use crate::plan::Plan;
use crate::random::Random;
use crate::workload::Initiator;

/// A server's process.
pub trait Host {
    /// Its memory, of each of its shards.
    fn memory(&self) -> Vec<Region>;

    /// When it must be woken.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Time has passed.
    ///
    /// # Errors
    /// When the server breaks a promise.
    fn handle_timeout(&mut self, now: Instant) -> Outcome<()>;

    /// The disk has done something.
    ///
    /// # Errors
    /// When the server breaks a promise.
    fn disk_done(&mut self, token: u64, now: Instant) -> Outcome<()>;

    /// Tells the clients that it stops.
    fn shut_down(&mut self, now: Instant);

    /// The process is killed: what the disk was asked may be done or not.
    fn kill(self, random: &mut Random);

    /// Sessions, or connections, that are open.
    fn sessions(&self) -> usize;

    /// Whether no command is under way.
    fn is_idle(&self) -> bool;

    /// What is going on, for a failure's message.
    fn describe(&self) -> String;
}

/// A protocol on its medium, with both ends.
pub trait Wire: Sized {
    /// What differs from world to world.
    type Plan: Clone + Debug;
    /// What goes wrong.
    type Fault: Copy + Debug;
    /// What happens at some moment.
    type Event;
    /// A client's end.
    type Client: Initiator;
    /// A server.
    type Host: Host;

    /// How long a healed world may take for the work that is left.
    const RECOVERY_MAX: Duration;

    /// How long a server that stops may go on.
    const STOPPING_MAX_US: u64;

    /// The wire of this plan.
    fn new(plan: &PlanOf<Self>, random: &mut Random) -> Self;

    /// What happens of itself in such a world.
    fn prepare(_world: &mut World<Self>) {}

    /// A server that starts.
    ///
    /// # Errors
    /// What it refuses.
    fn make_host(world: &mut World<Self>) -> Outcome<Self::Host>;

    /// A client that begins.
    ///
    /// # Errors
    /// What it refuses.
    fn make_client(world: &mut World<Self>, client: usize) -> Outcome<Self::Client>;

    /// Who a client is to the units.
    ///
    /// # Errors
    /// When it has no name.
    fn principal(world: &World<Self>, client: usize) -> Outcome<Principal>;

    /// Since which change of its terms a client may only read, if that is so.
    fn read_only_since(&self, _client: usize) -> Option<u64> {
        None
    }

    /// When something is due on the wire that is no event.
    fn next_at(&self) -> Option<Instant> {
        None
    }

    /// Does what is due there; false when there is nothing.
    ///
    /// # Errors
    /// When a promise is broken.
    fn attend(_world: &mut World<Self>) -> Outcome<bool> {
        Ok(false)
    }

    /// Something happens.
    ///
    /// # Errors
    /// When a promise is broken.
    fn handle(world: &mut World<Self>, event: Self::Event) -> Outcome<()>;

    /// Something goes wrong.
    ///
    /// # Errors
    /// When a promise is broken.
    fn fault(world: &mut World<Self>, fault: Self::Fault) -> Outcome<()>;

    /// Nothing goes wrong any more.
    ///
    /// # Errors
    /// When a promise is broken.
    fn heal(world: &mut World<Self>) -> Outcome<()>;

    /// The server was killed.
    fn killed(_world: &mut World<Self>) {}

    /// A machine (a client, or the server) was woken.
    ///
    /// # Errors
    /// When that comes too often.
    fn woken(_world: &mut World<Self>, _client: Option<usize>) -> Outcome<()> {
        Ok(())
    }

    /// Deals with what the server has to say.
    ///
    /// # Errors
    /// When a promise is broken.
    fn drain_server(world: &mut World<Self>) -> Outcome<()>;

    /// Deals with what a client has to say.
    ///
    /// # Errors
    /// When a promise is broken.
    fn drain_client(world: &mut World<Self>, client: usize) -> Outcome<()>;

    /// Watches a world that has nothing to do.
    ///
    /// # Errors
    /// When it does not rest.
    fn idle(_world: &mut World<Self>) -> Outcome<()> {
        Ok(())
    }

    /// How long a server may remember clients that have left.
    fn forgotten_after(plan: &Self::Plan) -> Duration;

    /// What is going on at a client and on the wire, for a failure's message.
    fn describe_client(client: &Self::Client) -> String;

    /// The same, of the wire.
    fn describe(&self) -> String;
}

/// What a world with this wire is made of.
pub type PlanOf<W> = Plan<<W as Wire>::Plan, <W as Wire>::Fault>;
