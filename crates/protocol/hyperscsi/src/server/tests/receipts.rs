//! Which answers a client had when it gave a command.

use sanwire_buffer::Packet;
use sanwire_core::Protection;
use sanwire_scsi::{Receipt, Reply};

use super::server;
use super::world::{MS, World};
use crate::wire::{Opcode, Prefix};
use crate::{CommandHandle, ServerEvent};

impl World {
    /// The commands that have arrived, each with the receipts that its client had.
    fn received(&mut self) -> Vec<(CommandHandle, u64)> {
        let events = std::iter::from_fn(|| self.server.poll_event());
        let commands = events.filter_map(|event| match event {
            ServerEvent::Command { handle, task } => Some((handle, task.receipts)),
            _ => None,
        });
        commands.collect()
    }

    /// Answers a command, and gives the receipt of that.
    fn answer(&mut self, handle: CommandHandle) -> Receipt {
        let receipt = Receipt::default();
        self.server.reply(handle, Reply { receipt: Some(receipt.clone()), ..Reply::good(None) }, self.now);
        receipt
    }
}

fn is_answer(packet: &Packet) -> bool {
    Prefix::read(&packet.head).unwrap().0.header.opcode == Opcode::HcbeReply
}

fn world() -> World {
    let mut server = server();
    server.config.levels = Box::new(|_| Protection::Checksum);
    let mut world = World::with(server);
    world.pass(100 * MS);
    world
}

/// The first command is not over all the time, so that what is settled says nothing.
#[test]
fn a_command_given_before_an_answer_came_had_it_not_although_it_comes_later() {
    let mut world = world();
    (0..2).for_each(|_| world.order(0));
    world.pass(MS);
    let [(_, 0), (second, 0)] = world.received()[..] else { panic!("two commands have come") };
    let receipt = world.answer(second);
    // The answer is lost at first: a third command is given before it arrives, and a fourth after that.
    world.run(MS, &mut is_answer);
    world.order(0);
    world.pass(500 * MS);
    world.order(0);
    world.pass(MS);
    let had: Vec<bool> = world.received().iter().map(|(_, had)| receipt.is_among(*had)).collect();
    assert_eq!(had, [false, true]);
}

#[test]
fn an_answer_that_is_settled_was_had_by_a_client_that_tells_nothing_of_receipts() {
    let mut world = world();
    world.order(0);
    world.pass(MS);
    let [(first, 0)] = world.received()[..] else { panic!("one command has come") };
    let receipt = world.answer(first);
    let session = world.server.sessions.values().next().unwrap();
    assert!(!receipt.is_among(session.received(0, 0)) && receipt.is_among(session.received(1, 0)));
}
