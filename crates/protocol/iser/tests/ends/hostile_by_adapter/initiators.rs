//! Our target by an adapter, and an initiator whose memory is not what it says, that opens too much of it, or says too little.

use sanwire_core::Instant;
use sanwire_iscsi::ConnectionId;
use sanwire_iscsi::wire::{DataIn, LoginRequest};

use super::super::host::{End as HostEnd, Host};
use super::super::world::MEMORY_BYTES;
use super::*;

/// What is wrong with memory that an initiator says it has opened.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Lie {
    /// Nothing.
    None,
    /// There is no such key.
    NoKey,
    /// It is a byte shorter than the command's data.
    TooShort,
    /// It is not to be reached in this way.
    NoRight,
    /// It was closed again.
    Closed,
}

const LIES: [Lie; 4] = [Lie::NoKey, Lie::TooShort, Lie::NoRight, Lie::Closed];

impl Bare {
    /// Memory of an initiator for a command that reads or writes.
    fn memory(&mut self, is_read: bool, lie: Lie) -> Window {
        if lie == Lie::NoKey {
            return Window { stag: Stag(0x77_7700), offset: 0x7f00_0000_0000 };
        }
        let length = LENGTH - usize::from(lie == Lie::TooShort);
        let is_writable = is_read != (lie == Lie::NoRight);
        let registration = if is_writable {
            Registration::of_frame(vec![0; length].into())
        } else {
            Registration::of_slices(vec![5; length].into())
        };
        let (stag, offset) = self.theirs.register(registration).expect("a window");
        if lie == Lie::Closed {
            assert!(self.theirs.deregister(stag).is_some());
        }
        Window { stag, offset }
    }

    /// A command for which memory is open.
    fn give(&mut self, task_tag: u32, is_read: bool, window: Window) {
        let expected_bytes = LENGTH as u32;
        let command =
            ScsiCommand { is_final: true, is_read, is_write: !is_read, task_tag, expected_bytes, ..Default::default() };
        let control =
            IserHeader::Control { read: Some(window).filter(|_| is_read), write: Some(window).filter(|_| !is_read) };
        self.say(message(control, command.write(), &[]), None);
    }

    /// Our target moves the data of a command.
    fn go(&mut self, task_tag: u32, is_read: bool, frame: Frame) {
        if is_read {
            let data = DataIn { is_final: true, task_tag, ..DataIn::default() };
            self.ours.push(data.write(), Some(frame.freeze().into()));
        } else {
            let desired_bytes = LENGTH as u32;
            let ready = ReadyToTransfer { is_final: true, task_tag, desired_bytes, ..ReadyToTransfer::default() };
            assert!(self.ours.get_data(&ready.write(), frame, 0).is_ok());
        }
        self.pass();
    }
}

#[test]
fn memory_that_is_not_what_was_said_ends_the_connection_and_costs_none_here() {
    for is_read in [true, false] {
        for lie in LIES.into_iter().chain([Lie::None]) {
            let memory = Region::new(1 << 20).expect("memory");
            let mut bare = Bare::of_target(AdapterPlan::plain());
            let window = bare.memory(is_read, lie);
            bare.give(9, is_read, window);
            assert!(matches!(bare.ours.poll(), Step::Pdu(_)), "{lie:?}");
            bare.go(9, is_read, memory.frame(LENGTH).expect("room"));
            if lie == Lie::None {
                assert!(bare.theirs.is_established() && !bare.ours.has_failed());
                continue;
            }
            assert!(bare.is_torn() && bare.ours.has_failed(), "{lie:?}, reads: {is_read}");
            let refused = bare.told.iter().any(|event| matches!(event, Event::Terminated(_)));
            assert!(refused, "the initiator's adapter has ended it: {:?}", bare.told);
            drop(bare);
            assert_eq!(memory.free_bytes(), 1 << 20, "{lie:?}, reads: {is_read}");
        }
    }
}

#[test]
fn memory_of_four_thousand_commands_is_not_kept() {
    for is_read in [true, false] {
        let mut bare = Bare::of_target(AdapterPlan { queue_max: 5000, ..AdapterPlan::plain() });
        let mut taken = 0;
        for tag in 0..4000 {
            if !bare.theirs.is_established() {
                break;
            }
            bare.give(tag, is_read, Window { stag: Stag(tag << 8), offset: 0x7f00_0000_0000 });
            taken += usize::from(matches!(bare.ours.poll(), Step::Pdu(_)));
            bare.pass();
        }
        assert!(bare.is_torn() && (1000..1100).contains(&taken), "{taken}");
    }
}

#[test]
fn messages_that_say_nothing_end_the_connection_to_a_target() {
    let whole = message(IserHeader::PLAIN, NopOut { is_immediate: true, ..NopOut::default() }.write(), &[0; 20]);
    for length in [0, 1, 27, 28, 75, 76, 95] {
        let mut bare = Bare::of_target(AdapterPlan::plain());
        bare.say(whole[..length].to_vec(), None);
        assert!(bare.is_torn(), "{length}");
        bare.pass();
        assert!(matches!(bare.told.last(), Some(Event::Closed(Closed::ByPeer))), "{:?}", bare.told);
    }
    let mut bare = Bare::of_target(AdapterPlan::plain());
    bare.say(whole, None);
    assert!(matches!(bare.ours.poll(), Step::Header(_)), "all of it says something");
}

/// A target ends no memory that the initiator counts as its own: what is not there to be ended costs this connection.
#[test]
fn an_answer_that_ends_a_key_of_an_initiator_that_is_none_costs_one_connection() {
    let mut bare = Bare::of_target(AdapterPlan::plain());
    let window = bare.memory(true, Lie::Closed);
    bare.give(9, true, window);
    assert!(matches!(bare.ours.poll(), Step::Pdu(_)));
    bare.ours.push(ScsiResponse { is_final: true, task_tag: 9, ..ScsiResponse::default() }.write(), None);
    bare.pass();
    assert!(bare.is_torn() && bare.ours.has_failed());
}

/// CVE-2026-53176: the first message is a login that is cut short, and nothing behind it is read.
#[test]
fn a_login_that_is_cut_short_is_refused_and_the_next_one_is_not() {
    const ID: ConnectionId = ConnectionId(1);
    let text = format!(
        "InitiatorName=iqn.2026-11.org.raw:x\0TargetName={}\0SessionType=Normal\0",
        super::super::world::name()
    );
    let text = format!("{text}RDMAExtensions=Yes\0");
    let login = LoginRequest {
        is_immediate: true,
        transits: true,
        current_stage: 1,
        next_stage: 3,
        isid: [0x80, 0, 0, 0, 0, 9],
        command_number: 1,
        ..LoginRequest::default()
    };
    let whole = message(IserHeader::PLAIN, login.write(), text.as_bytes());
    for length in [0, 1, 11, 12, 27, 28, 40, 59, 60, 75, 76, 77, whole.len() - 1, whole.len()] {
        let (mut host, now) = (Host::new(), Instant::from_nanos(1));
        let (mut theirs, ours, _cable) = connect([AdapterPlan::plain(); 2], Pace::AtOnce, 1);
        host.open_over(ID, target_by(Box::new(ours)), now);
        theirs.expect_messages(20, 9000);
        let pass = |host: &mut Host, theirs: &mut End| {
            (0..4).for_each(|_| {
                host.ready(ID, now);
                while theirs.poll_event().is_some() {}
            });
        };
        pass(&mut host, &mut theirs);
        let kind = SendKind { solicited: true, invalidate: None };
        let order = Order::Send { kind, head: whole[..length].to_vec().into(), data: None };
        theirs.order(order, Some(WorkId(1))).expect("room");
        pass(&mut host, &mut theirs);
        let is_admitted = matches!(host.ends[&ID], HostEnd::Admitted);
        assert_eq!(is_admitted, length == whole.len(), "{length}");
        assert_eq!((host.refusals.len(), host.closed.len()), if is_admitted { (0, 0) } else { (1, 1) }, "{length}");
        assert_eq!(host.memory.free_bytes(), MEMORY_BYTES, "{length}");
    }
}
