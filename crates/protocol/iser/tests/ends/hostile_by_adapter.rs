//! One of our ends by an adapter, and somebody at the other one who breaks the rules, or dies.

mod initiators;

use sanwire_buffer::{Frame, Region, Slice};
use sanwire_iscsi::wire::{DataIn, Header, NopIn, NopOut, ReadyToTransfer, ScsiCommand, ScsiResponse, TAG_NONE};
use sanwire_iscsi::{ConnectionParameters, Datamover, Lent, Step};
use sanwire_iser::wire::{IserHeader, SetUp, Window};
use sanwire_iser::{QueuePair, initiator_by, target_by};
use sanwire_iwarp::{Closed, Event, Message, Order, Refusal, Registration, SendKind, Stag, WorkId};
use sanwire_sim::rdma::{Adapter, AdapterPlan, Cable, End, Pace, connect, connect_by};

use super::pair::message;

pub const LENGTH: usize = 8192;

/// What our end takes at once when 32 commands may be under way.
pub const CREDITS: usize = 32 + 64;

pub struct Bare {
    pub ours: Box<dyn Datamover>,
    pub theirs: End,
    cable: Cable,
    told: Vec<Event>,
    orders: u64,
}

impl Bare {
    fn of_target(plan: AdapterPlan) -> Bare {
        Bare::target_on(&[plan; 2].map(Adapter::new))
    }

    fn of_initiator(plan: AdapterPlan) -> Bare {
        Bare::initiator_on(&[plan; 2].map(Adapter::new))
    }

    /// Our target by the second of these adapters.
    pub fn target_on(adapters: &[Adapter; 2]) -> Bare {
        let (theirs, ours, cable) = connect_by(adapters, Pace::AtOnce, 1);
        Bare { ours: target_by(Box::new(ours)), theirs, cable, told: Vec::new(), orders: 0 }.connected()
    }

    /// Our initiator by the first of these adapters.
    pub fn initiator_on(adapters: &[Adapter; 2]) -> Bare {
        let (ours, theirs, cable) = connect_by(adapters, Pace::AtOnce, 1);
        Bare { ours: initiator_by(Box::new(ours)), theirs, cable, told: Vec::new(), orders: 0 }.connected()
    }

    /// Until nothing passes any more.
    fn settle(&mut self) {
        while self.cable.turn() {
            self.pass();
        }
    }

    fn connected(mut self) -> Bare {
        self.theirs.expect_messages(200, 9000);
        self.pass();
        if matches!(self.told.last(), Some(Event::Requested(_))) {
            self.theirs.accept(&SetUp { has_addresses: true, lacks_invalidation: false }.write()).expect("a request");
        }
        self.pass();
        assert!(self.theirs.is_established(), "{:?}", self.told);
        self.ours.begin(&ConnectionParameters { receive_data_max_bytes: 1024, ..ConnectionParameters::default() }, 32);
        self
    }

    /// Our end hears of what there is, and hands down what it has to send.
    pub fn pass(&mut self) {
        for _ in 0..4 {
            self.ours.filled(0);
            assert!(self.ours.pop().is_none());
            self.told.extend(std::iter::from_fn(|| self.theirs.poll_event()));
        }
    }

    /// The bare end sends a message; whether its adapter takes it.
    pub fn post(&mut self, bytes: Vec<u8>, invalidate: Option<Stag>) -> Result<(), Refusal> {
        self.orders += 1;
        let order = Order::Send { kind: SendKind { solicited: true, invalidate }, head: bytes.into(), data: None };
        self.theirs.order(order, Some(WorkId(self.orders))).map_err(|refused| refused.refusal)
    }

    pub fn say(&mut self, bytes: Vec<u8>, invalidate: Option<Stag>) {
        self.post(bytes, invalidate).expect("room");
        self.pass();
    }

    pub fn write(&mut self, Window { stag, offset }: Window, data: &[u8]) {
        self.orders += 1;
        let order = Order::Write { stag, offset, data: Slice::from(data.to_vec()).into() };
        self.theirs.order(order, Some(WorkId(self.orders))).expect("room");
        self.pass();
    }

    /// What our initiator opens for a READ, or for a WRITE.
    pub fn window_of(&mut self, task_tag: u32, is_read: bool) -> Window {
        let data = Lent { data: Slice::from(vec![5; LENGTH]), unsolicited_bytes: 0 };
        let (data_in, data_out) =
            if is_read { (Some(Frame::from(vec![0xaa; LENGTH])), None) } else { (None, Some(data)) };
        assert!(self.ours.lend(task_tag, data_in, data_out).is_none());
        let command = ScsiCommand {
            is_final: true,
            is_read,
            is_write: !is_read,
            task_tag,
            expected_bytes: LENGTH as u32,
            ..ScsiCommand::default()
        };
        self.ours.push(command.write(), None);
        self.pass();
        let message = self.told.iter().rev().find_map(|event| match event {
            Event::Message(Message { buffer, .. }) => Some(buffer),
            _ => None,
        });
        match IserHeader::read(message.expect("a command").first_chunk().expect("a header")) {
            Some(IserHeader::Control { write, read }) => read.or(write).expect("memory"),
            other => panic!("{other:?}"),
        }
    }

    pub fn is_torn(&mut self) -> bool {
        self.pass();
        matches!(self.ours.poll(), Step::Torn) && matches!(self.ours.poll(), Step::Torn)
    }
}

fn plain(header: Header) -> Vec<u8> {
    message(IserHeader::PLAIN, header, &[])
}

pub fn ping() -> Vec<u8> {
    plain(NopOut { is_immediate: true, is_final: true, transfer_tag: TAG_NONE, ..NopOut::default() }.write())
}

pub fn response(task_tag: u32) -> Vec<u8> {
    plain(ScsiResponse { is_final: true, task_tag, ..ScsiResponse::default() }.write())
}

/// RDMA has no stream that nobody reads from: what is not looked at is less that may come.
#[test]
fn no_more_messages_come_than_were_allowed_as_long_as_nobody_looks() {
    let plan = AdapterPlan { waits_for_receives: true, queue_max: 2000, ..AdapterPlan::plain() };
    let mut bare = Bare::of_target(plan);
    let before = bare.cable.steps();
    (0..1000).for_each(|_| bare.say(ping(), None));
    let came = bare.ours.carried().expect("an adapter").received_bytes as usize / ping().len();
    assert_eq!(came, CREDITS);
    assert!(bare.cable.steps() > before && bare.ours.movement().rdma.is_some_and(|rdma| rdma.credits == 0));
    let mut got = 0;
    loop {
        match bare.ours.poll() {
            Step::Pdu(_) => got += 1,
            Step::Starving if got < 1000 => bare.pass(),
            Step::Starving => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((got, bare.ours.movement().rdma.map(|rdma| rdma.credits)), (1000, Some(CREDITS as u64)));
}

#[test]
fn who_sends_more_than_was_allowed_loses_its_connection_where_nothing_waits() {
    let mut bare = Bare::of_target(AdapterPlan { queue_max: 2000, ..AdapterPlan::plain() });
    for _ in 0..CREDITS {
        bare.say(ping(), None);
    }
    assert!(bare.theirs.is_established());
    bare.say(ping(), None);
    let got = std::iter::from_fn(|| matches!(bare.ours.poll(), Step::Pdu(_)).then_some(())).count();
    // What the adapter has not told is gone with the connection.
    assert!(got <= CREDITS && bare.is_torn() && bare.ours.has_failed(), "{got}");
    assert!(bare.ours.trouble().is_some_and(|trouble| trouble.contains("no buffer")), "{:?}", bare.ours.trouble());
}

#[test]
fn a_message_that_is_longer_than_was_agreed_ends_the_connection() {
    let mut bare = Bare::of_target(AdapterPlan::plain());
    let long = message(IserHeader::PLAIN, NopOut { is_final: true, ..NopOut::default() }.write(), &[0; 9000]);
    bare.say(long, None);
    assert!(bare.is_torn());
}

#[test]
fn who_closes_memory_that_is_not_of_its_command_is_left() {
    for is_known in [true, false] {
        let mut bare = Bare::of_initiator(AdapterPlan::plain());
        let windows = [5, 6].map(|tag| bare.window_of(tag, true));
        let stag = if is_known { windows[1].stag } else { Stag(windows[1].stag.0 ^ 0x100_0000) };
        bare.say(response(5), Some(stag));
        assert!(bare.is_torn());
        let frames = bare.ours.withdraw();
        assert!(frames.len() == 2 && frames.iter().all(|(_, frame)| frame.iter().all(|byte| *byte == 0)));
    }
}

/// An adapter whose keys are plain memory regions does not learn that one has ended.
#[test]
fn nothing_is_closed_from_afar_where_an_adapter_cannot_do_that() {
    for invalidates in [true, false] {
        let mut bare = Bare::of_initiator(AdapterPlan { invalidates, ..AdapterPlan::plain() });
        let Some(Event::Requested(request)) = bare.told.first() else { panic!("{:?}", bare.told) };
        assert_eq!(SetUp::read(&request.private_data).lacks_invalidation, !invalidates);
        let window = bare.window_of(5, true);
        bare.write(window, &[7; LENGTH]);
        bare.say(response(5), Some(window.stag).filter(|_| invalidates));
        let Step::Pdu(pdu) = bare.ours.poll() else { panic!("no data") };
        assert!(pdu.data.is_some_and(|frame| frame.iter().all(|byte| *byte == 7)));
        assert_eq!(bare.ours.movement().rdma.map(|rdma| (rdma.stags, rdma.stags_ever)), Some((0, 1)));
    }
}

#[test]
fn nothing_is_written_beyond_memory_that_is_open_or_when_it_is_closed() {
    for (offset, length, is_closed) in [(1, LENGTH, false), (LENGTH as u64, 1, false), (0, 10, true)] {
        let mut bare = Bare::of_initiator(AdapterPlan::plain());
        let window = bare.window_of(5, true);
        let frame = is_closed.then(|| bare.ours.recall(5).expect("the frame"));
        bare.write(Window { offset: window.offset + offset, ..window }, &vec![1; length]);
        assert!(bare.is_torn(), "{offset} {length}");
        let frame = frame.unwrap_or_else(|| bare.ours.withdraw().remove(0).1);
        assert!(frame.iter().all(|byte| *byte == 0), "{offset} {length}");
    }
}

/// No adapter knows how much was written: whatever a target says, what somebody else has had there is not taken for its data.
#[test]
fn what_was_in_memory_before_is_never_data() {
    for written in [0, 100, LENGTH] {
        let mut bare = Bare::of_initiator(AdapterPlan::plain());
        let window = bare.window_of(5, true);
        bare.write(window, &vec![7; written]);
        bare.say(response(5), None);
        let Step::Pdu(pdu) = bare.ours.poll() else { panic!("no data") };
        let frame = pdu.data.expect("its frame");
        assert!(
            frame[..written].iter().all(|byte| *byte == 7) && frame[written..].iter().all(|byte| *byte == 0),
            "{written}"
        );
    }
}

#[test]
fn data_that_is_to_be_read_is_not_written() {
    let mut bare = Bare::of_initiator(AdapterPlan::plain());
    let window = bare.window_of(5, false);
    bare.write(window, &[1; 10]);
    assert!(bare.is_torn());
}

#[test]
fn messages_that_say_nothing_end_the_connection() {
    let ping = plain(NopIn { task_tag: TAG_NONE, ..NopIn::default() }.write());
    for bytes in [Vec::new(), vec![0; 76], ping[..27].to_vec(), ping[..75].to_vec()] {
        let mut bare = Bare::of_initiator(AdapterPlan::plain());
        bare.window_of(5, true);
        bare.say(bytes, None);
        assert!(bare.is_torn());
        bare.pass();
        assert!(matches!(bare.told.last(), Some(Event::Closed(Closed::ByPeer))), "{:?}", bare.told);
        assert_eq!(bare.ours.withdraw().len(), 1);
    }
}

/// An adapter has received more by then.
#[test]
fn nothing_comes_after_what_has_ended_a_connection() {
    let mut bare = Bare::of_target(AdapterPlan::plain());
    bare.say(vec![0; 76], None);
    bare.post(ping(), None).expect("room");
    assert!(matches!(bare.ours.poll(), Step::Torn));
    assert!(bare.is_torn());
}

/// A connection that dies while its adapter reads into a frame: that could still be written to.
#[test]
fn a_frame_into_which_an_adapter_reads_is_not_given_again_before_its_end_is_gone() {
    let memory = Region::new(1 << 20).expect("memory");
    let (theirs, ours, cable) = connect([AdapterPlan::plain(); 2], Pace::ByTurns, 1);
    let mut bare = Bare { ours: target_by(Box::new(ours)), theirs, cable: cable.clone(), told: Vec::new(), orders: 0 };
    let settle = |bare: &mut Bare| {
        while cable.turn() {
            bare.pass();
        }
    };
    bare.theirs.expect_messages(10, 9000);
    settle(&mut bare);
    let data = Registration::of_slices(vec![5; LENGTH].into());
    let (stag, offset) = bare.theirs.register(data).expect("a window");
    let command = ScsiCommand {
        is_final: true,
        is_write: true,
        task_tag: 9,
        expected_bytes: LENGTH as u32,
        ..Default::default()
    };
    let control = IserHeader::Control { write: Some(Window { stag, offset }), read: None };
    bare.post(message(control, command.write(), &[]), None).expect("room");
    settle(&mut bare);
    assert!(matches!(bare.ours.poll(), Step::Pdu(_)));
    let ready = ReadyToTransfer { is_final: true, task_tag: 9, desired_bytes: LENGTH as u32, ..Default::default() };
    let frame = memory.frame(LENGTH).expect("room");
    let left = memory.free_bytes();
    assert!(bare.ours.get_data(&ready.write(), frame, 0).is_ok());
    cable.cut([true, true]);
    settle(&mut bare);
    assert!(bare.is_torn() && bare.ours.withdraw().is_empty());
    assert_eq!(memory.free_bytes(), left, "the adapter has it");
    drop(bare);
    assert_eq!(memory.free_bytes(), 1 << 20);
}

/// Who has a command ended on another connection closes its memory then: what is written there later would cost this one.
#[test]
fn what_is_written_for_a_command_that_is_over_is_waited_for() {
    for is_answered in [false, true] {
        let (theirs, ours, cable) = connect([AdapterPlan::plain(); 2], Pace::ByTurns, 1);
        let mut bare =
            Bare { ours: target_by(Box::new(ours)), theirs, cable: cable.clone(), told: Vec::new(), orders: 0 };
        bare.theirs.expect_messages(10, 9000);
        bare.settle();
        let (stag, offset) = bare.theirs.register(Registration::of_frame(vec![0; LENGTH].into())).expect("a window");
        let expected_bytes = LENGTH as u32;
        let command = ScsiCommand { is_final: true, is_read: true, task_tag: 9, expected_bytes, ..Default::default() };
        let control = IserHeader::Control { write: None, read: Some(Window { stag, offset }) };
        bare.post(message(control, command.write(), &[]), None).expect("room");
        bare.settle();
        assert!(matches!(bare.ours.poll(), Step::Pdu(_)));
        // A piece of its data, with the answer or without.
        let piece = DataIn { task_tag: 9, transfer_tag: TAG_NONE, has_status: is_answered, ..DataIn::default() };
        bare.ours.push(piece.write(), Some(Slice::from(vec![7; 100]).into()));
        assert!(bare.ours.pop().is_none() && bare.ours.reaches_for_ended() == is_answered);
        bare.ours.forget(9);
        assert!(bare.ours.reaches_for_ended());
        bare.settle();
        assert!(!bare.ours.reaches_for_ended());
    }
}

#[test]
fn an_initiator_that_reaches_nobody_says_so() {
    let (ours, theirs, _cable) = connect([AdapterPlan::plain(); 2], Pace::AtOnce, 1);
    drop(theirs);
    let mut ours = initiator_by(Box::new(ours));
    ours.filled(0);
    assert!(matches!(ours.poll(), Step::Torn) && ours.has_failed());
    assert_eq!(ours.trouble(), Some("nobody listens there".to_owned()));
}
