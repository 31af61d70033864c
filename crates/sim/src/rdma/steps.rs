//! What happens between two ends, a step at a time.

use std::sync::Arc;

use sanwire_iser::wire::SetUp;
use sanwire_iwarp::{Closed, Ended, Event, Fault, Message, Order, Request, SendKind, Terms, WorkId};

use super::State;
use super::side::{Phase, Post, Reading, Receives, Word};

/// Bytes of private data where zeroes are appended (RoCE): of a request, and of an answer to one.
const PADDED_BYTES: [usize; 2] = [56, 196];

/// Something that may happen next, at or from one end.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// What it says about the connection comes to the other end.
    Word(usize),
    /// What it has posted first is done, or asked for.
    Post(usize),
    /// Its first read is answered.
    Answer(usize),
    /// It can tell something.
    Show(usize),
    /// It has waited in vain for the other end.
    GiveUp(usize),
}

fn is_send(post: &Post) -> bool {
    matches!(post, Post::Order(Order::Send { .. }, ..))
}

impl State {
    pub(super) fn turn(&mut self) -> bool {
        let choices = self.choices();
        if choices.is_empty() {
            return false;
        }
        self.steps += 1;
        match self.random.choose(&choices) {
            Step::Word(from) => self.say(from),
            Step::Post(from) => self.begin_first(from),
            Step::Answer(from) => self.answer_first(from),
            Step::Show(of) => self.show(of),
            Step::GiveUp(of) => {
                self.sides[of].trouble = Some("the other end does not answer any more");
                self.end(of, None, Closed::Lost);
            }
        }
        true
    }

    pub(super) fn choices(&self) -> Vec<Step> {
        let mut choices = Vec::new();
        for (of, side) in self.sides.iter().enumerate() {
            if side.completions.has_hidden() {
                choices.push(Step::Show(of));
            }
            let is_open = side.phase == Phase::Open && self.sides[1 - of].phase == Phase::Open;
            if side.phase == Phase::Ended {
                continue;
            }
            if self.is_cut {
                // Who has asked or answered learns that nothing comes of it; who was never asked has nothing to learn.
                let is_asked = of == 0 || side.phase == Phase::Open || !side.words.is_empty();
                if is_asked && !side.is_established || !side.queue.is_empty() || !side.reads.is_empty() {
                    choices.push(Step::GiveUp(of));
                }
                continue;
            }
            if !side.words.is_empty() {
                choices.push(Step::Word(of));
            }
            if is_open && side.queue.front().is_some_and(|post| self.can_begin(of, post)) {
                choices.push(Step::Post(of));
            }
            if is_open && !side.reads.is_empty() {
                choices.push(Step::Answer(of));
            }
        }
        choices
    }

    fn can_begin(&self, from: usize, post: &Post) -> bool {
        let other = &self.sides[1 - from];
        let is_there = || match &other.receives {
            Receives::Own(posted) => !posted.is_empty() || !other.plan.waits_for_receives,
            Receives::Shared(..) => other.adapter.has_receive(&self.own),
        };
        !is_send(post) || is_there()
    }

    fn show(&mut self, of: usize) {
        let side = &mut self.sides[of];
        side.completions.show(&mut self.random);
        side.is_call_due = true;
    }

    fn say(&mut self, from: usize) {
        let (to, pads) = (1 - from, self.sides[1 - from].plan.pads);
        let padded = |mut said: Vec<u8>| {
            said.resize(if pads { PADDED_BYTES[from] } else { said.len() }, 0);
            said
        };
        match self.sides[from].words.pop_front() {
            Some(Word::Request) if self.sides[to].phase != Phase::Opening => {
                self.sides[from].trouble = Some("nobody listens there");
                self.end(from, None, Closed::Lost);
            }
            Some(Word::Request) => {
                let plan = self.sides[from].plan;
                let own = SetUp { has_addresses: true, lacks_invalidation: !plan.invalidates };
                let private_data = padded(own.write().to_vec());
                let request =
                    Request { private_data, ird: Some(plan.ird), ord: Some(plan.ord), is_peer_to_peer: false };
                self.sides[to].phase = Phase::Deciding;
                self.sides[to].completions.push(Event::Requested(request));
            }
            Some(Word::Accept(said)) => {
                self.open(to, padded(said));
                self.sides[from].words.push_back(Word::Ready);
            }
            Some(Word::Reject(said)) => {
                self.end(from, None, Closed::Refused);
                self.end_with(to, [Event::Rejected(padded(said))], Closed::Refused);
            }
            Some(Word::Ready) => {
                let terms = self.terms(from, Vec::new());
                self.sides[from].completions.push(Event::Connected(terms));
            }
            None => {}
        }
    }

    /// The end that has asked is told that the other one wants it, too: from now on what is posted passes.
    fn open(&mut self, of: usize, said: Vec<u8>) {
        for side in 0..2 {
            let terms = self.terms(side, Vec::new());
            self.sides[side].reads_max = self.sides[side].reads_max.min(terms.ord);
            self.sides[side].phase = Phase::Open;
        }
        let terms = self.terms(of, said);
        self.sides[of].completions.push(Event::Connected(terms));
    }

    fn terms(&self, of: usize, private_data: Vec<u8>) -> Terms {
        let (own, other) = (self.sides[of].plan, self.sides[1 - of].plan);
        let (ird, ord) = (own.ird.min(other.ord), own.ord.min(other.ird));
        Terms { revision: 0, crc: false, is_peer_to_peer: false, ird, ord, private_data }
    }

    fn begin_first(&mut self, from: usize) {
        let other = &self.sides[1 - from];
        let takes_shared = other.shares() && self.sides[from].queue.front().is_some_and(is_send);
        if takes_shared && !other.adapter.take_receive() {
            // Another connection was faster.
            return;
        }
        match self.sides[from].queue.pop_front() {
            Some(Post::Order(order, id, bound)) => {
                let windows = &mut self.sides[from].windows;
                for stag in bound {
                    windows.get_mut(&stag).into_iter().for_each(|window| window.is_valid = true);
                }
                self.carry_out(from, order, id);
            }
            Some(Post::Read(reading)) => {
                self.sides[from].reads.push_back(reading);
                if self.sides[from].reads.len() > usize::from(self.sides[1 - from].plan.ird) {
                    self.break_off(from, Fault::NoBuffer);
                }
            }
            None => {}
        }
    }

    fn carry_out(&mut self, from: usize, order: Order, id: WorkId) {
        let other = &mut self.sides[1 - from];
        let done = match &order {
            Order::Write { stag, offset, data } => other.write(*stag, *offset, &data.contiguous()),
            Order::Send { kind, head, data } => {
                let bytes = [&head[..], &data.as_ref().map_or(Vec::new(), |data| data.to_vec())].concat();
                self.receive(1 - from, *kind, bytes)
            }
        };
        match done {
            Ok(()) => self.sides[from].completions.push_sent(id, order),
            Err(fault) => {
                self.sides[from].kept.push(Post::Order(order, id, Vec::new()));
                self.break_off(from, fault);
            }
        }
    }

    fn receive(&mut self, to: usize, kind: SendKind, bytes: Vec<u8>) -> Result<(), Fault> {
        let side = &mut self.sides[to];
        let room = match &mut side.receives {
            Receives::Own(posted) => posted.pop_front().ok_or(Fault::NoBuffer)?,
            Receives::Shared(_, longest_bytes) => *longest_bytes,
        };
        let is_short = if bytes.len() > room { Err(Fault::TooLong) } else { Ok(()) };
        let is_fine = is_short.and_then(|()| kind.invalidate.map_or(Ok(()), |stag| side.invalidate(stag)));
        if is_fine.is_err() && side.shares() {
            let woken = side.adapter.give_back(1);
            self.woken.extend(woken);
        }
        is_fine?;
        let side = &mut self.sides[to];
        let message = Message { buffer: bytes.into(), is_solicited: kind.solicited, invalidated: kind.invalidate };
        side.completions.push(Event::Message(message));
        Ok(())
    }

    /// A message is told of, and its receive posted again where it is shared: there who has sent more than it may loses its connection.
    pub(super) fn may_have_message(&mut self, of: usize) -> bool {
        let side = &mut self.sides[of];
        let Receives::Shared(left, _) = &mut side.receives else { return true };
        let is_allowed = *left > 0;
        *left -= usize::from(is_allowed);
        let beyond = if is_allowed { 0 } else { side.completions.drop_messages() };
        let woken = side.adapter.give_back(1 + beyond);
        self.woken.extend(woken);
        if !is_allowed {
            self.break_off(1 - of, Fault::NoBuffer);
        }
        is_allowed
    }

    /// An end is gone: what it has had of receives that others share, and has not told of, goes back to them.
    pub(super) fn give_back_receives(&mut self, of: usize) {
        let side = &mut self.sides[of];
        if side.shares() {
            let untold = side.kept_untold.iter().filter(|completion| completion.is_message()).count();
            let count = side.completions.drop_messages() + untold;
            let woken = side.adapter.give_back(count);
            self.woken.extend(woken);
        }
    }

    fn answer_first(&mut self, from: usize) {
        let Some(mut reading) = self.sides[from].reads.pop_front() else { return };
        let place = &mut reading.frame[reading.part.clone()];
        match self.sides[1 - from].read(reading.stag, reading.address, place) {
            Ok(()) => {
                let Reading { id, frame, part, .. } = reading;
                self.sides[from].moved_bytes += part.len() as u64;
                self.sides[from].completions.push(Event::ReadDone { id, frame });
            }
            Err(fault) => {
                self.sides[from].kept.push(Post::Read(reading));
                self.break_off(from, fault);
            }
        }
    }

    /// An end has broken a rule at the other one.
    fn break_off(&mut self, by: usize, fault: Fault) {
        self.end(by, Some(Ended::ByPeer(Some(fault))), Closed::Terminated);
        self.end(1 - by, Some(Ended::ByUs(fault)), Closed::Terminated);
    }

    pub(super) fn end(&mut self, of: usize, terminated: Option<Ended>, closed: Closed) {
        self.end_with(of, terminated.map(Event::Terminated), closed);
    }

    /// An end has ended. Of what has happened some is not told any more; what was given is kept.
    fn end_with(&mut self, of: usize, last: impl IntoIterator<Item = Event>, closed: Closed) {
        let side = &mut self.sides[of];
        if side.phase == Phase::Ended {
            return;
        }
        (side.phase, side.is_established) = (Phase::Ended, false);
        side.words.clear();
        side.kept.extend(side.queue.drain(..));
        side.kept.extend(side.reads.drain(..).map(Post::Read));
        side.kept_untold.extend(side.completions.lose_some(&mut self.random));
        last.into_iter().for_each(|event| side.completions.push(event));
        side.completions.push(Event::Closed(closed));
    }

    /// An end wants no more.
    pub(super) fn part(&mut self, of: usize) {
        if !self.is_cut && matches!(self.sides[of].words.front(), Some(Word::Reject(_))) {
            // A refusal has gone out.
            self.say(of);
        }
        self.end(of, None, Closed::ByUs);
        let other = &mut self.sides[1 - of];
        let is_unheard = other.phase == Phase::Opening && (of == 0 || !other.words.is_empty());
        if self.is_cut || is_unheard {
            return;
        }
        if other.phase == Phase::Opening {
            other.trouble = Some("nobody listens there");
        }
        self.end(1 - of, None, Closed::ByPeer);
    }

    pub(super) fn cut(&mut self, is_noticed_by: [bool; 2]) {
        self.is_cut = true;
        for of in (0..2).filter(|of| is_noticed_by[*of]) {
            if self.sides[of].phase != Phase::Ended {
                self.sides[of].trouble = Some("the link to the other end is gone");
            }
            self.end(of, None, Closed::Lost);
        }
    }

    /// Who is to be told that an end has something to tell.
    pub(super) fn due_calls(&mut self) -> Vec<Arc<dyn Fn() + Send + Sync>> {
        let due = self.sides.iter_mut().filter_map(|side| {
            let is_due = std::mem::take(&mut side.is_call_due);
            side.on_ready.clone().filter(|_| is_due)
        });
        due.collect()
    }
}
