//! Long transfers: a piece at a time is asked for, executed, and sent.

use sanwire_core::limits::{LONG_TRANSFER_MAX_BYTES, PIECE_BYTES};
use sanwire_scsi::{Rest, Status};

use super::*;
use crate::wire::{DataIn, ReadyToTransfer, ScsiResponse, SnackRequest, TaskResponse};

const LONG: u32 = LONG_TRANSFER_MAX_BYTES as u32;
const PIECE: u32 = PIECE_BYTES as u32;

/// A session with a server that takes the longest transfers, and has a quarter of the memory for one.
fn long(session: SessionParameters) -> World {
    let mut world = World::new(4 << 20);
    let config = ServerConfig {
        memory: world.memory.clone(),
        directory: Arc::new(Targets),
        commands_max: 32,
        transfer_max_bytes: LONG,
    };
    world.server = Server::new(config);
    world.admit(1, admitted(session), 1);
    assert_eq!(world.take(1).len(), 1);
    assert!(matches!(world.server.poll_event(), Some(ServerEvent::SessionOpened { .. })));
    world
}

fn rest(from_bytes: u32, end_bytes: u32) -> Option<Rest> {
    (from_bytes < end_bytes).then_some(Rest { from_bytes, end_bytes, medium: 0 })
}

impl World {
    /// A piece is done, with this data; `end` is where the command's data ends.
    fn reply_piece(&mut self, handle: CommandHandle, data: Option<Slice>, from: u32, end: u32) {
        self.server.reply(handle, Reply { rest: rest(from, end), ..Reply::good(data.map(Slices::from)) }, self.now);
    }

    /// Answers each R2T until a command is passed up, and says how much memory that took at the most.
    fn answer_r2ts(&mut self, tag: u32, data: &[u8]) -> usize {
        let mut taken = 0;
        loop {
            let asked: Vec<_> = self.take(1).iter().map(|(header, _)| ReadyToTransfer::read(header)).collect();
            if asked.is_empty() {
                return taken;
            }
            for r2t in asked {
                let (from, to) = (r2t.offset_bytes as usize, (r2t.offset_bytes + r2t.desired_bytes) as usize);
                self.send(1, data_out(tag, r2t.transfer_tag, 0, r2t.offset_bytes, true).write(), &data[from..to]);
                taken = taken.max(self.memory.length_bytes() - self.memory.free_bytes());
            }
        }
    }

    /// Begins a long write and executes its first piece; the second one is asked for.
    fn begin_write(&mut self, tag: u32) -> CommandHandle {
        let number = self.next_number();
        self.send(1, write_command(tag, LONG, number).write(), &[]);
        self.answer_r2ts(tag, &vec![1; PIECE_BYTES]);
        let (handle, _) = self.command();
        self.reply_piece(handle, None, PIECE, LONG);
        handle
    }
}

#[test]
fn a_long_write_is_asked_for_and_executed_piece_by_piece() {
    let mut world = long(parameters());
    let data = pattern(LONG_TRANSFER_MAX_BYTES);
    let number = world.next_number();
    world.send(1, write_command(5, LONG, number).write(), &data[..8192]);
    let mut from = 0;
    while from < LONG {
        assert!(world.answer_r2ts(5, &data) <= PIECE_BYTES, "one piece is in memory");
        let (handle, task) = world.command();
        let piece = task.piece.unwrap();
        assert_eq!((piece.from_bytes, piece.data_out_bytes), (from, LONG));
        let came = task.data_out.unwrap();
        assert!(*came.contiguous() == data[from as usize..][..came.len()], "the piece at {from}");
        from += came.len() as u32;
        drop(came);
        world.reply_piece(handle, None, from, LONG);
    }
    let response = ScsiResponse::read(&world.take_one(1).0);
    assert_eq!((response.status, response.residual_bytes, response.task_tag), (0, 0, 5));
    world.assert_home();
}

#[test]
fn of_a_long_read_no_more_is_asked_for_than_a_connection_may_be_ahead() {
    let mut world = long(SessionParameters { max_burst_bytes: 100_000, ..parameters() });
    let data = pattern(LONG_TRANSFER_MAX_BYTES);
    let number = world.next_number();
    world.send(1, read_command(5, LONG, number).write(), &[]);
    let (mut found, mut data_number, mut is_answered) = (Vec::new(), 0, false);
    while !is_answered {
        // As many as are asked for while nothing leaves the connection.
        let mut pieces = 0;
        while let Some(ServerEvent::Command { handle, task, .. }) = world.server.poll_event() {
            let from = task.piece.unwrap().from_bytes;
            let piece = data[from as usize..][..PIECE_BYTES].to_vec();
            world.reply_piece(handle, Some(piece.into()), from + PIECE, LONG);
            pieces += 1;
        }
        assert!((1..=2).contains(&pieces), "{pieces} pieces at once");
        for (header, part) in world.take(1) {
            let sent = DataIn::read(&header);
            assert_eq!((sent.data_number, sent.offset_bytes as usize), (data_number, found.len()));
            found.extend(part);
            data_number += 1;
            let is_burst_end = found.len() % 100_000 == 0 || found.len() == data.len();
            assert_eq!(sent.is_final, is_burst_end, "at {}", found.len());
            is_answered = sent.has_status;
            if is_answered {
                assert_eq!((sent.status, sent.residual_bytes), (0, 0));
            }
        }
    }
    assert!(found == data);
}

#[test]
fn what_has_begun_is_brought_to_its_end_before_others() {
    let mut world = long(parameters());
    let handles: Vec<CommandHandle> = (5..9).map(|tag| world.read(tag, 4 * PIECE)).collect();
    let piece = || Some(Slice::from(vec![1; PIECE_BYTES]));
    handles.iter().for_each(|handle| world.reply_piece(*handle, piece(), PIECE, 4 * PIECE));
    let mut ended = Vec::new();
    while ended.len() < handles.len() {
        ended
            .extend(world.take(1).iter().filter(|(header, _)| DataIn::read(header).has_status).map(|s| s.0.task_tag()));
        let mut asked = 0;
        while let Some(ServerEvent::Command { handle, task, .. }) = world.server.poll_event() {
            world.reply_piece(handle, piece(), task.piece.unwrap().from_bytes + PIECE, 4 * PIECE);
            asked += 1;
        }
        assert!(asked <= 2, "{asked} at once");
    }
    ended.sort_unstable();
    assert_eq!(ended, [5, 6, 7, 8]);
}

#[test]
fn more_data_than_there_is_room_for_is_cut_and_counted() {
    let mut world = long(parameters());
    let handle = world.read(5, PIECE + 1000);
    let piece = |byte| Some(Slice::from(vec![byte; PIECE_BYTES]));
    world.reply_piece(handle, piece(1), PIECE, 3 * PIECE);
    world.command();
    world.reply_piece(handle, piece(2), 2 * PIECE, 3 * PIECE);
    let sent: Vec<u8> = world.take(1).into_iter().flat_map(|(_, data)| data).collect();
    assert_eq!((sent.len(), sent[PIECE_BYTES]), (PIECE_BYTES + 1000, 2));
    world.command();
    world.reply_piece(handle, piece(3), 3 * PIECE, 3 * PIECE);
    let response = ScsiResponse::read(&world.take_one(1).0);
    assert_eq!((response.overflow, response.residual_bytes), (true, 2 * PIECE - 1000));
}

#[test]
fn a_failure_between_pieces_counts_what_was_sent() {
    let mut world = long(parameters());
    let handle = world.read(5, 4 * PIECE);
    world.reply_piece(handle, Some(vec![1; PIECE_BYTES].into()), PIECE, 4 * PIECE);
    world.command();
    world.take(1);
    let failure = Reply { sense: vec![0x70; 18], ..Reply::bare(Status::CheckCondition) };
    world.server.reply(handle, failure, world.now);
    let response = ScsiResponse::read(&world.take_one(1).0);
    assert_eq!((response.status, response.underflow, response.residual_bytes), (2, true, 3 * PIECE));
    assert_eq!(response.expected_data_number, PIECE / 8192);
}

#[test]
fn a_long_write_is_aborted_between_its_pieces() {
    let mut world = long(parameters());
    let handle = world.begin_write(5);
    let asked = ReadyToTransfer::read(&world.take_one(1).0);
    world.send(1, task_request(1, 9, (5, 1), 2).write(), &[]);
    let (request, function) = world.manage();
    assert_eq!(function, Function::AbortTask(handle), "the layer above has begun it");
    world.server.aborted(handle, world.now);
    world.server.managed(request, ManageOutcome::Complete, world.now);
    assert_eq!(TaskResponse::read(&world.take_one(1).0).response, 0);
    world.send(1, data_out(5, asked.transfer_tag, 0, PIECE, true).write(), &vec![2; asked.desired_bytes as usize]);
    assert!(world.take(1).is_empty() && world.server.poll_event().is_none(), "what was on its way is forgotten");
    world.assert_home();
}

#[test]
fn a_long_write_that_others_end_between_its_pieces_is_answered() {
    let mut world = long(parameters());
    let handle = world.begin_write(5);
    world.take(1);
    world.server.reply(handle, Reply::bare(Status::TaskAborted), world.now);
    assert_eq!(ScsiResponse::read(&world.take_one(1).0).status, Status::TaskAborted as u8);
    world.assert_home();
}

#[test]
fn a_long_write_whose_data_does_not_come_ends_above_too() {
    let mut world = long(parameters());
    let handle = world.begin_write(5);
    world.take(1);
    for _ in 0..200 {
        world.now += Duration::from_secs(1);
        // The initiator answers what it is asked.
        for (header, _) in world.take(1).iter().filter(|sent| sent.0.opcode() == Some(Opcode::NopIn)) {
            let ping = crate::wire::NopIn::read(header);
            let pong = crate::wire::NopOut {
                is_immediate: true,
                is_final: true,
                task_tag: TAG_NONE,
                transfer_tag: ping.transfer_tag,
                ..Default::default()
            };
            world.send(1, pong.write(), &[]);
        }
        world.server.handle_timeout(world.now);
        if let Some(ServerEvent::Manage { function, .. }) = world.server.poll_event() {
            assert_eq!(function, Function::AbandonTask(handle));
            world.server.aborted(handle, world.now);
            assert_eq!(ScsiResponse::read(&world.take_one(1).0).status, 2);
            return world.assert_home();
        }
    }
    panic!("it is waited for without end");
}

#[test]
fn pieces_that_were_sent_are_not_kept() {
    let mut world = long(SessionParameters { error_recovery_level: 1, ..parameters() });
    let handle = world.read(5, 2 * PIECE);
    let frame = || Some(world.memory.frame(PIECE_BYTES).unwrap().freeze());
    let (first, second) = (frame(), frame());
    world.reply_piece(handle, first, PIECE, 2 * PIECE);
    world.command();
    world.reply_piece(handle, second, 2 * PIECE, 2 * PIECE);
    let (status, _) = world.take(1).pop().unwrap();
    assert_eq!(status.opcode(), Some(Opcode::ScsiResponse));
    world.assert_home();
    let snack = SnackRequest { is_final: true, task_tag: 5, transfer_tag: TAG_NONE, ..SnackRequest::default() };
    world.send(1, snack.write(), &[]);
    assert_eq!(rejection(&world.take_one(1)), 3);
    let of_status = SnackRequest { kind: 1, task_tag: TAG_NONE, first: 101, count: 1, ..snack };
    world.send(1, of_status.write(), &[]);
    assert_eq!(ScsiResponse::read(&world.take_one(1).0).task_tag, 5, "the status is");
}

#[test]
fn a_command_in_the_middle_of_its_pieces_ends_with_its_connection() {
    let session = SessionParameters { error_recovery_level: 2, ..parameters() };
    let mut world = long(session);
    world.join(2, 2, session, 1);
    assert_eq!(world.take(2).len(), 1);
    let written = world.begin_write(5);
    let read = world.read(6, LONG);
    world.reply_piece(read, Some(vec![1; PIECE_BYTES].into()), PIECE, LONG);
    world.server.poll_event();
    world.server.connection_lost(ConnectionId(1), world.now);
    let mut ended = [world.manage().1, world.manage().1];
    ended.sort_by_key(|function| matches!(function, Function::AbandonTask(handle) if *handle == read));
    assert_eq!(ended, [Function::AbandonTask(written), Function::AbandonTask(read)]);
    for (tag, handle) in [(5, written), (6, read)] {
        world.server.aborted(handle, world.now);
        let number = world.command_number;
        world.send(2, task_request(8, 20 + tag, (tag, 1), number).write(), &[]);
        assert_eq!(TaskResponse::read(&world.take_one(2).0).response, 1, "there is no such task: it is given again");
    }
    world.assert_home();
}

#[test]
fn what_cannot_go_in_pieces_is_as_short_as_it_was() {
    let mut world = long(parameters());
    for code in [0x89, 0x8b, 0x9c, 0x93, 0x55] {
        let number = world.next_number();
        let mut command = ScsiCommand { is_final: true, ..write_command(5, (1 << 20) + 512, number) };
        command.cdb[0] = code;
        world.send(1, command.write(), &[]);
        let response = ScsiResponse::read(&world.take_one(1).0);
        assert_eq!(response.status, 2, "{code:02x}");
        assert!(world.server.poll_event().is_none());
    }
    let number = world.next_number();
    world.send(1, write_command(6, LONG + 512, number).write(), &[]);
    assert_eq!(ScsiResponse::read(&world.take_one(1).0).status, 2);
    world.assert_home();
}
